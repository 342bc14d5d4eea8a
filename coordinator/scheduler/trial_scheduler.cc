#include "coordinator/scheduler/trial_scheduler.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "coordinator/plan/plan.h"

namespace paceline {
namespace {

// Events that nobody takes must not grow without bound.
constexpr size_t kMaxEvents = 100000;

int Devices(const v1::ClusterShape& cluster) {
  return cluster.hosts() * cluster.devices_per_host();
}

// Failures of the trial itself: repeating it would give the same.
bool IsOwnFailure(v1::TrialStatus status) {
  switch (status) {
    case v1::TRIAL_STATUS_OUT_OF_MEMORY:
    case v1::TRIAL_STATUS_INVALID:
    case v1::TRIAL_STATUS_INPUT_ERROR:
    case v1::TRIAL_STATUS_DIVERGED:
    case v1::TRIAL_STATUS_REPLICAS_DIVERGED:
    case v1::TRIAL_STATUS_TIMED_OUT:
    case v1::TRIAL_STATUS_NOT_INSTALLED:
    case v1::TRIAL_STATUS_INTERNAL:
      return true;
    default:
      return false;
  }
}

std::string StatusName(v1::TrialStatus status) {
  return std::string(absl::StripPrefix(v1::TrialStatus_Name(status), "TRIAL_STATUS_"));
}

std::string FormatSeconds(absl::Duration duration) {
  return absl::StrFormat("%.3g s", absl::ToDoubleSeconds(duration));
}

}  // namespace

std::vector<int> PlaceGang(const v1::ClusterShape& cluster,
                           const std::vector<int>& devices_on_host) {
  const int devices = Devices(cluster);
  auto place = [&](int hosts, int devices_per_host) {
    std::vector<int> chosen;
    for (size_t i = 0; i < devices_on_host.size() && static_cast<int>(chosen.size()) < hosts; ++i) {
      if (devices_on_host[i] >= devices_per_host) chosen.push_back(static_cast<int>(i));
    }
    if (static_cast<int>(chosen.size()) < hosts) chosen.clear();
    return chosen;
  };
  if (!cluster.free_placement()) return place(cluster.hosts(), cluster.devices_per_host());
  const int most_hosts = std::min<int>(devices, static_cast<int>(devices_on_host.size()));
  for (int hosts = 1; hosts <= most_hosts; ++hosts) {
    if (devices % hosts != 0) continue;
    std::vector<int> chosen = place(hosts, devices / hosts);
    if (!chosen.empty()) return chosen;
  }
  return {};
}

TrialScheduler::TrialScheduler(SchedulerOptions options, std::vector<v1::Trial> trials,
                               const std::vector<TrialOutcome>& outcomes, RunStore* store,
                               AttemptListener* listener, absl::Time now)
    : options_(std::move(options)), store_(store), listener_(listener), created_(now) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < trials.size(); ++i) {
    TrialState& state = trials_.emplace_back();
    state.trial = std::move(trials[i]);
    state.outcome.trial_id = state.trial.trial_id();
    if (i < outcomes.size()) {
      state.outcome = outcomes[i];
      state.attempts = outcomes[i].attempt;
    }
    index_of_trial_[state.trial.trial_id()] = static_cast<int>(i);
    if (state.outcome.final) {
      ++ended_;
    } else {
      pending_.insert(static_cast<int>(i));
    }
  }
  expected_seconds_.assign(trials_.size(), 1.0);
}

