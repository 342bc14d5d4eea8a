#include "analysis/predict/predict.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "analysis/merge/merge.h"
#include "analysis/predict/cost_model.h"
#include "gtest/gtest.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

MergedRuns Merged(const SyntheticRunOptions& options) {
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  EXPECT_TRUE(run.ok()) << run.status();
  std::vector<RunData> runs;
  runs.push_back(*std::move(run));
  return *MergeRuns(std::move(runs));
}

double MeasuredSeconds(const MergedRuns& runs, const std::string& network,
                       const std::string& policy, int devices, int batch) {
  for (const MergedTrial& trial : runs.trials) {
    if (trial.trial.network().name() == network && trial.trial.policy().name() == policy &&
        trial.devices == devices && trial.trial.batch_per_device() == batch) {
      return trial.iteration_seconds.value;
    }
  }
  return kUnknown;
}

std::string Flags(const Prediction& prediction) { return absl::StrJoin(prediction.flags, "; "); }

TEST(PredictTest, FindsLargerRingsAndBatchesWithinItsInterval) {
  SyntheticRunOptions options;
  options.batches = {16, 32};
  options.devices = {1, 2, 4};
  const MergedRuns runs = Merged(options);
  SyntheticRunOptions truth = options;
  truth.devices = {1, 8};
  truth.batches = {48};
  truth.noise = 1e-4;
  const MergedRuns held_out = Merged(truth);
  for (const std::string policy : {"bsp", "wfbp"}) {
    absl::StatusOr<CostModel> model = CostModel::Fit(runs, policy);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_LT(model->error(), 0.03);
    for (const std::string network : {"lenet5", "cifar_resnet20"}) {
      PredictionRequest request;
      request.network = network;
      request.devices = 8;
      request.batch = 48;
      absl::StatusOr<Prediction> prediction = Predict(*model, request, LinkAssumption());
      ASSERT_TRUE(prediction.ok()) << prediction.status();
      const double seconds = MeasuredSeconds(held_out, network, policy, 8, 48);
      EXPECT_NEAR(prediction->iteration_seconds.value / seconds, 1, 0.08) << network << policy;
      EXPECT_LT(prediction->iteration_seconds.low, seconds);
      EXPECT_GT(prediction->iteration_seconds.high, seconds);
      EXPECT_NEAR(prediction->samples_per_second.value,
                  8 * 48 / prediction->iteration_seconds.value, 1e-6);
      EXPECT_TRUE(absl::StrContains(Flags(*prediction), "beyond the 4 measured"))
          << Flags(*prediction);
      EXPECT_GT(prediction->memory_bytes.value, 0);
    }
  }
}

TEST(PredictTest, AMeasuredConfigurationComesOutAsMeasuredWithoutFlags) {
  const MergedRuns runs = Merged(SyntheticRunOptions());
  absl::StatusOr<CostModel> model = CostModel::Fit(runs, "wfbp");
  ASSERT_TRUE(model.ok());
  PredictionRequest request;
  request.network = "cifar_resnet20";
  request.devices = 2;
  request.batch = 16;
  absl::StatusOr<Prediction> prediction = Predict(*model, request, LinkAssumption());
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_EQ(Flags(*prediction), "");
  EXPECT_NEAR(prediction->iteration_seconds.value / prediction->measured_iteration_seconds, 1,
              0.05);
  EXPECT_LT(prediction->efficiency.value, 1);
  EXPECT_TRUE(absl::StrContains(PredictionsCsv({*prediction}), "cifar_resnet20,wfbp,2,1,16,fp32"));
}

TEST(PredictTest, OneDeviceSaysNothingAboutSeveral) {
  SyntheticRunOptions options;
  options.devices = {1};
  absl::StatusOr<CostModel> model = CostModel::Fit(Merged(options), "wfbp");
  ASSERT_TRUE(model.ok());
  PredictionRequest request;
  request.network = "lenet5";
  request.batch = 16;
  EXPECT_TRUE(Predict(*model, request, LinkAssumption()).ok());
  request.devices = 2;
  const absl::Status status = Predict(*model, request, LinkAssumption()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "measure wfbp with devices: 2")) << status;
}

TEST(PredictTest, SeveralHostsNeedANetworkAndSayThatItIsAssumed) {
  absl::StatusOr<CostModel> model = CostModel::Fit(Merged(SyntheticRunOptions()), "bsp");
  ASSERT_TRUE(model.ok());
  PredictionRequest request;
  request.network = "lenet5";
  request.batch = 16;
  request.devices = 64;
  request.hosts = 16;
  EXPECT_TRUE(absl::StrContains(Predict(*model, request, {}).status().message(), "--network_gbps"));
  absl::StatusOr<Prediction> fast = Predict(*model, request, {12.5e9, 20e-6});
  absl::StatusOr<Prediction> slow = Predict(*model, request, {0.0125e9, 20e-6});
  ASSERT_TRUE(fast.ok() && slow.ok()) << fast.status();
  EXPECT_LT(fast->iteration_seconds.value, slow->iteration_seconds.value);
  EXPECT_TRUE(absl::StrContains(Flags(*fast), "your assumption")) << Flags(*fast);
  EXPECT_GT(fast->iteration_seconds.relative_half_width(), 0.05);
}

TEST(PredictTest, ANetworkThatWasNotMeasuredIsFlaggedAndWide) {
  absl::StatusOr<CostModel> model = CostModel::Fit(Merged(SyntheticRunOptions()), "bsp");
  ASSERT_TRUE(model.ok());
  PredictionRequest request;
  request.network = "googlenet_bn";
  request.batch = 4;
  absl::StatusOr<Prediction> prediction = Predict(*model, request, LinkAssumption());
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_TRUE(absl::StrContains(Flags(*prediction), "'googlenet_bn' was not measured"));
  EXPECT_GT(prediction->iteration_seconds.relative_half_width(), 0.2);
}

TEST(PredictTest, BadRequestsAreExplained) {
  const MergedRuns runs = Merged(SyntheticRunOptions());
  EXPECT_TRUE(
      absl::StrContains(CostModel::Fit(runs, "wfpb").status().message(), "did you mean 'wfbp'"));
  EXPECT_TRUE(absl::StrContains(CostModel::Fit(MergedRuns(), "wfbp").status().message(),
                                "no measured trial"));
  absl::StatusOr<CostModel> model = CostModel::Fit(runs, "wfbp");
  ASSERT_TRUE(model.ok());
  PredictionRequest request;
  request.network = "lenet6";
  EXPECT_TRUE(absl::StrContains(Predict(*model, request, {}).status().message(), "lenet5"));
  request.network = "lenet5";
  request.devices = 3;
  request.hosts = 2;
  EXPECT_TRUE(absl::StrContains(Predict(*model, request, {}).status().message(), "evenly"));
  request.hosts = 1;
  request.batch = 0;
  EXPECT_TRUE(absl::StrContains(Predict(*model, request, {}).status().message(), "batch"));
}

}  // namespace
}  // namespace paceline
