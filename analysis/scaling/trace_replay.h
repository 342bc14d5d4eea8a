// Replays one traced iteration under its own schedule or under another one: the times of backward
// and of each message as they were in training, run through the product's simulator.
//
//   IterationTrace trace;                      // Tensors in forward order.
//   trace.other_seconds = 0.58;                // Forward, input, update.
//   trace.tensors = {{0, 9408, 14.7e-3, 0.4e-3}, {0, 64, 0, 0.14e-3}, ...};
//   absl::StatusOr<double> wait_free = ReplaySeconds(trace, OneMessagePerTensor(trace));
//   absl::StatusOr<double> one_message = ReplaySeconds(trace, OneMessage(trace));
//
// A message that merges k tensors takes the sum of their times less k - 1 times the start-up, which
// is the median time of the smallest quarter of the tensors. Copies into a merged buffer are not
// in a trace and not counted.
//
// Seconds. Pure functions, thread-safe.
#ifndef PACELINE_ANALYSIS_SCALING_TRACE_REPLAY_H_
#define PACELINE_ANALYSIS_SCALING_TRACE_REPLAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/schedule/schedule.h"

namespace paceline {

struct TracedTensor {
  int layer = 0;  // Tensors of one layer become ready together.
  int64_t elements = 0;
  double backward_seconds = 0;  // Of the whole layer, at its first tensor; 0 at the others.
  double communication_seconds = 0;
};

struct IterationTrace {
  double other_seconds = 0;           // All that is neither backward nor communication.
  std::vector<TracedTensor> tensors;  // Forward order, at least one; layers ascend from 0.
};

// Messages in the order they are sent, each a list of tensors (indices into the trace) that are
// neighbours.
using Messages = std::vector<std::vector<int>>;

Messages OneMessagePerTensor(const IterationTrace& trace);
Messages OneMessage(const IterationTrace& trace);
// MG-WFBP: a tensor waits for the next one when sending it now would not be over before the next
// message could start, less a start-up (arXiv 1811.11141).
Messages MergedMessages(const IterationTrace& trace);

// Start-up of one message as the trace shows it.
double MessageStartUpSeconds(const IterationTrace& trace);

// The schedule of the replay and its operations' times.
struct ReplayPlan {
  IterationSchedule schedule;
  std::vector<double> operation_seconds;
};
// INVALID_ARGUMENT names the tensor with a time that is negative or not finite, or that is in no
// message or in two.
absl::StatusOr<ReplayPlan> PlanReplay(const IterationTrace& trace, const Messages& messages);

// Steady time of an iteration.
absl::StatusOr<double> ReplaySeconds(const IterationTrace& trace, const Messages& messages);

// What an iteration takes beyond its replay (aggregation within a host, the barrier): the one
// constant, at least 0, with the smallest mean relative error. INVALID_ARGUMENT unless both have
// the same, positive, number of entries.
absl::StatusOr<double> FitFixedSeconds(absl::Span<const double> replayed_seconds,
                                       absl::Span<const double> measured_seconds);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_SCALING_TRACE_REPLAY_H_
