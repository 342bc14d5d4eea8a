// Schedules of trials, and their simulation with measured operation times.
#include <algorithm>
#include <cstdint>
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

double StartOverheadSeconds(const IterationSchedule& schedule, const v1::TrialResult& rank,
                            StreamKind kind) {
  if (rank.trace_size() != static_cast<int>(schedule.operations.size())) return 0;
  std::vector<int64_t> stream_free_ns(schedule.streams.size(), 0);
  std::vector<bool> stream_used(schedule.streams.size(), false);
  int64_t sum_ns = 0;
  int64_t count = 0;
  for (int i = 0; i < rank.trace_size(); ++i) {
    const Operation& operation = schedule.operations[i];
    int64_t ready_ns = stream_free_ns[operation.stream];
    // The first of a stream, and what waits for an earlier iteration, became ready at a time that
    // the trace of one iteration does not hold.
    bool known = stream_used[operation.stream];
    for (const Dependency& dependency : operation.dependencies) {
      known = known && dependency.distance == 0;
      if (dependency.distance == 0) {
        ready_ns = std::max(ready_ns, rank.trace(dependency.operation).end_ns());
      }
    }
    if (known && schedule.streams[operation.stream].kind == kind) {
      sum_ns += std::max<int64_t>(0, rank.trace(i).begin_ns() - ready_ns);
      ++count;
    }
    stream_free_ns[operation.stream] = rank.trace(i).end_ns();
    stream_used[operation.stream] = true;
  }
  return count > 0 ? 1e-9 * sum_ns / count : 0;
}

absl::StatusOr<std::vector<double>> MeasuredOperationSeconds(const IterationSchedule& schedule,
                                                             const v1::TrialResult& rank) {
  using Key = std::tuple<std::string, int, int>;
  std::map<Key, double> measured;
  for (const v1::OperationStatistics& operation : rank.operations()) {
    measured[Key(operation.kind(), operation.layer(), operation.group())] =
        1e-9 * (operation.mean_ns() > 0 ? operation.mean_ns() : operation.median_ns());
  }
  if (measured.empty()) {
    return absl::FailedPreconditionError("no operation was timed (the engine reports none)");
  }
  const bool traced = rank.trace_size() == static_cast<int>(schedule.operations.size());
  std::map<StreamKind, double> overhead;
  for (const ScheduleStream& stream : schedule.streams) {
    overhead[stream.kind] = StartOverheadSeconds(schedule, rank, stream.kind);
  }
  std::vector<double> seconds;
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    const std::string kind(OperationKindName(operation.kind));
    double own = 0;
    if (traced && rank.trace(i).kind() == kind) {
      own = 1e-9 * (rank.trace(i).end_ns() - rank.trace(i).begin_ns());
    } else {
      const auto found = measured.find(Key(kind, operation.layer, operation.group));
      if (found == measured.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat("the result lacks times of '", kind, "' (layer ", operation.layer,
                         ", group ", operation.group, "): another schedule was executed"));
      }
      own = found->second;
    }
    seconds.push_back(own + overhead[schedule.streams[operation.stream].kind]);
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