absl::StatusOr<v1::SynchronizeResponse> TrialScheduler::Synchronize(
    const v1::SynchronizeRequest& request, absl::Time now) {
  const std::string& id = request.worker().worker_id();
  if (id.empty()) return absl::InvalidArgumentError("worker.worker_id: required");
  if (request.worker().version() != options_.version) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", id, " on ", request.worker().host(), " is Paceline '",
        request.worker().version(), "', the coordinator is '", options_.version,
        "': all ranks of a trial must be one version; copy the coordinator's to that host"));
  }
  if (request.state().phase() == v1::WorkerState::PHASE_FINISHED && !request.has_result()) {
    return absl::InvalidArgumentError("result: required in PHASE_FINISHED");
  }
  MutexLock lock(&mu_);
  auto it = workers_.find(id);
  const bool leaving = request.state().phase() == v1::WorkerState::PHASE_LEAVING;
  if (it == workers_.end() && !leaving) {
    it = workers_.emplace(id, Worker()).first;
    it->second.description = request.worker();
    AddEvent(SchedulerEvent::kWorkerJoined, id,
             absl::StrCat("worker ", id, " on host ", request.worker().host(), " joined (",
                          request.worker().backend(), ", ", request.worker().device(), ")"));
    const HostKey host(request.worker().backend(), request.worker().host());
    int live = 0;
    for (const auto& [other_id, other] : workers_) {
      live += HostKey(other.description.backend(), other.description.host()) == host;
    }
    most_workers_[host] = std::max(most_workers_[host], live);
    stuck_since_.reset();
  }

  bool acknowledged = false;
  if (request.has_result()) {
    HandleResult(request.result(), id, now);
    // The result stays with the worker until it is stored.
    if (!failure_.ok()) return absl::UnavailableError(failure_.message());
    acknowledged = true;
  }
  v1::SynchronizeResponse response;
  response.set_result_acknowledged(acknowledged);
  response.set_receive_unix_ns(absl::ToUnixNanos(now));
  response.set_send_unix_ns(absl::ToUnixNanos(now));
  if (leaving) {
    if (it != workers_.end()) DropWorker(it, "left", now);
    Advance(now);
    response.set_desired(v1::SynchronizeResponse::DESIRED_EXIT);
    return response;
  }
  Worker* worker = &it->second;
  worker->last_call = now;
  // A call that was overtaken by a later one of the same worker, or comes twice, says nothing about
  // the present. The worker's clock may be set back, so only for a while.
  const bool overtaken = request.send_unix_ns() != 0 &&
                         request.send_unix_ns() <= worker->last_send_unix_ns &&
                         worker->last_send_unix_ns - request.send_unix_ns() <
                             absl::ToInt64Nanoseconds(options_.silence);
  if (!overtaken) {
    worker->last_send_unix_ns = request.send_unix_ns();
    worker->description = request.worker();
    HandleState(request.state(), worker, now);
  }
  // This worker has just called, so it is not dropped here.
  Advance(now);
  Respond(worker, now, &response);
  return response;
}

void TrialScheduler::HandleResult(const v1::TrialResult& result, const std::string& worker_id,
                                  absl::Time now) {
  auto found = index_of_trial_.find(result.trial().trial_id());
  // A result of another run, or nonsense: acknowledged, so that the worker forgets it.
  if (found == index_of_trial_.end() || result.attempt() < 1) return;
  TrialState* trial = &trials_[found->second];
  absl::Status stored = store_->Append(result);
  if (!stored.ok()) {
    Fail(stored);
    return;
  }
  if (!trial->attempt.has_value() || trial->attempt->number != result.attempt()) return;
  Attempt& attempt = *trial->attempt;
  if (result.rank() < 0 || result.rank() >= static_cast<int>(attempt.ranks.size())) return;
  Rank& rank = attempt.ranks[result.rank()];
  if (rank.settled || rank.worker_id != worker_id) return;
  rank.settled = true;
  rank.status = result.status();
  rank.cause = result.cause();
  auto worker = workers_.find(worker_id);
  if (worker != workers_.end()) ReleaseLease(&worker->second);
  if (rank.status != v1::TRIAL_STATUS_OK && !IsOwnFailure(rank.status)) {
    StopAttempt(trial, rank.status,
                rank.cause.empty() ? absl::StrCat("rank ", result.rank(), ": stopped") : rank.cause,
                now);
  }
  EndAttemptIfDecided(trial, now);
}

void TrialScheduler::HandleState(const v1::WorkerState& state, Worker* worker, absl::Time now) {
  worker->state = state;
  worker->busy = state.phase() == v1::WorkerState::PHASE_RUNNING;
  if (!worker->busy) worker->told_to_stop.reset();
  if (worker->trial < 0) return;
  const TrialState& trial = trials_[worker->trial];
  if (worker->busy && state.trial_id() == trial.trial.trial_id() && trial.attempt.has_value() &&
      state.attempt() == trial.attempt->number) {
    worker->seen_running = true;
    return;
  }
  // Idle although it had begun (or was told to stop before it began): it will not report any more.
  if (!worker->busy && (worker->seen_running || trial.attempt->stop_deadline.has_value())) {
    LoseRank(worker, absl::StrCat("worker ", worker->description.worker_id(), " stopped working"),
             now);
  }
}

