#include "worker/runner/phase_accounting.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// Total length of the union of intervals.
int64_t UnionNs(std::vector<OperationTime> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const OperationTime& a, const OperationTime& b) {
    return a.begin_unix_ns < b.begin_unix_ns;
  });
  int64_t total = 0;
  int64_t covered_until = 0;
  for (const OperationTime& interval : intervals) {
    const int64_t begin = std::max(interval.begin_unix_ns, covered_until);
    if (interval.end_unix_ns > begin) {
      total += interval.end_unix_ns - begin;
      covered_until = interval.end_unix_ns;
    }
  }
  return total;
}

// Adds the idle time of the compute stream before `operation` of iteration `k` to `sample`.
void AttributeGap(const IterationSchedule& schedule, const std::vector<IterationTimes>& times,
                  int k, int operation, int64_t previous_end_ns, v1::IterationSample& sample) {
  const Operation& op = schedule.operations[operation];
  const int64_t begin_ns = times[k].operations[operation].begin_unix_ns;
  if (begin_ns <= previous_end_ns) return;
  int64_t latest_end_ns = previous_end_ns;
  StreamKind cause = StreamKind::kCompute;
  for (const Dependency& dependency : op.dependencies) {
    const int source = k - dependency.distance;
    if (source < 0) continue;
    const int64_t end_ns = times[source].operations[dependency.operation].end_unix_ns;
    if (end_ns > latest_end_ns) {
      latest_end_ns = end_ns;
      cause = schedule.streams[schedule.operations[dependency.operation].stream].kind;
    }
  }
  const int64_t waited_ns = std::min(latest_end_ns, begin_ns) - previous_end_ns;
  switch (cause) {
    case StreamKind::kInput:
    case StreamKind::kCopy:
      sample.set_input_wait_ns(sample.input_wait_ns() + waited_ns);
      break;
    case StreamKind::kCommunication:
    case StreamKind::kUpdate:
      sample.set_exposed_communication_ns(sample.exposed_communication_ns() + waited_ns);
      break;
    case StreamKind::kCompute:
      break;  // Overhead of starting the operation.
  }
}

std::vector<int> ComputeOperations(const IterationSchedule& schedule) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    if (schedule.streams[schedule.operations[i].stream].kind == StreamKind::kCompute) {
      result.push_back(i);
    }
  }
  return result;
}

}  // namespace

int FirstComputeOperation(const IterationSchedule& schedule) {
  const std::vector<int> compute = ComputeOperations(schedule);
  return compute.empty() ? 0 : compute.front();
}

std::vector<v1::IterationSample> AccountPhases(const IterationSchedule& schedule,
                                               const std::vector<IterationTimes>& times) {
  const std::vector<int> compute = ComputeOperations(schedule);
  std::vector<v1::IterationSample> samples;
  if (compute.empty()) return samples;
  for (int k = 0; k + 1 < static_cast<int>(times.size()); ++k) {
    const IterationTimes& iteration = times[k];
    v1::IterationSample sample;
    const int64_t start_ns = iteration.operations[compute.front()].begin_unix_ns;
    sample.set_start_ns(start_ns);
    sample.set_duration_ns(times[k + 1].operations[compute.front()].begin_unix_ns - start_ns);
    sample.set_input_ns(iteration.input_busy_ns);
    sample.set_loss(iteration.loss);

    std::vector<OperationTime> communication;
    for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
      const Operation& op = schedule.operations[i];
      const OperationTime& time = iteration.operations[i];
      const int64_t busy_ns = time.end_unix_ns - time.begin_unix_ns;
      const bool on_compute = schedule.streams[op.stream].kind == StreamKind::kCompute;
      switch (op.kind) {
        case OperationKind::kRead:
          break;  // Busy time in the pool is input_busy_ns; the operation itself mostly waits.
        case OperationKind::kCopyInput:
          sample.set_copy_ns(sample.copy_ns() + busy_ns);
          break;
        case OperationKind::kForward:
          sample.set_forward_ns(sample.forward_ns() + busy_ns);
          break;
        case OperationKind::kBackward:
          sample.set_backward_ns(sample.backward_ns() + busy_ns);
          break;
        case OperationKind::kUpdate:
          sample.set_update_ns(sample.update_ns() + busy_ns);
          break;
        default:
          communication.push_back(time);
          if (on_compute) {
            sample.set_exposed_communication_ns(sample.exposed_communication_ns() + busy_ns);
          }
      }
    }
    sample.set_communication_ns(UnionNs(std::move(communication)));

    for (size_t i = 1; i < compute.size(); ++i) {
      AttributeGap(schedule, times, k, compute[i], iteration.operations[compute[i - 1]].end_unix_ns,
                   sample);
    }
    // The wait before the next iteration's first operation ends this period.
    AttributeGap(schedule, times, k + 1, compute.front(),
                 iteration.operations[compute.back()].end_unix_ns, sample);
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::string OperationName(const IterationSchedule& schedule,
                          const std::vector<std::string>& layer_names, int operation) {
  const Operation& op = schedule.operations[operation];
  std::string name(OperationKindName(op.kind));
  if (op.layer >= 0) return absl::StrCat(name, " ", layer_names[op.layer]);
  if (op.group >= 0) return absl::StrCat(name, " g", op.group);
  return name;
}

std::vector<v1::OperationStatistics> SummarizeOperations(
    const IterationSchedule& schedule, const std::vector<std::string>& layer_names,
    const std::vector<IterationTimes>& times, int first, int last) {
  std::vector<v1::OperationStatistics> result;
  if (first >= last) return result;
  std::vector<int64_t> durations_ns;
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    const Operation& op = schedule.operations[i];
    durations_ns.clear();
    for (int k = first; k < last; ++k) {
      const OperationTime& time = times[k].operations[i];
      durations_ns.push_back(time.end_unix_ns - time.begin_unix_ns);
    }
    std::sort(durations_ns.begin(), durations_ns.end());
    const size_t n = durations_ns.size();
    v1::OperationStatistics statistics;
    statistics.set_name(OperationName(schedule, layer_names, i));
    statistics.set_kind(std::string(OperationKindName(op.kind)));
    statistics.set_bytes(op.bytes);
    statistics.set_layer(op.layer);
    statistics.set_group(op.group);
    statistics.set_samples(n);
    statistics.set_min_ns(durations_ns.front());
    statistics.set_mean_ns(std::accumulate(durations_ns.begin(), durations_ns.end(), int64_t{0}) /
                           static_cast<int64_t>(n));
    statistics.set_median_ns((durations_ns[(n - 1) / 2] + durations_ns[n / 2]) / 2);
    statistics.set_p10_ns(durations_ns[n / 10]);
    statistics.set_p90_ns(durations_ns[n - 1 - n / 10]);
    result.push_back(std::move(statistics));
  }
  return result;
}

std::vector<v1::OperationSpan> TraceIteration(const IterationSchedule& schedule,
                                              const std::vector<std::string>& layer_names,
                                              const IterationTimes& times) {
  std::vector<v1::OperationSpan> trace;
  const int64_t start_ns = times.operations[FirstComputeOperation(schedule)].begin_unix_ns;
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    v1::OperationSpan span;
    span.set_name(OperationName(schedule, layer_names, i));
    span.set_kind(std::string(OperationKindName(schedule.operations[i].kind)));
    span.set_stream(schedule.streams[schedule.operations[i].stream].name);
    span.set_begin_ns(times.operations[i].begin_unix_ns - start_ns);
    span.set_end_ns(times.operations[i].end_unix_ns - start_ns);
    trace.push_back(std::move(span));
  }
  return trace;
}

}  // namespace paceline
