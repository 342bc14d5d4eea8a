// Thousands of seeded schedules of faults against the scheduler: workers that die, hang, come back,
// lose requests and answers, repeat old calls. Whatever happens, every trial ends exactly once,
// with a status that is true, and nothing measured is lost or doubled.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/scheduler/fake_run_store.h"
#include "coordinator/scheduler/trial_scheduler.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// Under a sanitizer the first ones have to do: there they take ten times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSchedules = 150;
#else
constexpr int kSchedules = 3000;
#endif

using Response = v1::SynchronizeResponse;
using State = v1::WorkerState;

struct FakeWorker {
  v1::WorkerDescription description;
  bool alive = true;
  State::Phase phase = State::PHASE_IDLE;
  v1::RankAssignment assignment;
  v1::TrialResult result;
  absl::Time done;  // When the running trial ends by itself.
  absl::Time next_call;
  bool deaf = false;  // Hangs: goes on whatever it is told.
};

class World {
 public:
  explicit World(int seed) : random_(seed) {
    SchedulerOptions options;
    options.version = "1";
    const int trials = 1 + Random(6);
    for (int i = 0; i < trials; ++i) {
      v1::Trial& trial = trials_.emplace_back();
      trial.set_trial_id(absl::StrCat("t", i));
      trial.mutable_cluster()->set_hosts(1);
      trial.mutable_cluster()->set_devices_per_host(1 + Random(3));
      trial.mutable_cluster()->set_free_placement(true);
      trial.mutable_failure()->set_max_attempts(1 + Random(3));
      trial.mutable_failure()->set_trial_timeout_seconds(60);
      // Some fail by themselves, always on the same rank.
      nature_[trial.trial_id()] = Chance(0.2)   ? v1::TRIAL_STATUS_OUT_OF_MEMORY
                                  : Chance(0.1) ? v1::TRIAL_STATUS_DIVERGED
                                                : v1::TRIAL_STATUS_OK;
    }
    fault_rate_ = Chance(0.3) ? 0 : 0.002 * (1 + Random(20));
    scheduler_ = std::make_unique<TrialScheduler>(options, trials_, std::vector<TrialOutcome>(),
                                                  &store_, nullptr, now_);
    hosts_ = 1 + Random(2);
    for (int host = 0; host < hosts_; ++host) {
      for (int i = 0; i < 3; ++i) StartWorker(host, i);
    }
  }

  // Returns false if the run does not end in time.
  bool Run() {
    for (int step = 0; step < 100000; ++step) {
      now_ += absl::Milliseconds(50);
      for (size_t i = 0; i < workers_.size(); ++i) StepWorker(i);
      DeliverDelayed();
      scheduler_->Tick(now_);
      CheckLeases();
      if (scheduler_->state().over) return true;
    }
    return false;
  }

  void CheckEnd() {
    std::map<std::string, int> finals;
    std::map<std::string, int> last_attempt;
    for (const TrialOutcome& outcome : store_.finishes()) {
      EXPECT_GT(outcome.attempt, last_attempt[outcome.trial_id]);
      last_attempt[outcome.trial_id] = outcome.attempt;
      EXPECT_EQ(finals[outcome.trial_id], 0) << "an attempt after the final one";
      finals[outcome.trial_id] += outcome.final;
      if (outcome.status == v1::TRIAL_STATUS_OK) {
        EXPECT_EQ(nature_[outcome.trial_id], v1::TRIAL_STATUS_OK);
        CheckComplete(outcome);
      } else if (outcome.status == v1::TRIAL_STATUS_OUT_OF_MEMORY ||
                 outcome.status == v1::TRIAL_STATUS_DIVERGED) {
        EXPECT_EQ(nature_[outcome.trial_id], outcome.status);
        EXPECT_TRUE(outcome.final);
      } else {
        EXPECT_GT(fault_rate_, 0) << outcome.cause;
        EXPECT_FALSE(outcome.cause.empty());
      }
    }
    std::set<std::pair<std::string, int>> starts;
    for (const auto& start : store_.starts()) {
      EXPECT_TRUE(starts.insert(start).second) << "attempt given out twice";
    }
    for (const v1::Trial& trial : trials_) {
      EXPECT_EQ(finals[trial.trial_id()], 1) << trial.trial_id();
      // With the attempts that were lost the limit is kept.
      EXPECT_LE(last_attempt[trial.trial_id()], trial.failure().max_attempts());
    }
    // Whatever a worker was told is stored, is stored.
    for (const auto& [key, result] : acknowledged_) {
      ASSERT_EQ(store_.results().count(key), 1);
      EXPECT_EQ(store_.results().at(key).worker_id(), result.worker_id());
    }
  }

