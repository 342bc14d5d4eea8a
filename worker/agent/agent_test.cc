#include "worker/agent/agent.h"

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/backend/memory_rendezvous.h"

namespace paceline {
namespace {

// Plays a script: one answer per call, the last one for ever. Keeps the requests.
class ScriptedCoordinator : public CoordinatorClient {
 public:
  using Answer = absl::StatusOr<v1::SynchronizeResponse>;

  void Then(Answer answer) { script_.push_back(std::move(answer)); }

  absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                      absl::Time deadline) override {
    MutexLock lock(&mutex_);
    requests_.push_back(request);
    if (script_.size() == 1) return script_.front();
    Answer answer = script_.front();
    script_.pop_front();
    return answer;
  }

  std::unique_ptr<RendezvousStore> Rendezvous(const std::string& prefix) override {
    return std::make_unique<MemoryRendezvous>();
  }

  std::vector<v1::SynchronizeRequest> requests() {
    MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  Mutex mutex_;
  std::deque<Answer> script_;
  std::vector<v1::SynchronizeRequest> requests_;
};

v1::SynchronizeResponse Idle() {
  v1::SynchronizeResponse response;
  response.set_desired(v1::SynchronizeResponse::DESIRED_IDLE);
  response.set_next_call_seconds(0.005);
  return response;
}

v1::SynchronizeResponse RunOrder(const std::string& trial, int attempt) {
  v1::SynchronizeResponse response = Idle();
  response.set_desired(v1::SynchronizeResponse::DESIRED_RUN);
  response.mutable_assignment()->mutable_trial()->set_trial_id(trial);
  response.mutable_assignment()->set_attempt(attempt);
  return response;
}

v1::SynchronizeResponse Acknowledge() {
  v1::SynchronizeResponse response = Idle();
  response.set_result_acknowledged(true);
  return response;
}

v1::SynchronizeResponse Exit() {
  v1::SynchronizeResponse response = Idle();
  response.set_desired(v1::SynchronizeResponse::DESIRED_EXIT);
  return response;
}

// A trial that is over at once.
v1::TrialResult QuickTrial(const v1::RankAssignment& assignment, RendezvousStore&, CancelToken&,
                           const ProgressSink&) {
  v1::TrialResult result;
  *result.mutable_trial() = assignment.trial();
  result.set_attempt(assignment.attempt());
  result.set_status(v1::TRIAL_STATUS_OK);
  return result;
}

// A trial that only ends when it is cancelled, and says why.
v1::TrialResult EndlessTrial(const v1::RankAssignment& assignment, RendezvousStore& store,
                             CancelToken& cancel, const ProgressSink& progress) {
  while (cancel.cause().ok()) absl::SleepFor(absl::Milliseconds(1));
  v1::TrialResult result = QuickTrial(assignment, store, cancel, progress);
  result.set_status(v1::TRIAL_STATUS_CANCELLED);
  result.set_cause(std::string(cancel.cause().message()));
  return result;
}

// Runs the trial, keeps repeating the result until the coordinator has it.
class AnsweringCoordinator : public CoordinatorClient {
 public:
  explicit AnsweringCoordinator(int lost_replies) : lost_replies_(lost_replies) {}

  absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                      absl::Time deadline) override {
    if (!request.has_result()) return done_ ? Exit() : RunOrder("t1", 1);
    ++results_seen_;
    if (results_seen_ <= lost_replies_) return absl::UnavailableError("lost");
    done_ = true;
    return Acknowledge();
  }
  std::unique_ptr<RendezvousStore> Rendezvous(const std::string& prefix) override {
    return std::make_unique<MemoryRendezvous>();
  }
  int results_seen() const { return results_seen_; }

 private:
  const int lost_replies_;
  int results_seen_ = 0;
  bool done_ = false;
};

TEST(AgentTest, RunsATrialOnceAndRepeatsTheResultUntilAcknowledged) {
  AnsweringCoordinator coordinator(/*lost_replies=*/2);
  std::atomic<int> runs{0};
  Agent agent(
      coordinator, {},
      [&](const v1::RankAssignment& a, RendezvousStore& s, CancelToken& c, const ProgressSink& p) {
        ++runs;
        return QuickTrial(a, s, c, p);
      });
  EXPECT_TRUE(agent.Run().ok());
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(coordinator.results_seen(), 3);
}

// Orders one trial, and then wants the worker idle until its result is in.
class ImpatientCoordinator : public CoordinatorClient {
 public:
  absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                      absl::Time deadline) override {
    if (request.has_result()) {
      result_request_ = request;
      return Acknowledge();
    }
    if (result_request_.has_result()) return Exit();
    return ++calls_ == 1 ? RunOrder("t1", 1) : Idle();
  }
  std::unique_ptr<RendezvousStore> Rendezvous(const std::string& prefix) override {
    return std::make_unique<MemoryRendezvous>();
  }
  const v1::SynchronizeRequest& result_request() const { return result_request_; }