void TrialScheduler::Respond(Worker* worker, absl::Time now, v1::SynchronizeResponse* response) {
  // Calls of many workers together must not load the coordinator; but a worker must not seem
  // silent.
  const double crowd = std::max(1.0, static_cast<double>(workers_.size()) / 64);
  const absl::Duration call = running_.empty() ? options_.waiting_call : options_.running_call;
  response->set_next_call_seconds(
      absl::ToDoubleSeconds(std::min(crowd * call, options_.silence / 5)));
  if (worker->trial >= 0) {
    const TrialState& trial = trials_[worker->trial];
    const Attempt& attempt = *trial.attempt;
    if (!attempt.stop_deadline.has_value()) {
      response->set_desired(v1::SynchronizeResponse::DESIRED_RUN);
      // From now on, not from its next call: should the attempt end meanwhile, its host is not
      // free.
      worker->busy = true;
      v1::RankAssignment& assignment = *response->mutable_assignment();
      *assignment.mutable_trial() = trial.trial;
      *assignment.mutable_trial()->mutable_cluster() = attempt.cluster;
      assignment.set_attempt(attempt.number);
      assignment.set_rank(worker->rank);
      assignment.set_ranks(static_cast<int>(attempt.ranks.size()));
      for (const std::string& address : attempt.peer_addresses) {
        assignment.add_peer_addresses(address);
      }
      assignment.set_rendezvous_prefix(attempt.rendezvous_prefix);
      assignment.set_deadline_seconds(absl::ToDoubleSeconds(attempt.deadline - now));
      return;
    }
  }
  response->set_desired(v1::SynchronizeResponse::DESIRED_IDLE);
  if (worker->busy) {
    response->set_next_call_seconds(absl::ToDoubleSeconds(options_.waiting_call));
    if (!worker->told_to_stop.has_value()) worker->told_to_stop = now;
    // It hangs: a new process will do better.
    if (now - *worker->told_to_stop > 3 * options_.stop_grace) {
      response->set_desired(v1::SynchronizeResponse::DESIRED_EXIT);
    }
  } else if (worker->trial < 0 && (ended_ == trials_.size() || Closing())) {
    response->set_desired(v1::SynchronizeResponse::DESIRED_EXIT);
    worker->dismissed = true;
  }
}

void TrialScheduler::Tick(absl::Time now) {
  MutexLock lock(&mu_);
  Advance(now);
}

void TrialScheduler::Advance(absl::Time now) {
  for (auto it = workers_.begin(); it != workers_.end();) {
    auto worker = it++;
    if (now - worker->second.last_call <= options_.silence) continue;
    DropWorker(worker, absl::StrCat("has not called for ", FormatSeconds(options_.silence)), now);
  }
  for (const int index : std::vector<int>(running_.begin(), running_.end())) {
    TrialState* trial = &trials_[index];
    const Attempt& attempt = *trial->attempt;
    if (now >= attempt.deadline && !attempt.stop_deadline.has_value()) {
      std::string cause =
          absl::StrCat("not over after ", FormatSeconds(attempt.deadline - attempt.started));
      const auto first = workers_.find(attempt.ranks[0].worker_id);
      if (first != workers_.end() && !first->second.state.progress().step().empty()) {
        absl::StrAppend(&cause, "; rank 0 was ", first->second.state.progress().step(), " after ",
                        first->second.state.progress().iterations_done(), " iterations");
      }
      StopAttempt(trial, v1::TRIAL_STATUS_TIMED_OUT, cause, now);
    }
    EndAttemptIfDecided(trial, now);
  }
  StartTrials(now);
  CheckStall(now);
}

void TrialScheduler::DropWorker(std::map<std::string, Worker>::iterator worker,
                                const std::string& cause, absl::Time now) {
  const std::string text = absl::StrCat("worker ", worker->first, " on host ",
                                        worker->second.description.host(), " ", cause);
  if (!worker->second.dismissed) AddEvent(SchedulerEvent::kWorkerLost, worker->first, text);
  if (worker->second.trial >= 0) LoseRank(&worker->second, text, now);
  workers_.erase(worker);
}

