#include "coordinator/scheduler/trial_scheduler.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/scheduler/fake_run_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Response = v1::SynchronizeResponse;
using State = v1::WorkerState;

constexpr Response::Desired kRun = Response::DESIRED_RUN;
constexpr Response::Desired kIdle = Response::DESIRED_IDLE;
constexpr Response::Desired kExit = Response::DESIRED_EXIT;

class FakeListener : public AttemptListener {
 public:
  void AttemptStarted(absl::string_view prefix) override { open.insert(std::string(prefix)); }
  void AttemptEnded(absl::string_view prefix) override { open.erase(std::string(prefix)); }
  std::set<std::string> open;
};

class TrialSchedulerTest : public ::testing::Test {
 protected:
  TrialSchedulerTest() { options_.version = "1"; }

  // Trial "t<i>" on so many devices; 0 hosts: free placement.
  void AddTrial(int devices, int hosts = 0) {
    v1::Trial& trial = trials_.emplace_back();
    trial.set_trial_id(absl::StrCat("t", trials_.size() - 1));
    trial.mutable_cluster()->set_hosts(std::max(1, hosts));
    trial.mutable_cluster()->set_devices_per_host(devices / std::max(1, hosts));
    trial.mutable_cluster()->set_free_placement(hosts == 0);
    trial.mutable_failure()->set_max_attempts(3);
    trial.mutable_failure()->set_trial_timeout_seconds(100);
  }
  TrialScheduler& scheduler() {
    if (scheduler_ == nullptr) {
      scheduler_ =
          std::make_unique<TrialScheduler>(options_, trials_, outcomes_, &store_, &listener_, now_);
    }
    return *scheduler_;
  }
  v1::SynchronizeRequest Request(const std::string& worker, State::Phase phase,
                                 const std::string& trial = "", int attempt = 0) {
    v1::SynchronizeRequest request;
    request.mutable_worker()->set_worker_id(worker);
    // "a0": host a, local index 0.
    request.mutable_worker()->set_host(worker.substr(0, 1));
    request.mutable_worker()->set_local_index(worker[1] - '0');
    request.mutable_worker()->set_data_address(worker + ":1");
    request.mutable_worker()->set_backend("cpu");
    request.mutable_worker()->set_version("1");
    request.mutable_state()->set_phase(phase);
    request.mutable_state()->set_trial_id(trial);
    request.mutable_state()->set_attempt(attempt);
    request.set_send_unix_ns(++send_ns_);
    return request;
  }
  Response Send(const v1::SynchronizeRequest& request) {
    auto response = scheduler().Synchronize(request, now_);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : Response();
  }
  Response Idle(const std::string& worker) { return Send(Request(worker, State::PHASE_IDLE)); }
  Response Running(const std::string& worker, const std::string& trial, int attempt = 1) {
    return Send(Request(worker, State::PHASE_RUNNING, trial, attempt));
  }
  Response Finished(const std::string& worker, const std::string& trial, int attempt, int rank,
                    v1::TrialStatus status = v1::TRIAL_STATUS_OK, const std::string& cause = "") {
    v1::SynchronizeRequest request = Request(worker, State::PHASE_FINISHED, trial, attempt);
    request.mutable_result()->mutable_trial()->set_trial_id(trial);
    request.mutable_result()->set_attempt(attempt);
    request.mutable_result()->set_rank(rank);
    request.mutable_result()->set_status(status);
    request.mutable_result()->set_cause(cause);
    Response response = Send(request);
    EXPECT_TRUE(response.result_acknowledged());
    return response;
  }
  // Calls as running workers do, so that nobody seems silent, until `duration` has passed.
  void PassTime(absl::Duration duration, const std::vector<std::string>& idle_workers = {}) {
    for (absl::Time end = now_ + duration; now_ < end; now_ += absl::Seconds(1)) {
      for (const std::string& worker : idle_workers) Idle(worker);
      scheduler().Tick(now_);
    }
  }
  TrialOutcome Outcome(int trial) { return scheduler().Outcomes()[trial]; }

