#include "worker/backend/cpu/gloo_communicator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/gloo_mesh.h"

namespace paceline {
namespace {

// 128 KiB, and two more on their way while one is added: of 64 to 256 KiB and 1 to 6 the best at
// 1 MiB to 64 MiB between two cores (measured 2026-12).
constexpr int64_t kMaxChunkElements = 32 * 1024;
constexpr int64_t kChunksAhead = 2;

// Below, one step with more bytes beats several with fewer. Of one rank's messages to all others.
constexpr int64_t kDirectBytes = 16 * 1024;

// Slots of a pair's windows.
constexpr int kInPlace = 0;  // Arrives where it belongs.
constexpr int kStaged = 1;   // Arrives in the staging buffer.

void Add(const float* values, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooCommunicator>> GlooCommunicator::Create(const RankInfo& rank,
                                                                           absl::string_view name,
                                                                           RendezvousStore& store) {
  absl::StatusOr<std::unique_ptr<GlooMesh>> mesh = GlooMesh::Connect(rank, name, store);
  if (!mesh.ok()) return mesh.status();
  return absl::WrapUnique(new GlooCommunicator(*std::move(mesh)));
}

GlooCommunicator::GlooCommunicator(std::unique_ptr<GlooMesh> mesh)
    : mesh_(std::move(mesh)),
      chunk_elements_(
          std::min(kMaxChunkElements, mesh_->safe_bytes() / 4 / (kChunksAhead + 1) / 16 * 16)),
      staging_(std::max(chunk_elements_, kDirectBytes / 4)) {}

int64_t GlooCommunicator::Chunks(int64_t elements) const {
  return (elements + chunk_elements_ - 1) / chunk_elements_;
}

DeviceSpan GlooCommunicator::Chunk(DeviceSpan span, int64_t index) const {
  const int64_t first = index * chunk_elements_;
  return span.Slice(first, std::min(chunk_elements_, span.elements - first));
}

absl::Status GlooCommunicator::Enqueue(const char* what, Transfer transfer, DeviceSpan span,
                                       int peer, Stream& stream) {
  if (peer < 0 || peer >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": rank ", peer, " is not in 0..", size() - 1));
  }
  if (size() == 1 || span.elements == 0) return absl::OkStatus();
  return stream.RunOnHost([this, what, transfer, span, peer] {
    return mesh_->Run(what, [&](GlooMesh::Link& link) { (this->*transfer)(link, span, peer); });
  });
}

absl::Status GlooCommunicator::AllReduceSum(DeviceSpan span, Stream& stream) {
  return Enqueue("all-reduce", &GlooCommunicator::DoAllReduce, span, 0, stream);
}
absl::Status GlooCommunicator::ReduceSum(DeviceSpan span, int root, Stream& stream) {
  return Enqueue("reduce", &GlooCommunicator::DoReduce, span, root, stream);
}
absl::Status GlooCommunicator::Broadcast(DeviceSpan span, int root, Stream& stream) {
  return Enqueue("broadcast", &GlooCommunicator::DoBroadcast, span, root, stream);
}
absl::Status GlooCommunicator::Send(DeviceSpan span, int peer, Stream& stream) {
  if (peer == rank()) return absl::InvalidArgumentError("send: to this rank itself");
  return Enqueue("send", &GlooCommunicator::DoSend, span, peer, stream);
}
absl::Status GlooCommunicator::Receive(DeviceSpan span, int peer, Stream& stream) {
  if (peer == rank()) return absl::InvalidArgumentError("receive: from this rank itself");
  return Enqueue("receive", &GlooCommunicator::DoReceive, span, peer, stream);
}

void GlooCommunicator::DoAllReduce(GlooMesh::Link& link, DeviceSpan span, int) {
  if (span.bytes() * (size() - 1) <= kDirectBytes) {
    AllReduceDirectly(link, span);
  } else {
    AllReduceOnRing(link, span);
  }
}

void GlooCommunicator::AllReduceDirectly(GlooMesh::Link& link, DeviceSpan span) {
  for (int i = 1; i < size(); ++i) link.Send((rank() + i) % size(), span.data, span.bytes());
  // Peers' values in rank order; this rank's own fall in their place.
  float* theirs = staging_.data();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    link.Receive(peer, theirs, span.bytes());
    theirs += span.elements;
  }
  for (int64_t i = 0; i < span.elements; ++i) {
    float sum = 0;
    const float* value = &staging_[i];
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) {
        sum = peer == 0 ? span.data[i] : sum + span.data[i];
      } else {
        sum = peer == 0 ? *value : sum + *value;
        value += span.elements;
      }
    }
    span.data[i] = sum;
  }
}