void TrialScheduler::LoseRank(Worker* worker, const std::string& cause, absl::Time now) {
  TrialState* trial = &trials_[worker->trial];
  const int rank_number = worker->rank;
  ReleaseLease(worker);
  Rank& rank = trial->attempt->ranks[rank_number];
  rank.settled = true;
  // A rank that was told to stop and says no more is not to blame.
  if (!trial->attempt->stop_deadline.has_value()) {
    rank.status = v1::TRIAL_STATUS_RANK_LOST;
    rank.cause = absl::StrCat("rank ", rank_number, ": ", cause);
    StopAttempt(trial, v1::TRIAL_STATUS_RANK_LOST, rank.cause, now);
  }
  EndAttemptIfDecided(trial, now);
}

void TrialScheduler::ReleaseLease(Worker* worker) {
  worker->trial = -1;
  worker->rank = -1;
  worker->seen_running = false;
}

void TrialScheduler::StopAttempt(TrialState* trial, v1::TrialStatus status,
                                 const std::string& cause, absl::Time now) {
  Attempt& attempt = *trial->attempt;
  if (attempt.stop_deadline.has_value()) return;  // The first reason counts.
  attempt.stop_deadline = now + options_.stop_grace;
  attempt.stop_status = status;
  attempt.stop_cause = cause;
}

void TrialScheduler::EndAttemptIfDecided(TrialState* trial, absl::Time now) {
  if (!trial->attempt.has_value()) return;
  const Attempt& attempt = *trial->attempt;
  TrialOutcome outcome;
  outcome.trial_id = trial->trial.trial_id();
  outcome.attempt = attempt.number;
  bool all_settled = true;
  bool all_ok = true;
  for (const Rank& rank : attempt.ranks) {
    all_settled &= rank.settled;
    all_ok &= rank.settled && rank.status == v1::TRIAL_STATUS_OK;
    if (rank.settled && IsOwnFailure(rank.status) && !outcome.final) {
      outcome.final = true;
      outcome.status = rank.status;
      outcome.cause = rank.cause;
    }
  }
  if (outcome.final) {
    EndAttempt(trial, outcome);
    return;
  }
  if (all_ok) {
    outcome.final = true;
    outcome.status = v1::TRIAL_STATUS_OK;
    EndAttempt(trial, outcome);
    return;
  }
  // A rank that fails because of its peers often reports before the peer with the real reason does:
  // all get the time to report.
  if (!all_settled && !(attempt.stop_deadline.has_value() && now >= *attempt.stop_deadline)) return;
  outcome.status = attempt.stop_status;
  outcome.cause = attempt.stop_cause;
  if (attempt.stop_status == v1::TRIAL_STATUS_TIMED_OUT) {
    outcome.final = true;
  } else if (cancelled_ || !failure_.ok()) {
    outcome.status = v1::TRIAL_STATUS_CANCELLED;
  } else {
    // A lost rank explains more than the peers that failed with it.
    for (const Rank& rank : attempt.ranks) {
      if (rank.status == v1::TRIAL_STATUS_RANK_LOST) {
        outcome.status = rank.status;
        outcome.cause = rank.cause;
        break;
      }
    }
    if (outcome.status == v1::TRIAL_STATUS_CANCELLED ||
        outcome.status == v1::TRIAL_STATUS_UNSPECIFIED) {
      outcome.status = v1::TRIAL_STATUS_RANK_LOST;  // Stopped, but not by us.
    }
    ++trial->lost_attempts;
    outcome.final = trial->lost_attempts >= std::max(1, trial->trial.failure().max_attempts());
    if (outcome.final && trial->lost_attempts > 1) {
      outcome.cause =
          absl::StrCat(trial->lost_attempts, " attempts failed; the last: ", outcome.cause);
    }
  }
  EndAttempt(trial, outcome);
}