  SchedulerOptions options_;
  std::vector<v1::Trial> trials_;
  std::vector<TrialOutcome> outcomes_;
  FakeRunStore store_;
  FakeListener listener_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  int64_t send_ns_ = 0;
  std::unique_ptr<TrialScheduler> scheduler_;
};

TEST_F(TrialSchedulerTest, RunsATrialOnAllItsRanks) {
  AddTrial(2);
  EXPECT_EQ(Idle("a0").desired(), kIdle);  // Alone it gets nothing.
  const Response one = Idle("a1");
  ASSERT_EQ(one.desired(), kRun);
  EXPECT_EQ(one.assignment().rank(), 1);
  EXPECT_EQ(one.assignment().ranks(), 2);
  EXPECT_EQ(one.assignment().attempt(), 1);
  EXPECT_THAT(one.assignment().peer_addresses(), ElementsAre("a0:1", "a1:1"));
  EXPECT_EQ(one.assignment().deadline_seconds(), 100);
  EXPECT_EQ(Idle("a0").assignment().rank(), 0);
  EXPECT_THAT(listener_.open, UnorderedElementsAre(one.assignment().rendezvous_prefix()));
  EXPECT_EQ(Running("a0", "t0").desired(), kRun);
  EXPECT_EQ(Running("a1", "t0").desired(), kRun);
  EXPECT_EQ(Finished("a1", "t0", 1, 1).desired(), kIdle);
  EXPECT_FALSE(scheduler().state().over);
  EXPECT_EQ(Finished("a0", "t0", 1, 0).desired(), kExit);
  EXPECT_TRUE(scheduler().state().over);
  EXPECT_EQ(scheduler().state().workers_to_dismiss, 1);
  EXPECT_EQ(Idle("a1").desired(), kExit);
  EXPECT_EQ(scheduler().state().workers_to_dismiss, 0);
  EXPECT_THAT(listener_.open, IsEmpty());
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_OK);
  EXPECT_TRUE(Outcome(0).final);
  ASSERT_EQ(store_.finishes().size(), 1);
  EXPECT_EQ(store_.results().size(), 2);
}

TEST_F(TrialSchedulerTest, RepeatsALostAnswer) {
  AddTrial(1);
  ASSERT_EQ(Idle("a0").desired(), kRun);
  const Response again = Idle("a0");
  EXPECT_EQ(again.desired(), kRun);
  EXPECT_EQ(again.assignment().attempt(), 1);
  EXPECT_EQ(Running("a0", "t0").desired(), kRun);
  Finished("a0", "t0", 1, 0);
  Finished("a0", "t0", 1, 0);  // The acknowledgement was lost.
  EXPECT_EQ(store_.results().size(), 1);
  EXPECT_EQ(store_.finishes().size(), 1);
}

TEST_F(TrialSchedulerTest, IgnoresCallsThatWereOvertaken) {
  AddTrial(1);
  const v1::SynchronizeRequest early = Request("a0", State::PHASE_IDLE);
  ASSERT_EQ(Send(early).desired(), kRun);
  ASSERT_EQ(Running("a0", "t0").desired(), kRun);
  // A duplicate of the idle call must not look like a worker that lost its trial.
  EXPECT_EQ(Send(early).desired(), kRun);
  EXPECT_EQ(Running("a0", "t0").assignment().attempt(), 1);
  EXPECT_THAT(store_.finishes(), IsEmpty());
}

TEST_F(TrialSchedulerTest, KeepsAHostToOneTrial) {
  AddTrial(1);
  AddTrial(1);
  ASSERT_EQ(Idle("a0").desired(), kRun);
  EXPECT_EQ(Idle("a1").desired(), kIdle);
  ASSERT_EQ(Idle("b0").desired(), kRun);  // Another host is free.
}

TEST_F(TrialSchedulerTest, LargeGangIsNotOvertaken) {
  AddTrial(1);
  AddTrial(2, /*hosts=*/2);
  AddTrial(1);
  ASSERT_EQ(Idle("a0").assignment().trial().trial_id(), "t0");
  EXPECT_EQ(Idle("b0").desired(), kIdle);  // Kept for t1, although t2 would fit.
  EXPECT_EQ(Finished("a0", "t0", 1, 0).assignment().trial().trial_id(), "t1");
  EXPECT_EQ(Idle("b0").assignment().trial().trial_id(), "t1");
}

