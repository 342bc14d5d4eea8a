// Runs one rank of one trial: builds network, schedule and backend parts, meets the other ranks,
// warms up, measures until the stopping rule is satisfied, checks the replicas, and reports.
//
//   TrialRunner runner(backend, {.worker_id = "node1-4711"});
//   v1::TrialResult result = runner.Run(assignment, store, cancel, progress);
//
// Never fails as a call: what goes wrong is the result's status and cause. One Run at a time.
#ifndef PACELINE_WORKER_RUNNER_TRIAL_RUNNER_H_
#define PACELINE_WORKER_RUNNER_TRIAL_RUNNER_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/paceline/v1/worker.pb.h"
#include "worker/backend/backend.h"
#include "worker/runner/cancel_token.h"

namespace paceline {

struct TrialRunnerOptions {
  std::string worker_id;
  // Connecting to peers, and any single transfer: how long a silent peer is waited for.
  absl::Duration peer_timeout = absl::Seconds(30);
  // Default of InputPolicy::decode_threads_per_device.
  int decode_threads = 1;
};

using ProgressSink = std::function<void(const v1::TrialProgress&)>;

class TrialRunner {
 public:
  TrialRunner(Backend& backend, TrialRunnerOptions options)
      : backend_(backend), options_(std::move(options)) {}

  v1::TrialResult Run(const v1::RankAssignment& assignment, RendezvousStore& store,
                      CancelToken& cancel, const ProgressSink& progress);

 private:
  Backend& backend_;
  const TrialRunnerOptions options_;
};

// Status of a trial that ended with this error, as seen by one rank.
v1::TrialStatus TrialStatusFor(const absl::Status& status);

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_TRIAL_RUNNER_H_
