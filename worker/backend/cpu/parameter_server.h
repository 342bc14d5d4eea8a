// A synchronous parameter server on the hosts' memory: workers push gradients, servers sum them,
// take the SGD step and answer pulls.
//
//   absl::StatusOr<std::unique_ptr<ParameterServer>> server = HostParameterServer::Create(
//       rank_info, schedule, weights_of_groups, training, "ps", store);
//   (*server)->Push(group, gradients, *stream);
//   (*server)->Pull(group, weights, *stream);   // Iteration k: after every rank's k-th push.
//
// Servers run beside ranks 0 .. schedule.servers - 1: a thread per other rank reads what it sends,
// and the last push of a shard updates it. A rank reaches its own server through memory, without a
// copy through the network stack. Shards are the schedule's, scaled to the padded sizes of the
// spans.
//
// Pushes are kept apart until the last one is there and then summed in rank order, in the same pass
// that updates the weights: every run gives the same bits, and memory is passed over once. (Summing
// as they come would differ from run to run, by rounding.)
//
// Pushes and replies travel on connections of their own, one for each direction: a pull waiting for
// slow ranks does not keep later pushes from arriving, also when they come on other streams.
//
// Thread-safety: Push and Pull from any stream's thread; a group's pushes and pulls alternate.
// Abort from any thread. The object outlives the streams' work.
#ifndef PACELINE_WORKER_BACKEND_CPU_PARAMETER_SERVER_H_
#define PACELINE_WORKER_BACKEND_CPU_PARAMETER_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/gloo_mesh.h"

namespace paceline {

class HostParameterServer : public ParameterServer {
 public:
  // INVALID_ARGUMENT: the schedule's shards do not cover its groups, or spans are missing.
  static absl::StatusOr<std::unique_ptr<HostParameterServer>> Create(
      const RankInfo& rank, const IterationSchedule& schedule,
      const std::vector<DeviceSpan>& initial_weights, const v1::TrainingSettings& training,
      absl::string_view name, RendezvousStore& store);
  // A server first waits (at most RankInfo::timeout) until its workers have fetched their last
  // pulls and are destroyed, too, unless it was aborted.
  ~HostParameterServer() override;

  absl::Status Push(int group, DeviceSpan gradients, Stream& stream) override;
  absl::Status Pull(int group, DeviceSpan destination, Stream& stream) override;
  void Abort(const absl::Status& cause) override;

 private:
  // A part of a group that one server holds.
  struct Shard {
    int group = 0;
    int server = 0;
    int64_t first = 0;  // Element of the group.
    int64_t elements = 0;
  };

  // State of a shard on its server.
  struct ServedShard {
    Mutex mu;
    CondVar updated;
    std::vector<std::vector<float>> pushes;  // By rank; each written by its own rank's reader.
    std::vector<bool> pushed ABSL_GUARDED_BY(mu);
    std::vector<int64_t> pulls ABSL_GUARDED_BY(mu);  // By rank: number of pulls asked for.
    std::vector<int> waiting ABSL_GUARDED_BY(mu);    // Ranks whose pull is not answered yet.
    int pushed_count ABSL_GUARDED_BY(mu) = 0;
    int64_t version ABSL_GUARDED_BY(mu) = 0;  // Completed iterations.
    // Weights after `version` iterations (or sums). Stable until all ranks have pulled and pushed.
    std::vector<float> result;
    std::vector<float> momentum;
  };

  // A worker's side of one remote server: whichever thread waits reads for all.
  struct ReplyReader {
    Mutex mu;
    CondVar arrived;
    bool reading ABSL_GUARDED_BY(mu) = false;
    std::map<int, float*> wanted ABSL_GUARDED_BY(mu);  // By shard; erased once filled.
  };

  HostParameterServer(const RankInfo& info, const IterationSchedule& schedule,
                      const v1::TrainingSettings& training);
  absl::Status LayOut(const IterationSchedule& schedule,
                      const std::vector<DeviceSpan>& initial_weights);
  absl::Status Connect(const IterationSchedule& schedule, absl::string_view name,
                       RendezvousStore& store);

  // Connections for pushes (and pull requests) from `worker` to `server`, and for replies back.
  GlooMesh& PushMesh(int worker, int server) { return *push_meshes_[worker < server]; }
  GlooMesh& ReplyMesh(int server, int worker) { return *reply_meshes_[server < worker]; }

  absl::Status DoPush(int group, DeviceSpan gradients);
  absl::Status DoPull(int group, DeviceSpan destination);
  absl::Status SendToServer(int server, int kind, int shard, const float* values, int64_t elements);
  absl::Status AwaitReply(int shard);

  void Serve(int worker);  // Thread: reads what one remote worker sends.
  absl::Status AcceptPush(int shard, int worker);
  absl::Status AcceptPull(int shard, int worker);
  absl::Status Reply(int shard, int worker);
  void Update(ServedShard& shard);
  absl::Status LostWorker() ABSL_LOCKS_EXCLUDED(mu_);

  const RankInfo info_;
  const bool servers_update_;
  const float scale_;
  const float learning_rate_;
  const float momentum_;
  const float weight_decay_;
  std::vector<Shard> shards_;
  std::vector<std::vector<int>> shards_of_group_;
  std::vector<std::unique_ptr<ServedShard>> served_;  // By shard; null if another rank serves it.
  // [0]: from higher to lower ranks, [1]: from lower to higher.
  std::unique_ptr<GlooMesh> push_meshes_[2], reply_meshes_[2];
  std::vector<std::unique_ptr<Mutex>> push_mutexes_;   // By server: a message is two transfers.
  std::vector<std::unique_ptr<Mutex>> reply_mutexes_;  // By worker.
  std::vector<std::unique_ptr<ReplyReader>> readers_;  // By server.
  std::vector<std::thread> threads_;

  Mutex mu_;
  absl::Status cause_ ABSL_GUARDED_BY(mu_);  // Of Abort, or the first failure.
  CondVar worker_gone_;
  std::vector<int> gone_ ABSL_GUARDED_BY(mu_);  // Workers that closed their connection.
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_PARAMETER_SERVER_H_
