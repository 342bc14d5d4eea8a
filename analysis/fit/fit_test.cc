#include "analysis/fit/fit.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "analysis/merge/merge.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "proto/paceline/v1/model.pb.h"
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

const FrameworkFit* Find(const FitResult& fit, const std::string& policy) {
  for (const FrameworkFit& framework : fit.frameworks) {
    if (framework.model.policy() == policy) return &framework;
  }
  return nullptr;
}

const v1::Estimate* Find(const FrameworkFit& fit, const std::string& parameter,
                         const std::string& subject) {
  for (const FitRow& row : fit.rows) {
    if (row.parameter == parameter && row.subject == subject) return &row.estimate;
  }
  return nullptr;
}

TEST(FitFrameworksTest, RecoversTheParametersOfSyntheticRuns) {
  SyntheticRunOptions options;
  options.networks = {"cifar_resnet20", "alexnet_caffe", "googlenet_bvlc"};
  options.policies = {"wfbp"};
  options.batches = {8, 16, 32};
  options.noise = 0.005;
  const FitResult fit = FitFrameworks(Merged(options));
  const FrameworkFit* wfbp = Find(fit, "wfbp");
  ASSERT_NE(wfbp, nullptr);

  const v1::Estimate* alpha = Find(*wfbp, "alpha_seconds", "all_reduce");
  const v1::Estimate* beta = Find(*wfbp, "beta_seconds_per_byte", "all_reduce");
  ASSERT_NE(alpha, nullptr);
  ASSERT_TRUE(alpha->identified()) << alpha->note();
  ASSERT_TRUE(beta->identified()) << beta->note();
  EXPECT_NEAR(alpha->value(), options.alpha_seconds, 0.03 * options.alpha_seconds);
  EXPECT_NEAR(beta->value(), options.beta_seconds_per_byte, 0.03 * options.beta_seconds_per_byte);

  const v1::Estimate* ratio = Find(*wfbp, "contention_ratio", "alexnet_caffe");
  ASSERT_TRUE(ratio->identified());
  EXPECT_NEAR(ratio->value(), options.contention_ratio, 0.03);

  // 16 more samples cost as much as the line says.
  const v1::Estimate* per_sample = Find(*wfbp, "forward_seconds_per_sample", "alexnet_caffe");
  ASSERT_TRUE(per_sample->identified()) << per_sample->note();
  const double truth = (*SyntheticForwardSeconds(options, "alexnet_caffe", 32) -
                        *SyntheticForwardSeconds(options, "alexnet_caffe", 16)) /
                       16;
  EXPECT_NEAR(per_sample->value(), truth, 0.03 * truth);
}

TEST(FitFrameworksTest, ModelsAndReplaysEveryBuiltInPolicy) {
  SyntheticRunOptions options;
  options.networks = {"lenet5", "cifar_resnet20"};
  options.policies = KnownPolicies();
  options.noise = 0.002;
  const MergedRuns runs = Merged(options);
  const FitResult fit = FitFrameworks(runs);
  ASSERT_EQ(fit.frameworks.size(), options.policies.size());
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    const MergedTrial& trial = runs.trials[i];
    const std::string name = trial.configuration_id + ": " + fit.trials[i].note;
    const double measured = trial.iteration_seconds.value;
    EXPECT_NEAR(fit.trials[i].replayed_iteration_seconds / measured, 1, 0.02) << name;
    EXPECT_NEAR(fit.trials[i].modelled_iteration_seconds / measured, 1, 0.08) << name;
  }
}

TEST(FitFrameworksTest, PredictsANetworkFromTheOthers) {
  SyntheticRunOptions options;
  options.networks = {"cifar_resnet20", "alexnet_caffe", "googlenet_bvlc"};
  options.policies = {"pytorch_ddp"};
  options.noise = 0.005;
  const MergedRuns runs = Merged(options);
  const FitResult fit = FitFrameworks(runs);
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    if (runs.trials[i].devices == 1) {
      EXPECT_TRUE(std::isnan(fit.trials[i].held_out_iteration_seconds));
      continue;
    }
    EXPECT_NEAR(fit.trials[i].held_out_iteration_seconds / runs.trials[i].iteration_seconds.value,
                1, 0.08)
        << runs.trials[i].configuration_id;
  }
  EXPECT_LT(Find(fit, "pytorch_ddp")->held_out_median_error, 0.05);
}

TEST(FitFrameworksTest, GivesNoValueForWhatIsNotDetermined) {
  SyntheticRunOptions options;
  options.networks = {"lenet5"};
  options.policies = {"bsp"};
  options.devices = {2};
  const FitResult fit = FitFrameworks(Merged(options));
  const FrameworkFit* bsp = Find(fit, "bsp");
  ASSERT_NE(bsp, nullptr);
  const v1::Estimate* alpha = Find(*bsp, "alpha_seconds", "all_reduce");
  ASSERT_NE(alpha, nullptr);
  EXPECT_FALSE(alpha->identified()) << "one message size";
  EXPECT_EQ(alpha->value(), 0);
  EXPECT_TRUE(absl::StrContains(alpha->note(), "one size")) << alpha->note();
  const v1::Estimate* ratio = Find(*bsp, "contention_ratio", "lenet5");
  EXPECT_FALSE(ratio->identified());
  EXPECT_TRUE(absl::StrContains(ratio->note(), "devices: 1")) << ratio->note();
  const v1::Estimate* fixed = Find(*bsp, "forward_fixed_seconds", "lenet5");
  EXPECT_FALSE(fixed->identified());
  EXPECT_TRUE(absl::StrContains(fixed->note(), "another batch size")) << fixed->note();
  for (const FitRow& row : bsp->rows) {
    if (row.parameter == "io_seconds_per_sample") {
      EXPECT_FALSE(row.estimate.identified()) << "synthetic input";
    }
  }
  // The model still predicts what was measured.
  EXPECT_TRUE(std::isfinite(fit.trials[0].modelled_iteration_seconds)) << fit.trials[0].note;
}

TEST(FitFrameworksTest, ResultsWithoutOperationsAreNotedNotFatal) {
  SyntheticRunOptions options;
  options.networks = {"lenet5"};
  options.policies = {"wfbp"};
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  ASSERT_TRUE(run.ok());
  for (auto& results : run->results) {
    for (v1::TrialResult& rank : results.second) rank.clear_operations();
  }
  absl::StatusOr<MergedRuns> merged = MergeRuns({*std::move(run)});
  ASSERT_TRUE(merged.ok());
  const FitResult fit = FitFrameworks(*merged);
  EXPECT_TRUE(std::isnan(fit.trials[0].replayed_iteration_seconds));
  EXPECT_TRUE(absl::StrContains(fit.trials[0].note, "no operation was timed"))
      << fit.trials[0].note;
}

TEST(ReplayTest, RefusesAnotherSchedule) {
  SyntheticRunOptions options;
  options.networks = {"lenet5"};
  options.policies = {"wfbp"};
  MergedRuns merged = Merged(options);
  merged.trials[0].repeats[0].ranks[0].set_schedule_hash("0000000000000000");
  const absl::StatusOr<double> replayed = ReplayIterationSeconds(merged.trials[0].repeats[0]);
  ASSERT_FALSE(replayed.ok());
  EXPECT_TRUE(absl::StrContains(replayed.status().message(), "another schedule"));
}

}  // namespace
}  // namespace paceline
