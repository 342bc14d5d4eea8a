// Decides which worker runs what: gang leases, attempts, lost workers, timeouts, the end of the
// run. A pure state machine: it is called, never waits, and takes the time as an argument.
//
//   TrialScheduler scheduler(options, trials, /*outcomes=*/{}, store.get(), &rendezvous, now);
//   absl::StatusOr<v1::SynchronizeResponse> response = scheduler.Synchronize(request,
//   clock->Now()); scheduler.Tick(clock->Now());   // A few times a second, so that silence is
//   noticed. if (scheduler.state().over) ...
//
// Rules:
// - A trial starts on all its ranks or on none, in plan order. A trial has its hosts to itself,
// since
//   a neighbour on the same host would spoil both measurements.
// - A rank that fails by itself (out of memory, diverged, ...) ends the trial with its status. A
// rank
//   that is lost, or stopped because of another, ends the attempt; the trial is repeated until its
//   attempts are used up.
// - Results are stored before they are acknowledged. Those of earlier attempts are stored too, and
//   change nothing.
//
// Thread-safe (one mutex, held while the store syncs). Times in absl::Time of the caller's clock.
#ifndef PACELINE_COORDINATOR_SCHEDULER_TRIAL_SCHEDULER_H_
#define PACELINE_COORDINATOR_SCHEDULER_TRIAL_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "coordinator/results/run_store.h"
#include "proto/paceline/v1/coordinator.pb.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/paceline/v1/worker.pb.h"
#include "proto/support/mutex.h"

namespace paceline {

struct SchedulerOptions {
  std::string version;  // Workers of another version are refused.
  // A worker that has not called for this long is lost. Many calls long: a busy host may starve the
  // caller for a while.
  absl::Duration silence = absl::Seconds(10);
  // Time from one call of a worker to the next: while trials run (rare, so that calls do not
  // disturb the measurement), and between trials.
  absl::Duration running_call = absl::Milliseconds(200);
  absl::Duration waiting_call = absl::Milliseconds(50);
  // No trial starts before so many workers have joined, at most `join_timeout`. 0: any number.
  int workers_expected = 0;
  absl::Duration join_timeout = absl::Minutes(10);
  // How long the run waits, with nothing else to do, for devices that a trial needs.
  absl::Duration gang_grace = absl::Seconds(60);
  // How long ranks that have been told to stop may take to report.
  absl::Duration stop_grace = absl::Seconds(10);
};

// Told when the keys of an attempt come and go (the rendezvous). Called with the scheduler's mutex
// held: must not call back.
class AttemptListener {
 public:
  virtual ~AttemptListener() = default;
  virtual void AttemptStarted(absl::string_view rendezvous_prefix) = 0;
  virtual void AttemptEnded(absl::string_view rendezvous_prefix) = 0;
};

// What happened, for people.
struct SchedulerEvent {
  enum Kind { kWorkerJoined, kWorkerLost, kAttemptStarted, kAttemptEnded };
  Kind kind;
  std::string worker_id;  // kWorker...
  std::string text;       // "worker a-17 on host a joined".
  int trial_index = -1;   // kAttempt...
  TrialOutcome outcome;   // kAttemptEnded.
};

struct RunState {
  // Every trial has ended (or the run was cancelled, has failed or is stalled, and no attempt is
  // left).
  bool over = false;
  // The store cannot be written: the run must stop.
  absl::Status failure;
  // Not empty if no progress is possible: what is missing.
  std::string stalled;
  // Workers that still call and have not been told that the plan is over.
  int workers_to_dismiss = 0;
  int workers = 0;
};

class TrialScheduler {
 public:
  // `outcomes` are those of the store on --resume, empty or one per trial. `store` and `listener`
  // (may be null) must outlive the scheduler.
  TrialScheduler(SchedulerOptions options, std::vector<v1::Trial> trials,
                 const std::vector<TrialOutcome>& outcomes, RunStore* store,
                 AttemptListener* listener, absl::Time now);