TEST(PlaceGangTest, SpreadsFreeGangsOverTheFewestHosts) {
  v1::ClusterShape shape;
  shape.set_hosts(1);
  shape.set_devices_per_host(4);
  shape.set_free_placement(true);
  EXPECT_THAT(PlaceGang(shape, {1, 2, 3}), ElementsAre(1, 2));
  EXPECT_THAT(PlaceGang(shape, {1, 4}), ElementsAre(1));
  EXPECT_THAT(PlaceGang(shape, {3, 1}), IsEmpty());  // Not evenly.
  EXPECT_THAT(PlaceGang(shape, {}), IsEmpty());
}

TEST(PlaceGangTest, KeepsToAGivenShape) {
  v1::ClusterShape shape;
  shape.set_hosts(2);
  shape.set_devices_per_host(2);
  EXPECT_THAT(PlaceGang(shape, {4}), IsEmpty());
  EXPECT_THAT(PlaceGang(shape, {2, 1, 2}), ElementsAre(0, 2));
}

TEST_F(TrialSchedulerTest, TellsRanksTheShapeTheyGot) {
  AddTrial(2);
  Idle("a0");
  const Response response = Idle("b0");
  ASSERT_EQ(response.desired(), kRun);
  EXPECT_EQ(response.assignment().trial().cluster().hosts(), 2);
  EXPECT_EQ(response.assignment().trial().cluster().devices_per_host(), 1);
}

TEST_F(TrialSchedulerTest, RequeuesTrialWhenOneRankGoesSilent) {
  AddTrial(2);
  Idle("a0");
  ASSERT_EQ(Idle("a1").desired(), kRun);
  Running("a0", "t0");
  Running("a1", "t0");
  for (int i = 0; i < 11; ++i) {
    now_ += absl::Seconds(1);
    if (i < 10) EXPECT_EQ(Running("a0", "t0").desired(), kRun);
  }
  EXPECT_EQ(Running("a0", "t0").desired(), kIdle);  // Told at its next call.
  EXPECT_EQ(Finished("a0", "t0", 1, 0, v1::TRIAL_STATUS_CANCELLED).desired(), kIdle);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_RANK_LOST);
  EXPECT_THAT(Outcome(0).cause, HasSubstr("rank 1: worker a1 on host a has not called for 10 s"));
  EXPECT_FALSE(Outcome(0).final);
  const Response retry = Idle("a2");
  ASSERT_EQ(retry.desired(), kRun);
  EXPECT_EQ(retry.assignment().attempt(), 2);
  EXPECT_NE(retry.assignment().rendezvous_prefix(), "");
  Idle("a0");
  Finished("a0", "t0", 2, 0);
  Finished("a2", "t0", 2, 1);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_OK);
  EXPECT_EQ(Outcome(0).attempt, 2);
}

TEST_F(TrialSchedulerTest, GivesUpWhenAttemptsAreUsedUp) {
  AddTrial(1);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const std::string worker = absl::StrCat("a", attempt);
    ASSERT_EQ(Idle(worker).assignment().attempt(), attempt);
    scheduler().WorkersGone([](const v1::WorkerDescription&) { return true; },
                            "was killed by signal 9", now_);
  }
  EXPECT_TRUE(Outcome(0).final);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_RANK_LOST);
  EXPECT_THAT(Outcome(0).cause, HasSubstr("3 attempts failed; the last: rank 0: worker a3"));
  EXPECT_THAT(Outcome(0).cause, HasSubstr("killed by signal 9"));
}

