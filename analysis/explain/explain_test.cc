#include "analysis/explain/explain.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "analysis/merge/merge.h"
#include "analysis/predict/cost_model.h"
#include "gtest/gtest.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

MergedRuns Merged() {
  absl::StatusOr<RunData> run = MakeSyntheticRun(SyntheticRunOptions());
  EXPECT_TRUE(run.ok()) << run.status();
  std::vector<RunData> runs;
  runs.push_back(*std::move(run));
  return *MergeRuns(std::move(runs));
}

double Sum(const std::vector<Cause>& causes) {
  double sum = 0;
  for (const Cause& cause : causes) sum += cause.seconds;
  return sum;
}

TEST(ExplainTest, CausesSumToTheIterationAndNoLimitIsSlower) {
  const MergedRuns runs = Merged();
  for (const MergedTrial& trial : runs.trials) {
    absl::StatusOr<CostModel> model = CostModel::Fit(runs, trial.trial.policy().name());
    ASSERT_TRUE(model.ok()) << model.status();
    absl::StatusOr<Explanation> explanation = Explain(trial, *model);
    ASSERT_TRUE(explanation.ok()) << explanation.status();
    EXPECT_NEAR(Sum(explanation->causes), trial.iteration_seconds.value, 1e-9);
    for (const Cause& cause : explanation->causes) {
      if (!std::isfinite(cause.limit_seconds)) continue;
      EXPECT_LE(cause.limit_seconds, explanation->iteration_seconds * (1 + 1e-9)) << cause.name;
    }
  }
}

TEST(ExplainTest, TheGapOfTwoPoliciesSumsToTheirDifference) {
  const MergedRuns runs = Merged();
  std::vector<Explanation> pair;
  for (const MergedTrial& trial : runs.trials) {
    if (trial.devices != 2 || trial.trial.network().name() != "cifar_resnet20") continue;
    absl::StatusOr<CostModel> model = CostModel::Fit(runs, trial.trial.policy().name());
    ASSERT_TRUE(model.ok());
    pair.push_back(*Explain(trial, *model));
  }
  ASSERT_EQ(pair.size(), 2);
  EXPECT_NEAR(Sum(ExplainGap(pair[0], pair[1])),
              pair[1].iteration_seconds - pair[0].iteration_seconds, 1e-9);
}

TEST(ExplainTest, UnknownNamesAreExplained) {
  const MergedRuns runs = Merged();
  ExplainOptions options;
  options.network = "lenet55";
  EXPECT_TRUE(
      absl::StrContains(ExplainText(runs, options).status().message(), "did you mean 'lenet5'"));
  options.network = "";
  options.policy_a = "bsp";
  EXPECT_FALSE(ExplainText(runs, options).ok());
  options.policy_b = "wfpb";
  EXPECT_TRUE(
      absl::StrContains(ExplainText(runs, options).status().message(), "did you mean 'wfbp'"));
}

}  // namespace
}  // namespace paceline
