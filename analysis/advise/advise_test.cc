#include "analysis/advise/advise.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "analysis/merge/merge.h"
#include "coordinator/plan/plan.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/plan.pb.h"
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

// Start-up dominates: one message per layer is a bad choice, and merging pays.
SyntheticRunOptions SlowMessages() {
  SyntheticRunOptions options;
  options.networks = {"cifar_resnet20"};
  options.policies = {"wfbp"};
  options.alpha_seconds = 5e-3;
  return options;
}

TEST(AdviseTest, MergesMessagesWhereStartUpDominatesAndThePlanRuns) {
  absl::StatusOr<std::vector<Advice>> advice = Advise(Merged(SlowMessages()), {});
  ASSERT_TRUE(advice.ok()) << advice.status();
  ASSERT_EQ(advice->size(), 1);
  const Advice& one = advice->front();
  EXPECT_TRUE(one.worth_it) << one.note;
  EXPECT_GT(one.gain.low, 0.02);
  EXPECT_LT(one.gain.low, one.gain.value);
  EXPECT_LT(one.gain.value, one.gain.high);

  const v1::BenchmarkPlan plan = AdvicePlan(*advice);
  absl::StatusOr<std::vector<v1::Trial>> trials = ExpandPlan(plan);
  ASSERT_TRUE(trials.ok()) << trials.status();
  EXPECT_EQ(trials->size(), 2 * 3);
  EXPECT_EQ((*trials)[1].policy().name(), "wfbp/" + one.override_name);
}

TEST(AdviseTest, AdvisesNothingWhereNothingIsToBeGained) {
  SyntheticRunOptions options = SlowMessages();
  options.devices = {1};
  absl::StatusOr<std::vector<Advice>> advice = Advise(Merged(options), {});
  ASSERT_TRUE(advice.ok()) << advice.status();
  EXPECT_FALSE(advice->front().worth_it);
  EXPECT_EQ(AdvicePlan(*advice).sweeps_size(), 0);
}

TEST(AdviseTest, UnknownPolicyIsExplained) {
  AdviseOptions options;
  options.policy = "wfpb";
  EXPECT_TRUE(absl::StrContains(Advise(Merged(SlowMessages()), options).status().message(),
                                "did you mean 'wfbp'"));
}

TEST(CheckAdviceTest, ComparesPromisesWithWhatCame) {
  MergedRuns runs = Merged(SlowMessages());
  EXPECT_FALSE(CheckAdvice(runs).ok());  // No promise.
  // The advised trial: the same one, twice as fast.
  MergedTrial fast;
  for (const MergedTrial& trial : runs.trials) {
    if (trial.devices == 2) fast = trial;
  }
  fast.trial.mutable_policy()->set_name("wfbp/advice_x");
  for (MergedRepeat& repeat : fast.repeats) {
    for (double& seconds : repeat.iteration_seconds) seconds /= 2;
  }
  runs.trials.push_back(fast);
  runs.runs[0].plan.set_description(
      "promise network=cifar_resnet20 policy=wfbp override=advice_x devices=2 batch=16 gain=0.9 "
      "low=0.5 high=1.2\n"
      "promise network=cifar_resnet20 policy=wfbp override=advice_x devices=2 batch=16 gain=3 "
      "low=2.5 high=4\n"
      "promise network=lenet5 policy=wfbp override=advice_x devices=2 batch=16 gain=3 low=2 "
      "high=4");
  absl::StatusOr<std::vector<Delivered>> delivered = CheckAdvice(runs);
  ASSERT_TRUE(delivered.ok()) << delivered.status();
  EXPECT_EQ((*delivered)[0].verdict, "kept");
  EXPECT_NEAR((*delivered)[0].delivered.value, 1, 1e-6);
  EXPECT_EQ((*delivered)[1].verdict, "less than promised");
  EXPECT_EQ((*delivered)[2].verdict, "not measured");
}

}  // namespace
}  // namespace paceline