void TrialScheduler::EndAttempt(TrialState* trial, TrialOutcome outcome) {
  const int index = static_cast<int>(trial - trials_.data());
  if (trial->attempt.has_value()) {
    for (const Rank& rank : trial->attempt->ranks) {
      auto worker = workers_.find(rank.worker_id);
      if (worker != workers_.end() && worker->second.trial == index) ReleaseLease(&worker->second);
    }
    if (listener_ != nullptr) listener_->AttemptEnded(trial->attempt->rendezvous_prefix);
    trial->attempt.reset();
    running_.erase(index);
  } else {
    pending_.erase(index);
  }
  if (outcome.final) {
    ++ended_;
    expected_done_ += expected_seconds_[index];
  } else {
    pending_.insert(index);
  }
  trial->outcome = outcome;
  absl::Status stored = store_->FinishAttempt(outcome);
  if (!stored.ok()) Fail(stored);
  SchedulerEvent event;
  event.kind = SchedulerEvent::kAttemptEnded;
  event.trial_index = index;
  event.text = absl::StrCat(DescribeTrial(trial->trial), ": ", StatusName(outcome.status),
                            outcome.cause.empty() ? "" : absl::StrCat(" (", outcome.cause, ")"),
                            outcome.final || Closing() ? "" : "; will be tried again");
  event.outcome = std::move(outcome);
  if (events_.size() < kMaxEvents) events_.push_back(std::move(event));
}

void TrialScheduler::StartTrials(absl::Time now) {
  if (Closing() || pending_.empty() || workers_.empty()) return;
  if (!started_) {
    if (static_cast<int>(workers_.size()) < options_.workers_expected) return;
    started_ = true;
  }
  // Free workers by backend and host; a host with any busy worker offers none.
  struct Host {
    std::vector<Worker*> workers;
    bool free = true;
  };
  std::map<std::string, std::map<std::string, Host>> backends;
  for (auto& [id, worker] : workers_) {
    if (worker.dismissed) continue;
    Host& host = backends[worker.description.backend()][worker.description.host()];
    host.workers.push_back(&worker);
    if (worker.busy || worker.trial >= 0) host.free = false;
  }
  for (auto& [backend, hosts] : backends) {
    for (auto& [name, host] : hosts) {
      std::sort(host.workers.begin(), host.workers.end(), [](const Worker* a, const Worker* b) {
        return std::make_pair(a->description.local_index(), a->description.worker_id()) <
               std::make_pair(b->description.local_index(), b->description.worker_id());
      });
    }
  }
  const std::vector<int> pending(pending_.begin(), pending_.end());
  for (const int index : pending) {
    TrialState* trial = &trials_[index];
    bool fits_later = false;
    for (auto& [backend, hosts] : backends) {
      std::vector<Host*> free_hosts;
      std::vector<int> free_devices, all_devices;
      for (auto& [name, host] : hosts) {
        all_devices.push_back(static_cast<int>(host.workers.size()));
        if (!host.free) continue;
        free_hosts.push_back(&host);
        free_devices.push_back(static_cast<int>(host.workers.size()));
      }
      const std::vector<int> chosen = PlaceGang(trial->trial.cluster(), free_devices);
      if (chosen.empty()) {
        fits_later |= !PlaceGang(trial->trial.cluster(), all_devices).empty();
        continue;
      }
      const int hosts_used = static_cast<int>(chosen.size());
      const int per_host = Devices(trial->trial.cluster()) / hosts_used;
      std::vector<Worker*> gang;
      for (const int i : chosen) {
        gang.insert(gang.end(), free_hosts[i]->workers.begin(),
                    free_hosts[i]->workers.begin() + per_host);
        free_hosts[i]->free = false;
      }
      StartAttempt(trial, gang, hosts_used, now);
      break;
    }
    if (Closing()) return;
    // Later trials must not overtake one that only waits for its hosts, or a large gang might wait
    // for ever. One that needs more than there is does not hold the others up.
    if (!trial->attempt.has_value() && fits_later) return;
  }
}