TEST_F(TrialSchedulerTest, OwnFailureEndsTheTrialAndTheSweepGoesOn) {
  AddTrial(2);
  AddTrial(2);
  Idle("a0");
  Idle("a1");
  Running("a0", "t0");
  Running("a1", "t0");
  // The peer's report, which comes first, does not hide the reason.
  EXPECT_EQ(Finished("a0", "t0", 1, 0, v1::TRIAL_STATUS_PEER_FAILED, "closed").desired(), kIdle);
  EXPECT_EQ(Running("a1", "t0").desired(), kIdle);
  Finished("a1", "t0", 1, 1, v1::TRIAL_STATUS_OUT_OF_MEMORY, "rank 1: 5 GB needed");
  EXPECT_TRUE(Outcome(0).final);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_OUT_OF_MEMORY);
  EXPECT_EQ(Outcome(0).cause, "rank 1: 5 GB needed");
  EXPECT_EQ(Idle("a0").assignment().trial().trial_id(), "t1");
}

TEST_F(TrialSchedulerTest, PeersStopAtOnceAfterAnOwnFailure) {
  AddTrial(2);
  AddTrial(2);
  Idle("a0");
  Idle("a1");
  Running("a0", "t0");
  Running("a1", "t0");
  Finished("a0", "t0", 1, 0, v1::TRIAL_STATUS_DIVERGED, "loss is nan");
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_DIVERGED);
  EXPECT_EQ(Running("a1", "t0").desired(), kIdle);
  EXPECT_EQ(Idle("a0").desired(), kIdle);  // The next trial waits until the peer has stopped.
  Finished("a1", "t0", 1, 1, v1::TRIAL_STATUS_PEER_FAILED);
  EXPECT_EQ(store_.results().size(), 2);  // Late, stored, harmless.
  EXPECT_EQ(Idle("a0").assignment().trial().trial_id(), "t1");
}

TEST_F(TrialSchedulerTest, RanksThatNeverReportDoNotHoldTheAttempt) {
  AddTrial(2);
  Idle("a0");
  Idle("a1");
  Running("a0", "t0");
  Running("a1", "t0");
  Finished("a0", "t0", 1, 0, v1::TRIAL_STATUS_PEER_FAILED, "closed");
  for (int i = 0; i < 11; ++i) {
    now_ += absl::Seconds(1);
    EXPECT_EQ(Running("a1", "t0").desired(), kIdle);  // It hangs.
    Idle("a0");
  }
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_PEER_FAILED);
  EXPECT_FALSE(Outcome(0).final);
  // After a while it is asked to exit, so that a fresh process can take its place.
  now_ += absl::Seconds(9);
  Running("a1", "t0");
  now_ += absl::Seconds(9);
  Running("a1", "t0");
  now_ += absl::Seconds(9);
  EXPECT_EQ(Running("a1", "t0").desired(), kExit);
}

TEST_F(TrialSchedulerTest, TimesOut) {
  AddTrial(1);
  AddTrial(1);
  Idle("a0");
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Running("a0", "t0").desired(), kRun);
    now_ += absl::Seconds(1);
  }
  EXPECT_EQ(Running("a0", "t0").desired(), kIdle);
  Finished("a0", "t0", 1, 0, v1::TRIAL_STATUS_CANCELLED);
  EXPECT_TRUE(Outcome(0).final);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_TIMED_OUT);
  EXPECT_THAT(Outcome(0).cause, HasSubstr("not over after 100 s"));
  EXPECT_EQ(Idle("a0").assignment().trial().trial_id(), "t1");
}

TEST_F(TrialSchedulerTest, WorkerThatForgetsItsTrialIsALostRank) {
  AddTrial(1);
  Idle("a0");
  Running("a0", "t0");
  const Response response = Idle("a0");
  ASSERT_EQ(response.desired(), kRun);
  EXPECT_EQ(response.assignment().attempt(), 2);
}

TEST_F(TrialSchedulerTest, StopsWorkersThatRunWhatTheyShouldNot) {
  AddTrial(1);
  EXPECT_EQ(Running("a0", "unknown", 7).desired(), kIdle);
  EXPECT_EQ(Running("a0", "t0", 1).desired(), kIdle);  // Of a coordinator before this one.
  Finished("a0", "unknown", 7, 0);                     // Acknowledged, so that it is forgotten.
  EXPECT_THAT(store_.results(), IsEmpty());
  EXPECT_EQ(Idle("a0").desired(), kRun);
}

