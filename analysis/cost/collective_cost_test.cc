#include "analysis/cost/collective_cost.h"

#include <cmath>

#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr LinkCost kLink{10e-6, 1e-9, 0.2e-9};

double Seconds(AllReduceAlgorithm algorithm, double bytes, int ranks) {
  return *AllReduceSeconds(algorithm, bytes, ranks, kLink);
}

// Counts the messages of an algorithm step by step instead of using the closed form.
TEST(CollectiveCostTest, RingMatchesItsSteps) {
  for (int n : {2, 3, 8, 17}) {
    const double bytes = 1e6;
    double seconds = 0;
    for (int step = 0; step < n - 1; ++step) seconds += 10e-6 + bytes / n * (1e-9 + 0.2e-9);
    for (int step = 0; step < n - 1; ++step) seconds += 10e-6 + bytes / n * 1e-9;
    EXPECT_NEAR(Seconds(AllReduceAlgorithm::kRing, bytes, n), seconds, 1e-12) << n;
  }
}

TEST(CollectiveCostTest, HalvingDoublingMatchesItsSteps) {
  for (int n : {2, 4, 16}) {
    const double bytes = 1e6;
    double seconds = 0;
    for (double part = bytes / 2; part >= bytes / n; part /= 2) {
      seconds += 10e-6 + part * (1e-9 + 0.2e-9) + 10e-6 + part * 1e-9;
    }
    EXPECT_NEAR(Seconds(AllReduceAlgorithm::kHalvingDoubling, bytes, n), seconds, 1e-12) << n;
  }
}

TEST(CollectiveCostTest, AlgorithmsWinWhereTheyShould) {
  const auto ring = AllReduceAlgorithm::kRing;
  const auto doubling = AllReduceAlgorithm::kRecursiveDoubling;
  EXPECT_LT(Seconds(doubling, 64, 64), Seconds(ring, 64, 64));
  EXPECT_LT(Seconds(ring, 1e9, 64), Seconds(doubling, 1e9, 64));
  EXPECT_LT(Seconds(AllReduceAlgorithm::kDoubleTree, 1e6, 512), Seconds(ring, 1e6, 512));
  EXPECT_EQ(Seconds(ring, 1e6, 1), 0);
}

TEST(CollectiveCostTest, ParameterServerIsBoundByTheBusiestCard) {
  ParameterServerShape shape;
  shape.workers = 8;
  shape.servers = 2;
  shape.worker_bytes_per_second = 1e9;
  shape.server_bytes_per_second = 1e9;
  shape.pipelined = false;
  EXPECT_NEAR(*ParameterServerSeconds(1e8, shape), 2 * 8 * 1e8 / 2 / 1e9, 1e-12);
  shape.servers = 16;  // Now the workers' cards are.
  EXPECT_NEAR(*ParameterServerSeconds(1e8, shape), 2 * 0.1, 1e-12);
  shape.pipelined = true;
  shape.pieces = 100;
  EXPECT_NEAR(*ParameterServerSeconds(1e8, shape), 0.1 + 0.001, 1e-12);
}

TEST(CollectiveCostTest, HierarchicalUsesTheNetworkOncePerNode) {
  const LinkCost fast{0, 1e-11, 0}, slow{0, 1e-9, 0};
  EXPECT_NEAR(*HierarchicalSeconds(1e8, 8, 4, fast, slow), 1.75e8 * 1e-11 + 1.5e8 * 1e-9, 1e-12);
}

TEST(CollectiveCostTest, RejectsNonsense) {
  EXPECT_FALSE(AllReduceSeconds(AllReduceAlgorithm::kRing, -1, 2, kLink).ok());
  EXPECT_FALSE(AllReduceSeconds(AllReduceAlgorithm::kRing, NAN, 2, kLink).ok());
  EXPECT_FALSE(AllReduceTerms(AllReduceAlgorithm::kRing, 0).ok());
  EXPECT_FALSE(ParameterServerSeconds(1e6, {}).ok());
}

}  // namespace
}  // namespace paceline
