#include "worker/runner/trial_runner.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/worker.pb.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/memory_rendezvous.h"
#include "worker/runner/cancel_token.h"

namespace paceline {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// LeNet-5 on synthetic input: a few milliseconds an iteration.
v1::RankAssignment Assignment(int ranks, const std::string& policy = "bsp") {
  v1::RankAssignment assignment;
  v1::Trial& trial = *assignment.mutable_trial();
  trial.set_trial_id("test");
  *trial.mutable_network() = LoadNetwork("lenet5").value();
  *trial.mutable_policy() = LoadPolicy(policy).value();
  trial.mutable_cluster()->set_hosts(1);
  trial.mutable_cluster()->set_devices_per_host(ranks);
  trial.set_batch_per_device(4);
  trial.set_precision(v1::PRECISION_FP32);
  trial.mutable_input()->mutable_synthetic();
  trial.set_engine(v1::ENGINE_NATIVE);
  trial.mutable_training()->set_learning_rate(0.001);
  trial.mutable_training()->set_momentum(0.9);
  trial.mutable_training()->set_weight_decay(5e-4);
  trial.mutable_training()->set_seed(1);
  v1::MeasurementSettings& measurement = *trial.mutable_measurement();
  measurement.set_min_warmup_iterations(2);
  measurement.set_min_iterations(8);
  measurement.set_max_iterations(12);
  measurement.set_target_half_width(0.02);
  measurement.set_max_measure_seconds(30);
  assignment.set_attempt(1);
  assignment.set_ranks(ranks);
  for (int rank = 0; rank < ranks; ++rank) assignment.add_peer_addresses("127.0.0.1");
  assignment.set_deadline_seconds(60);
  return assignment;
}

// One rank as its worker would run it.
struct Rank {
  std::unique_ptr<Backend> backend;
  CancelToken cancel;
  v1::TrialResult result;
  std::vector<v1::TrialProgress> progress;

