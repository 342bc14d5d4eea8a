// Executes an IterationSchedule on a backend: enqueues whole iterations on the streams, records the
// begin and end of every operation, and collects the times when an iteration has finished. Nothing
// is synchronised inside an iteration.
//
//   auto executor = IterationExecutor::Create(parts);
//   (*executor)->Enqueue();                       // Iteration 0
//   (*executor)->Enqueue();                       // Iteration 1, overlaps the end of 0
//   (*executor)->Collect(deadline);               // Times of iteration 0
//
// One thread enqueues and collects; Abort may be called from any thread.
#ifndef PACELINE_WORKER_RUNNER_ITERATION_EXECUTOR_H_
#define PACELINE_WORKER_RUNNER_ITERATION_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "worker/backend/backend.h"
#include "worker/input/input_pipeline.h"
#include "worker/runner/phase_accounting.h"

namespace paceline {

// What one rank executes with. All pointers outlive the executor.
struct ExecutorParts {
  Backend* backend = nullptr;
  const IterationSchedule* schedule = nullptr;
  LayerEngine* engine = nullptr;
  InputPipeline* input = nullptr;
  int rank = 0;
  // By stream index; null for streams without communication or if there is one rank.
  std::vector<Communicator*> communicators;
  ParameterServer* server = nullptr;  // METHOD_PARAMETER_SERVER only.
  // No operation waits beyond this.
  absl::Time deadline = absl::InfiniteFuture();
};

class IterationExecutor {
 public:
  // Iterations that may be enqueued and not yet collected.
  static constexpr int kMaxInFlight = 2;

  static absl::StatusOr<std::unique_ptr<IterationExecutor>> Create(const ExecutorParts& parts);
  ~IterationExecutor();

  // FAILED_PRECONDITION beyond kMaxInFlight iterations in flight; or the failure of a stream that
  // is already known.
  absl::Status Enqueue();
  // Waits for the oldest iteration in flight, and returns its times.
  absl::StatusOr<IterationTimes> Collect(absl::Time deadline);
  // Waits for all streams: every rank then holds the weights after the last iteration.
  absl::Status Finish(absl::Time deadline);
  // Everything enqueued and not begun is dropped, transfers break off.
  void Abort(const absl::Status& cause);

  int64_t buffer_bytes() const;  // Communication buffers.
  int in_flight() const { return static_cast<int>(enqueued_ - collected_); }

 private:
  // What one iteration in flight owns; reused when a later one takes its place.
  struct Slot {
    std::vector<std::unique_ptr<Event>> begin;  // Per operation.
    std::vector<std::unique_ptr<Event>> end;
    HostBatch batch;
    std::atomic<double> loss{0};
  };

  explicit IterationExecutor(const ExecutorParts& parts) : parts_(parts) {}
  absl::Status Initialize();
  absl::Status EnqueueOperation(int operation, int64_t iteration);
  absl::Status EnqueueWork(const Operation& op, Slot& slot, Stream& stream);
  // Memory that travels for a group: gradients, weights, or the buffer.
  DeviceSpan GroupGradients(int group);
  DeviceSpan GroupWeights(int group);
  DeviceSpan Travelling(int group);
  Slot& slot(int64_t iteration) { return *slots_[iteration % slots_.size()]; }

  const ExecutorParts parts_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::vector<float>> buffers_;  // Per group; empty where it is not packed.
  int last_forward_ = -1;                    // Operation after which the loss is known.
  int64_t enqueued_ = 0;
  int64_t collected_ = 0;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_ITERATION_EXECUTOR_H_
