#include "models/simulate/default_costs.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

v1::Trial MakeTrial(absl::string_view network, absl::string_view policy, int devices, int batch) {
  v1::Trial trial;
  *trial.mutable_network() = *LoadNetwork(network);
  *trial.mutable_policy() = *LoadPolicy(policy);
  trial.mutable_cluster()->set_hosts(devices);
  trial.mutable_cluster()->set_devices_per_host(1);
  trial.set_batch_per_device(batch);
  trial.set_precision(v1::PRECISION_FP32);
  trial.mutable_input()->mutable_synthetic();
  return trial;
}

TEST(PredictTrialTest, EveryPolicyGetsAPlausiblePrediction) {
  const DeviceSpeed speed;
  const double alone =
      PredictTrial(MakeTrial("alexnet_owt", "bsp", 1, 16), speed)->iteration_seconds;
  for (const std::string& policy : KnownPolicies()) {
    absl::StatusOr<TrialPrediction> prediction =
        PredictTrial(MakeTrial("alexnet_owt", policy, 4, 16), speed);
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_NEAR(prediction->samples_per_second * prediction->iteration_seconds, 64, 1e-9);
    // Communication costs something; a rank alone is faster than one of four. Updates on a
    // communication stream or on servers may hide what the rank alone spends on its own.
    EXPECT_GT(prediction->iteration_seconds, 0.9 * alone) << policy;
    EXPECT_LT(prediction->iteration_seconds, 20 * alone) << policy;
  }
}

TEST(PredictTrialTest, OverlapNeverLosesToBsp) {
  for (const char* network : {"alexnet_caffe", "googlenet_bvlc", "resnet50_v1.5"}) {
    const DeviceSpeed speed;
    EXPECT_LE(PredictTrial(MakeTrial(network, "mg_wfbp", 4, 16), speed)->iteration_seconds,
              PredictTrial(MakeTrial(network, "bsp", 4, 16), speed)->iteration_seconds * 1.01)
        << network;
  }
}

TEST(PredictTrialTest, AgreesWithMeasuredSpeedWithinAFactorOfTwo) {
  // Two Zen 5 cores, batch 16 fp32, tuned PyTorch on the same oneDNN: 64, 34 and 13.2 images/s.
  DeviceSpeed speed;
  speed.flops_per_second = 400e9;
  speed.memory_bytes_per_second = 25e9;
  const std::pair<const char*, double> measured[] = {
      {"alexnet_owt", 64}, {"googlenet_bn", 34}, {"resnet50_v1.5", 13.2}};
  for (const auto& [network, images_per_second] : measured) {
    const double predicted =
        PredictTrial(MakeTrial(network, "bsp", 1, 16), speed)->samples_per_second;
    EXPECT_GT(predicted, images_per_second / 2) << network;
    EXPECT_LT(predicted, images_per_second * 2) << network;
  }
}

TEST(PredictTrialTest, RealInputIsReadAndSyntheticIsNot) {
  DeviceSpeed speed;
  speed.images_per_second = 10;  // Slow enough to be the bottleneck.
  v1::Trial trial = MakeTrial("lenet5", "bsp", 1, 20);
  EXPECT_LT(PredictTrial(trial, speed)->iteration_seconds, 1);
  trial.mutable_input()->set_image_folder("photographs");
  EXPECT_NEAR(PredictTrial(trial, speed)->iteration_seconds, 2, 1e-6);
}

TEST(PredictTrialTest, BadSpeedNamesTheField) {
  DeviceSpeed speed;
  speed.memory_bytes_per_second = 0;
  EXPECT_THAT(std::string(PredictTrial(MakeTrial("lenet5", "bsp", 1, 1), speed).status().message()),
              HasSubstr("memory_bytes_per_second: must be positive"));
}

TEST(PredictOperationSecondsTest, RingAllReduceFollowsItsClosedForm) {
  const ShapedNetwork network = *InferShapes(*LoadNetwork("lenet5"));
  v1::ClusterShape cluster;
  cluster.set_hosts(4);
  cluster.set_devices_per_host(1);
  const IterationSchedule schedule = *CompileSchedule(network, *LoadPolicy("bsp"), cluster, 1);
  DeviceSpeed speed;
  speed.message_seconds = 1e-3;
  speed.network_bytes_per_second = 1e9;
  const std::vector<double> seconds =
      PredictOperationSeconds(schedule, network, 1, v1::PRECISION_FP32, false, speed);
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    if (schedule.operations[i].kind != OperationKind::kAllReduce) continue;
    EXPECT_NEAR(seconds[i], 6e-3 + 1.5 * network.gradient_bytes / 1e9, 1e-12);
  }
}

TEST(PredictMemoryTest, CountsWhatATrialKeeps) {
  const ShapedNetwork network = *InferShapes(*LoadNetwork("alexnet_caffe"));
  v1::ClusterShape cluster;
  cluster.set_hosts(2);
  cluster.set_devices_per_host(1);
  const auto memory = [&](absl::string_view policy, int batch, v1::Precision precision) {
    const IterationSchedule schedule =
        *CompileSchedule(network, *LoadPolicy(policy), cluster, batch);
    return PredictMemory(network, schedule, batch, precision);
  };
  const MemoryPrediction plain = memory("wfbp", 32, v1::PRECISION_FP32);
  EXPECT_EQ(plain.weights_bytes, 243860896);
  EXPECT_EQ(plain.gradients_bytes, 243860896);
  EXPECT_EQ(plain.optimizer_bytes, 243860896);
  EXPECT_EQ(plain.communication_bytes, 0);
  EXPECT_EQ(memory("pytorch_ddp", 32, v1::PRECISION_FP32).communication_bytes, 243860896);
  // Activations grow with the batch, and halve in bf16, which needs a second copy of the weights.
  EXPECT_EQ(memory("wfbp", 64, v1::PRECISION_FP32).activations_bytes, 2 * plain.activations_bytes);
  const MemoryPrediction half = memory("wfbp", 32, v1::PRECISION_BF16);
  EXPECT_EQ(half.activations_bytes * 2, plain.activations_bytes);
  EXPECT_EQ(half.weights_bytes, 243860896 / 2 * 3);
  // More than all outputs at once would be wrong, less than half of them too.
  EXPECT_LT(plain.activations_bytes, 32 * network.activation_bytes * 3 / 2);
  EXPECT_GT(plain.activations_bytes, 32 * network.activation_bytes / 2);
}

}  // namespace
}  // namespace paceline
