// K iterations on n ranks with batch b give the same weights as one rank with batch n b, under
// every built-in policy: the gradients that travel are the right ones, averaged rightly, applied
// once, and nothing runs too early. Batch normalization is left out: its statistics are per rank by
// design.
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/memory_rendezvous.h"
#include "worker/input/input_pipeline.h"
#include "worker/runner/connections.h"
#include "worker/runner/iteration_executor.h"

namespace paceline {
namespace {

constexpr int kIterations = 4;
constexpr int kGlobalBatch = 6;
constexpr int kClasses = 5;

// Every kind of layer with weights, a branch, a grouped convolution, and tensors of very different
// sizes; large enough for several buckets and for the server's split of big arrays to matter.
v1::Network TestNetwork() {
  v1::Network network;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "equality_test"
        input { channels: 3 height: 12 width: 12 }
        classes: 5
        layers {
          name: "conv1"
          convolution { output_channels: 16 kernel: 3 pad: 1 }
        }
        layers {
          name: "relu1"
          relu {}
        }
        layers {
          name: "norm1"
          lrn { local_size: 5 alpha: 1e-4 beta: 0.75 }
        }
        layers {
          name: "left"
          convolution { output_channels: 16 kernel: 3 pad: 1 groups: 2 }
        }
        layers {
          name: "right"
          inputs: "norm1"
          convolution { output_channels: 8 kernel: 1 }
        }
        layers {
          name: "both"
          inputs: "left"
          inputs: "right"
          concat {}
        }
        layers {
          name: "pool"
          pooling { method: METHOD_MAX kernel: 2 stride: 2 }
        }
        layers {
          name: "fc1"
          fully_connected { outputs: 64 }
        }
        layers {
          name: "relu2"
          relu {}
        }
        layers {
          name: "fc2"
          fully_connected { outputs: 5 }
        }
        layers {
          name: "loss"
          softmax_loss {}
        }
      )pb",
      &network);
  EXPECT_TRUE(parsed);
  return network;
}

// Sample s of iteration k is the same wherever it is trained: rank r of n takes its share.
class SlicedInput : public InputPipeline {
 public:
  SlicedInput(int rank, int batch) : first_(rank * batch), batch_(batch) {}

  absl::Status Next(HostBatch& batch, absl::Time deadline) override {
    constexpr int kPixels = 3 * 12 * 12;
    batch.size = batch_;
    batch.pixels.resize(static_cast<size_t>(batch_) * kPixels);
    batch.labels.resize(batch_);
    for (int s = 0; s < batch_; ++s) {
      const int sample = iteration_ * kGlobalBatch + first_ + s;
      batch.labels[s] = sample % kClasses;
      for (int p = 0; p < kPixels; ++p) {
        batch.pixels[s * kPixels + p] = std::sin(0.37 * sample + 0.11 * p * (1 + sample % 3));
      }
    }
    ++iteration_;
    return absl::OkStatus();
  }
  v1::InputCounters Counters() const override { return {}; }
  int64_t MemoryBytes() const override { return 0; }
  void Cancel() override {}

 private:
  const int first_;
  const int batch_;
  int iteration_ = 0;
};

v1::TrainingSettings Training() {
  v1::TrainingSettings training;
  training.set_learning_rate(0.05);
  training.set_momentum(0.9);
  training.set_weight_decay(1e-3);
  training.set_seed(3);
  training.set_no_dropout(true);
  return training;
}

using Weights = std::vector<std::vector<float>>;  // By tensor.