TEST_F(TrialSchedulerTest, LeavingWorkerGivesItsTrialBack) {
  AddTrial(1);
  Idle("a0");
  Running("a0", "t0");
  EXPECT_EQ(Send(Request("a0", State::PHASE_LEAVING)).desired(), kExit);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_RANK_LOST);
  EXPECT_EQ(scheduler().state().workers, 0);
  EXPECT_EQ(Idle("a1").assignment().attempt(), 2);
}

TEST_F(TrialSchedulerTest, GivesUpTrialsThatNeedMoreThanEverJoined) {
  AddTrial(4);
  AddTrial(1);
  AddTrial(2, 2);
  ASSERT_EQ(Idle("a0").assignment().trial().trial_id(), "t1");  // t0 does not hold it up.
  Finished("a0", "t1", 1, 0);
  PassTime(absl::Seconds(59), {"a0", "a1"});
  EXPECT_FALSE(Outcome(0).final);
  PassTime(absl::Seconds(5), {"a0", "a1"});
  EXPECT_TRUE(Outcome(0).final);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_INVALID);
  EXPECT_THAT(Outcome(0).cause, HasSubstr("needs 4 devices; the workers that joined offer a: 2"));
  EXPECT_THAT(Outcome(2).cause, HasSubstr("on 2 hosts with 1 each"));
  EXPECT_TRUE(scheduler().state().over);
  EXPECT_EQ(scheduler().state().stalled, "");
}

TEST_F(TrialSchedulerTest, StallsWhenWorkersAreGoneForGood) {
  AddTrial(2);
  Idle("a0");
  Idle("a1");
  scheduler().WorkersGone([](const auto& worker) { return worker.local_index() == 1; }, "ended",
                          now_);
  PassTime(absl::Seconds(75), {"a0"});
  EXPECT_THAT(scheduler().state().stalled, HasSubstr("more workers than the 1 that are left"));
  EXPECT_TRUE(scheduler().state().over);
  EXPECT_FALSE(Outcome(0).final);  // A resumed run can still do it.
}

TEST_F(TrialSchedulerTest, WaitsForTheExpectedWorkers) {
  options_.workers_expected = 3;
  AddTrial(1);
  Idle("a0");
  Idle("b0");
  PassTime(absl::Minutes(9), {"a0", "b0"});
  EXPECT_EQ(Idle("a0").desired(), kIdle);
  Idle("c0");
  EXPECT_EQ(Idle("a0").desired(), kRun);
}

TEST_F(TrialSchedulerTest, StallsWhenTheExpectedWorkersDoNotCome) {
  options_.workers_expected = 3;
  AddTrial(1);
  PassTime(absl::Minutes(11), {"a0", "b0"});
  EXPECT_EQ(scheduler().state().stalled, "only 2 of 3 workers joined within 600 s");
}

TEST_F(TrialSchedulerTest, CancelStopsEverythingAndKeepsWhatIsMeasured) {
  options_.workers_expected = 2;
  AddTrial(2);
  AddTrial(1);
  Idle("a0");
  Idle("a1");
  Running("a0", "t0");
  Running("a1", "t0");
  scheduler().Cancel(now_);
  EXPECT_FALSE(scheduler().state().over);
  EXPECT_EQ(Running("a0", "t0").desired(), kIdle);
  EXPECT_EQ(Finished("a0", "t0", 1, 0, v1::TRIAL_STATUS_CANCELLED).desired(), kExit);
  EXPECT_EQ(Finished("a1", "t0", 1, 1, v1::TRIAL_STATUS_CANCELLED).desired(), kExit);
  EXPECT_TRUE(scheduler().state().over);
  EXPECT_EQ(store_.results().size(), 2);
  EXPECT_EQ(Outcome(0).status, v1::TRIAL_STATUS_CANCELLED);
  EXPECT_FALSE(Outcome(0).final);
  EXPECT_EQ(Outcome(1).attempt, 0);
}