 private:
  int calls_ = 0;
  v1::SynchronizeRequest result_request_;
};

TEST(AgentTest, IdleOrderCancelsTheRunningTrial) {
  ImpatientCoordinator coordinator;
  Agent agent(coordinator, {}, EndlessTrial);
  EXPECT_TRUE(agent.Run().ok());
  EXPECT_EQ(coordinator.result_request().state().phase(), v1::WorkerState::PHASE_FINISHED);
  EXPECT_EQ(coordinator.result_request().result().cause(), "the coordinator ended the attempt");
}

TEST(AgentTest, ExitDuringATrialCancelsIt) {
  ScriptedCoordinator coordinator;
  coordinator.Then(RunOrder("t1", 1));
  coordinator.Then(Exit());
  Agent agent(coordinator, {}, EndlessTrial);
  EXPECT_TRUE(agent.Run().ok());
}

TEST(AgentTest, RefusalEndsTheWorkerWithTheReason) {
  ScriptedCoordinator coordinator;
  coordinator.Then(absl::UnauthenticatedError("wrong join token"));
  Agent agent(coordinator, {}, QuickTrial);
  EXPECT_EQ(agent.Run(), absl::UnauthenticatedError("wrong join token"));
  EXPECT_EQ(coordinator.requests().size(), 1u);
}

TEST(AgentTest, AnUnreachableCoordinatorIsGivenUpAfterItsTimeout) {
  ScriptedCoordinator coordinator;
  coordinator.Then(absl::UnavailableError("connection refused"));
  AgentOptions options;
  options.coordinator_timeout = absl::Milliseconds(1);
  Agent agent(coordinator, {}, QuickTrial, options);
  const absl::Status status = agent.Run();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_GE(coordinator.requests().size(), 2u);
}

TEST(AgentTest, StopTellsTheCoordinatorThatItLeaves) {
  ScriptedCoordinator coordinator;
  coordinator.Then(Idle());
  Agent agent(coordinator, {}, QuickTrial);
  agent.Stop();
  EXPECT_TRUE(agent.Run().ok());
  ASSERT_FALSE(coordinator.requests().empty());
  EXPECT_EQ(coordinator.requests().back().state().phase(), v1::WorkerState::PHASE_LEAVING);
}

TEST(AgentTest, ATrialThatIgnoresCancellationMakesTheWorkerUnusable) {
  ScriptedCoordinator coordinator;
  coordinator.Then(RunOrder("t1", 1));
  coordinator.Then(Idle());
  std::atomic<bool> release{false};
  AgentOptions options;
  options.cancel_timeout = absl::Milliseconds(1);
  Agent agent(
      coordinator, {},
      [&](const v1::RankAssignment& a, RendezvousStore& s, CancelToken& c, const ProgressSink& p) {
        while (!release) absl::SleepFor(absl::Milliseconds(1));
        return QuickTrial(a, s, c, p);
      },
      options);
  EXPECT_TRUE(absl::IsInternal(agent.Run()));
  release = true;
}

TEST(AgentTest, ClockOffsetComesFromTheSmallestRoundTrip) {
  // A coordinator whose clock is 10 s behind ours: offset (worker minus coordinator) is +10 s.
  class BehindCoordinator : public AnsweringCoordinator {
   public:
    BehindCoordinator() : AnsweringCoordinator(0) {}
    absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                        absl::Time deadline) override {
      if (request.has_result()) offset_ = request.result().clock();
      auto response = AnsweringCoordinator::Synchronize(request, deadline);
      const int64_t now = absl::ToUnixNanos(absl::Now() - absl::Seconds(10));
      response->set_receive_unix_ns(now);
      response->set_send_unix_ns(now);
      return response;
    }
    v1::ClockOffset offset_;
  } coordinator;
  Agent agent(coordinator, {}, QuickTrial);
  EXPECT_TRUE(agent.Run().ok());
  EXPECT_NEAR(coordinator.offset_.offset_seconds(), 10, coordinator.offset_.bound_seconds() + 1e-3);
}

}  // namespace
}  // namespace paceline
