#include "worker/backend/cpu/parameter_server.h"

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/gloo_mesh.h"

namespace paceline {
namespace {

// Every message begins with this; a push and a reply continue with the shard's values.
struct Header {
  int32_t kind;
  int32_t shard;
};
constexpr int kPushMessage = 1;
constexpr int kPullRequest = 2;
constexpr int kReply = 3;

}  // namespace

HostParameterServer::HostParameterServer(const RankInfo& info, const IterationSchedule& schedule,
                                         const v1::TrainingSettings& training)
    : info_(info),
      servers_update_(schedule.servers_update),
      scale_(1.0f / static_cast<float>(std::max(1, schedule.gradient_divisor))),
      learning_rate_(static_cast<float>(training.learning_rate())),
      momentum_(std::max(0.0f, static_cast<float>(training.momentum()))),
      weight_decay_(std::max(0.0f, static_cast<float>(training.weight_decay()))) {}

absl::StatusOr<std::unique_ptr<HostParameterServer>> HostParameterServer::Create(
    const RankInfo& rank, const IterationSchedule& schedule,
    const std::vector<DeviceSpan>& initial_weights, const v1::TrainingSettings& training,
    absl::string_view name, RendezvousStore& store) {
  auto server = absl::WrapUnique(new HostParameterServer(rank, schedule, training));
  absl::Status status = server->LayOut(schedule, initial_weights);
  if (status.ok()) status = server->Connect(schedule, name, store);
  if (!status.ok()) return status;
  return server;
}

absl::Status HostParameterServer::LayOut(const IterationSchedule& schedule,
                                         const std::vector<DeviceSpan>& initial_weights) {
  if (schedule.servers < 1 || schedule.servers > info_.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("parameter server: ", schedule.servers,
                                                   " servers for ", info_.ranks, " ranks"));
  }
  if (initial_weights.size() != schedule.groups.size()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter server: weights of ",
                                                   initial_weights.size(), " groups, not of ",
                                                   schedule.groups.size()));
  }
  shards_of_group_.resize(schedule.groups.size());
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    const int64_t padded = initial_weights[g].elements;
    int64_t covered_bytes = 0;
    for (const Group::Shard& part : group.shards) {
      if (part.offset_bytes != covered_bytes || part.server < 0 ||
          part.server >= schedule.servers) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter server: group ", g, " has a shard at byte ", part.offset_bytes,
                         " of server ", part.server, "; expected byte ", covered_bytes,
                         " and a server in 0..", schedule.servers - 1));
      }
      covered_bytes += part.bytes;
      // Whole cache lines, except at the end.
      const auto scaled = [&](int64_t bytes) {
        if (bytes >= group.bytes) return padded;
        return static_cast<int64_t>(static_cast<double>(bytes) / group.bytes * padded) / 16 * 16;
      };
      Shard shard;
      shard.group = static_cast<int>(g);
      shard.server = part.server;
      shard.first = scaled(part.offset_bytes);
      shard.elements = scaled(covered_bytes) - shard.first;
      shards_of_group_[g].push_back(static_cast<int>(shards_.size()));
      shards_.push_back(shard);
      served_.push_back(nullptr);
      if (shard.server != info_.rank) continue;
      auto served = std::make_unique<ServedShard>();
      const float* weights = initial_weights[g].data + shard.first;
      served->result.assign(weights, weights + shard.elements);
      if (servers_update_) served->momentum.assign(shard.elements, 0.0f);
      served->pushes.assign(info_.ranks, std::vector<float>(shard.elements));
      MutexLock lock(&served->mu);
      served->pushed.assign(info_.ranks, false);
      served->pulls.assign(info_.ranks, 0);
      served_.back() = std::move(served);
    }
    if (covered_bytes != group.bytes) {
      return absl::InvalidArgumentError(absl::StrCat("parameter server: the shards of group ", g,
                                                     " cover ", covered_bytes, " of ", group.bytes,
                                                     " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status HostParameterServer::Connect(const IterationSchedule& schedule, absl::string_view name,
                                          RendezvousStore& store) {
  for (int i = 0; i < info_.ranks; ++i) {
    push_mutexes_.push_back(std::make_unique<Mutex>());
    reply_mutexes_.push_back(std::make_unique<Mutex>());
    readers_.push_back(std::make_unique<ReplyReader>());
  }
  if (info_.ranks == 1) return absl::OkStatus();
  const auto connect = [&](std::unique_ptr<GlooMesh>& mesh, absl::string_view what) {
    auto connected = GlooMesh::Connect(info_, absl::StrCat(name, "/", what), store);
    if (!connected.ok()) return connected.status();
    mesh = *std::move(connected);
    return absl::OkStatus();
  };
  absl::Status status = connect(push_meshes_[0], "push_down");
  if (status.ok()) status = connect(reply_meshes_[1], "reply_up");
  // Server 0 has only higher ranks as workers.
  if (status.ok() && schedule.servers > 1) status = connect(push_meshes_[1], "push_up");
  if (status.ok() && schedule.servers > 1) status = connect(reply_meshes_[0], "reply_down");
  if (!status.ok() || info_.rank >= schedule.servers) return status;
  for (int worker = 0; worker < info_.ranks; ++worker) {
    if (worker != info_.rank) threads_.emplace_back([this, worker] { Serve(worker); });
  }
  return absl::OkStatus();
}

HostParameterServer::~HostParameterServer() {
  for (auto& mesh : push_meshes_) {
    if (mesh != nullptr) mesh->FinishSending();
  }
  {
    const absl::Time deadline = absl::Now() + info_.timeout;
    MutexLock lock(&mu_);
    while (cause_.ok() && gone_.size() < threads_.size()) {
      if (!worker_gone_.WaitUntil(&mu_, deadline) && absl::Now() >= deadline) break;
    }
  }
  Abort(absl::CancelledError("the parameter server is destroyed"));
  for (std::thread& thread : threads_) thread.join();
}

void HostParameterServer::Abort(const absl::Status& cause) {
  {
    MutexLock lock(&mu_);
    if (cause_.ok()) cause_ = cause;
    worker_gone_.NotifyAll();
  }
  for (auto* meshes : {push_meshes_, reply_meshes_}) {
    for (int i = 0; i < 2; ++i) {
      if (meshes[i] != nullptr) meshes[i]->Break(cause);
    }
  }
  for (auto& served : served_) {
    if (served == nullptr) continue;
    MutexLock lock(&served->mu);
    served->updated.NotifyAll();
  }
  for (auto& reader : readers_) {
    MutexLock lock(&reader->mu);
    reader->arrived.NotifyAll();
  }
}

absl::Status HostParameterServer::Push(int group, DeviceSpan gradients, Stream& stream) {
  return stream.RunOnHost([this, group, gradients] { return DoPush(group, gradients); });
}

absl::Status HostParameterServer::Pull(int group, DeviceSpan destination, Stream& stream) {
  return stream.RunOnHost([this, group, destination] { return DoPull(group, destination); });
}

absl::Status HostParameterServer::SendToServer(int server, int kind, int shard, const float* values,
                                               int64_t elements) {
  MutexLock lock(push_mutexes_[server].get());
  return PushMesh(info_.rank, server)
      .Run(absl::StrCat(kind == kPushMessage ? "push to" : "pull from", " server ", server),
           [&](GlooMesh::Link& link) {
             const Header header = {kind, shard};
             link.Send(server, &header, sizeof(header));
             link.Send(server, values, elements * 4);
           });
}

absl::Status HostParameterServer::DoPush(int group, DeviceSpan gradients) {
  for (const int s : shards_of_group_[group]) {
    const Shard& shard = shards_[s];
    const float* values = gradients.data + shard.first;
    absl::Status status;
    if (shard.server == info_.rank) {
      std::memcpy(served_[s]->pushes[info_.rank].data(), values, shard.elements * 4);
      status = AcceptPush(s, info_.rank);
    } else {
      status = SendToServer(shard.server, kPushMessage, s, values, shard.elements);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HostParameterServer::DoPull(int group, DeviceSpan destination) {
  // Ask all servers first, so that they work side by side.
  for (const int s : shards_of_group_[group]) {
    const Shard& shard = shards_[s];
    if (shard.server == info_.rank) continue;
    {
      MutexLock lock(&readers_[shard.server]->mu);
      readers_[shard.server]->wanted[s] = destination.data + shard.first;
    }
    absl::Status status = SendToServer(shard.server, kPullRequest, s, nullptr, 0);
    if (!status.ok()) return status;
  }
  for (const int s : shards_of_group_[group]) {
    const Shard& shard = shards_[s];
    absl::Status status;
    if (shard.server != info_.rank) {
      status = AwaitReply(s);
    } else {
      ServedShard& served = *served_[s];
      const absl::Time deadline = absl::Now() + info_.timeout;
      MutexLock lock(&served.mu);
      const int64_t wanted = ++served.pulls[info_.rank];
      while (served.version < wanted) {
        status = LostWorker();
        if (!status.ok()) return status;
        if (!served.updated.WaitUntil(&served.mu, deadline) && absl::Now() >= deadline) {
          return absl::DeadlineExceededError(
              absl::StrCat("rank ", info_.rank, ": pull of group ", group,
                           ": not every rank pushed its gradients in time"));
        }
      }
      std::memcpy(destination.data + shard.first, served.result.data(), shard.elements * 4);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HostParameterServer::AwaitReply(int shard) {
  const int server = shards_[shard].server;
  ReplyReader& reader = *readers_[server];
  const absl::Time deadline = absl::Now() + info_.timeout;
  while (true) {
    {
      MutexLock lock(&reader.mu);
      while (reader.reading && reader.wanted.count(shard) > 0) {
        if (!reader.arrived.WaitUntil(&reader.mu, deadline) && absl::Now() >= deadline) {
          return absl::DeadlineExceededError(absl::StrCat("rank ", info_.rank, ": server ", server,
                                                          " did not answer a pull in time"));
        }
      }
      if (reader.wanted.count(shard) == 0) return absl::OkStatus();
      reader.reading = true;
    }
    int arrived = -1;
    absl::Status status =
        ReplyMesh(server, info_.rank)
            .Run(absl::StrCat("pull from server ", server), [&](GlooMesh::Link& link) {
              Header header;
              link.Receive(server, &header, sizeof(header));
              arrived = header.shard;
              float* destination;
              {
                MutexLock lock(&reader.mu);
                destination = reader.wanted[arrived];
              }
              link.Receive(server, destination, shards_[arrived].elements * 4);
            });
    MutexLock lock(&reader.mu);
    reader.reading = false;
    if (status.ok()) reader.wanted.erase(arrived);
    reader.arrived.NotifyAll();
    if (!status.ok()) return status;
  }
}

void HostParameterServer::Serve(int worker) {
  pthread_setname_np(pthread_self(), absl::StrCat("server for ", worker).substr(0, 15).c_str());
  GlooMesh& mesh = PushMesh(worker, info_.rank);
  while (mesh.AwaitMessage(worker)) {
    Header header = {};
    absl::Status status = mesh.Run(absl::StrCat("serve rank ", worker), [&](GlooMesh::Link& link) {
      link.Receive(worker, &header, sizeof(header));
      if (header.kind != kPushMessage) return;
      std::vector<float>& values = served_[header.shard]->pushes[worker];
      link.Receive(worker, values.data(), static_cast<int64_t>(values.size()) * 4);
    });
    if (status.ok()) {
      status = header.kind == kPushMessage ? AcceptPush(header.shard, worker)
                                           : AcceptPull(header.shard, worker);
    }
    if (!status.ok()) {
      Abort(status);
      return;
    }
  }
  // The worker is gone, at the end of the trial or before: whoever still needs it must not wait.
  {
    MutexLock lock(&mu_);
    gone_.push_back(worker);
    worker_gone_.NotifyAll();
  }
  bool needed = false;
  for (auto& served : served_) {
    if (served == nullptr) continue;
    MutexLock lock(&served->mu);
    needed = needed || !served->waiting.empty();
    served->updated.NotifyAll();
  }
  if (needed) Abort(LostWorker());
}

absl::Status HostParameterServer::LostWorker() {
  MutexLock lock(&mu_);
  if (!cause_.ok()) return cause_;
  if (gone_.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("rank ", info_.rank, ": parameter server: rank ",
                                             gone_.front(), " closed its connection"));
}

absl::Status HostParameterServer::AcceptPush(int shard, int worker) {
  ServedShard& served = *served_[shard];
  std::vector<int> waiting;
  {
    MutexLock lock(&served.mu);
    if (served.pushed[worker]) {
      return absl::InternalError(absl::StrCat("rank ", worker, " pushed group ",
                                              shards_[shard].group, " twice in one iteration"));
    }
    served.pushed[worker] = true;
    if (++served.pushed_count < info_.ranks) return absl::OkStatus();
    Update(served);
    served.pushed.assign(info_.ranks, false);
    served.pushed_count = 0;
    ++served.version;
    waiting.swap(served.waiting);
    served.updated.NotifyAll();
  }
  for (const int rank : waiting) {
    absl::Status status = Reply(shard, rank);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HostParameterServer::AcceptPull(int shard, int worker) {
  ServedShard& served = *served_[shard];
  {
    MutexLock lock(&served.mu);
    if (served.version < ++served.pulls[worker]) {
      absl::Status lost = LostWorker();
      if (!lost.ok()) return lost;
      served.waiting.push_back(worker);
      return absl::OkStatus();
    }
  }
  return Reply(shard, worker);
}

absl::Status HostParameterServer::Reply(int shard, int worker) {
  MutexLock lock(reply_mutexes_[worker].get());
  return ReplyMesh(info_.rank, worker)
      .Run(absl::StrCat("reply to rank ", worker), [&](GlooMesh::Link& link) {
        const Header header = {kReply, shard};
        link.Send(worker, &header, sizeof(header));
        const std::vector<float>& values = served_[shard]->result;
        link.Send(worker, values.data(), static_cast<int64_t>(values.size()) * 4);
      });
}

// One pass in cache-sized blocks: sum in rank order, then the SGD step of LayerEngine::Update.
void HostParameterServer::Update(ServedShard& shard) {
  constexpr int64_t kBlock = 1024;
  float sum[kBlock];
  const int64_t elements = static_cast<int64_t>(shard.result.size());
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t count = std::min(kBlock, elements - begin);
    std::memcpy(sum, &shard.pushes[0][begin], count * 4);
    for (int rank = 1; rank < info_.ranks; ++rank) {
      const float* values = &shard.pushes[rank][begin];
      for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    float* result = &shard.result[begin];
    if (!servers_update_) {
      std::memcpy(result, sum, count * 4);
      continue;
    }
    float* velocity = &shard.momentum[begin];
    for (int64_t i = 0; i < count; ++i) {
      velocity[i] =
          momentum_ * velocity[i] + learning_rate_ * (sum[i] * scale_ + weight_decay_ * result[i]);
      result[i] -= velocity[i];
    }
  }
}

}  // namespace paceline
