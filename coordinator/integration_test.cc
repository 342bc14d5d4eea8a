// The coordinator's parts together, over real gRPC and a real run store: plan, scheduler, server,
// store. Workers are played by threads; some die in the middle of a trial.
#include <stdlib.h>

#include <atomic>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/plan/plan.h"
#include "coordinator/results/run_store.h"
#include "coordinator/scheduler/trial_scheduler.h"
#include "coordinator/service/coordinator_server.h"
#include "coordinator/service/rendezvous_store.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/coordinator.grpc.pb.h"
#include "proto/paceline/v1/rendezvous.grpc.pb.h"

namespace paceline {
namespace {

constexpr char kPlan[] = R"pb(
  name: "integration"
  sweeps {
    networks: "lenet5"
    policies: [ "caffe_mpi", "cntk" ]
    devices: [ 1, 2 ]
    batch_per_device: 4
  }
  measurement { repeats: 2 }
)pb";

// Does as it is told until told to exit: meets its peers, and reports made-up iterations.
class FakeWorker {
 public:
  // `fatal_start`: the start of a trial (0-based) in which it dies without a word; -1: none.
  FakeWorker(std::string address, int index, int fatal_start)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        fatal_start_(fatal_start) {
    static std::atomic<int> next{0};
    request_.mutable_worker()->set_worker_id(absl::StrCat("w", ++next));
    request_.mutable_worker()->set_host("h");
    request_.mutable_worker()->set_local_index(index);
    request_.mutable_worker()->set_data_address(absl::StrCat("w", index));
    request_.mutable_worker()->set_version("1");
    request_.mutable_state()->set_phase(v1::WorkerState::PHASE_IDLE);
  }

  const std::string& id() const { return request_.worker().worker_id(); }

  // False: it died.
  bool Run() {
    auto stub = v1::CoordinatorService::NewStub(channel_);
    while (true) {
      request_.set_send_unix_ns(absl::GetCurrentTimeNanos());
      v1::SynchronizeResponse response;
      grpc::ClientContext context;
      SetDeadline(&context);
      const grpc::Status status = stub->Synchronize(&context, request_, &response);
      if (!status.ok()) {
        ADD_FAILURE() << status.error_message();
        return true;
      }
      if (response.result_acknowledged()) {
        request_.clear_result();
        request_.mutable_state()->set_phase(v1::WorkerState::PHASE_IDLE);
      }
      if (response.desired() == v1::SynchronizeResponse::DESIRED_EXIT) return true;
      if (response.desired() != v1::SynchronizeResponse::DESIRED_RUN) {
        absl::SleepFor(absl::Seconds(response.next_call_seconds()));
        continue;
      }
      if (fatal_start_ >= 0 && starts_++ == fatal_start_) return false;
      RunTrial(response.assignment());
    }
  }

 private:
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(50));
    context->set_wait_for_ready(true);
  }

  // Ranks exchange their addresses; a lost peer shows as an error here.
  v1::TrialStatus Meet(const v1::RankAssignment& assignment) {
    auto stub = v1::RendezvousService::NewStub(channel_);
    v1::PutRequest put;
    put.set_prefix(assignment.rendezvous_prefix());
    put.set_key(absl::StrCat(assignment.rank()));
    v1::PutResponse put_response;
    grpc::ClientContext put_context;
    SetDeadline(&put_context);
    if (!stub->Put(&put_context, put, &put_response).ok()) return v1::TRIAL_STATUS_PEER_FAILED;
    v1::GetRequest get;
    get.set_prefix(assignment.rendezvous_prefix());
    for (int rank = 0; rank < assignment.ranks(); ++rank) get.add_keys(absl::StrCat(rank));
    get.set_timeout_seconds(0.3);
    v1::GetResponse get_response;
    grpc::ClientContext get_context;
    SetDeadline(&get_context);
    return stub->Get(&get_context, get, &get_response).ok() ? v1::TRIAL_STATUS_OK
                                                            : v1::TRIAL_STATUS_PEER_FAILED;
  }

  void RunTrial(const v1::RankAssignment& assignment) {
    v1::TrialResult* result = request_.mutable_result();
    *result->mutable_trial() = assignment.trial();
    result->set_attempt(assignment.attempt());
    result->set_rank(assignment.rank());
    result->set_worker_id(id());
    result->set_status(Meet(assignment));
    if (result->status() != v1::TRIAL_STATUS_OK) result->set_cause("peer did not come");
    for (int i = 0; i < 10; ++i) result->add_iterations()->set_duration_ns(1000000 + i);
    request_.mutable_state()->set_phase(v1::WorkerState::PHASE_FINISHED);
    request_.mutable_state()->set_trial_id(assignment.trial().trial_id());
    request_.mutable_state()->set_attempt(assignment.attempt());
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const int fatal_start_;
  int starts_ = 0;
  v1::SynchronizeRequest request_;
};

