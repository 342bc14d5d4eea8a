#include "worker/runner/iteration_executor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/fake/fake_backend.h"
#include "worker/backend/memory_rendezvous.h"
#include "worker/input/input_pipeline.h"
#include "worker/runner/connections.h"
#include "worker/runner/phase_accounting.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Far enough that only a hang would meet it.
constexpr absl::Duration kHang = absl::Seconds(50);
constexpr float kLearningRate = 0.5f;

// Four small tensors: what counts here is the order of things.
ShapedNetwork SmallNetwork() {
  v1::Network network;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "small"
        title: "Small"
        source: "this test"
        input { channels: 1 height: 6 width: 6 }
        classes: 3
        layers {
          name: "conv"
          convolution { output_channels: 4 kernel: 3 }
        }
        layers {
          name: "relu"
          relu {}
        }
        layers {
          name: "ip"
          fully_connected { outputs: 3 }
        }
        layers {
          name: "loss"
          softmax_loss {}
        }
      )pb",
      &network);
  EXPECT_TRUE(parsed);
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(network);
  EXPECT_TRUE(shaped.ok()) << shaped.status();
  return *std::move(shaped);
}

IterationSchedule Compiled(const ShapedNetwork& network, absl::string_view policy, int ranks) {
  v1::ClusterShape cluster;
  cluster.set_hosts(1);
  cluster.set_devices_per_host(ranks);
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(network, LoadPolicy(policy).value(), cluster, /*batch_per_device=*/2);
  EXPECT_TRUE(schedule.ok()) << policy << ": " << schedule.status();
  return *std::move(schedule);
}

// An input that is always ready.
class ReadyInput : public InputPipeline {
 public:
  absl::Status Next(HostBatch& batch, absl::Time deadline) override {
    batch.size = 2;
    batch.busy_ns = 1234;
    return absl::OkStatus();
  }
  v1::InputCounters Counters() const override { return {}; }
  int64_t MemoryBytes() const override { return 0; }
  void Cancel() override {}
};

// One rank with all that its executor needs.
class Rank {
 public:
  Rank(const ShapedNetwork& network, const IterationSchedule& schedule, int rank,
       std::shared_ptr<FakeWorld> world, RendezvousStore& store, FakeBackendOptions options = {})
      : backend_(CreateFakeBackend(std::move(world), std::move(options))) {
    EngineOptions engine_options;
    engine_options.batch = 2;
    engine_options.rank = rank;
    engine_options.tensor_order = schedule.tensor_order;
    engine_options.training.set_learning_rate(kLearningRate);
    engine_ = backend_->CreateEngine(network, engine_options).value();
    RankInfo info;
    info.rank = rank;
    info.ranks = schedule.ranks;
    info.timeout = kHang;
    connections_ =
        Connect(*backend_, schedule, *engine_, info, engine_options.training, store).value();
    ExecutorParts parts;
    parts.backend = backend_.get();
    parts.schedule = &schedule;
    parts.engine = engine_.get();
    parts.input = &input_;
    parts.rank = rank;
    for (const auto& communicator : connections_.communicators) {
      parts.communicators.push_back(communicator.get());
    }
    parts.server = connections_.server.get();
    executor_ = IterationExecutor::Create(parts).value();
  }

  IterationExecutor& executor() { return *executor_; }
  LayerEngine& engine() { return *engine_; }

  // Executes iterations as the trial runner does: one is enqueued ahead of the one collected.
  void Run(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      ASSERT_EQ(executor_->Enqueue(), absl::OkStatus());
      if (i > 0) Collect();
    }
    Collect();
    ASSERT_EQ(executor_->Finish(absl::Now() + kHang), absl::OkStatus());
  }

  const std::vector<IterationTimes>& times() const { return times_; }

 private:
  void Collect() {
    auto times = executor_->Collect(absl::Now() + kHang);
    ASSERT_TRUE(times.ok()) << times.status();
    times_.push_back(*std::move(times));
  }

  ReadyInput input_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LayerEngine> engine_;
  Connections connections_;
  std::unique_ptr<IterationExecutor> executor_;
  std::vector<IterationTimes> times_;
};