 private:
  int Random(int below) { return static_cast<int>(random_() % below); }
  bool Chance(double probability) { return random_() < probability * 4294967296.0; }
  bool Fault(double weight = 1) { return Chance(fault_rate_ * weight); }

  void StartWorker(int host, int index) {
    FakeWorker& worker = workers_.emplace_back();
    worker.description.set_worker_id(absl::StrCat("w", workers_.size()));
    worker.description.set_host(absl::StrCat("h", host));
    worker.description.set_local_index(index);
    worker.description.set_data_address(worker.description.worker_id());
    worker.description.set_version("1");
    worker.next_call = now_ + absl::Milliseconds(Random(2000));
  }

  void StepWorker(size_t i) {
    FakeWorker* worker = &workers_[i];
    if (!worker->alive) return;
    if (Fault(0.2)) {
      worker->alive = false;
      const int host = worker->description.host()[1] - '0';
      const int index = worker->description.local_index();
      if (Chance(0.5)) {
        const std::string id = worker->description.worker_id();
        scheduler_->WorkersGone([&](const auto& other) { return other.worker_id() == id; }, "died",
                                now_);
      }
      StartWorker(host, index);  // Moves workers_.
      return;
    }
    if (worker->phase == State::PHASE_RUNNING && now_ >= worker->done) {
      Finish(worker, Nature(worker->assignment));
    }
    if (worker->phase == State::PHASE_RUNNING && worker->assignment.ranks() > 1 && Fault()) {
      Finish(worker, v1::TRIAL_STATUS_PEER_FAILED);
    }
    if (now_ >= worker->next_call) Call(worker);
  }

  v1::TrialStatus Nature(const v1::RankAssignment& assignment) {
    const v1::TrialStatus nature = nature_[assignment.trial().trial_id()];
    // The last rank fails; the others only notice.
    return nature == v1::TRIAL_STATUS_OK || assignment.rank() == assignment.ranks() - 1
               ? nature
               : v1::TRIAL_STATUS_PEER_FAILED;
  }

  void Finish(FakeWorker* worker, v1::TrialStatus status) {
    worker->phase = State::PHASE_FINISHED;
    worker->result.Clear();
    *worker->result.mutable_trial() = worker->assignment.trial();
    worker->result.set_attempt(worker->assignment.attempt());
    worker->result.set_rank(worker->assignment.rank());
    worker->result.set_status(status);
    worker->result.set_cause(status == v1::TRIAL_STATUS_OK ? "" : "because");
    worker->result.set_worker_id(worker->description.worker_id());
    worker->next_call = now_;
  }