  void Run(v1::RankAssignment assignment, int rank, RendezvousStore& store,
           absl::Duration peer_timeout = absl::Seconds(20)) {
    CpuBackendOptions options;
    options.compute_threads = 1;
    backend = CreateCpuBackend(options).value();
    assignment.set_rank(rank);
    TrialRunnerOptions runner_options;
    runner_options.worker_id = "worker";
    runner_options.peer_timeout = peer_timeout;
    TrialRunner runner(*backend, runner_options);
    result = runner.Run(assignment, store, cancel,
                        [this](const v1::TrialProgress& p) { progress.push_back(p); });
  }
};

v1::TrialResult RunAlone(const v1::RankAssignment& assignment) {
  MemoryRendezvous store;
  Rank rank;
  rank.Run(assignment, 0, store);
  return rank.result;
}

TEST(TrialRunnerTest, MeasuresATrialOfOneRank) {
  MemoryRendezvous store;
  Rank rank;
  rank.Run(Assignment(1), 0, store);
  const v1::TrialResult& result = rank.result;
  ASSERT_EQ(result.status(), v1::TRIAL_STATUS_OK) << result.cause();
  EXPECT_EQ(result.cause(), "");
  EXPECT_EQ(result.worker_id(), "worker");
  EXPECT_GE(result.iterations_size(), 10);
  EXPECT_LE(result.iterations_size(), 14);
  EXPECT_GE(result.warmup_iterations(), 2);
  EXPECT_NE(result.stop_reason(), v1::TrialResult::STOP_REASON_FAILED);
  for (const v1::IterationSample& sample : result.iterations()) {
    EXPECT_GT(sample.duration_ns(), 0);
    EXPECT_GT(sample.forward_ns(), 0);
    EXPECT_GT(sample.backward_ns(), 0);
    EXPECT_GT(sample.update_ns(), 0);
    EXPECT_EQ(sample.communication_ns(), 0);
    EXPECT_GT(sample.loss(), 0);
    EXPECT_LE(sample.forward_ns() + sample.backward_ns() + sample.update_ns(),
              sample.duration_ns());
  }
  EXPECT_GT(result.memory().weights_bytes(), 431080 * 4 - 1);
  EXPECT_GT(result.memory().peak_resident_bytes(), 0);
  EXPECT_FALSE(result.schedule_hash().empty());
  EXPECT_FALSE(result.trace().empty());
  EXPECT_FALSE(result.operations().empty());
  EXPECT_GT(result.end_unix_ns(), result.start_unix_ns());
  EXPECT_FALSE(result.machine().host().empty());
  ASSERT_FALSE(rank.progress.empty());
  EXPECT_EQ(rank.progress.front().step(), "preparing");
  EXPECT_EQ(rank.progress.back().step(), "finishing");
}

TEST(TrialRunnerTest, RanksAgreeWhenToStopAndOnTheWeights) {
  for (const std::string policy :
       {"bsp", "caffe_mpi", "mxnet_dist_sync", "tensorflow_replicated"}) {
    MemoryRendezvous store;
    Rank ranks[2];
    std::thread other([&] { ranks[1].Run(Assignment(2, policy), 1, store); });
    ranks[0].Run(Assignment(2, policy), 0, store);
    other.join();
    for (const Rank& rank : ranks) {
      ASSERT_EQ(rank.result.status(), v1::TRIAL_STATUS_OK) << policy << ": " << rank.result.cause();
      EXPECT_GT(rank.result.iterations(5).communication_ns(), 0) << policy;
    }
    EXPECT_EQ(ranks[0].result.iterations_size(), ranks[1].result.iterations_size()) << policy;
    EXPECT_EQ(ranks[0].result.stop_reason(), ranks[1].result.stop_reason()) << policy;
    EXPECT_EQ(ranks[0].result.weights_checksum(), ranks[1].result.weights_checksum()) << policy;
    EXPECT_EQ(ranks[0].result.schedule_hash(), ranks[1].result.schedule_hash()) << policy;
  }
}

TEST(TrialRunnerTest, TheLossFallsOnPhotographs) {
  setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), /*overwrite=*/1);
  v1::RankAssignment assignment = Assignment(1);
  v1::Trial& trial = *assignment.mutable_trial();
  *trial.mutable_network() = LoadNetwork("cifar_resnet20").value();
  trial.mutable_input()->mutable_photographs()->set_images(64);
  trial.set_batch_per_device(16);
  trial.mutable_training()->set_learning_rate(0.02);
  trial.mutable_measurement()->set_min_iterations(60);
  trial.mutable_measurement()->set_max_iterations(60);
  const v1::TrialResult result = RunAlone(assignment);
  ASSERT_EQ(result.status(), v1::TRIAL_STATUS_OK) << result.cause();
  EXPECT_GT(result.input_counters().images_read(), 60 * 16);
  EXPECT_EQ(result.input_counters().corrupt_records(), 0);
  double first = 0;
  double last = 0;
  for (int i = 0; i < 8; ++i) {
    first += result.iterations(i).loss() / 8;
    last += result.iterations(result.iterations_size() - 1 - i).loss() / 8;
    EXPECT_GT(result.iterations(i).input_ns(), 0);
    EXPECT_GT(result.iterations(i).copy_ns(), 0);
  }
  EXPECT_LT(last, 0.8 * first);
}

TEST(TrialRunnerTest, ABatchThatDoesNotFitIsOutOfMemory) {
  v1::RankAssignment assignment = Assignment(1);
  *assignment.mutable_trial()->mutable_network() = LoadNetwork("vgg16").value();
  assignment.mutable_trial()->set_batch_per_device(100000);
  const v1::TrialResult result = RunAlone(assignment);
  EXPECT_EQ(result.status(), v1::TRIAL_STATUS_OUT_OF_MEMORY) << result.cause();
  EXPECT_THAT(result.cause(), HasSubstr("rank 0: "));
}

TEST(TrialRunnerTest, AMissingDataSetIsAnInputErrorThatNamesThePath) {
  v1::RankAssignment assignment = Assignment(1);
  assignment.mutable_trial()->mutable_input()->set_image_folder("/no/such/folder");
  const v1::TrialResult result = RunAlone(assignment);
  EXPECT_EQ(result.status(), v1::TRIAL_STATUS_INPUT_ERROR);
  EXPECT_THAT(result.cause(), HasSubstr("/no/such/folder"));
}

TEST(TrialRunnerTest, ALossThatIsNotFiniteIsDivergence) {
  v1::RankAssignment assignment = Assignment(1);
  assignment.mutable_trial()->mutable_training()->set_learning_rate(1e30);
  const v1::TrialResult result = RunAlone(assignment);
  EXPECT_EQ(result.status(), v1::TRIAL_STATUS_DIVERGED);
  EXPECT_THAT(result.cause(), HasSubstr("not finite"));
}

