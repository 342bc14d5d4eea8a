// From the begin and end of every operation to the phases of an iteration: what the compute stream
// did, and what it waited for. Pure functions.
//
// The period of iteration k runs from the begin of its first operation on the compute stream to
// that of iteration k+1. Idle time of the compute stream before an operation belongs to the
// dependency that finished last: input and copy give input_wait, communication and updates on other
// streams give exposed communication. What no dependency explains is overhead and stays
// unattributed.
#ifndef PACELINE_WORKER_RUNNER_PHASE_ACCOUNTING_H_
#define PACELINE_WORKER_RUNNER_PHASE_ACCOUNTING_H_

#include <cstdint>
#include <vector>

#include "models/schedule/schedule.h"
#include "proto/paceline/v1/result.pb.h"

namespace paceline {

struct OperationTime {
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;
};

struct IterationTimes {
  std::vector<OperationTime> operations;  // In the order of IterationSchedule::operations.
  int64_t input_busy_ns = 0;              // HostBatch::busy_ns of the batch it trained on.
  double loss = 0;
};

// Index of the first operation on a compute stream.
int FirstComputeOperation(const IterationSchedule& schedule);

// Phases of iterations [0, times.size() - 1): the last one has no period yet. `times` holds
// consecutive iterations from the first.
std::vector<v1::IterationSample> AccountPhases(const IterationSchedule& schedule,
                                               const std::vector<IterationTimes>& times);

// Name of an operation in results and traces: "forward conv1", "all_reduce g3", "read".
std::string OperationName(const IterationSchedule& schedule,
                          const std::vector<std::string>& layer_names, int operation);

// Median and spread of every operation over iterations [first, last).
std::vector<v1::OperationStatistics> SummarizeOperations(
    const IterationSchedule& schedule, const std::vector<std::string>& layer_names,
    const std::vector<IterationTimes>& times, int first, int last);

// Spans of one iteration, relative to the begin of its first compute operation.
std::vector<v1::OperationSpan> TraceIteration(const IterationSchedule& schedule,
                                              const std::vector<std::string>& layer_names,
                                              const IterationTimes& times);

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_PHASE_ACCOUNTING_H_