void TrialScheduler::StartAttempt(TrialState* trial, const std::vector<Worker*>& gang, int hosts,
                                  absl::Time now) {
  const int index = static_cast<int>(trial - trials_.data());
  Attempt attempt;
  attempt.number = ++trial->attempts;
  absl::Status stored = store_->StartAttempt(trial->trial.trial_id(), attempt.number);
  if (!stored.ok()) {
    --trial->attempts;
    Fail(stored);
    return;
  }
  attempt.cluster = trial->trial.cluster();
  attempt.cluster.set_hosts(hosts);
  attempt.cluster.set_devices_per_host(static_cast<int>(gang.size()) / hosts);
  attempt.rendezvous_prefix = absl::StrCat(trial->trial.trial_id(), "/", attempt.number);
  attempt.started = now;
  const double timeout_seconds = trial->trial.failure().trial_timeout_seconds();
  attempt.deadline = now + absl::Seconds(timeout_seconds > 0 ? timeout_seconds : 600);
  for (size_t i = 0; i < gang.size(); ++i) {
    attempt.ranks.push_back({gang[i]->description.worker_id()});
    attempt.peer_addresses.push_back(gang[i]->description.data_address());
    gang[i]->trial = index;
    gang[i]->rank = static_cast<int>(i);
    gang[i]->seen_running = false;
  }
  if (listener_ != nullptr) listener_->AttemptStarted(attempt.rendezvous_prefix);
  if (!first_start_.has_value()) first_start_ = now;
  pending_.erase(index);
  running_.insert(index);
  SchedulerEvent event;
  event.kind = SchedulerEvent::kAttemptStarted;
  event.trial_index = index;
  event.text =
      absl::StrCat(DescribeTrial(trial->trial),
                   attempt.number > 1 ? absl::StrCat(": attempt ", attempt.number) : ": started");
  if (events_.size() < kMaxEvents) events_.push_back(std::move(event));
  trial->attempt = std::move(attempt);
}

void TrialScheduler::CheckStall(absl::Time now) {
  if (Closing() || !running_.empty() || pending_.empty()) {
    stuck_since_.reset();
    return;
  }
  if (!started_) {
    if (now - created_ <= options_.join_timeout) return;
    stalled_ =
        absl::StrCat("only ", workers_.size(), " of ", std::max(1, options_.workers_expected),
                     " workers joined within ", FormatSeconds(options_.join_timeout));
    return;
  }
  if (!stuck_since_.has_value()) stuck_since_ = now;
  if (now - *stuck_since_ <= options_.gang_grace) return;
  // Hosts that are only waiting for a worker to stop are no reason to give up trials; but a worker
  // that hangs must not hold the run for ever either.
  std::map<std::string, std::vector<int>> most;
  std::vector<std::string> described;
  for (const auto& [host, count] : most_workers_) {
    most[host.first].push_back(count);
    described.push_back(absl::StrCat(host.second, ": ", count));
  }
  bool gave_up = false;
  for (const int index : std::vector<int>(pending_.begin(), pending_.end())) {
    TrialState* trial = &trials_[index];
    bool possible = false;
    for (const auto& [backend, counts] : most) {
      possible |= !PlaceGang(trial->trial.cluster(), counts).empty();
    }
    if (possible) continue;
    const v1::ClusterShape& cluster = trial->trial.cluster();
    TrialOutcome outcome;
    outcome.trial_id = trial->trial.trial_id();
    outcome.attempt = ++trial->attempts;
    outcome.final = true;
    outcome.status = v1::TRIAL_STATUS_INVALID;
    outcome.cause =
        absl::StrCat("needs ", Devices(cluster), " devices",
                     cluster.free_placement() || cluster.hosts() == 1
                         ? ""
                         : absl::StrCat(" on ", cluster.hosts(), " hosts with ",
                                        cluster.devices_per_host(), " each"),
                     "; the workers that joined offer ", absl::StrJoin(described, ", "));
    EndAttempt(trial, outcome);
    gave_up = true;
  }
  if (gave_up || pending_.empty()) {
    stuck_since_.reset();
    return;
  }
  stalled_ = workers_.empty()
                 ? absl::StrCat("no worker has called for ",
                                FormatSeconds(now - *stuck_since_ + options_.silence))
                 : absl::StrCat("the next trial needs more workers than the ", workers_.size(),
                                " that are left; none has joined for ",
                                FormatSeconds(now - *stuck_since_));
}

void TrialScheduler::Cancel(absl::Time now) {
  MutexLock lock(&mu_);
  cancelled_ = true;
  for (TrialState& trial : trials_) {
    if (!trial.attempt.has_value()) continue;
    StopAttempt(&trial, v1::TRIAL_STATUS_CANCELLED, "the run was stopped", now);
    EndAttemptIfDecided(&trial, now);
  }
}

