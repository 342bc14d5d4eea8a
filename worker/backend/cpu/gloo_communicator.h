// Communicator over Gloo: sums, broadcasts and point-to-point transfers on a communication stream.
//
//   absl::StatusOr<std::unique_ptr<Communicator>> ring =
//       GlooCommunicator::Create(rank_info, "communication_0", store);
//   (*ring)->AllReduceSum(span, *communication_stream);
//
// Algorithms, by message size:
//   all-reduce  up to kDirectBytes: each rank sends its values to every other one, and all sum in
//               rank order (one step). Larger: ring reduce-scatter and all-gather in chunks
//               (Thakur, Rabenseifner, Gropp 2005: bandwidth-optimal, 2 (n - 1) / n bytes per
//               byte).
//   reduce, broadcast  small: to or from the root directly. Larger: a chain of ranks in chunks.
// All ranks hold bit-identical results, the same in every run. They differ from each other's order
// of summing: ring and chain begin at different ranks.
//
// One thread does it all, the stream's; it sleeps while it waits for a peer. Use one communicator
// per stream: transfers of two communicators do not wait for each other.
//
// Thread-safety: as Communicator. All calls of one communicator go to one stream.
#ifndef PACELINE_WORKER_BACKEND_CPU_GLOO_COMMUNICATOR_H_
#define PACELINE_WORKER_BACKEND_CPU_GLOO_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/gloo_mesh.h"

namespace paceline {

class GlooCommunicator : public Communicator {
 public:
  static absl::StatusOr<std::unique_ptr<GlooCommunicator>> Create(const RankInfo& rank,
                                                                  absl::string_view name,
                                                                  RendezvousStore& store);
  // Breaks off what is in progress.
  ~GlooCommunicator() override = default;

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  absl::Status AllReduceSum(DeviceSpan span, Stream& stream) override;
  absl::Status ReduceSum(DeviceSpan span, int root, Stream& stream) override;
  absl::Status Broadcast(DeviceSpan span, int root, Stream& stream) override;
  absl::Status Send(DeviceSpan span, int peer, Stream& stream) override;
  absl::Status Receive(DeviceSpan span, int peer, Stream& stream) override;
  void Abort(const absl::Status& cause) override { mesh_->Break(cause); }

 private:
  explicit GlooCommunicator(std::unique_ptr<GlooMesh> mesh);

  using Transfer = void (GlooCommunicator::*)(GlooMesh::Link& link, DeviceSpan span, int peer);
  absl::Status Enqueue(const char* what, Transfer transfer, DeviceSpan span, int peer,
                       Stream& stream);
  void AllReduceDirectly(GlooMesh::Link& link, DeviceSpan span);
  void AllReduceOnRing(GlooMesh::Link& link, DeviceSpan span);
  void DoAllReduce(GlooMesh::Link& link, DeviceSpan span, int unused);
  void DoReduce(GlooMesh::Link& link, DeviceSpan span, int root);
  void DoBroadcast(GlooMesh::Link& link, DeviceSpan span, int root);
  void DoSend(GlooMesh::Link& link, DeviceSpan span, int peer);
  void DoReceive(GlooMesh::Link& link, DeviceSpan span, int peer);
  int64_t Chunks(int64_t elements) const;
  DeviceSpan Chunk(DeviceSpan span, int64_t index) const;

  const std::unique_ptr<GlooMesh> mesh_;
  const int64_t chunk_elements_;  // The same on all ranks.
  std::vector<float> staging_;    // What arrives to be added.
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_GLOO_COMMUNICATOR_H_
