#include "models/simulate/simulator.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// What an operation counts as when the compute stream waits for it.
enum class Share { kCompute, kCommunication, kInput };

Share ShareOf(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kRead:
    case OperationKind::kCopyInput:
      return Share::kInput;
    case OperationKind::kForward:
    case OperationKind::kBackward:
      return Share::kCompute;
    default:
      return Share::kCommunication;
  }
}

// Length of the union of intervals.
double UnionSeconds(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double total_seconds = 0, covered_until = -INFINITY;
  for (const auto& [begin, end] : intervals) {
    total_seconds += std::max(0.0, end - std::max(begin, covered_until));
    covered_until = std::max(covered_until, end);
  }
  return total_seconds;
}

// Begin and end of every operation of the iterations unrolled so far.
class Unrolled {
 public:
  Unrolled(const IterationSchedule& schedule, absl::Span<const double> operation_seconds)
      : schedule_(schedule), operation_seconds_(operation_seconds) {
    // The operation before each one on its stream; for a stream's first one, the last of the
    // iteration before.
    const int count = operation_count();
    std::vector<int> last_of_stream(schedule.streams.size(), -1);
    stream_predecessor_.resize(count);
    for (int i = 0; i < count; ++i) {
      stream_predecessor_[i] = {last_of_stream[schedule.operations[i].stream], 0};
      last_of_stream[schedule.operations[i].stream] = i;
    }
    for (int i = 0; i < count; ++i) {
      if (stream_predecessor_[i].operation >= 0) continue;
      stream_predecessor_[i] = {last_of_stream[schedule.operations[i].stream], 1};
    }
    // Horovod's cycle delays the first operation a group has on a communication stream.
    waits_for_cycle_.assign(count, false);
    if (schedule.collect_cycle_seconds > 0) {
      std::vector<bool> started(schedule.groups.size());
      for (int i = 0; i < count; ++i) {
        const Operation& operation = schedule.operations[i];
        if (schedule.streams[operation.stream].kind != StreamKind::kCommunication) continue;
        if (operation.group < 0 || started[operation.group]) continue;
        started[operation.group] = true;
        waits_for_cycle_[i] = true;
      }
    }
  }

  int operation_count() const { return static_cast<int>(schedule_.operations.size()); }
  int iterations() const { return iterations_; }
  double Begin(int iteration, int operation) const {
    return begin_[static_cast<size_t>(iteration) * operation_count() + operation];
  }
  double End(int iteration, int operation) const {
    return Begin(iteration, operation) + operation_seconds_[operation];
  }

  void AddIteration() {
    const int iteration = iterations_++;
    begin_.resize(static_cast<size_t>(iterations_) * operation_count());
    double* begin = &begin_[static_cast<size_t>(iteration) * operation_count()];
    for (int i = 0; i < operation_count(); ++i) {
      double start = 0;
      ForEachPredecessor(iteration, i, [&](int at, int operation) {
        start = std::max(start, End(at, operation));
      });
      if (waits_for_cycle_[i]) {
        const double cycle = schedule_.collect_cycle_seconds;
        // A hair below a tick counts as on it: rounding must not cost a whole cycle.
        start = std::max(start, std::ceil(start / cycle - 1e-9) * cycle);
      }
      begin[i] = start;
    }
  }

  // The predecessor that finished last: the one that decided the begin. Ties go to the stream's
  // own. False if there is none (the first iteration's first operations).
  bool Binding(int iteration, int operation, int& at, int& which) const {
    double latest = -1;
    ForEachPredecessor(iteration, operation, [&](int candidate_at, int candidate) {
      const double end = End(candidate_at, candidate);
      if (end <= latest) return;
      latest = end;
      at = candidate_at;
      which = candidate;
    });
    return latest >= 0;
  }

 private:
  template <typename Visit>
  void ForEachPredecessor(int iteration, int operation, const Visit& visit) const {
    const Dependency& own = stream_predecessor_[operation];
    if (iteration >= own.distance) visit(iteration - own.distance, own.operation);
    for (const Dependency& dependency : schedule_.operations[operation].dependencies) {
      if (iteration < dependency.distance) continue;
      visit(iteration - dependency.distance, dependency.operation);
    }
  }

