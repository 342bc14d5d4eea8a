#include "worker/runner/stopping_rule.h"

#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

v1::MeasurementSettings Settings() {
  v1::MeasurementSettings settings;
  settings.set_min_warmup_iterations(2);
  settings.set_min_iterations(8);
  settings.set_max_iterations(40);
  settings.set_target_half_width(0.02);
  settings.set_max_measure_seconds(60);
  return settings;
}

TEST(StoppingRuleTest, FirstBlockCoversWarmupMinimumAndTheLastPeriod) {
  EXPECT_EQ(StoppingRule(Settings()).FirstBlock(), 11);
  EXPECT_EQ(StoppingRule(Settings()).MaxIterations(), 43);
}

TEST(StoppingRuleTest, StopsOnceTheIntervalIsNarrow) {
  // The slow warm-up does not count.
  std::vector<double> seconds = {9, 5, 1, 1.001, 0.999, 1, 1.001, 1, 0.999, 1};
  const StopDecision decision = StoppingRule(Settings()).Decide(seconds, 11, 8);
  EXPECT_TRUE(decision.stop);
  EXPECT_EQ(decision.reason, v1::TrialResult::STOP_REASON_CONVERGED);
}

TEST(StoppingRuleTest, GoesOnGeometricallyWhileNoisy) {
  std::vector<double> seconds = {1, 1, 1, 2, 1, 3, 1, 2, 1, 2};
  const StopDecision decision = StoppingRule(Settings()).Decide(seconds, 11, 8);
  EXPECT_FALSE(decision.stop);
  EXPECT_EQ(decision.run_until, 11 + 4);
}

TEST(StoppingRuleTest, NeverRunsBeyondTheMaximum) {
  std::vector<double> seconds(42, 1);
  for (size_t i = 0; i < seconds.size(); i += 2) seconds[i] = 3;
  EXPECT_EQ(StoppingRule(Settings()).Decide(seconds, 41, 8).run_until, 43);
  const StopDecision decision = StoppingRule(Settings()).Decide(seconds, 43, 8);
  EXPECT_TRUE(decision.stop);
  EXPECT_EQ(decision.reason, v1::TrialResult::STOP_REASON_MAX_ITERATIONS);
}

TEST(StoppingRuleTest, RespectsTheTimeLimit) {
  std::vector<double> seconds = {1, 1, 10, 20, 10, 30, 10, 20, 10, 20};
  // Half as many again would take 40 s and more; 5 s are left.
  EXPECT_EQ(StoppingRule(Settings()).Decide(seconds, 11, 55).run_until, 12);
  const StopDecision decision = StoppingRule(Settings()).Decide(seconds, 11, 61);
  EXPECT_TRUE(decision.stop);
  EXPECT_EQ(decision.reason, v1::TrialResult::STOP_REASON_MAX_SECONDS);
}

TEST(StoppingRuleTest, ALoneIterationNeverConverges) {
  v1::MeasurementSettings settings = Settings();
  settings.set_min_warmup_iterations(0);
  settings.set_min_iterations(1);
  EXPECT_FALSE(StoppingRule(settings).Decide({1.0}, 2, 1).stop);
}

}  // namespace
}  // namespace paceline
