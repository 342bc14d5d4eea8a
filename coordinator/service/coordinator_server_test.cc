// The services over real gRPC on a free port, with workers played by threads.
#include "coordinator/service/coordinator_server.h"

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/scheduler/fake_run_store.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/coordinator.grpc.pb.h"
#include "proto/paceline/v1/rendezvous.grpc.pb.h"
#include "proto/support/join_token.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

v1::Trial MakeTrial(int index, int devices) {
  v1::Trial trial;
  trial.set_trial_id(absl::StrCat("t", index));
  trial.set_plan_name("served");
  trial.mutable_cluster()->set_hosts(1);
  trial.mutable_cluster()->set_devices_per_host(devices);
  trial.mutable_failure()->set_max_attempts(3);
  trial.mutable_failure()->set_trial_timeout_seconds(100);
  return trial;
}

class CoordinatorServerTest : public ::testing::Test {
 protected:
  void Start(std::vector<v1::Trial> trials, ServerOptions options = {}) {
    SchedulerOptions scheduler_options;
    scheduler_options.version = "1";
    scheduler_options.running_call = absl::Milliseconds(10);
    scheduler_options.waiting_call = absl::Milliseconds(10);
    scheduler_ = std::make_unique<TrialScheduler>(scheduler_options, std::move(trials),
                                                  std::vector<TrialOutcome>(), &store_,
                                                  &rendezvous_, absl::Now());
    auto server = CoordinatorServer::Start(options, scheduler_.get(), &rendezvous_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(50));
    context->set_wait_for_ready(true);
  }
  // Synchronizes as a worker until it is told to exit; ranks meet in the rendezvous.
  void PlayWorker(int index) {
    auto coordinator = v1::CoordinatorService::NewStub(channel_);
    auto rendezvous = v1::RendezvousService::NewStub(channel_);
    v1::SynchronizeRequest request;
    request.mutable_worker()->set_worker_id(absl::StrCat("w", index));
    request.mutable_worker()->set_host("h");
    request.mutable_worker()->set_local_index(index);
    request.mutable_worker()->set_version("1");
    request.mutable_state()->set_phase(v1::WorkerState::PHASE_IDLE);
    while (true) {
      request.set_send_unix_ns(absl::GetCurrentTimeNanos());
      v1::SynchronizeResponse response;
      grpc::ClientContext context;
      SetDeadline(&context);
      const grpc::Status status = coordinator->Synchronize(&context, request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_GE(response.send_unix_ns(), response.receive_unix_ns());
      if (response.result_acknowledged()) {
        request.clear_result();
        request.mutable_state()->set_phase(v1::WorkerState::PHASE_IDLE);
      }
      if (response.desired() == v1::SynchronizeResponse::DESIRED_EXIT) return;
      if (response.desired() == v1::SynchronizeResponse::DESIRED_RUN) {
        const v1::RankAssignment& assignment = response.assignment();
        Meet(rendezvous.get(), assignment);
        request.mutable_state()->set_phase(v1::WorkerState::PHASE_FINISHED);
        *request.mutable_result()->mutable_trial() = assignment.trial();
        request.mutable_result()->set_attempt(assignment.attempt());
        request.mutable_result()->set_rank(assignment.rank());
        request.mutable_result()->set_status(v1::TRIAL_STATUS_OK);
        continue;
      }
      absl::SleepFor(absl::Seconds(response.next_call_seconds()));
    }
  }
  static void Meet(v1::RendezvousService::Stub* rendezvous, const v1::RankAssignment& assignment) {
    v1::PutRequest put;
    put.set_prefix(assignment.rendezvous_prefix());
    put.set_key(absl::StrCat("rank", assignment.rank()));
    put.set_value("here");
    v1::PutResponse put_response;
    grpc::ClientContext put_context;
    SetDeadline(&put_context);
    grpc::Status status = rendezvous->Put(&put_context, put, &put_response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    v1::GetRequest get;
    get.set_prefix(assignment.rendezvous_prefix());
    for (int rank = 0; rank < assignment.ranks(); ++rank) get.add_keys(absl::StrCat("rank", rank));
    get.set_timeout_seconds(40);
    v1::GetResponse get_response;
    grpc::ClientContext get_context;
    SetDeadline(&get_context);
    status = rendezvous->Get(&get_context, get, &get_response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(get_response.values_size(), assignment.ranks());
  }
  grpc::Status GetStatus(const std::string& token, v1::GetStatusResponse* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    if (!token.empty()) context.AddMetadata(kJoinTokenMetadataKey, token);
    return v1::CoordinatorService::NewStub(channel_)->GetStatus(&context, {}, response);
  }

  FakeRunStore store_;
  RendezvousStore rendezvous_;
  std::unique_ptr<TrialScheduler> scheduler_;
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(CoordinatorServerTest, ServesARunToItsEnd) {
  std::vector<v1::Trial> trials;
  for (int i = 0; i < 6; ++i) trials.push_back(MakeTrial(i, 1 + i % 3));
  Start(trials);
  std::vector<std::thread> workers;
  for (int i = 0; i < 3; ++i) workers.emplace_back([this, i] { PlayWorker(i); });
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(scheduler_->state().over);
  EXPECT_EQ(store_.results().size(), 12);
  for (const TrialOutcome& outcome : scheduler_->Outcomes()) {
    EXPECT_EQ(outcome.status, v1::TRIAL_STATUS_OK);
  }
  v1::GetStatusResponse status;
  ASSERT_TRUE(GetStatus("", &status).ok());
  EXPECT_EQ(status.plan_name(), "served");
  EXPECT_EQ(status.trials_done(), 6);
}

TEST_F(CoordinatorServerTest, WantsTheToken) {
  ServerOptions options;
  options.join_token = "a-secret-token";
  Start({MakeTrial(0, 1)}, options);
  v1::GetStatusResponse response;
  EXPECT_EQ(GetStatus("", &response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(GetStatus("another-token", &response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(GetStatus("a-secret-token", &response).ok());
}

TEST_F(CoordinatorServerTest, SecondServerOnAPortFails) {
  Start({MakeTrial(0, 1)});
  ServerOptions options;
  options.listen = server_->address();
  const auto second = CoordinatorServer::Start(options, scheduler_.get(), &rendezvous_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CoordinatorServerTest, ShutdownWakesWaitingRanks) {
  Start({MakeTrial(0, 1)});
  rendezvous_.AttemptStarted("t/1");
  grpc::Status status;
  std::thread rank([&] {
    v1::GetRequest get;
    get.set_prefix("t/1");
    get.add_keys("never");
    get.set_timeout_seconds(40);
    v1::GetResponse response;
    grpc::ClientContext context;
    SetDeadline(&context);
    status = v1::RendezvousService::NewStub(channel_)->Get(&context, get, &response);
  });
  v1::GetStatusResponse response;
  ASSERT_TRUE(GetStatus("", &response).ok());  // The channel is up.
  server_->Shutdown();
  rank.join();
  EXPECT_FALSE(status.ok());
}

TEST(ServerOptionsTest, RefusesOpenDoors) {
  ServerOptions options;
  EXPECT_TRUE(options.Validate().ok());
  for (const char* loopback : {"localhost:0", "127.0.0.2:80", "[::1]:7"}) {
    options.listen = loopback;
    EXPECT_TRUE(options.Validate().ok()) << loopback;
  }
  options.listen = "0.0.0.0:7400";
  const absl::Status refused = options.Validate();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls_cert"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--token_file"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--insecure"));
  options.join_token = "a-secret-token";
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kFailedPrecondition);
  options.tls_certificate = "certificate";
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
  options.tls_key = "key";
  EXPECT_TRUE(options.Validate().ok());
  options = ServerOptions();
  options.listen = "0.0.0.0:7400";
  options.insecure = true;
  EXPECT_TRUE(options.Validate().ok());
}

TEST(ServerOptionsTest, RefusesWrongAddresses) {
  ServerOptions options;
  for (const char* wrong : {"", "localhost", ":80", "localhost:http", "localhost:70000"}) {
    options.listen = wrong;
    EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace paceline
