// What is learned from whole trials: computing, input, memory.
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "analysis/fit/compute_costs.h"
#include "analysis/fit/input_costs.h"
#include "analysis/fit/memory_offset.h"
#include "analysis/fit/operation_costs.h"
#include "analysis/merge/merge.h"
#include "gtest/gtest.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

MergedRuns Merged(const SyntheticRunOptions& options) {
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  EXPECT_TRUE(run.ok()) << run.status();
  absl::StatusOr<MergedRuns> merged = MergeRuns({*std::move(run)});
  EXPECT_TRUE(merged.ok()) << merged.status();
  return *std::move(merged);
}

SyntheticRunOptions Options() {
  SyntheticRunOptions options;
  options.policies = {"bsp"};
  options.batches = {16, 32};
  options.noise = 1e-4;
  return options;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

ComputeCosts Learn(const MergedRuns& runs) {
  ComputeCosts costs;
  for (const MergedTrial& trial : runs.trials) {
    costs.Add(trial, *InferShapes(trial.trial.network()), MeasuredOperationCosts(trial), true);
  }
  return costs;
}

v1::Trial TrialOf(const MergedRuns& runs, const std::string& network, int devices, int batch) {
  for (const MergedTrial& trial : runs.trials) {
    if (trial.trial.network().name() != network) continue;
    v1::Trial wanted = trial.trial;
    wanted.mutable_cluster()->set_devices_per_host(devices);
    wanted.set_batch_per_device(batch);
    return wanted;
  }
  ADD_FAILURE() << network;
  return {};
}

TEST(ComputeCostsTest, FindsABatchBetweenMeasuredOnes) {
  const MergedRuns runs = Merged(Options());
  const ComputeCosts costs = Learn(runs);
  const v1::Trial trial = TrialOf(runs, "cifar_resnet20", 1, 24);
  std::set<std::string> flags;
  absl::StatusOr<ComputeEstimate> estimate =
      costs.Estimate(trial, *InferShapes(trial.network()), &flags);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  const double truth = *SyntheticForwardSeconds(Options(), "cifar_resnet20", 24);
  EXPECT_NEAR(Sum(estimate->forward_seconds), truth, 0.01 * truth);
  EXPECT_TRUE(flags.empty()) << absl::StrJoin(flags, "; ");
}

TEST(ComputeCostsTest, FlagsWhatWasNotMeasured) {
  const MergedRuns runs = Merged(Options());
  const ComputeCosts costs = Learn(runs);
  const v1::Trial far = TrialOf(runs, "lenet5", 8, 128);
  std::set<std::string> flags;
  absl::StatusOr<ComputeEstimate> estimate =
      costs.Estimate(far, *InferShapes(far.network()), &flags);
  ASSERT_TRUE(estimate.ok());
  const std::string text = absl::StrJoin(flags, "; ");
  EXPECT_TRUE(absl::StrContains(text, "measure devices: 8")) << text;
  EXPECT_TRUE(absl::StrContains(text, "measure batch_per_device: 128")) << text;
  EXPECT_GT(estimate->log_deviation, 0.1);

  v1::Trial other = far;
  *other.mutable_network() = *LoadNetwork("alexnet_caffe");
  flags.clear();
  estimate = costs.Estimate(other, *InferShapes(other.network()), &flags);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_TRUE(absl::StrContains(absl::StrJoin(flags, "; "), "'alexnet_caffe' was not measured"));
  EXPECT_GE(estimate->log_deviation, 0.3) << "two networks tell little";
  other.set_precision(v1::PRECISION_BF16);
  EXPECT_TRUE(absl::StrContains(
      costs.Estimate(other, *InferShapes(other.network()), nullptr).status().message(),
      "measured in bf16"));
}

TEST(InputCostsTest, CountsPerSampleAndFlagsWhatIsFree) {
  SyntheticRunOptions options = Options();
  options.photographs = true;
  const MergedRuns runs = Merged(options);
  InputCosts costs;
  for (const MergedTrial& trial : runs.trials) costs.Add(trial, MeasuredOperationCosts(trial));
  v1::Trial trial = TrialOf(runs, "lenet5", 2, 100);
  std::set<std::string> flags;
  const InputEstimate estimate = costs.Estimate(trial, &flags);
  EXPECT_NEAR(estimate.read_seconds, 100 * options.read_seconds_per_sample, 1e-3);
  EXPECT_NEAR(estimate.copy_seconds, 100 * options.copy_seconds_per_sample, 1e-4);
  EXPECT_TRUE(flags.empty());
  trial.mutable_network()->mutable_input()->set_height(99);
  EXPECT_EQ(costs.Estimate(trial, &flags).read_seconds, 0);
  EXPECT_EQ(flags.size(), 1u);
}

TEST(MemoryOffsetTest, IsUnknownUntilAPeakWasMeasured) {
  MergedRuns runs = Merged(Options());
  MemoryOffset offset;
  MergedTrial& trial = runs.trials[0];
  const ShapedNetwork shaped = *InferShapes(trial.trial.network());
  const IterationSchedule schedule = *CompileSchedule(
      shaped, trial.trial.policy(), trial.trial.cluster(), trial.trial.batch_per_device());
  const double peak = trial.peak_memory_bytes;
  trial.peak_memory_bytes = kUnknown;
  offset.Add(trial, shaped, schedule);
  EXPECT_FALSE(offset.bytes().known());
  trial.peak_memory_bytes = peak;
  offset.Add(trial, shaped, schedule);
  EXPECT_TRUE(offset.bytes().known());
  EXPECT_LT(offset.bytes().value, peak);
}

}  // namespace
}  // namespace paceline