TEST_F(TrialSchedulerTest, ResumesWithoutRepeatingWhatIsDone) {
  AddTrial(1);
  AddTrial(1);
  AddTrial(1);
  outcomes_ = {{"t0", 1, true, v1::TRIAL_STATUS_OK, ""},
               {"t1", 2, false, v1::TRIAL_STATUS_UNSPECIFIED, ""},
               {"t2", 0, false, v1::TRIAL_STATUS_UNSPECIFIED, ""}};
  const Response response = Idle("a0");
  EXPECT_EQ(response.assignment().trial().trial_id(), "t1");
  EXPECT_EQ(response.assignment().attempt(), 3);
  EXPECT_EQ(scheduler().Snapshot(now_).trials_done(), 1);
}

TEST_F(TrialSchedulerTest, FullDiskStopsTheRun) {
  AddTrial(1);
  AddTrial(1);
  Idle("a0");
  Running("a0", "t0");
  store_.set_error(absl::ResourceExhaustedError("the disk is full"));
  v1::SynchronizeRequest request = Request("a0", State::PHASE_FINISHED, "t0", 1);
  request.mutable_result()->mutable_trial()->set_trial_id("t0");
  request.mutable_result()->set_attempt(1);
  request.mutable_result()->set_status(v1::TRIAL_STATUS_OK);
  EXPECT_EQ(scheduler().Synchronize(request, now_).status().code(), absl::StatusCode::kUnavailable);
  scheduler().Tick(now_);
  EXPECT_EQ(scheduler().state().failure.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(scheduler().state().over);
  EXPECT_FALSE(Outcome(0).final);
}

TEST_F(TrialSchedulerTest, RefusesOtherVersionsAndNonsense) {
  AddTrial(1);
  v1::SynchronizeRequest request = Request("a0", State::PHASE_IDLE);
  request.mutable_worker()->set_version("2");
  const absl::Status status = scheduler().Synchronize(request, now_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker a0 on a is Paceline '2'"));
  request = Request("a0", State::PHASE_IDLE);
  request.mutable_worker()->clear_worker_id();
  EXPECT_EQ(scheduler().Synchronize(request, now_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler().Synchronize(Request("a0", State::PHASE_FINISHED), now_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TrialSchedulerTest, EstimatesTheTimeLeft) {
  for (int i = 0; i < 4; ++i) AddTrial(1);
  EXPECT_EQ(scheduler().Snapshot(now_).seconds_left(), -1);
  scheduler().SetExpectedSeconds({10, 10, 20, 40});
  Idle("a0");
  now_ += absl::Seconds(5);
  Finished("a0", "t0", 1, 0);
  EXPECT_DOUBLE_EQ(scheduler().Snapshot(now_).seconds_left(), 35);
  v1::SynchronizeRequest request = Request("a0", State::PHASE_RUNNING, "t1", 1);
  request.mutable_state()->mutable_progress()->set_iterations_done(5);
  request.mutable_state()->mutable_progress()->set_iterations_planned(10);
  Send(request);
  now_ += absl::Seconds(2.5);
  const v1::GetStatusResponse status = scheduler().Snapshot(now_);
  EXPECT_DOUBLE_EQ(status.seconds_left(), 32.5);
  ASSERT_EQ(status.running_size(), 1);
  EXPECT_EQ(status.running(0).progress().iterations_done(), 5);
}

TEST_F(TrialSchedulerTest, TellsWhatHappened) {
  AddTrial(1);
  Idle("a0");
  Finished("a0", "t0", 1, 0);
  std::vector<SchedulerEvent::Kind> kinds;
  for (const SchedulerEvent& event : scheduler().TakeEvents()) kinds.push_back(event.kind);
  EXPECT_THAT(kinds, ElementsAre(SchedulerEvent::kWorkerJoined, SchedulerEvent::kAttemptStarted,
                                 SchedulerEvent::kAttemptEnded));
  EXPECT_THAT(scheduler().TakeEvents(), IsEmpty());
}

}  // namespace
}  // namespace paceline
