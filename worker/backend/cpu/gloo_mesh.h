// Blocking point-to-point transfers between all ranks over Gloo's TCP pairs: what the communicator
// and the parameter server are built on.
//
//   absl::StatusOr<std::unique_ptr<GlooMesh>> mesh = GlooMesh::Connect(rank_info, "ring", store);
//   absl::Status status = (*mesh)->Run("exchange", [&](GlooMesh::Link& link) {
//     link.Send(peer, values, bytes);
//     link.Receive(peer, other_values, bytes);
//   });
//
// Pairs are switched to Gloo's synchronous mode: the calling thread reads and writes the socket
// itself. Gloo's event-loop thread, which an asynchronous transfer goes through, costs a wake-up
// per message and spins while no receiver is ready: with as many ranks as cores it then keeps the
// scheduler's slice of 4 ms from the thread that would make it ready (measured 2026-12: 4 B in 15
// us instead of 60; 16 KiB in 20 us instead of 4 ms).
//
// A synchronous send blocks while the socket's buffers are full, so two ranks must never send more
// than safe_bytes() to each other before one of them receives.
//
// A failed transfer breaks the mesh: all sockets are shut down, so that peers fail at once rather
// than at their timeout. A pair is locked while a thread reads from it: use it in one direction at
// a time.
//
// Thread-safety: Run from one thread at a time per peer and direction; Break from any thread.
#ifndef PACELINE_WORKER_BACKEND_CPU_GLOO_MESH_H_
#define PACELINE_WORKER_BACKEND_CPU_GLOO_MESH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"

namespace gloo {
class Context;
namespace transport {
class Buffer;
class Pair;
}  // namespace transport
}  // namespace gloo

namespace paceline {

class GlooMesh {
 public:
  // Connects all ranks. DEADLINE_EXCEEDED or UNAVAILABLE names the rank that did not come.
  static absl::StatusOr<std::unique_ptr<GlooMesh>> Connect(const RankInfo& info,
                                                           absl::string_view name,
                                                           RendezvousStore& store);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  int rank() const { return info_.rank; }
  int size() const { return info_.ranks; }
  // Fits into every socket's buffers, whatever the peer does. The same on all ranks.
  int64_t safe_bytes() const { return safe_bytes_; }

  // Memory that one peer's messages leave from or arrive in. Valid inside Run.
  class Window {
   public:
    explicit Window(std::unique_ptr<gloo::transport::Buffer> buffer);
    Window(Window&&) noexcept;
    ~Window();
    // Blocks until the bytes are in the socket's buffer. They arrive at `peer_offset` of the peer's
    // receiving window of the same slot.
    void Send(int64_t offset, int64_t bytes, int64_t peer_offset);
    // Waits for one message of the peer.
    void WaitReceived();

   private:
    std::unique_ptr<gloo::transport::Buffer> buffer_;
  };

  // The transfers, throwing as Gloo does: only to be used by the function given to Run.
  class Link {
   public:
    // Slots separate windows of one pair; both sides must use the same. 0 to 3.
    Window SendWindow(int peer, int slot, const void* data, int64_t bytes);
    Window ReceiveWindow(int peer, int slot, void* data, int64_t bytes);
    // One whole message, slot 0. Nothing is sent for 0 bytes.
    void Send(int peer, const void* data, int64_t bytes);
    void Receive(int peer, void* data, int64_t bytes);

   private:
    friend class GlooMesh;
    explicit Link(GlooMesh* mesh) : mesh_(mesh) {}
    GlooMesh* const mesh_;
  };

  // Calls `transfer`; an exception of it becomes a status that names this rank, `what` and the
  // cause: UNAVAILABLE (a peer vanished), DEADLINE_EXCEEDED (no answer in RankInfo::timeout), or
  // the cause given to Break.
  absl::Status Run(absl::string_view what, const std::function<void(Link&)>& transfer);

  // Waits, without the transfers' timeout, until a message of `peer` begins to arrive (true) or the
  // connection has ended, by the peer, by Break or by the destructor of the peer's mesh (false).
  bool AwaitMessage(int peer);

  // Tells the peers that nothing more comes from here: their AwaitMessage returns false once they
  // have read all that was sent.
  void FinishSending();

  // Shuts all connections down: transfers in progress and later ones fail with `cause`.
  void Break(const absl::Status& cause);

 private:
  GlooMesh(const RankInfo& info, absl::string_view name);
  absl::Status ConnectPairs(RendezvousStore& store);
  absl::Status AdoptSockets(const std::vector<std::vector<char>>& own_addresses,
                            const std::vector<std::vector<char>>& peer_addresses);
  absl::Status Translate(absl::string_view what, absl::string_view cause);

  const RankInfo info_;
  const std::string name_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<gloo::transport::Pair*> pairs_;  // By rank; null for this rank.
  int64_t safe_bytes_;
  std::vector<int> sockets_;  // Own descriptors of the pairs' sockets, by rank; -1 for none.
  std::atomic<bool> broken_{false};
  Mutex mu_;
  absl::Status cause_ ABSL_GUARDED_BY(mu_);  // Of breaking.
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_GLOO_MESH_H_
