// The worker's side of Synchronize: tells the coordinator what it is and does, and does what it is
// told. Level-driven: any call may be lost, repeated or late.
//
//   Agent agent(client, description, run_trial, options);
//   absl::Status status = agent.Run();     // Until the coordinator says exit, or Stop().
//
// Stop may be called from any thread (not from a signal handler).
#ifndef PACELINE_WORKER_AGENT_AGENT_H_
#define PACELINE_WORKER_AGENT_AGENT_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/paceline/v1/coordinator.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/paceline/v1/worker.pb.h"
#include "proto/support/mutex.h"
#include "worker/agent/coordinator_client.h"
#include "worker/runner/cancel_token.h"
#include "worker/runner/trial_runner.h"

namespace paceline {

struct AgentOptions {
  absl::Duration call_timeout = absl::Seconds(5);
  // A coordinator that cannot be reached for this long is gone: the worker stops.
  absl::Duration coordinator_timeout = absl::Seconds(60);
  // A cancelled trial must be over within this; a worker whose trial hangs cannot be used again.
  absl::Duration cancel_timeout = absl::Seconds(30);
};

// Runs one rank; blocks until it is over.
using RunTrial = std::function<v1::TrialResult(const v1::RankAssignment&, RendezvousStore&,
                                               CancelToken&, const ProgressSink&)>;

class Agent {
 public:
  // `client` outlives the agent.
  Agent(CoordinatorClient& client, v1::WorkerDescription description, RunTrial run_trial,
        AgentOptions options = {});
  // Cancels a running trial and waits for it.
  ~Agent();

  // OK: told to exit, or stopped. UNAVAILABLE: the coordinator is gone. INTERNAL: a cancelled trial
  // hangs, so the process should end at once. Others: the coordinator refused this worker.
  absl::Status Run();
  void Stop();

  v1::DescribeResponse Describe() const;

 private:
  // One rank of one attempt, on its own thread.
  struct Running {
    v1::RankAssignment assignment;
    CancelToken cancel;
    std::thread thread;
    absl::Time cancelled_at = absl::InfiniteFuture();
  };

  v1::SynchronizeRequest MakeRequest();
  void Obey(const v1::SynchronizeRequest& request, const v1::SynchronizeResponse& response);
  void UpdateClock(const v1::SynchronizeResponse& response, absl::Time sent, absl::Time received);
  void Start(const v1::RankAssignment& assignment);
  void CancelRunning(const absl::Status& cause);
  // Joins the trial's thread if it has delivered its result.
  void ReapFinished();
  v1::WorkerState State() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CoordinatorClient& client_;
  const v1::WorkerDescription description_;
  const RunTrial run_trial_;
  const AgentOptions options_;

  // Used by Run's thread only.
  std::unique_ptr<Running> running_;
  std::string last_finished_;  // Key of the attempt whose result was acknowledged.
  absl::Duration best_round_trip_ = absl::InfiniteDuration();
  absl::Time best_round_trip_at_ = absl::InfinitePast();

  mutable Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // The thread has set result_ and is ending.
  v1::WorkerState state_ ABSL_GUARDED_BY(mutex_);
  absl::optional<v1::TrialResult> result_ ABSL_GUARDED_BY(mutex_);  // Until acknowledged.
  v1::ClockOffset clock_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

#endif  // PACELINE_WORKER_AGENT_AGENT_H_