class CoordinatorIntegrationTest : public ::testing::Test {
 protected:
  CoordinatorIntegrationTest() {
    std::string pattern = testing::TempDir() + "/run_XXXXXX";
    run_dir_ = mkdtemp(pattern.data());
    plan_ = *ParsePlan(kPlan, "plan");
    trials_ = *ExpandPlan(plan_);
  }

  // Runs the store's open trials with two workers; `deaths` of them one after the other die at the
  // start of a trial and are replaced. Stops early once `stop_after` trials are done.
  void RunAll(RunStore* store, const std::vector<TrialOutcome>& outcomes, int deaths,
              int stop_after) {
    SchedulerOptions options;
    options.version = "1";
    options.workers_expected = 2;
    options.running_call = absl::Milliseconds(10);
    options.waiting_call = absl::Milliseconds(10);
    RendezvousStore rendezvous;
    TrialScheduler scheduler(options, trials_, outcomes, store, &rendezvous, absl::Now());
    auto server = CoordinatorServer::Start(ServerOptions(), &scheduler, &rendezvous);
    ASSERT_TRUE(server.ok()) << server.status();
    std::vector<std::thread> workers;
    for (int index = 0; index < 2; ++index) {
      workers.emplace_back([&, index] {
        // The second is the one that dies.
        for (int death = 0; index == 1 && death < deaths; ++death) {
          FakeWorker worker((*server)->address(), index, /*fatal_start=*/0);
          if (worker.Run()) return;
          scheduler.WorkersGone([&](const auto& other) { return other.worker_id() == worker.id(); },
                                "died", absl::Now());
        }
        FakeWorker((*server)->address(), index, -1).Run();
      });
    }
    for (int i = 0; i < 5000; ++i) {
      scheduler.Tick(absl::Now());
      const RunState state = scheduler.state();
      if (state.over && state.workers_to_dismiss == 0) break;
      if (scheduler.Snapshot(absl::Now()).trials_done() >= stop_after) {
        scheduler.Cancel(absl::Now());
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    for (std::thread& worker : workers) worker.join();
    EXPECT_TRUE(scheduler.state().over);
  }

  std::string run_dir_;
  v1::BenchmarkPlan plan_;
  std::vector<v1::Trial> trials_;
};

TEST_F(CoordinatorIntegrationTest, RunsAPlanThroughDyingWorkers) {
  {
    auto store = RunStore::Create(run_dir_, plan_, trials_);
    ASSERT_TRUE(store.ok()) << store.status();
    RunAll(store->get(), {}, /*deaths=*/2, /*stop_after=*/1000);
  }
  auto store = RunStore::Open(run_dir_, /*read_only=*/true);
  ASSERT_TRUE(store.ok()) << store.status();
  int repeated = 0;
  const auto outcomes = *(*store)->Outcomes();
  ASSERT_EQ(outcomes.size(), 8);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[i].status, v1::TRIAL_STATUS_OK) << outcomes[i].cause;
    repeated += outcomes[i].attempt - 1;
    const auto results = *(*store)->Results(outcomes[i].trial_id, outcomes[i].attempt);
    EXPECT_EQ(results.size(), trials_[i].cluster().devices_per_host());
    for (const v1::TrialResult& result : results) {
      EXPECT_EQ(result.status(), v1::TRIAL_STATUS_OK);
      EXPECT_EQ(result.iterations_size(), 10);
      EXPECT_EQ(result.trial().network().name(), "lenet5");
    }
  }
  EXPECT_EQ(repeated, 2);
}

TEST_F(CoordinatorIntegrationTest, ResumesAStoppedRun) {
  {
    auto store = RunStore::Create(run_dir_, plan_, trials_);
    ASSERT_TRUE(store.ok()) << store.status();
    RunAll(store->get(), {}, /*deaths=*/0, /*stop_after=*/3);
  }
  auto store = RunStore::Open(run_dir_, /*read_only=*/false);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto before = *(*store)->Outcomes();
  int done = 0;
  for (const TrialOutcome& outcome : before) done += outcome.final;
  ASSERT_GE(done, 3);
  RunAll(store->get(), before, /*deaths=*/0, /*stop_after=*/1000);
  const auto after = *(*store)->Outcomes();
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].status, v1::TRIAL_STATUS_OK);
    if (before[i].final) EXPECT_EQ(after[i].attempt, before[i].attempt);
    if (!before[i].final) EXPECT_EQ(after[i].attempt, before[i].attempt + 1);
  }
}

}  // namespace
}  // namespace paceline
