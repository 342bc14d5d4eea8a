// Simulates an IterationSchedule: in-order streams, dependencies across iterations, until the
// period is steady. The very object the worker executes.
//
//   absl::StatusOr<Timeline> timeline = Simulate(schedule, operation_seconds);
//   timeline->period_seconds;
//
// All times in seconds. Stateless and thread-safe.
#ifndef PACELINE_MODELS_SIMULATE_SIMULATOR_H_
#define PACELINE_MODELS_SIMULATE_SIMULATOR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/schedule/schedule.h"

namespace paceline {

struct SimulateOptions {
  int max_iterations = 64;         // Unrolled at most.
  double steady_tolerance = 1e-9;  // Relative change of the period that counts as steady.
};

struct Timeline {
  // Steady time from one iteration to the next.
  double period_seconds = 0;
  // One steady iteration: begin and end of each operation, in the order of schedule.operations,
  // relative to the begin of its first compute operation (prefetched input begins before 0).
  struct Span {
    double begin_seconds = 0;
    double end_seconds = 0;
  };
  std::vector<Span> spans;
  // How the compute stream spends the period: the five add up to it. A wait is booked on the chain
  // of operations that decided when it ended: the part of it in which they read or copied input,
  // and the part in which they communicated (an update on a communication stream included).
  double compute_seconds = 0;  // Forward and backward.
  double update_on_compute_seconds = 0;
  double copy_on_compute_seconds = 0;        // Input copied on the compute stream.
  double exposed_communication_seconds = 0;  // Waits, and packing on the compute stream.
  double input_wait_seconds = 0;
  double communication_seconds = 0;         // Union of busy time over communication streams.
  double hidden_communication_seconds = 0;  // communication - exposed, not below 0.
  // Operations on the critical path of the steady iteration, in time order (indices).
  std::vector<int> critical_path;
};

// `operation_seconds[i]` is the duration of schedule.operations[i]. INVALID_ARGUMENT for a wrong
// count, negative or non-finite durations.
absl::StatusOr<Timeline> Simulate(const IterationSchedule& schedule,
                                  absl::Span<const double> operation_seconds,
                                  const SimulateOptions& options = {});

}  // namespace paceline

#endif  // PACELINE_MODELS_SIMULATE_SIMULATOR_H_
