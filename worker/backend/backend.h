// The contract between the runner and a device: streams, events, a layer engine that trains one
// network, and communicators. Two implementations: worker/backend/cpu (oneDNN + Gloo) and, on GPUs,
// worker/backend/cuda (cuDNN + NCCL); worker/backend/fake for unit tests.
//
// Everything is asynchronous as on a GPU: a call with a Stream enqueues work and returns at once;
// work of a stream runs in order; Wait and Record order streams against each other. A failure makes
// the stream's later work a no-op and comes back from Synchronize. On the CPU a stream is a thread.
//
//   engine->Forward(3, compute);
//   compute.Record(*ready);
//   communication.Wait(*ready);
//   communicator->AllReduceSum(engine->GradientSpan(tensors), communication);
//
// Thread-safety: one thread (the runner's) enqueues; Abort may be called from any thread.
#ifndef PACELINE_WORKER_BACKEND_BACKEND_H_
#define PACELINE_WORKER_BACKEND_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "worker/input/host_batch.h"

namespace paceline {

// fp32 values in device memory. Not owned.
struct DeviceSpan {
  float* data = nullptr;
  int64_t elements = 0;
  int64_t bytes() const { return elements * 4; }
  DeviceSpan Slice(int64_t first, int64_t count) const { return {data + first, count}; }
};

// A point in a stream's work. Reusable: each Record replaces the one before.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the host until the latest Record has been reached and returns OK, or the failure of the
  // stream that recorded it. DEADLINE_EXCEEDED otherwise.
  virtual absl::Status WaitReached(absl::Time deadline) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual const std::string& name() const = 0;
  // Later work of this stream starts after the latest Record of `event` so far. An event that was
  // never recorded does not block. If the recording stream fails, this one fails with its status.
  virtual absl::Status Wait(Event& event) = 0;
  virtual absl::Status Record(Event& event) = 0;
  // Runs `work` on the host in stream order (decoding, a parameter server's bookkeeping).
  virtual absl::Status RunOnHost(std::function<absl::Status()> work) = 0;
  // Waits for all work so far and returns its first failure. DEADLINE_EXCEEDED names the stream.
  virtual absl::Status Synchronize(absl::Time deadline) = 0;
  // Work not yet begun is dropped with this status. From any thread.
  virtual void Abort(const absl::Status& cause) = 0;
};

struct EngineOptions {
  int batch = 1;
  v1::Precision precision = v1::PRECISION_FP32;
  v1::TrainingSettings training;  // No defaults left open.
  // Memory order of gradients and weights (IterationSchedule::tensor_order).
  std::vector<int> tensor_order;
  int rank = 0;  // Dropout differs between ranks.
};

// Trains one network on one device. Owns all of its memory, planned once at creation.
class LayerEngine {
 public:
  virtual ~LayerEngine() = default;

  // Staging copy of the batch into the network's input (and labels). `batch` is read when the
  // stream gets there, not at the call: its address must stay valid, its content may be filled
  // until then.
  virtual absl::Status LoadInput(const HostBatch& batch, Stream& stream) = 0;
  // By index into ShapedNetwork::layers, in schedule order. Fused layers (a ReLU inside its
  // convolution) may be no-ops, but every layer is called.
  virtual absl::Status Forward(int layer, Stream& stream) = 0;
  virtual absl::Status Backward(int layer, Stream& stream) = 0;
  // v = momentum v + lr (gradient * gradient_scale + weight_decay w);  w -= v.
  virtual absl::Status Update(absl::Span<const int> tensors, float gradient_scale,
                              Stream& stream) = 0;
  // After weights were replaced from outside (pull, broadcast): refreshes reduced-precision copies.
  virtual absl::Status WeightsChanged(absl::Span<const int> tensors, Stream& stream) = 0;

  // Memory of tensors that are neighbours in tensor_order. The device's own layout (equal on all
  // ranks of a trial), padding included, so `elements` can exceed the tensors' sum.
  virtual DeviceSpan GradientSpan(absl::Span<const int> tensors) = 0;
  virtual DeviceSpan WeightSpan(absl::Span<const int> tensors) = 0;