// Trains one rank; called on a thread of its own.
absl::Status TrainRank(const ShapedNetwork& network, const v1::FrameworkPolicy& policy, int rank,
                       int ranks, RendezvousStore& store, Weights& weights) {
  v1::ClusterShape cluster;
  cluster.set_hosts(1);
  cluster.set_devices_per_host(ranks);
  const int batch = kGlobalBatch / ranks;
  auto schedule = CompileSchedule(network, policy, cluster, batch);
  if (!schedule.ok()) return schedule.status();
  CpuBackendOptions backend_options;
  backend_options.compute_threads = 1;
  auto backend = CreateCpuBackend(backend_options);
  if (!backend.ok()) return backend.status();
  EngineOptions engine_options;
  engine_options.batch = batch;
  engine_options.training = Training();
  engine_options.tensor_order = schedule->tensor_order;
  engine_options.rank = rank;
  auto engine = (*backend)->CreateEngine(network, engine_options);
  if (!engine.ok()) return engine.status();
  RankInfo info;
  info.rank = rank;
  info.ranks = ranks;
  info.data_address = "127.0.0.1";
  auto connections = Connect(**backend, *schedule, **engine, info, Training(), store);
  if (!connections.ok()) return connections.status();
  SlicedInput input(rank, batch);
  ExecutorParts parts;
  parts.backend = backend->get();
  parts.schedule = &*schedule;
  parts.engine = engine->get();
  parts.input = &input;
  parts.rank = rank;
  parts.server = connections->server.get();
  for (const auto& communicator : connections->communicators) {
    parts.communicators.push_back(communicator.get());
  }
  auto executor = IterationExecutor::Create(parts);
  if (!executor.ok()) return executor.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  for (int k = 0; k < kIterations; ++k) {
    absl::Status status = (*executor)->Enqueue();
    if (!status.ok()) return status;
    if ((*executor)->in_flight() == IterationExecutor::kMaxInFlight) {
      auto times = (*executor)->Collect(deadline);
      if (!times.ok()) return times.status();
    }
  }
  absl::Status status = (*executor)->Finish(deadline);
  if (!status.ok()) return status;
  // A rank that hosts a server must not leave while others still fetch from it.
  status = store.Put(absl::StrCat("done/", rank), "");
  if (!status.ok()) return status;
  for (int other = 0; other < ranks; ++other) {
    auto done = store.Get(absl::StrCat("done/", other), deadline);
    if (!done.ok()) return done.status();
  }
  for (size_t tensor = 0; tensor < network.parameters.size(); ++tensor) {
    auto values = (*engine)->ReadWeights(tensor);
    if (!values.ok()) return values.status();
    weights.push_back(*std::move(values));
  }
  return absl::OkStatus();
}

std::vector<Weights> Train(const ShapedNetwork& network, const v1::FrameworkPolicy& policy,
                           int ranks) {
  MemoryRendezvous store;
  std::vector<Weights> weights(ranks);
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = TrainRank(network, policy, rank, ranks, store, weights[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << policy.name() << " rank " << rank << ": " << statuses[rank];
  }
  return weights;
}

// Largest difference relative to the tensor's largest weight.
double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double scale = 1e-6;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max<double>(difference, std::abs(a[i] - b[i]));
    scale = std::max<double>(scale, std::abs(b[i]));
  }
  return difference / scale;
}

class PolicyEqualityTest : public testing::TestWithParam<std::string> {
 protected:
  static const ShapedNetwork& Network() {
    static const ShapedNetwork* const network =
        new ShapedNetwork(InferShapes(TestNetwork()).value());
    return *network;
  }
  // One rank, the whole batch: what every policy must reproduce.
  static const Weights& Serial() {
    static const Weights* const weights =
        new Weights(Train(Network(), LoadPolicy("bsp").value(), 1)[0]);
    return *weights;
  }
};

TEST_P(PolicyEqualityTest, RanksTogetherEqualOneRank) {
  const v1::FrameworkPolicy policy = LoadPolicy(GetParam()).value();
  ASSERT_EQ(Serial().size(), Network().parameters.size());
  for (int ranks : {1, 2, 3}) {
    const std::vector<Weights> weights = Train(Network(), policy, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(weights[rank].size(), Serial().size());
      for (size_t tensor = 0; tensor < Serial().size(); ++tensor) {
        EXPECT_LT(RelativeDifference(weights[rank][tensor], Serial()[tensor]), 2e-4)
            << "ranks " << ranks << " rank " << rank << " " << Network().parameters[tensor].name;
        // Between ranks there is no rounding to forgive.
        EXPECT_EQ(weights[rank][tensor], weights[0][tensor]) << Network().parameters[tensor].name;
      }
    }
  }
}

TEST_P(PolicyEqualityTest, TrainingChangesTheWeights) {
  // Guards the test above: weights that never move are equal as well.
  const Weights& trained = Serial();
  v1::TrainingSettings training = Training();
  auto backend = CreateCpuBackend({});
  ASSERT_TRUE(backend.ok());
  EngineOptions options;
  options.training = training;
  for (size_t t = 0; t < Network().parameters.size(); ++t) options.tensor_order.push_back(t);
  auto engine = (*backend)->CreateEngine(Network(), options);
  ASSERT_TRUE(engine.ok());
  for (size_t tensor = 0; tensor < trained.size(); ++tensor) {
    EXPECT_GT(RelativeDifference(trained[tensor], (*engine)->ReadWeights(tensor).value()), 1e-3)
        << Network().parameters[tensor].name;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPolicy, PolicyEqualityTest, testing::ValuesIn(KnownPolicies()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace paceline
