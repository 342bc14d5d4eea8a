#include "worker/backend/cpu/gloo_mesh.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT(build/c++11)
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gloo/context.h"
#include "gloo/transport/buffer.h"
#include "gloo/transport/context.h"
#include "gloo/transport/device.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/address.h"
#include "gloo/transport/tcp/device.h"

namespace paceline {
namespace {

// Gloo's rendezvous::Context keeps the peers' addresses to itself, which AdoptSockets needs; and it
// would ask the store for one key per peer and pair anyway.
class PairContext : public gloo::Context {
 public:
  PairContext(int rank, int size, std::shared_ptr<gloo::transport::Device> device,
              std::chrono::milliseconds timeout)
      : gloo::Context(rank, size) {
    setTimeout(timeout);
    device_ = std::move(device);
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(timeout);
  }
  gloo::transport::Pair* CreatePair(int peer) { return transportContext_->createPair(peer).get(); }
};

// Asked for, per direction of a connection. The kernel doubles it for its own bookkeeping and caps
// it (net.core.wmem_max, rmem_max).
constexpr int kSocketBufferBytes = 1 << 20;

// Sends of 128 KiB run into closed receive windows, and then into the 40 ms of a delayed
// acknowledgement, unless the receiver's buffer is large from the start (measured 2026-12). But a
// size that the system caps is worse than the kernel's own growth.
bool MayEnlargeReceiveBuffers() {
  std::ifstream file("/proc/sys/net/core/rmem_max");
  int64_t limit_bytes = 0;
  return file >> limit_bytes && limit_bytes >= kSocketBufferBytes;
}

// A peer that vanishes must be an error of writev, not a signal.
void IgnoreBrokenPipes() {
  static const bool ignored = [] {
    struct sigaction action;
    if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      signal(SIGPIPE, SIG_IGN);
    }
    return true;
  }();
  (void)ignored;
}

// "[pair.cc:123] Connection closed by peer [10.0.0.1]:4" -> without the place in Gloo's source.
absl::string_view WithoutSourceLine(absl::string_view message) {
  if (absl::StartsWith(message, "[") && absl::StrContains(message, "] ")) {
    message.remove_prefix(message.find("] ") + 2);
  }
  return message;
}

bool SameAddress(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto& a4 = reinterpret_cast<const sockaddr_in&>(a);
    const auto& b4 = reinterpret_cast<const sockaddr_in&>(b);
    return a4.sin_port == b4.sin_port && a4.sin_addr.s_addr == b4.sin_addr.s_addr;
  }
  const auto& a6 = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& b6 = reinterpret_cast<const sockaddr_in6&>(b);
  return a6.sin6_port == b6.sin6_port && memcmp(&a6.sin6_addr, &b6.sin6_addr, 16) == 0;
}

// Connected TCP sockets of this process.
struct ConnectedSocket {
  int descriptor;
  sockaddr_storage own, peer;
};

std::vector<ConnectedSocket> ConnectedSockets() {
  std::vector<ConnectedSocket> sockets;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return sockets;
  while (const dirent* entry = readdir(directory)) {
    ConnectedSocket socket = {};
    socket.descriptor = atoi(entry->d_name);
    socklen_t own_bytes = sizeof(socket.own), peer_bytes = sizeof(socket.peer);
    if (getsockname(socket.descriptor, reinterpret_cast<sockaddr*>(&socket.own), &own_bytes) == 0 &&
        getpeername(socket.descriptor, reinterpret_cast<sockaddr*>(&socket.peer), &peer_bytes) ==
            0) {
      sockets.push_back(socket);
    }
  }
  closedir(directory);
  return sockets;
}

}  // namespace

GlooMesh::Window::Window(std::unique_ptr<gloo::transport::Buffer> buffer)
    : buffer_(std::move(buffer)) {}
GlooMesh::Window::Window(Window&&) noexcept = default;
GlooMesh::Window::~Window() = default;
void GlooMesh::Window::Send(int64_t offset, int64_t bytes, int64_t peer_offset) {
  buffer_->send(offset, bytes, peer_offset);
}
void GlooMesh::Window::WaitReceived() { buffer_->waitRecv(); }