  // Loss of the latest forward pass that has finished (mean over the batch, weighted heads).
  virtual double Loss() const = 0;
  virtual v1::MemoryUse Memory() const = 0;

  // For checks, in the canonical layout of ParameterTensor::shape / {batch, c, h, w}. Not during
  // work.
  virtual absl::StatusOr<std::vector<float>> ReadWeights(int tensor) const = 0;
  virtual absl::Status WriteWeights(int tensor, absl::Span<const float> values) = 0;
  virtual absl::StatusOr<std::vector<float>> ReadGradient(int tensor) const = 0;
  virtual absl::StatusOr<std::vector<float>> ReadOutput(int layer) const = 0;
  // Order-independent sum over the bit patterns of all weights; equal on ranks in step.
  virtual uint64_t WeightsChecksum() const = 0;
};

// Collective operations of one communication stream among the ranks of a trial. In-place sums.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual absl::Status AllReduceSum(DeviceSpan span, Stream& stream) = 0;
  virtual absl::Status ReduceSum(DeviceSpan span, int root, Stream& stream) = 0;
  virtual absl::Status Broadcast(DeviceSpan span, int root, Stream& stream) = 0;
  virtual absl::Status Send(DeviceSpan span, int peer, Stream& stream) = 0;
  virtual absl::Status Receive(DeviceSpan span, int peer, Stream& stream) = 0;
  // Breaks off whatever is in progress; it and later calls fail with `cause`. From any thread.
  virtual void Abort(const absl::Status& cause) = 0;
};

// The parameter server as a worker sees it. The servers run beside ranks 0 .. servers-1.
class ParameterServer {
 public:
  virtual ~ParameterServer() = default;
  // Sends the group's gradients to its servers.
  virtual absl::Status Push(int group, DeviceSpan gradients, Stream& stream) = 0;
  // Fetches the group's new weights (or gradient sums, where servers only aggregate).
  virtual absl::Status Pull(int group, DeviceSpan destination, Stream& stream) = 0;
  virtual void Abort(const absl::Status& cause) = 0;
};

// Where ranks of an attempt meet. Blocking calls for the host.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;
  // Waits for the key. DEADLINE_EXCEEDED names it; ABORTED if the attempt has ended.
  virtual absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) = 0;
};

// Identity and settings of this rank, for connecting.
struct RankInfo {
  int rank = 0;
  int ranks = 1;
  std::string data_address;  // Own address for data connections, for example "127.0.0.1".
  absl::Duration timeout = absl::Seconds(30);  // Connecting, and any single transfer.
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu", "cuda", "fake".
  // Device name, memory, precisions, library versions. Does not need a network.
  virtual absl::Status Describe(v1::MachineState& machine) const = 0;
  virtual std::vector<v1::Precision> Precisions() const = 0;

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind,
                                                               std::string name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;
  // CLOCK_REALTIME of the event's latest Record, which must have been reached.
  virtual absl::StatusOr<int64_t> EventUnixNs(const Event& event) const = 0;

  // RESOURCE_EXHAUSTED: does not fit in memory. INVALID_ARGUMENT: precision or layer unsupported.
  virtual absl::StatusOr<std::unique_ptr<LayerEngine>> CreateEngine(
      const ShapedNetwork& network, const EngineOptions& options) = 0;
  // `name` separates several communicators of one trial.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const RankInfo& rank, absl::string_view name, RendezvousStore& store) = 0;
  // Group layout from the schedule, element counts per group from the engine (padding included).
  // Servers start from `initial_weights[group]` (only read on ranks that host servers).
  virtual absl::StatusOr<std::unique_ptr<ParameterServer>> CreateParameterServer(
      const RankInfo& rank, const IterationSchedule& schedule,
      const std::vector<DeviceSpan>& initial_weights, const v1::TrainingSettings& training,
      absl::string_view name, RendezvousStore& store) = 0;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_BACKEND_H_