void TrialScheduler::WorkersGone(const std::function<bool(const v1::WorkerDescription&)>& gone,
                                 const std::string& cause, absl::Time now) {
  MutexLock lock(&mu_);
  for (auto it = workers_.begin(); it != workers_.end();) {
    auto worker = it++;
    if (gone(worker->second.description)) DropWorker(worker, cause, now);
  }
  Advance(now);
}

void TrialScheduler::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  // Nothing can be stored any more: stop the ranks. Their trials are repeated by a resumed run.
  for (TrialState& trial : trials_) {
    if (!trial.attempt.has_value() || trial.attempt->stop_deadline.has_value()) continue;
    trial.attempt->stop_deadline = trial.attempt->started;
    trial.attempt->stop_status = v1::TRIAL_STATUS_CANCELLED;
    trial.attempt->stop_cause = "results cannot be stored";
  }
}

void TrialScheduler::AddEvent(SchedulerEvent::Kind kind, std::string worker_id, std::string text) {
  if (events_.size() >= kMaxEvents) return;
  SchedulerEvent& event = events_.emplace_back();
  event.kind = kind;
  event.worker_id = std::move(worker_id);
  event.text = std::move(text);
}

RunState TrialScheduler::state() const {
  MutexLock lock(&mu_);
  RunState state;
  state.over = Over();
  state.failure = failure_;
  state.stalled = stalled_;
  state.workers = static_cast<int>(workers_.size());
  for (const auto& [id, worker] : workers_) state.workers_to_dismiss += !worker.dismissed;
  return state;
}

v1::GetStatusResponse TrialScheduler::Snapshot(absl::Time now) const {
  MutexLock lock(&mu_);
  v1::GetStatusResponse status;
  if (!trials_.empty()) status.set_plan_name(trials_[0].trial.plan_name());
  status.set_trials_total(static_cast<int>(trials_.size()));
  status.set_trials_done(static_cast<int>(ended_));
  double expected_left = 0;
  double expected_done = expected_done_;
  for (size_t i = 0; i < trials_.size(); ++i) {
    const TrialState& trial = trials_[i];
    if (trial.outcome.final) {
      if (trial.outcome.status != v1::TRIAL_STATUS_OK) {
        status.set_trials_failed(status.trials_failed() + 1);
      }
      continue;
    }
    if (!trial.attempt.has_value()) {
      expected_left += expected_seconds_[i];
      continue;
    }
    v1::RunningTrial& running = *status.add_running();
    *running.mutable_trial() = trial.trial;
    *running.mutable_trial()->mutable_cluster() = trial.attempt->cluster;
    running.set_attempt(trial.attempt->number);
    double share = 0;
    for (const Rank& rank : trial.attempt->ranks) {
      running.add_worker_ids(rank.worker_id);
      auto worker = workers_.find(rank.worker_id);
      if (running.has_progress() || worker == workers_.end() ||
          worker->second.state.trial_id() != trial.trial.trial_id()) {
        continue;
      }
      *running.mutable_progress() = worker->second.state.progress();
      if (running.progress().iterations_planned() > 0) {
        share = std::min(1.0, static_cast<double>(running.progress().iterations_done()) /
                                  running.progress().iterations_planned());
      }
    }
    expected_done += share * expected_seconds_[i];
    expected_left += (1 - share) * expected_seconds_[i];
  }
  for (const auto& [id, worker] : workers_) *status.add_workers() = worker.description;
  status.set_seconds_left(-1);
  if (expected_left == 0) {
    status.set_seconds_left(0);
  } else if (first_start_.has_value() && expected_done > 0) {
    status.set_seconds_left(absl::ToDoubleSeconds(now - *first_start_) / expected_done *
                            expected_left);
  }
  return status;
}

std::vector<SchedulerEvent> TrialScheduler::TakeEvents() {
  MutexLock lock(&mu_);
  return std::exchange(events_, {});
}

std::vector<TrialOutcome> TrialScheduler::Outcomes() const {
  MutexLock lock(&mu_);
  std::vector<TrialOutcome> outcomes;
  for (const TrialState& trial : trials_) outcomes.push_back(trial.outcome);
  return outcomes;
}

void TrialScheduler::SetExpectedSeconds(std::vector<double> seconds) {
  MutexLock lock(&mu_);
  if (seconds.size() == trials_.size()) expected_seconds_ = std::move(seconds);
}

}  // namespace paceline
