#include "worker/agent/agent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace paceline {
namespace {

// The smallest round trip of this window gives the clock offset: older ones miss the drift.
constexpr absl::Duration kClockWindow = absl::Minutes(2);

std::string AttemptKey(absl::string_view trial_id, int attempt) {
  return absl::StrCat(trial_id, " attempt ", attempt);
}

std::string AttemptKey(const v1::RankAssignment& assignment) {
  return AttemptKey(assignment.trial().trial_id(), assignment.attempt());
}

// Errors that calling again cannot mend.
bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
         absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status);
}

}  // namespace

Agent::Agent(CoordinatorClient& client, v1::WorkerDescription description, RunTrial run_trial,
             AgentOptions options)
    : client_(client),
      description_(std::move(description)),
      run_trial_(std::move(run_trial)),
      options_(options) {
  state_.set_phase(v1::WorkerState::PHASE_IDLE);
}

Agent::~Agent() {
  if (running_ == nullptr) return;
  CancelRunning(absl::CancelledError("the worker is stopping"));
  running_->thread.join();
}

void Agent::Stop() {
  MutexLock lock(&mutex_);
  stop_ = true;
  changed_.NotifyAll();
}

v1::DescribeResponse Agent::Describe() const {
  v1::DescribeResponse response;
  *response.mutable_description() = description_;
  MutexLock lock(&mutex_);
  *response.mutable_state() = State();
  return response;
}

v1::WorkerState Agent::State() const {
  v1::WorkerState state = state_;
  if (stop_) state.set_phase(v1::WorkerState::PHASE_LEAVING);
  return state;
}

absl::Status Agent::Run() {
  absl::Time last_contact = absl::Now();
  while (true) {
    const v1::SynchronizeRequest request = MakeRequest();
    const absl::Time sent = absl::Now();
    auto response = client_.Synchronize(request, sent + options_.call_timeout);
    const absl::Time received = absl::Now();
    if (request.state().phase() == v1::WorkerState::PHASE_LEAVING) return absl::OkStatus();

    absl::Duration pause = absl::Milliseconds(500);
    if (response.ok()) {
      last_contact = received;
      pause = absl::Seconds(response->next_call_seconds());
      UpdateClock(*response, sent, received);
      Obey(request, *response);
      if (response->desired() == v1::SynchronizeResponse::DESIRED_EXIT) return absl::OkStatus();
    } else if (IsRefusal(response.status())) {
      return response.status();
    } else if (received - last_contact > options_.coordinator_timeout) {
      return absl::UnavailableError(absl::StrCat("no answer from the coordinator for ",
                                                 absl::FormatDuration(options_.coordinator_timeout),
                                                 ": ", response.status().message()));
    }
    if (running_ != nullptr && received - running_->cancelled_at > options_.cancel_timeout) {
      return absl::InternalError(absl::StrCat("trial ", AttemptKey(running_->assignment),
                                              " does not stop; this worker cannot go on"));
    }
    const absl::Time wake = received + std::max(pause, absl::Milliseconds(5));
    MutexLock lock(&mutex_);
    while (!stop_ && !finished_ && absl::Now() < wake) changed_.WaitUntil(&mutex_, wake);
  }
}

v1::SynchronizeRequest Agent::MakeRequest() {
  ReapFinished();
  v1::SynchronizeRequest request;
  *request.mutable_worker() = description_;
  MutexLock lock(&mutex_);
  *request.mutable_state() = State();
  if (result_.has_value()) *request.mutable_result() = *result_;
  request.set_send_unix_ns(absl::ToUnixNanos(absl::Now()));
  return request;
}

void Agent::ReapFinished() {
  {
    MutexLock lock(&mutex_);
    if (!finished_) return;
    finished_ = false;
    state_.set_phase(v1::WorkerState::PHASE_FINISHED);
  }
  running_->thread.join();
  running_.reset();
}

void Agent::Obey(const v1::SynchronizeRequest& request, const v1::SynchronizeResponse& response) {
  if (response.result_acknowledged() && request.has_result()) {
    last_finished_ = AttemptKey(request.result().trial().trial_id(), request.result().attempt());
    MutexLock lock(&mutex_);
    result_.reset();
    state_.Clear();
    state_.set_phase(v1::WorkerState::PHASE_IDLE);
  }
  switch (response.desired()) {
    case v1::SynchronizeResponse::DESIRED_RUN: {
      const v1::RankAssignment& wanted = response.assignment();
      if (running_ == nullptr) {
        Start(wanted);
      } else if (AttemptKey(running_->assignment) != AttemptKey(wanted)) {
        CancelRunning(absl::AbortedError("the coordinator started another attempt"));
      }
      return;
    }
    case v1::SynchronizeResponse::DESIRED_EXIT:
      CancelRunning(absl::CancelledError("the plan is over"));
      return;
    case v1::SynchronizeResponse::DESIRED_IDLE:
      CancelRunning(absl::AbortedError("the coordinator ended the attempt"));
      return;
    default:
      return;  // A newer coordinator's word that we do not know: keep doing what we do.
  }
}

void Agent::UpdateClock(const v1::SynchronizeResponse& response, absl::Time sent,
                        absl::Time received) {
  const absl::Time arrived = absl::FromUnixNanos(response.receive_unix_ns());
  const absl::Time answered = absl::FromUnixNanos(response.send_unix_ns());
  const absl::Duration round_trip = (received - sent) - (answered - arrived);
  if (round_trip > best_round_trip_ && received - best_round_trip_at_ < kClockWindow) return;
  best_round_trip_ = round_trip;
  best_round_trip_at_ = received;
  MutexLock lock(&mutex_);
  clock_.set_offset_seconds(absl::ToDoubleSeconds((sent - arrived) + (received - answered)) / 2);
  clock_.set_bound_seconds(absl::ToDoubleSeconds(round_trip) / 2);
}

void Agent::Start(const v1::RankAssignment& assignment) {
  {
    MutexLock lock(&mutex_);
    // A result that is not acknowledged yet comes first; an acknowledged attempt is over.
    if (result_.has_value() || AttemptKey(assignment) == last_finished_) return;
    state_.Clear();
    state_.set_phase(v1::WorkerState::PHASE_RUNNING);
    state_.set_trial_id(assignment.trial().trial_id());
    state_.set_attempt(assignment.attempt());
  }
  running_ = std::make_unique<Running>();
  running_->assignment = assignment;
  Running* running = running_.get();
  running->thread = std::thread([this, running] {
    std::unique_ptr<RendezvousStore> store =
        client_.Rendezvous(running->assignment.rendezvous_prefix());
    v1::TrialResult result = run_trial_(running->assignment, *store, running->cancel,
                                        [this](const v1::TrialProgress& progress) {
                                          MutexLock lock(&mutex_);
                                          *state_.mutable_progress() = progress;
                                        });
    MutexLock lock(&mutex_);
    *result.mutable_clock() = clock_;
    result_ = std::move(result);
    finished_ = true;
    changed_.NotifyAll();
  });
}

void Agent::CancelRunning(const absl::Status& cause) {
  if (running_ == nullptr) return;
  if (running_->cancelled_at == absl::InfiniteFuture()) running_->cancelled_at = absl::Now();
  running_->cancel.Cancel(cause);
}

}  // namespace paceline