  const IterationSchedule& schedule_;
  const absl::Span<const double> operation_seconds_;
  std::vector<Dependency> stream_predecessor_;
  std::vector<bool> waits_for_cycle_;
  std::vector<double> begin_;  // iterations x operations.
  int iterations_ = 0;
};

// The smallest number of iterations c after which the state repeats, shifted in time: max-plus
// systems settle into such a cycle (c = 2 for two alternating buffers). The state is all that later
// iterations can see: as many iterations as the longest dependency spans. 0: not settled yet.
int Cyclicity(const IterationSchedule& schedule, const Unrolled& unrolled, int longest_distance,
              double tolerance) {
  constexpr int kLongest = 8;
  const int last = unrolled.iterations() - 1;
  for (int c = 1; c <= kLongest && c + longest_distance - 1 <= last; ++c) {
    const double shift = unrolled.Begin(last, 0) - unrolled.Begin(last - c, 0);
    // Rounding grows with the times themselves.
    const double allowed = tolerance * std::max(shift, 1e-12) + 1e-14 * unrolled.Begin(last, 0);
    if (schedule.collect_cycle_seconds > 0) {
      // Ticks come at fixed times: only a shift by whole cycles repeats.
      const double cycles = shift / schedule.collect_cycle_seconds;
      if (std::abs(cycles - std::round(cycles)) > 1e-6) continue;
    }
    bool repeats = true;
    for (int k = 0; k < longest_distance && repeats; ++k) {
      for (int i = 0; i < unrolled.operation_count() && repeats; ++i) {
        const double own = unrolled.Begin(last - k, i) - unrolled.Begin(last - k - c, i);
        repeats = std::abs(own - shift) <= allowed;
      }
    }
    if (repeats) return c;
  }
  return 0;
}

int LongestDistance(const IterationSchedule& schedule) {
  int longest = 1;  // Of stream order.
  for (const Operation& operation : schedule.operations) {
    for (const Dependency& dependency : operation.dependencies) {
      longest = std::max(longest, dependency.distance);
    }
  }
  return longest;
}

int FirstForward(const IterationSchedule& schedule) {
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    if (schedule.operations[i].kind == OperationKind::kForward) return static_cast<int>(i);
  }
  return -1;
}

// Splits the idle interval [from, to) before a compute operation: walks back over the operations
// that decided when it ended, and books each one's part.
void BookWait(const IterationSchedule& schedule, const Unrolled& unrolled, int iteration,
              int operation, double from, Timeline& timeline) {
  double to = unrolled.Begin(iteration, operation);
  int at = iteration, which = operation;
  while (to > from) {
    int next_at = 0, next = 0;
    if (!unrolled.Binding(at, which, next_at, next)) {
      timeline.input_wait_seconds += to - from;  // Nothing before it: the very first reads.
      return;
    }
    // Time between the decisive end and `to` was spent waiting for a tick of the cycle.
    const double end = std::min(to, unrolled.End(next_at, next));
    timeline.exposed_communication_seconds += std::max(0.0, to - std::max(end, from));
    const double begin = std::max(from, unrolled.Begin(next_at, next));
    const double part_seconds = std::max(0.0, end - begin);
    if (ShareOf(schedule.operations[next]) == Share::kInput) {
      timeline.input_wait_seconds += part_seconds;
    } else {
      timeline.exposed_communication_seconds += part_seconds;
    }
    to = std::min(end, begin);
    at = next_at;
    which = next;
  }
}

// How the compute stream spends iteration `iteration`: from the end of its last operation of the
// iteration before to the end of its last operation.
void BookComputeStream(const IterationSchedule& schedule, const Unrolled& unrolled, int iteration,
                       absl::Span<const double> operation_seconds, Timeline& timeline) {
  double busy_until = 0;
  for (int i = 0; i < unrolled.operation_count(); ++i) {
    const Operation& operation = schedule.operations[i];
    if (schedule.streams[operation.stream].kind == StreamKind::kCompute) {
      busy_until = std::max(busy_until, unrolled.End(iteration - 1, i));
    }
  }
  for (int i = 0; i < unrolled.operation_count(); ++i) {
    const Operation& operation = schedule.operations[i];
    if (schedule.streams[operation.stream].kind != StreamKind::kCompute) continue;
    BookWait(schedule, unrolled, iteration, i, busy_until, timeline);
    busy_until = unrolled.End(iteration, i);
    switch (operation.kind) {
      case OperationKind::kForward:
      case OperationKind::kBackward:
        timeline.compute_seconds += operation_seconds[i];
        break;
      case OperationKind::kUpdate:
        timeline.update_on_compute_seconds += operation_seconds[i];
        break;
      case OperationKind::kRead:
      case OperationKind::kCopyInput:
        timeline.copy_on_compute_seconds += operation_seconds[i];
        break;
      default:
        timeline.exposed_communication_seconds += operation_seconds[i];
        break;
    }
  }
}