GlooMesh::Window GlooMesh::Link::SendWindow(int peer, int slot, const void* data, int64_t bytes) {
  return Window(mesh_->pairs_[peer]->createSendBuffer(slot, const_cast<void*>(data), bytes));
}

GlooMesh::Window GlooMesh::Link::ReceiveWindow(int peer, int slot, void* data, int64_t bytes) {
  return Window(mesh_->pairs_[peer]->createRecvBuffer(slot, data, bytes));
}

void GlooMesh::Link::Send(int peer, const void* data, int64_t bytes) {
  if (bytes > 0) SendWindow(peer, 0, data, bytes).Send(0, bytes, 0);
}

void GlooMesh::Link::Receive(int peer, void* data, int64_t bytes) {
  if (bytes > 0) ReceiveWindow(peer, 0, data, bytes).WaitReceived();
}

GlooMesh::GlooMesh(const RankInfo& info, absl::string_view name)
    : info_(info),
      name_(name),
      pairs_(info.ranks, nullptr),
      safe_bytes_(kSocketBufferBytes),
      sockets_(info.ranks, -1) {}

GlooMesh::~GlooMesh() {
  // Gloo closes with a linger time of zero, which throws away what a slower peer has yet to
  // receive. Our own descriptors keep the connection over that and close it in order.
  if (context_ != nullptr) context_->closeConnections();
  for (const int socket : sockets_) {
    if (socket < 0) continue;
    const linger orderly = {0, 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &orderly, sizeof(orderly));
    close(socket);
  }
}

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Connect(const RankInfo& info,
                                                            absl::string_view name,
                                                            RendezvousStore& store) {
  auto mesh = absl::WrapUnique(new GlooMesh(info, name));
  if (info.ranks > 1) {
    IgnoreBrokenPipes();
    absl::Status connected;
    try {
      connected = mesh->ConnectPairs(store);
    } catch (const std::exception& exception) {
      connected = mesh->Translate("connect", exception.what());
    }
    if (!connected.ok()) return connected;
  }
  return mesh;
}

absl::Status GlooMesh::ConnectPairs(RendezvousStore& store) {
  const absl::Time deadline = absl::Now() + info_.timeout;
  // Gloo allows connecting five times its timeout (transport/tcp/pair.h, waitUntil).
  const auto gloo_timeout =
      std::max(absl::ToChronoMilliseconds(info_.timeout / 5), std::chrono::milliseconds(1));
  gloo::transport::tcp::attr attributes;
  attributes.hostname = info_.data_address;
  auto context = std::make_shared<PairContext>(
      rank(), size(), gloo::transport::tcp::CreateDevice(attributes), gloo_timeout);
  context_ = context;

  const auto key = [this](absl::string_view what, int from, int to) {
    return absl::StrCat("gloo/", name_, "/", what, "/", from, "/", to);
  };
  std::vector<std::vector<char>> own_addresses(size()), peer_addresses(size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    pairs_[peer] = context->CreatePair(peer);
    pairs_[peer]->setLocalRank(0);  // Otherwise uninitialised.
    own_addresses[peer] = pairs_[peer]->address().bytes();
    absl::Status put = store.Put(key("address", rank(), peer),
                                 {own_addresses[peer].data(), own_addresses[peer].size()});
    if (!put.ok()) return put;
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    absl::StatusOr<std::string> address = store.Get(key("address", peer, rank()), deadline);
    if (!address.ok()) {
      return absl::Status(
          address.status().code(),
          absl::StrCat("rank ", rank(), ": connect ", name_, ": no address of rank ", peer, ": ",
                       address.status().message()));
    }
    peer_addresses[peer].assign(address->begin(), address->end());
    pairs_[peer]->connect(peer_addresses[peer]);
    pairs_[peer]->setSync(true, /*busyPoll=*/false);
  }
  absl::Status adopted = AdoptSockets(own_addresses, peer_addresses);
  if (!adopted.ok()) return adopted;
  // No byte may arrive while a peer's event loop still listens.
  absl::Status put = store.Put(key("ready", rank(), rank()), absl::StrCat(safe_bytes_));
  if (!put.ok()) return put;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    absl::StatusOr<std::string> ready = store.Get(key("ready", peer, peer), deadline);
    if (!ready.ok()) {
      return absl::Status(ready.status().code(),
                          absl::StrCat("rank ", rank(), ": connect ", name_, ": rank ", peer,
                                       " is not ready: ", ready.status().message()));
    }
    int64_t peer_safe_bytes = 0;
    if (!absl::SimpleAtoi(*ready, &peer_safe_bytes)) {
      return absl::InternalError(absl::StrCat("rank ", peer, " sent '", *ready, "', not a size"));
    }
    safe_bytes_ = std::min(safe_bytes_, peer_safe_bytes);
  }
  return absl::OkStatus();
}

