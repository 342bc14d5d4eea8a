#include "analysis/fit/operation_costs.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/merge/merge.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/result.pb.h"

namespace paceline {
namespace {

void AddOperation(v1::TrialResult* rank, const std::string& kind, int64_t mean_ns,
                  int64_t median_ns) {
  v1::OperationStatistics* operation = rank->add_operations();
  operation->set_kind(kind);
  operation->set_layer(-1);
  operation->set_group(0);
  operation->set_bytes(1000);
  operation->set_mean_ns(mean_ns);
  operation->set_median_ns(median_ns);
}

// Two ranks, one repeat; `values` are means in nanoseconds.
MergedTrial TwoRanks(const std::string& kind, int64_t first, int64_t second) {
  MergedTrial trial;
  trial.repeats.resize(1);
  for (int rank = 0; rank < 2; ++rank) {
    trial.repeats[0].ranks.emplace_back();
    trial.repeats[0].ranks.back().set_rank(rank);
    AddOperation(&trial.repeats[0].ranks.back(), kind, rank == 0 ? first : second, 1);
  }
  return trial;
}

TEST(OperationCostsTest, TakesTheRankThatTellsTheCost) {
  // The early rank waits in the message; only the owner updates; both compute.
  EXPECT_DOUBLE_EQ(MeasuredOperationCosts(TwoRanks("all_reduce", 100, 900))[0].seconds, 100e-9);
  EXPECT_DOUBLE_EQ(MeasuredOperationCosts(TwoRanks("update", 100, 900))[0].seconds, 900e-9);
  EXPECT_DOUBLE_EQ(MeasuredOperationCosts(TwoRanks("backward", 100, 900))[0].seconds, 500e-9);
  EXPECT_EQ(MeasuredOperationCosts(TwoRanks("pack", 100, 900))[0].bytes, 1000);
}

TEST(OperationCostsTest, AveragesRepeatsBeforeItComparesRanks) {
  MergedTrial trial = TwoRanks("push", 100, 300);
  trial.repeats.push_back(TwoRanks("push", 500, 100).repeats[0]);
  const std::vector<OperationCost> costs = MeasuredOperationCosts(trial);
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_DOUBLE_EQ(costs[0].seconds, 200e-9);
}

TEST(OperationCostsTest, FallsBackToMediansWhereOldRunsHaveNoMeans) {
  MergedTrial trial;
  trial.repeats.resize(1);
  trial.repeats[0].ranks.resize(1);
  AddOperation(&trial.repeats[0].ranks[0], "forward", 0, 70);
  AddOperation(&trial.repeats[0].ranks[0], "read", 0, -1);
  const std::vector<OperationCost> costs = MeasuredOperationCosts(trial);
  ASSERT_EQ(costs.size(), 1u) << "negative times are no measurement";
  EXPECT_DOUBLE_EQ(costs[0].seconds, 70e-9);
  EXPECT_DOUBLE_EQ(SumOfKind(costs, "forward"), 70e-9);
  EXPECT_DOUBLE_EQ(SumOfKind(costs, "backward"), 0);
  EXPECT_TRUE(MeasuredOperationCosts(MergedTrial()).empty());
}

TEST(OperationCostsTest, CountsMessagesByTheClosedForms) {
  // Ring over 4 ranks: 6 steps of a quarter each. Thakur, Rabenseifner, Gropp, IJHPCA 2005.
  EXPECT_DOUBLE_EQ(MessageSteps("all_reduce", 4), 6);
  EXPECT_DOUBLE_EQ(MessageVolume("all_reduce", 4, 0), 1.5);
  EXPECT_DOUBLE_EQ(MessageSteps("broadcast", 8), 3);
  EXPECT_DOUBLE_EQ(MessageVolume("push", 8, 2), 4) << "each server hears four workers' worth";
  EXPECT_DOUBLE_EQ(MessageVolume("push", 2, 8), 1);
  EXPECT_TRUE(IsMessage("pull"));
  EXPECT_TRUE(IsMessage("unpack"));
  EXPECT_FALSE(IsMessage("update"));
  EXPECT_FALSE(IsMessage("nonsense"));
}

}  // namespace
}  // namespace paceline