TEST(TrialRunnerTest, ARealFrameworkWithoutDriverIsNotInstalled) {
  v1::RankAssignment assignment = Assignment(1);
  assignment.mutable_trial()->set_engine(v1::ENGINE_CNTK);
  EXPECT_EQ(RunAlone(assignment).status(), v1::TRIAL_STATUS_NOT_INSTALLED);
}

TEST(TrialRunnerTest, AnUnsupportedPrecisionIsInvalid) {
  v1::RankAssignment assignment = Assignment(1);
  assignment.mutable_trial()->set_precision(v1::PRECISION_FP16);
  const v1::TrialResult result = RunAlone(assignment);
  EXPECT_EQ(result.status(), v1::TRIAL_STATUS_INVALID);
  EXPECT_THAT(result.cause(), HasSubstr("FP16"));
}

TEST(TrialRunnerTest, CancellationKeepsWhatWasMeasured) {
  MemoryRendezvous store;
  Rank rank;
  v1::RankAssignment assignment = Assignment(1);
  v1::MeasurementSettings& measurement = *assignment.mutable_trial()->mutable_measurement();
  measurement.set_min_iterations(1000000);
  measurement.set_max_iterations(1000000);
  std::thread canceller([&] {
    absl::SleepFor(absl::Milliseconds(300));
    rank.cancel.Cancel(absl::CancelledError("the user pressed Ctrl-C"));
  });
  rank.Run(assignment, 0, store);
  canceller.join();
  EXPECT_EQ(rank.result.status(), v1::TRIAL_STATUS_CANCELLED);
  EXPECT_EQ(rank.result.cause(), "rank 0: the user pressed Ctrl-C");
  EXPECT_EQ(rank.result.stop_reason(), v1::TrialResult::STOP_REASON_FAILED);
}

TEST(TrialRunnerTest, APeerThatNeverComesEndsTheTrialWithinItsTimeout) {
  MemoryRendezvous store;
  Rank rank;
  rank.Run(Assignment(2), 0, store, absl::Milliseconds(300));
  EXPECT_THAT(rank.result.status(),
              AnyOf(v1::TRIAL_STATUS_TIMED_OUT, v1::TRIAL_STATUS_PEER_FAILED));
}

TEST(TrialRunnerTest, APeerThatVanishesEndsTheTrialAndTheWorkerStaysUsable) {
  for (const std::string policy : {"bsp", "mxnet_dist_sync"}) {
    MemoryRendezvous store;
    v1::RankAssignment assignment = Assignment(2, policy);
    assignment.mutable_trial()->mutable_measurement()->set_min_iterations(1000000);
    assignment.mutable_trial()->mutable_measurement()->set_max_iterations(1000000);
    Rank ranks[2];
    std::thread other([&] { ranks[1].Run(assignment, 1, store); });
    std::thread canceller([&] {
      absl::SleepFor(absl::Milliseconds(500));
      ranks[1].cancel.Cancel(absl::CancelledError("killed"));
    });
    ranks[0].Run(assignment, 0, store);
    other.join();
    canceller.join();
    EXPECT_THAT(ranks[0].result.status(),
                AnyOf(v1::TRIAL_STATUS_PEER_FAILED, v1::TRIAL_STATUS_TIMED_OUT))
        << policy << ": " << ranks[0].result.cause();
    MemoryRendezvous fresh;
    ranks[0].Run(Assignment(1), 0, fresh);
    EXPECT_EQ(ranks[0].result.status(), v1::TRIAL_STATUS_OK) << ranks[0].result.cause();
  }
}

TEST(TrialRunnerTest, RanksWithDifferentSchedulesRefuseToStart) {
  MemoryRendezvous store;
  Rank ranks[2];
  std::thread other([&] { ranks[1].Run(Assignment(2, "wfbp"), 1, store); });
  ranks[0].Run(Assignment(2, "bsp"), 0, store);
  other.join();
  for (const Rank& rank : ranks) {
    EXPECT_NE(rank.result.status(), v1::TRIAL_STATUS_OK);
    EXPECT_THAT(rank.result.cause(), HasSubstr("another schedule"));
  }
}

}  // namespace
}  // namespace paceline
