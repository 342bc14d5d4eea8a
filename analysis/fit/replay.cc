// Schedules of trials, and their simulation with measured operation times.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/fit/fit.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/stats/stats.h"

namespace paceline {

absl::StatusOr<IterationSchedule> CompileTrial(const v1::Trial& trial) {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.network());
  if (!shaped.ok()) return shaped.status();
  return CompileSchedule(*shaped, trial.policy(), trial.cluster(), trial.batch_per_device());
}

double StartOverheadSeconds(const IterationSchedule& schedule, const v1::TrialResult& rank) {
  std::set<std::string> compute;
  for (const ScheduleStream& stream : schedule.streams) {
    if (stream.kind == StreamKind::kCompute) compute.insert(stream.name);
  }
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const v1::OperationSpan& span : rank.trace()) {
    if (compute.count(span.stream()) > 0) spans.emplace_back(span.begin_ns(), span.end_ns());
  }
  std::sort(spans.begin(), spans.end());
  std::vector<double> gaps;
  for (size_t i = 1; i < spans.size(); ++i) {
    gaps.push_back(std::max<int64_t>(0, spans[i].first - spans[i - 1].second) * 1e-9);
  }
  // The median, because a few of the gaps are waits.
  return gaps.empty() ? 0 : Median(gaps);
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
  const double overhead = StartOverheadSeconds(schedule, rank);
  std::vector<double> seconds;
  for (const Operation& operation : schedule.operations) {
    const std::string kind(OperationKindName(operation.kind));
    const auto found = measured.find(std::make_tuple(kind, operation.layer, operation.group));
    if (found == measured.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the result lacks times of '", kind, "' (layer ", operation.layer,
                       ", group ", operation.group, "): record_layers off, or another schedule"));
    }
    const bool on_compute = schedule.streams[operation.stream].kind == StreamKind::kCompute;
    seconds.push_back(found->second + (on_compute ? overhead : 0));
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
