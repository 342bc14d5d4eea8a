#include "analysis/explain/parts.h"

#include <cmath>
#include <string>

#include "absl/status/statusor.h"
#include "analysis/fit/fit.h"
#include "models/schedule/schedule.h"
#include "models/stats/stats.h"

namespace paceline {

std::vector<std::pair<const char*, double>> IterationParts::List() const {
  return {{"forward", forward_seconds},
          {"backward", backward_seconds},
          {"exposed communication", exposed_communication_seconds},
          {"input wait", input_wait_seconds},
          {"copy", copy_seconds},
          {"update", update_seconds},
          {"other", other_seconds}};
}

IterationParts MeasuredParts(const MergedTrial& trial) {
  IterationParts parts;
  std::vector<double> all;
  for (const MergedRepeat& repeat : trial.repeats) {
    all.insert(all.end(), repeat.iteration_seconds.begin(), repeat.iteration_seconds.end());
  }
  if (!trial.ok || all.empty()) return parts;
  parts.iteration_seconds = Median(all);
  const double low = Quantile(all, 0.25), high = Quantile(all, 0.75);
  double sums[kPhaseCount] = {};
  double count = 0;
  for (const MergedRepeat& repeat : trial.repeats) {
    for (size_t i = 0; i < repeat.iteration_seconds.size(); ++i) {
      if (repeat.iteration_seconds[i] < low || repeat.iteration_seconds[i] > high) continue;
      for (int phase = 0; phase < kPhaseCount; ++phase) {
        sums[phase] += repeat.phase_seconds[phase][i];
      }
      ++count;
    }
  }
  const auto mean = [&](Phase phase) {
    const double value = sums[static_cast<int>(phase)] / count;
    return std::isfinite(value) ? value : 0;
  };
  parts.forward_seconds = mean(Phase::kForward);
  parts.backward_seconds = mean(Phase::kBackward);
  parts.exposed_communication_seconds = mean(Phase::kExposedCommunication);
  parts.input_wait_seconds = mean(Phase::kInputWait);
  // Where the schedule is not known (an external framework), only phases that surely are the
  // compute stream's own count.
  absl::StatusOr<IterationSchedule> schedule = CompileTrial(trial.trial);
  if (schedule.ok()) {
    for (const Operation& operation : schedule->operations) {
      if (schedule->streams[operation.stream].kind != StreamKind::kCompute) continue;
      if (operation.kind == OperationKind::kCopyInput) parts.copy_seconds = mean(Phase::kCopy);
      if (operation.kind == OperationKind::kUpdate) parts.update_seconds = mean(Phase::kUpdate);
    }
  }
  parts.other_seconds = parts.iteration_seconds;
  for (const auto& part : parts.List()) {
    if (std::string(part.first) != "other") parts.other_seconds -= part.second;
  }
  return parts;
}

}  // namespace paceline