  void Call(FakeWorker* worker) {
    v1::SynchronizeRequest request;
    *request.mutable_worker() = worker->description;
    request.mutable_state()->set_phase(worker->phase);
    if (worker->phase != State::PHASE_IDLE) {
      request.mutable_state()->set_trial_id(worker->assignment.trial().trial_id());
      request.mutable_state()->set_attempt(worker->assignment.attempt());
    }
    if (worker->phase == State::PHASE_FINISHED) *request.mutable_result() = worker->result;
    request.set_send_unix_ns(absl::ToUnixNanos(now_));
    worker->next_call = now_ + absl::Milliseconds(200);
    if (Fault()) return;                       // The request is lost.
    if (Fault()) delayed_.push_back(request);  // It arrives once more, later.
    auto response = scheduler_->Synchronize(request, now_);
    ASSERT_TRUE(response.ok()) << response.status();
    if (response->result_acknowledged()) {
      acknowledged_.emplace(
          FakeRunStore::ResultKey(request.result().trial().trial_id(), request.result().attempt(),
                                  request.result().rank()),
          request.result());
    }
    if (Fault()) return;  // The answer is lost.
    worker->next_call = now_ + absl::Seconds(response->next_call_seconds());
    if (response->result_acknowledged()) worker->phase = State::PHASE_IDLE;
    switch (response->desired()) {
      case Response::DESIRED_RUN:
        if (worker->phase == State::PHASE_IDLE) {
          worker->phase = State::PHASE_RUNNING;
          worker->assignment = response->assignment();
          worker->done = now_ + absl::Milliseconds(100 + Random(3000));
          // Peers notice a failure after it has happened.
          if (Nature(worker->assignment) == v1::TRIAL_STATUS_PEER_FAILED) {
            worker->done = now_ + absl::Milliseconds(3500);
          }
          if (Fault(0.5)) worker->done = now_ + absl::Seconds(200);  // Slow beyond the timeout.
          worker->deaf = Fault(0.3);
          worker->next_call = now_;
        }
        break;
      case Response::DESIRED_IDLE:
        if (worker->phase == State::PHASE_RUNNING && !worker->deaf) {
          Finish(worker, v1::TRIAL_STATUS_CANCELLED);
        }
        break;
      case Response::DESIRED_EXIT:
        worker->alive = false;
        if (!scheduler_->state().over) {
          StartWorker(worker->description.host()[1] - '0', worker->description.local_index());
        }
        break;
      default:
        ADD_FAILURE() << "no desired state";
    }
  }

  void DeliverDelayed() {
    if (delayed_.empty() || !Chance(0.2)) return;
    const size_t which = Random(static_cast<int>(delayed_.size()));
    const v1::SynchronizeRequest request = delayed_[which];
    delayed_.erase(delayed_.begin() + static_cast<int64_t>(which));
    // Calls older than the silence limit would look like a new worker; gRPC deadlines prevent them.
    if (now_ - absl::FromUnixNanos(request.send_unix_ns()) > absl::Seconds(5)) return;
    EXPECT_TRUE(scheduler_->Synchronize(request, now_).ok());
  }

  // No host really runs two trials at once, and no trial has two attempts.
  void CheckLeases() {
    std::map<std::string, std::string> trial_on_host;
    for (const FakeWorker& worker : workers_) {
      if (!worker.alive || worker.phase != State::PHASE_RUNNING) continue;
      const std::string& id = worker.assignment.trial().trial_id();
      EXPECT_EQ(trial_on_host.emplace(worker.description.host(), id).first->second, id);
    }
    std::set<std::string> trials;
    const v1::GetStatusResponse status = scheduler_->Snapshot(now_);
    for (const v1::RunningTrial& running : status.running()) {
      EXPECT_TRUE(trials.insert(running.trial().trial_id()).second);
      EXPECT_EQ(running.worker_ids_size(),
                running.trial().cluster().hosts() * running.trial().cluster().devices_per_host());
    }
  }

  void CheckComplete(const TrialOutcome& outcome) {
    int ranks = 0;
    for (const auto& [key, result] : store_.results()) {
      if (std::get<0>(key) != outcome.trial_id || std::get<1>(key) != outcome.attempt) continue;
      EXPECT_EQ(result.status(), v1::TRIAL_STATUS_OK);
      ++ranks;
    }
    for (const v1::Trial& trial : trials_) {
      if (trial.trial_id() != outcome.trial_id) continue;
      EXPECT_EQ(ranks, trial.cluster().devices_per_host());
    }
  }

  std::mt19937 random_;
  double fault_rate_ = 0;
  int hosts_ = 1;
  absl::Time now_ = absl::FromUnixSeconds(1000000);
  std::vector<v1::Trial> trials_;
  std::map<std::string, v1::TrialStatus> nature_;
  FakeRunStore store_;
  std::unique_ptr<TrialScheduler> scheduler_;
  std::vector<FakeWorker> workers_;
  std::vector<v1::SynchronizeRequest> delayed_;
  std::map<FakeRunStore::ResultKey, v1::TrialResult> acknowledged_;
};

TEST(TrialSchedulerRandomTest, EveryTrialEndsExactlyOnceWithATrueStatus) {
  for (int seed = 0; seed < kSchedules; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed);
    ASSERT_TRUE(world.Run());
    world.CheckEnd();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace paceline