// Gloo does not give its sockets away, but breaking a blocked transfer needs shutdown(2), since the
// pair is locked meanwhile; and buffer sizes and timeouts need setting. Each pair has a listening
// port of its own, which one end of its connection has.
absl::Status GlooMesh::AdoptSockets(const std::vector<std::vector<char>>& own_addresses,
                                    const std::vector<std::vector<char>>& peer_addresses) {
  const std::vector<ConnectedSocket> connected = ConnectedSockets();
  const bool enlarge = MayEnlargeReceiveBuffers();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const gloo::transport::tcp::Address own(own_addresses[peer]), other(peer_addresses[peer]);
    for (const ConnectedSocket& socket : connected) {
      // Accepted here, or connected from here to the peer's port. Ranks of one process have both
      // ends.
      const bool accepted = SameAddress(socket.own, own.getSockaddr());
      const bool dialled = SameAddress(socket.peer, other.getSockaddr());
      if (accepted || dialled) sockets_[peer] = dup(socket.descriptor);
    }
    if (sockets_[peer] < 0) {
      return absl::InternalError(absl::StrCat("rank ", rank(), ": connect ", name_,
                                              ": cannot find the socket of the connection to rank ",
                                              peer));
    }
    setsockopt(sockets_[peer], SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(int));
    if (enlarge)
      setsockopt(sockets_[peer], SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof(int));
    int granted_bytes = 0;  // Doubled.
    socklen_t option_bytes = sizeof(granted_bytes);
    getsockopt(sockets_[peer], SOL_SOCKET, SO_SNDBUF, &granted_bytes, &option_bytes);
    safe_bytes_ = std::min<int64_t>(safe_bytes_, granted_bytes / 2);
    const timeval timeout = absl::ToTimeval(info_.timeout);
    setsockopt(sockets_[peer], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(sockets_[peer], SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  }
  return absl::OkStatus();
}

absl::Status GlooMesh::Translate(absl::string_view what, absl::string_view cause) {
  cause = WithoutSourceLine(cause);
  const std::string message =
      absl::StrCat("rank ", rank(), ": gloo ", what, " (", name_, "): ", cause);
  return absl::StrContains(cause, "imeout") ? absl::DeadlineExceededError(message)
                                            : absl::UnavailableError(message);
}

absl::Status GlooMesh::Run(absl::string_view what, const std::function<void(Link&)>& transfer) {
  absl::Status failure;
  if (!broken_.load(std::memory_order_acquire)) {
    try {
      Link link(this);
      transfer(link);
      return absl::OkStatus();
    } catch (const std::exception& exception) {
      failure = Translate(what, exception.what());
    }
    Break(failure);  // Keeps the first cause, which may be an abort's.
  }
  MutexLock lock(&mu_);
  return cause_;
}

bool GlooMesh::AwaitMessage(int peer) {
  while (!broken_) {
    pollfd ready = {sockets_[peer], POLLIN, 0};
    if (poll(&ready, 1, /*timeout_ms=*/1000) <= 0) continue;  // Break ends it earlier.
    char byte;
    const ssize_t peeked = recv(sockets_[peer], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (peeked > 0) return true;
    if (peeked == 0 || (errno != EAGAIN && errno != EINTR)) return false;
  }
  return false;
}

void GlooMesh::FinishSending() {
  for (const int socket : sockets_) {
    if (socket >= 0) shutdown(socket, SHUT_WR);
  }
}

void GlooMesh::Break(const absl::Status& cause) {
  {
    MutexLock lock(&mu_);
    if (cause_.ok()) cause_ = cause;
  }
  if (broken_.exchange(true)) return;
  for (const int socket : sockets_) {
    if (socket >= 0) shutdown(socket, SHUT_RDWR);
  }
}

}  // namespace paceline