// Whether every operation began when those it depends on, and the one before it on its stream, had
// ended.
void ExpectInOrder(const IterationSchedule& schedule, const std::vector<IterationTimes>& times) {
  std::vector<int64_t> stream_free_ns(schedule.streams.size(), 0);
  for (int k = 0; k < static_cast<int>(times.size()); ++k) {
    for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
      const Operation& op = schedule.operations[i];
      const OperationTime& time = times[k].operations[i];
      SCOPED_TRACE(testing::Message() << "iteration " << k << ", operation " << i << " "
                                      << OperationKindName(op.kind));
      EXPECT_LE(time.begin_unix_ns, time.end_unix_ns);
      EXPECT_LE(stream_free_ns[op.stream], time.begin_unix_ns);
      stream_free_ns[op.stream] = time.end_unix_ns;
      for (const Dependency& dependency : op.dependencies) {
        if (dependency.distance > k) continue;
        EXPECT_LE(times[k - dependency.distance].operations[dependency.operation].end_unix_ns,
                  time.begin_unix_ns)
            << "after operation " << dependency.operation << "@" << dependency.distance;
      }
    }
  }
}

class IterationExecutorPolicyTest : public testing::TestWithParam<std::string> {};

// The operations respect their dependencies, and so the weights are exactly those of SGD on the
// mean gradient: a group that travels too early, or comes back too late, would change them.
TEST_P(IterationExecutorPolicyTest, OrdersOperationsAndTrainsOnTheMeanGradient) {
  constexpr int kRanks = 2;
  constexpr int kIterations = 5;
  const ShapedNetwork network = SmallNetwork();
  const IterationSchedule schedule = Compiled(network, GetParam(), kRanks);
  auto world = std::make_shared<FakeWorld>();
  MemoryRendezvous store;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(network, schedule, rank, world, store));
  }
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&rank] { rank->Run(kIterations); });
  }
  for (std::thread& thread : threads) thread.join();

  for (auto& rank : ranks) {
    ASSERT_EQ(rank->times().size(), kIterations);
    ExpectInOrder(schedule, rank->times());
    for (int k = 0; k < kIterations; ++k) {
      EXPECT_EQ(rank->times()[k].loss, 1.0 / (1.0 + k));  // FakeBackendOptions::loss.
      EXPECT_EQ(rank->times()[k].input_busy_ns, 1234);
    }
    for (int t = 0; t < static_cast<int>(network.parameters.size()); ++t) {
      // Multiples of 1/32: exact in any order of the sums.
      std::vector<float> expected(network.parameters[t].elements);
      for (int64_t i = 0; i < network.parameters[t].elements; ++i) {
        expected[i] = FakeWeight(t, i);
        for (int k = 0; k < kIterations; ++k) {
          const float sum = FakeGradient(0, k, t, i) + FakeGradient(1, k, t, i);
          expected[i] -= kLearningRate * sum / static_cast<float>(schedule.gradient_divisor);
        }
      }
      EXPECT_EQ(rank->engine().ReadWeights(t).value(), expected) << "tensor " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllPolicies, IterationExecutorPolicyTest,
                         testing::ValuesIn(KnownPolicies()), [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = isalnum(c) ? c : '_';
                           return name;
                         });

// What the tests below share: one or two ranks under wait-free backpropagation.
class IterationExecutorTest : public testing::Test {
 protected:
  std::unique_ptr<Rank> MakeRank(FakeBackendOptions options, int rank = 0, int ranks = 1) {
    schedule_ = Compiled(network_, "wfbp", ranks);
    return std::make_unique<Rank>(network_, schedule_, rank, world_, store_, std::move(options));
  }

  const ShapedNetwork network_ = SmallNetwork();
  IterationSchedule schedule_;
  std::shared_ptr<FakeWorld> world_ = std::make_shared<FakeWorld>();
  MemoryRendezvous store_;
};

// A stream that fails while the rest of the iteration is still being enqueued says so at once.
absl::Status EnqueueAndCollect(IterationExecutor& executor) {
  const absl::Status status = executor.Enqueue();
  return status.ok() ? executor.Collect(absl::Now() + kHang).status() : status;
}

TEST_F(IterationExecutorTest, ReturnsTheFailureOfAnyStream) {
  const std::vector<std::pair<std::string, int>> operations = {
      {"load_input", -1}, {"forward", 1}, {"backward", 2}, {"update", -1}};
  for (const auto& [failing, failing_layer] : operations) {
    SCOPED_TRACE(failing);
    FakeBackendOptions options;
    options.before_operation = [name = failing, at = failing_layer](absl::string_view operation,
                                                                    int layer) -> absl::Status {
      if (operation == name && layer == at) return absl::ResourceExhaustedError("no more");
      return absl::OkStatus();
    };
    std::unique_ptr<Rank> rank = MakeRank(options);
    const absl::Status status = EnqueueAndCollect(rank->executor());
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("no more"));
  }
}

