#include "analysis/compare/compare.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "analysis/merge/merge.h"
#include "gtest/gtest.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

MergedRuns Merged(const SyntheticRunOptions& options) {
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  EXPECT_TRUE(run.ok()) << run.status();
  std::vector<RunData> runs;
  runs.push_back(*std::move(run));
  absl::StatusOr<MergedRuns> merged = MergeRuns(std::move(runs));
  EXPECT_TRUE(merged.ok()) << merged.status();
  return *std::move(merged);
}

SyntheticRunOptions Options(int seed) {
  SyntheticRunOptions options;
  options.seed = seed;
  options.repeats = 3;
  return options;
}

TEST(CompareRunsTest, EqualMachinesGiveNoFalseAlarm) {
  int alarms = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    SyntheticRunOptions a = Options(2 * seed), b = Options(2 * seed + 1);
    a.networks = b.networks = {"lenet5"};
    a.noise = b.noise = 0.03;
    a.repeats = b.repeats = seed % 2 == 0 ? 3 : 1;
    absl::StatusOr<Comparison> comparison = CompareRuns(Merged(a), Merged(b));
    ASSERT_TRUE(comparison.ok()) << comparison.status();
    EXPECT_EQ(comparison->changes.size(), 4);
    alarms += comparison->regressions + comparison->improvements > 0;
  }
  EXPECT_LE(alarms, 1);
}

TEST(CompareRunsTest, SlowerMessagesAreFoundAndNamedAsCommunication) {
  SyntheticRunOptions slow = Options(2);
  slow.beta_seconds_per_byte *= 8;
  slow.alpha_seconds *= 4;
  absl::StatusOr<Comparison> comparison = CompareRuns(Merged(Options(1)), Merged(slow));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_GT(comparison->regressions, 0);
  for (const ConfigurationChange& change : comparison->changes) {
    if (absl::StrContains(change.label, "1 device")) {
      EXPECT_EQ(change.change, Change::kNone) << change.label;
    }
    if (change.change != Change::kSlower) continue;
    const double total = change.after.iteration_seconds - change.before.iteration_seconds;
    const double communication =
        change.after.exposed_communication_seconds - change.before.exposed_communication_seconds;
    EXPECT_NEAR(communication / total, 1, 0.25) << change.label;
    double sum = 0;
    for (size_t i = 0; i < change.before.List().size(); ++i) {
      sum += change.after.List()[i].second - change.before.List()[i].second;
    }
    EXPECT_NEAR(sum, total, 1e-9);
  }
  EXPECT_TRUE(absl::StrContains(ComparisonText(*comparison), "exposed communication +"));
}

TEST(CompareRunsTest, TwoNetworksUnderOneNameAreRefused) {
  SyntheticRunOptions options = Options(1);
  options.networks = {"lenet5"};
  MergedRuns a = Merged(options), b = Merged(options);
  for (MergedTrial& trial : b.trials) {
    trial.trial.mutable_network()->mutable_input()->set_height(30);
  }
  absl::StatusOr<Comparison> comparison = CompareRuns(a, b);
  ASSERT_FALSE(comparison.ok());
  EXPECT_TRUE(absl::StrContains(comparison.status().message(), "'lenet5' is not the same"))
      << comparison.status();
}

TEST(CompareRunsTest, NothingInCommonAndUnknownPoliciesAreErrors) {
  SyntheticRunOptions a = Options(1), b = Options(1);
  a.networks = {"lenet5"};
  b.networks = {"cifar_resnet20"};
  EXPECT_TRUE(absl::StrContains(CompareRuns(Merged(a), Merged(b)).status().message(), "same plan"));
  CompareOptions options;
  options.policy_a = "bsp";
  options.policy_b = "wfpb";
  EXPECT_TRUE(absl::StrContains(CompareRuns(Merged(a), Merged(a), options).status().message(),
                                "did you mean 'wfbp'"));
}

TEST(CompareRunsTest, ATrialThatFailsNowIsARegression) {
  SyntheticRunOptions options = Options(1);
  options.networks = {"lenet5"};
  options.repeats = 1;
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  ASSERT_TRUE(run.ok());
  FailTrial(&*run, 0, v1::TRIAL_STATUS_OUT_OF_MEMORY, "no memory for conv1");
  std::vector<RunData> runs;
  runs.push_back(*std::move(run));
  absl::StatusOr<Comparison> comparison = CompareRuns(Merged(options), *MergeRuns(std::move(runs)));
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->regressions, 1);
  EXPECT_EQ(comparison->changes[0].change, Change::kFailed);
  EXPECT_TRUE(absl::StrContains(ComparisonText(*comparison), "no memory for conv1"));
}

TEST(CompareRunsTest, TwoPoliciesCompareWithinOneRun) {
  const MergedRuns runs = Merged(Options(1));
  CompareOptions options;
  options.policy_a = "bsp";
  options.policy_b = "wfbp";
  absl::StatusOr<Comparison> comparison = CompareRuns(runs, runs, options);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_EQ(comparison->changes.size(), 4);
}

}  // namespace
}  // namespace paceline
