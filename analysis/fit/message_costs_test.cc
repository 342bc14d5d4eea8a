#include "analysis/fit/message_costs.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "analysis/fit/draws.h"
#include "analysis/fit/operation_costs.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr double kAlpha = 2e-4, kBeta = 1e-9;

std::vector<OperationCost> Ring(int ranks, const std::vector<int64_t>& sizes, double factor = 1) {
  std::vector<OperationCost> operations;
  for (int64_t bytes : sizes) {
    OperationCost one;
    one.kind = "all_reduce";
    one.bytes = bytes;
    one.seconds = factor * (2.0 * (ranks - 1) * kAlpha + 2.0 * (ranks - 1) / ranks * bytes * kBeta);
    operations.push_back(one);
  }
  return operations;
}

TEST(MessageCostsTest, PoolsRanksUnderTheClosedForm) {
  MessageCosts costs;
  costs.Add(Ring(2, {1000, 100000, 10000000}), 2, 0, true);
  costs.Add(Ring(4, {4000, 400000, 40000000}), 4, 0, true);
  costs.Fit();
  const MessageLine* line = costs.Find("all_reduce");
  ASSERT_NE(line, nullptr);
  EXPECT_NEAR(line->Alpha(0), kAlpha, 1e-3 * kAlpha);
  EXPECT_NEAR(line->Beta(0), kBeta, 1e-3 * kBeta);
  const double at_16 = Ring(16, {5000000})[0].seconds;
  EXPECT_NEAR(line->Seconds(ShapeOf("all_reduce", 5000000, 16, 0), 0), at_16, 2e-3 * at_16);
  EXPECT_EQ(costs.Find("push"), nullptr);
}

TEST(MessageCostsTest, PrefersThePolicysOwnTrials) {
  MessageCosts costs;
  costs.Add(Ring(2, {1000, 100000, 10000000}, 3), 2, 0, false);
  costs.Fit();
  EXPECT_FALSE(costs.Find("all_reduce")->own);
  EXPECT_NEAR(costs.Find("all_reduce")->Alpha(0), 3 * kAlpha, 1e-2 * kAlpha);
  costs.Add(Ring(2, {1000, 100000, 10000000}), 2, 0, true);
  costs.Fit();
  EXPECT_TRUE(costs.Find("all_reduce")->own);
  EXPECT_NEAR(costs.Find("all_reduce")->Alpha(0), kAlpha, 1e-2 * kAlpha);
}

TEST(MessageCostsTest, DrawsSpreadAsTrialsDo) {
  MessageCosts costs;
  for (double factor : {0.8, 0.9, 1.0, 1.1, 1.2}) {
    costs.Add(Ring(2, {1000, 100000, 10000000}, factor), 2, 0, true);
  }
  costs.Fit();
  const MessageLine& line = *costs.Find("all_reduce");
  double least = INFINITY, most = 0;
  for (int draw = 1; draw <= kDrawCount; ++draw) {
    least = std::min(least, line.Alpha(draw));
    most = std::max(most, line.Alpha(draw));
  }
  EXPECT_LT(least, 0.95 * kAlpha);
  EXPECT_GT(most, 1.05 * kAlpha);
}

TEST(MessageCostsTest, LatencyIsUnknownWithOneSize) {
  MessageCosts costs;
  std::string why;
  EXPECT_TRUE(std::isnan(costs.LatencyShare("all_reduce", 1000, 2, &why)));
  EXPECT_TRUE(absl::StrContains(why, "not timed")) << why;
  costs.Add(Ring(2, {1000}), 2, 0, true);
  costs.Fit();
  EXPECT_TRUE(std::isnan(costs.LatencyShare("all_reduce", 1000, 2, &why)));
  EXPECT_TRUE(absl::StrContains(why, "measure others")) << why;
}

TEST(MessageCostsTest, IgnoresWhatIsNoMessage) {
  MessageCosts costs;
  OperationCost update;
  update.kind = "update";
  update.bytes = 100;
  update.seconds = 1;
  OperationCost zero = Ring(2, {1000})[0];
  zero.seconds = 0;
  costs.Add({update, zero}, 2, 0, true);
  costs.Add(Ring(1, {1000}), 1, 0, true);
  costs.Fit();
  EXPECT_TRUE(costs.lines().empty());
}

}  // namespace
}  // namespace paceline