void GlooCommunicator::AllReduceOnRing(GlooMesh::Link& link, DeviceSpan span) {
  const int n = size();
  const int right = (rank() + 1) % n, left = (rank() + n - 1) % n;
  // Block b is summed along the ring and ends complete at rank b - 1. Multiples of 16 elements keep
  // cache lines whole.
  const auto begin_of = [&](int block) {
    return block == n ? span.elements : span.elements * block / n / 16 * 16;
  };
  const auto block_of = [&](int number) {
    const int block = (number % n + n) % n;
    return span.Slice(begin_of(block), begin_of(block + 1) - begin_of(block));
  };
  GlooMesh::Window to_stage = link.SendWindow(right, kStaged, span.data, span.bytes());
  GlooMesh::Window to_place = link.SendWindow(right, kInPlace, span.data, span.bytes());
  // One chunk suffices: a message leaves the socket only when it is waited for.
  GlooMesh::Window stage = link.ReceiveWindow(left, kStaged, staging_.data(), chunk_elements_ * 4);
  GlooMesh::Window place = link.ReceiveWindow(left, kInPlace, span.data, span.bytes());
  for (int step = 0; step < 2 * (n - 1); ++step) {
    const bool reducing = step < n - 1;
    const DeviceSpan sent = block_of(rank() - step), received = block_of(rank() - step - 1);
    const int64_t sends = Chunks(sent.elements), receives = Chunks(received.elements);
    for (int64_t i = 0; i < std::max(sends, receives + kChunksAhead); ++i) {
      if (i < sends) {
        const DeviceSpan chunk = Chunk(sent, i);
        const int64_t offset = (chunk.data - span.data) * 4;
        if (reducing) {
          to_stage.Send(offset, chunk.bytes(), 0);
        } else {
          to_place.Send(offset, chunk.bytes(), offset);
        }
      }
      const int64_t j = i - kChunksAhead;
      if (j < 0 || j >= receives) continue;
      if (reducing) {
        stage.WaitReceived();
        const DeviceSpan chunk = Chunk(received, j);
        Add(staging_.data(), chunk.elements, chunk.data);
      } else {
        place.WaitReceived();
      }
    }
  }
}

// Chain towards the root, chunk by chunk: root + 1 -> root + 2 -> ... -> root.
void GlooCommunicator::DoReduce(GlooMesh::Link& link, DeviceSpan span, int root) {
  const int n = size();
  const int next = (rank() + 1) % n, previous = (rank() + n - 1) % n;
  const bool first = previous == root;
  if (span.bytes() <= kDirectBytes) {
    if (rank() != root) return link.Send(root, span.data, span.bytes());
    for (int i = 1; i < n; ++i) {
      link.Receive((root + i) % n, staging_.data(), span.bytes());
      Add(staging_.data(), span.elements, span.data);
    }
    return;
  }
  // The chain's partial sums pass through staging, so that only the root's values change.
  for (int64_t i = 0; i < Chunks(span.elements); ++i) {
    const DeviceSpan chunk = Chunk(span, i);
    const float* result = chunk.data;
    if (!first || rank() == root) {
      link.Receive(previous, staging_.data(), chunk.bytes());
      if (rank() == root) {
        Add(staging_.data(), chunk.elements, chunk.data);
      } else {
        Add(chunk.data, chunk.elements, staging_.data());
        result = staging_.data();
      }
    }
    if (rank() != root) link.Send(next, result, chunk.bytes());
  }
}

// Chain from the root: root -> root + 1 -> ... -> root - 1.
void GlooCommunicator::DoBroadcast(GlooMesh::Link& link, DeviceSpan span, int root) {
  const int n = size();
  // With two ranks nobody passes chunks on, and one message is quicker.
  if (span.bytes() <= kDirectBytes || n == 2) {
    if (rank() != root) return link.Receive(root, span.data, span.bytes());
    for (int i = 1; i < n; ++i) link.Send((root + i) % n, span.data, span.bytes());
    return;
  }
  const int next = (rank() + 1) % n, previous = (rank() + n - 1) % n;
  for (int64_t i = 0; i < Chunks(span.elements); ++i) {
    const DeviceSpan chunk = Chunk(span, i);
    if (rank() != root) link.Receive(previous, chunk.data, chunk.bytes());
    if (next != root) link.Send(next, chunk.data, chunk.bytes());
  }
}

void GlooCommunicator::DoSend(GlooMesh::Link& link, DeviceSpan span, int peer) {
  link.Send(peer, span.data, span.bytes());
}

void GlooCommunicator::DoReceive(GlooMesh::Link& link, DeviceSpan span, int peer) {
  link.Receive(peer, span.data, span.bytes());
}

}  // namespace paceline