  // INVALID_ARGUMENT: no worker id, or an impossible state. FAILED_PRECONDITION: version differs.
  // UNAVAILABLE: the result could not be stored; it is kept by the worker.
  absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                      absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Notices silence and timeouts, and starts what can start.
  void Tick(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Starts nothing more, and stops what runs; what was measured is kept. Attempts that end by this
  // are not final: a resumed run repeats their trials.
  void Cancel(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Workers of which `gone` is true are known to be gone (their process ended): no need to wait for
  // their silence. `cause`: "ended with exit code 1".
  void WorkersGone(const std::function<bool(const v1::WorkerDescription&)>& gone,
                   const std::string& cause, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  RunState state() const ABSL_LOCKS_EXCLUDED(mu_);
  // For GetStatus and progress bars. `run_dir` is left empty.
  v1::GetStatusResponse Snapshot(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  // Events since the last call, oldest first.
  std::vector<SchedulerEvent> TakeEvents() ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<TrialOutcome> Outcomes() const ABSL_LOCKS_EXCLUDED(mu_);  // Plan order.
  // Expected duration of each trial, plan order: weights for the estimate of the time left. Only
  // their ratios matter; all equal by default.
  void SetExpectedSeconds(std::vector<double> seconds) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Rank {
    std::string worker_id;
    // Reported, lost, or stopped without a report: nothing more is expected of it.
    bool settled = false;
    v1::TrialStatus status = v1::TRIAL_STATUS_UNSPECIFIED;
    std::string cause;
  };
  struct Attempt {
    int number = 0;
    v1::ClusterShape cluster;
    std::vector<Rank> ranks;
    std::vector<std::string> peer_addresses;
    std::string rendezvous_prefix;
    absl::Time started;
    absl::Time deadline;
    // Set once the attempt cannot succeed any more and its ranks have to stop.
    absl::optional<absl::Time> stop_deadline;
    v1::TrialStatus stop_status = v1::TRIAL_STATUS_UNSPECIFIED;
    std::string stop_cause;
  };
  struct TrialState {
    v1::Trial trial;
    int attempts = 0;       // Numbers given out, earlier runs included.
    int lost_attempts = 0;  // Of this run.
    absl::optional<Attempt> attempt;
    TrialOutcome outcome;
  };
  struct Worker {
    v1::WorkerDescription description;
    absl::Time last_call;
    int64_t last_send_unix_ns = 0;
    v1::WorkerState state;
    bool busy = false;  // Runs something, or has just been told to.
    int trial = -1;     // The lease: index into trials_, and rank.
    int rank = -1;
    bool seen_running = false;  // It has confirmed the lease.
    absl::optional<absl::Time> told_to_stop;
    bool dismissed = false;
  };
  using HostKey = std::pair<std::string, std::string>;  // Backend and host.

  void HandleResult(const v1::TrialResult& result, const std::string& worker_id, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleState(const v1::WorkerState& state, Worker* worker, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the worker should be doing, and when it is to call again.
  void Respond(Worker* worker, absl::Time now, v1::SynchronizeResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Advance(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropWorker(std::map<std::string, Worker>::iterator worker, const std::string& cause,
                  absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The leased rank of the worker will report nothing.
  void LoseRank(Worker* worker, const std::string& cause, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseLease(Worker* worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StopAttempt(TrialState* trial, v1::TrialStatus status, const std::string& cause,
                   absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAttemptIfDecided(TrialState* trial, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndAttempt(TrialState* trial, TrialOutcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartTrials(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartAttempt(TrialState* trial, const std::vector<Worker*>& gang, int hosts, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckStall(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddEvent(SchedulerEvent::Kind kind, std::string worker_id, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // No attempt may start any more.
  bool Closing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return cancelled_ || !failure_.ok() || !stalled_.empty();
  }
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return running_.empty() && (ended_ == trials_.size() || Closing());
  }

  const SchedulerOptions options_;
  RunStore* const store_;
  AttemptListener* const listener_;

  mutable Mutex mu_;
  std::vector<TrialState> trials_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> index_of_trial_ ABSL_GUARDED_BY(mu_);
  // Trials that have neither started nor ended, in plan order.
  std::set<int> pending_ ABSL_GUARDED_BY(mu_);
  std::set<int> running_ ABSL_GUARDED_BY(mu_);  // Trials with an attempt.
  size_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mu_);  // By id.
  // The most workers seen at once on each host: what the cluster can hold.
  std::map<HostKey, int> most_workers_ ABSL_GUARDED_BY(mu_);
  bool started_ ABSL_GUARDED_BY(mu_) = false;  // workers_expected have joined.
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::string stalled_ ABSL_GUARDED_BY(mu_);
  const absl::Time created_;
  // Since when nothing runs although trials are pending.
  absl::optional<absl::Time> stuck_since_ ABSL_GUARDED_BY(mu_);
  absl::optional<absl::Time> first_start_ ABSL_GUARDED_BY(mu_);
  std::vector<double> expected_seconds_ ABSL_GUARDED_BY(mu_);
  double expected_done_ ABSL_GUARDED_BY(mu_) = 0;  // Of the trials ended in this run.
  std::vector<SchedulerEvent> events_ ABSL_GUARDED_BY(mu_);
};

// How many of `hosts` (devices free on each) hold `cluster`, by index into `devices_on_host`; empty
// if they cannot. With free placement: the fewest hosts that share the devices evenly.
std::vector<int> PlaceGang(const v1::ClusterShape& cluster,
                           const std::vector<int>& devices_on_host);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_SCHEDULER_TRIAL_SCHEDULER_H_
