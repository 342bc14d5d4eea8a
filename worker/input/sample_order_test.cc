#include "worker/input/sample_order.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<int64_t> Order(uint64_t seed, int64_t epoch, int64_t count) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(ShuffledIndex(seed, epoch, i, count));
  return order;
}

TEST(ShuffledIndexTest, IsAPermutationOfAnyCount) {
  for (int64_t count : {1, 2, 3, 4, 5, 16, 17, 63, 512, 1000, 4097}) {
    const std::vector<int64_t> order = Order(1, 0, count);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), count);
    for (int64_t index : order) {
      EXPECT_GE(index, 0);
      EXPECT_LT(index, count);
    }
  }
}

TEST(ShuffledIndexTest, DependsOnSeedAndEpoch) {
  EXPECT_EQ(Order(1, 0, 100), Order(1, 0, 100));
  EXPECT_NE(Order(1, 0, 100), Order(2, 0, 100));
  EXPECT_NE(Order(1, 0, 100), Order(1, 1, 100));
}

TEST(ShuffledIndexTest, PutsEveryRecordEverywhere) {
  // Over many epochs each record comes first equally often: mean 100, deviation 10.
  std::vector<int> first(20);
  for (int64_t epoch = 0; epoch < 2000; ++epoch) ++first[ShuffledIndex(3, epoch, 0, 20)];
  for (int count : first) EXPECT_NEAR(count, 100, 45);
}

TEST(SampleRandomTest, DiffersInEveryArgument) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {1, 2}) {
    for (int64_t epoch : {0, 1}) {
      for (int64_t record : {0, 1}) {
        for (int attempt : {0, 1}) {
          seen.insert(SampleRandom(seed, epoch, record, attempt).Next());
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 16);
}

TEST(SampleRandomTest, StaysInRange) {
  SampleRandom random(5);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = random.Uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    ASSERT_LT(random.Below(7), 7);
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace paceline