// From the begin of iteration+1's first compute operation back to that of `iteration`.
std::vector<int> CriticalPath(const Unrolled& unrolled, int iteration, int first_forward) {
  std::vector<int> path;
  const double from = unrolled.Begin(iteration, first_forward);
  int at = iteration + 1, which = first_forward;
  int next_at = 0, next = 0;
  while (unrolled.Binding(at, which, next_at, next)) {
    if (unrolled.End(next_at, next) <= from) break;
    path.push_back(next);
    at = next_at;
    which = next;
    if (unrolled.Begin(at, which) <= from) break;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

absl::StatusOr<Timeline> Simulate(const IterationSchedule& schedule,
                                  absl::Span<const double> operation_seconds,
                                  const SimulateOptions& options) {
  const size_t count = schedule.operations.size();
  if (operation_seconds.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("operation_seconds has ", operation_seconds.size(),
                     " entries, but the schedule has ", count, " operations"));
  }
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(operation_seconds[i]) || operation_seconds[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "operation_seconds[", i, "] (", OperationKindName(schedule.operations[i].kind), ") is ",
          operation_seconds[i], ": must be finite and not negative"));
    }
  }
  if (options.max_iterations < 4) {
    return absl::InvalidArgumentError("max_iterations: must be at least 4");
  }
  const int first_forward = FirstForward(schedule);
  if (first_forward < 0) return absl::InvalidArgumentError("the schedule has no forward operation");

  Unrolled unrolled(schedule, operation_seconds);
  const int longest_distance = LongestDistance(schedule);
  int cyclicity = 0;
  while (unrolled.iterations() < options.max_iterations && cyclicity == 0) {
    unrolled.AddIteration();
    if (unrolled.iterations() < 4) continue;
    cyclicity = Cyclicity(schedule, unrolled, longest_distance, options.steady_tolerance);
  }
  // Not settled (Horovod's ticks do not divide the iteration): the mean over the second half.
  const int last = unrolled.iterations() - 1;
  const int window = cyclicity > 0 ? cyclicity : std::max(1, last / 2);

  Timeline timeline;
  timeline.period_seconds =
      (unrolled.Begin(last, first_forward) - unrolled.Begin(last - window, first_forward)) / window;
  // The iteration shown ends where the last one begins.
  const int shown = last - 1;
  const double origin = unrolled.Begin(shown, first_forward);
  std::vector<std::pair<double, double>> communication;
  for (int i = 0; i < unrolled.operation_count(); ++i) {
    timeline.spans.push_back({unrolled.Begin(shown, i) - origin, unrolled.End(shown, i) - origin});
    const Operation& operation = schedule.operations[i];
    if (IsCommunication(operation.kind) &&
        schedule.streams[operation.stream].kind != StreamKind::kCompute) {
      communication.emplace_back(timeline.spans.back().begin_seconds,
                                 timeline.spans.back().end_seconds);
    }
  }
  // The compute stream's shares, averaged over the cycle.
  const int booked = std::min(window, last - 1);
  for (int k = 0; k < booked; ++k) {
    BookComputeStream(schedule, unrolled, last - k, operation_seconds, timeline);
  }
  for (double* share : {&timeline.compute_seconds, &timeline.update_on_compute_seconds,
                        &timeline.copy_on_compute_seconds, &timeline.input_wait_seconds,
                        &timeline.exposed_communication_seconds}) {
    *share /= booked;
  }
  timeline.communication_seconds = UnionSeconds(std::move(communication));
  timeline.hidden_communication_seconds =
      std::max(0.0, timeline.communication_seconds - timeline.exposed_communication_seconds);
  timeline.critical_path = CriticalPath(unrolled, shown, first_forward);
  return timeline;
}

}  // namespace paceline