TEST_F(IterationExecutorTest, ReturnsTheFailureOfTheCommunicationStream) {
  FakeBackendOptions options;
  options.before_operation = [](absl::string_view operation, int) -> absl::Status {
    if (operation == "communication") return absl::UnavailableError("the cable is out");
    return absl::OkStatus();
  };
  // Its peer never comes, and is not waited for.
  std::unique_ptr<Rank> rank = MakeRank(options, /*rank=*/0, /*ranks=*/2);
  const absl::Status status = EnqueueAndCollect(rank->executor());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("the cable is out"));
}

TEST_F(IterationExecutorTest, CollectGivesUpAtItsDeadline) {
  std::unique_ptr<Rank> rank = MakeRank({}, /*rank=*/0, /*ranks=*/2);  // Its peer never comes.
  ASSERT_EQ(rank->executor().Enqueue(), absl::OkStatus());
  EXPECT_EQ(rank->executor().Collect(absl::Now() + absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(IterationExecutorTest, AbortFromAnotherThreadUnblocksCollect) {
  Mutex mu;
  CondVar changed;
  bool communicating = false;
  FakeBackendOptions options;
  options.before_operation = [&](absl::string_view operation, int) {
    MutexLock lock(&mu);
    if (operation == "communication") communicating = true;
    changed.NotifyAll();
    return absl::OkStatus();
  };
  std::unique_ptr<Rank> rank = MakeRank(options, /*rank=*/0, /*ranks=*/2);  // Its peer never comes.
  ASSERT_EQ(rank->executor().Enqueue(), absl::OkStatus());
  std::thread canceller([&] {
    {
      MutexLock lock(&mu);
      while (!communicating) changed.WaitUntil(&mu, absl::Now() + kHang);
    }
    rank->executor().Abort(absl::CancelledError("the user pressed Ctrl-C"));
  });
  const absl::Status status = rank->executor().Collect(absl::Now() + kHang).status();
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr("Ctrl-C"));
}

TEST_F(IterationExecutorTest, RefusesTooManyIterationsInFlight) {
  std::unique_ptr<Rank> rank = MakeRank({});
  IterationExecutor& executor = rank->executor();
  EXPECT_EQ(executor.Collect(absl::Now()).status().code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < IterationExecutor::kMaxInFlight; ++i) {
    ASSERT_EQ(executor.Enqueue(), absl::OkStatus());
  }
  EXPECT_EQ(executor.Enqueue().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(executor.in_flight(), IterationExecutor::kMaxInFlight);
  ASSERT_TRUE(executor.Collect(absl::Now() + kHang).ok());
  EXPECT_EQ(executor.Enqueue(), absl::OkStatus());
}

}  // namespace
}  // namespace paceline
