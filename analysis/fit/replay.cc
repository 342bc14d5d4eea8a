// Schedules of trials, and their simulation with measured operation times.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/fit/fit.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"

namespace paceline {

absl::StatusOr<IterationSchedule> CompileTrial(const v1::Trial& trial) {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.network());
  if (!shaped.ok()) return shaped.status();
  return CompileSchedule(*shaped, trial.policy(), trial.cluster(), trial.batch_per_device());
}

absl::StatusOr<std::vector<double>> MeasuredOperationSeconds(const IterationSchedule& schedule,
                                                             const v1::TrialResult& rank) {
  std::map<std::tuple<std::string, int, int>, double> measured;
  for (const v1::OperationStatistics& operation : rank.operations()) {
    measured[std::make_tuple(operation.kind(), operation.layer(), operation.group())] =
        operation.median_ns() * 1e-9;
  }
  if (measured.empty()) {
    return absl::FailedPreconditionError("no operation was timed (the engine reports none)");
  }
  std::vector<double> seconds;
  for (const Operation& operation : schedule.operations) {
    const std::string kind(OperationKindName(operation.kind));
    const auto found = measured.find(std::make_tuple(kind, operation.layer, operation.group));
    if (found == measured.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the result lacks times of '", kind, "' (layer ", operation.layer,
                       ", group ", operation.group, "): record_layers off, or another schedule"));
    }
    seconds.push_back(found->second);
  }
  return seconds;
}

absl::StatusOr<double> ReplayIterationSeconds(const MergedRepeat& repeat) {
  if (repeat.ranks.empty()) return absl::FailedPreconditionError("no rank reported");
  absl::StatusOr<IterationSchedule> schedule = CompileTrial(repeat.ranks[0].trial());
  if (!schedule.ok()) return schedule.status();
  const std::string& executed = repeat.ranks[0].schedule_hash();
  if (!executed.empty() && executed != ScheduleHash(*schedule)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another schedule was executed (hash ", executed, ", compiled now ",
                     ScheduleHash(*schedule), "): analyse with the version that measured"));
  }
  double sum = 0;
  for (const v1::TrialResult& rank : repeat.ranks) {
    absl::StatusOr<std::vector<double>> seconds = MeasuredOperationSeconds(*schedule, rank);
    if (!seconds.ok()) return seconds.status();
    absl::StatusOr<Timeline> timeline = Simulate(*schedule, *seconds);
    if (!timeline.ok()) return timeline.status();
    sum += timeline->period_seconds;
  }
  return sum / repeat.ranks.size();
}

}  // namespace paceline
