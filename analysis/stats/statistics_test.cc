#include "analysis/stats/statistics.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

// x[t] - mean = phi (x[t-1] - mean) + noise: integrated autocorrelation time (1 + phi) / (1 - phi).
std::vector<double> Ar1(int count, double mean, double sigma, double phi, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0, sigma);
  std::vector<double> values;
  double deviation = 0;
  for (int i = 0; i < count; ++i) {
    deviation = phi * deviation + normal(generator);
    values.push_back(mean + deviation);
  }
  return values;
}

TEST(StatisticsTest, FlagsOnlyTheOutlier) {
  const std::vector<bool> flags = FlagOutliers({10, 10.1, 9.9, 10.05, 9.95, 14});
  EXPECT_EQ(flags, std::vector<bool>({false, false, false, false, false, true}));
  EXPECT_EQ(FlagOutliers({1, 1, 1, 5}), std::vector<bool>(4, false)) << "MAD 0 flags nothing";
}

TEST(StatisticsTest, MedianIntervalCoversTheTruthOfCorrelatedSeries) {
  int covered = 0;
  constexpr int kSeries = 100;
  BootstrapOptions options;
  options.resamples = 300;
  for (int i = 0; i < kSeries; ++i) {
    const Interval interval = MedianInterval({Ar1(120, 1, 0.02, 0.5, 100 + i)}, options);
    ASSERT_TRUE(interval.has_bounds());
    if (interval.low <= 1 && 1 <= interval.high) ++covered;
  }
  EXPECT_GE(covered, 86) << "95 % intervals";
}

TEST(StatisticsTest, ThroughputIsSamplesOverTotalTime) {
  // A mean of rates would give (10 + 2.5) / 2.
  const Interval rate = ThroughputInterval({{1, 4, 1, 4}}, 10);
  EXPECT_DOUBLE_EQ(rate.value, 4);
  EXPECT_LE(rate.low, 4);
  EXPECT_GE(rate.high, 4);
}

TEST(StatisticsTest, RepeatsThatDisagreeWidenTheInterval) {
  const Interval same = ThroughputInterval({Ar1(50, 1, 0.01, 0, 5), Ar1(50, 1, 0.01, 0, 6)}, 1);
  const Interval apart = ThroughputInterval({Ar1(50, 1, 0.01, 0, 5), Ar1(50, 1.2, 0.01, 0, 6)}, 1);
  EXPECT_GT(apart.relative_half_width(), 5 * same.relative_half_width());
}

TEST(StatisticsTest, RatioTellsRealDifferencesFromNoise) {
  const Interval faster =
      SpeedRatioInterval({Ar1(60, 1.0, 0.02, 0.3, 7)}, 8, {Ar1(60, 1.1, 0.02, 0.3, 8)}, 8);
  EXPECT_NEAR(faster.value, 1.1, 0.02);
  EXPECT_GT(faster.low, 1);
  const Interval equal =
      SpeedRatioInterval({Ar1(60, 1.0, 0.05, 0.3, 9)}, 8, {Ar1(60, 1.0, 0.05, 0.3, 10)}, 8);
  EXPECT_LT(equal.low, 1);
  EXPECT_GT(equal.high, 1);
}

TEST(StatisticsTest, SingleAndMissingValuesHaveNoInterval) {
  EXPECT_FALSE(MedianInterval({}).known());
  EXPECT_FALSE(MedianInterval({{}, {kUnknown}}).known());
  const Interval single = MedianInterval({{2.0}});
  EXPECT_DOUBLE_EQ(single.value, 2);
  EXPECT_FALSE(single.has_bounds());
  EXPECT_FALSE(ThroughputInterval({{0, 0}}, 1).known()) << "no time, no rate";
}

TEST(StatisticsTest, IntervalsOfRunsThatDifferCoverTheTruth) {
  // Levels differ by 3 % between runs: 2000 trials of 3 or 5 runs leave a deviation of 0.5 %.
  for (int runs : {3, 5}) {
    std::mt19937_64 generator(runs);
    std::normal_distribution<double> normal;
    int covered = 0;
    constexpr int kTrials = 2000;
    for (int trial = 0; trial < kTrials; ++trial) {
      Runs drawn;
      for (int r = 0; r < runs; ++r) {
        drawn.push_back(Ar1(20, std::exp(0.03 * normal(generator)), 0.02, 0.5, generator()));
      }
      BootstrapOptions options;
      options.resamples = 100;
      const Interval interval = MedianInterval(drawn, options);
      covered += interval.low <= 1 && 1 <= interval.high;
    }
    EXPECT_GE(covered, 0.93 * kTrials) << runs << " runs";
    EXPECT_LE(covered, 0.97 * kTrials) << runs << " runs";
  }
}

TEST(StatisticsTest, ComparingARunWithItselfRaisesFewAlarms) {
  std::mt19937_64 generator(5);
  std::normal_distribution<double> normal;
  int alarms = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Runs sides[2];
    for (Runs& side : sides) {
      for (int r = 0; r < 4; ++r) {
        side.push_back(Ar1(20, std::exp(0.03 * normal(generator)), 0.02, 0.5, generator()));
      }
    }
    const Interval ratio = SpeedRatioInterval(sides[0], 8, sides[1], 8);
    alarms += ratio.low > 1 || ratio.high < 1;
  }
  EXPECT_LT(alarms, 0.06 * kTrials);
}

TEST(StatisticsTest, StudentTMatchesPublishedTables) {
  EXPECT_NEAR(StudentT975(1), 12.706, 1e-3);
  EXPECT_NEAR(StudentT975(4.5), 2.659, 0.02);  // Between 2.776 and 2.571.
  EXPECT_NEAR(StudentT975(30), 2.042, 1e-3);
  EXPECT_NEAR(StudentT975(1e6), 1.960, 1e-3);
  EXPECT_TRUE(std::isnan(StudentT975(0.5)));
}

TEST(StatisticsTest, IsDeterministic) {
  const Runs runs = {Ar1(30, 1, 0.1, 0.4, 11)};
  EXPECT_EQ(MedianInterval(runs).low, MedianInterval(runs).low);
}

TEST(StudentTQuantileTest, AgreesWithTables) {
  EXPECT_NEAR(StudentTQuantile(2, 0.05), 4.303, 0.01);
  EXPECT_NEAR(StudentTQuantile(3.5, 0.01), 5.06, 0.2);
  EXPECT_NEAR(StudentTQuantile(5, 0.002), 5.893, 0.01);
  EXPECT_NEAR(StudentTQuantile(30, 0.05), 2.042, 0.005);
  EXPECT_NEAR(StudentTQuantile(10, 0.001), 4.587, 0.01);
  EXPECT_TRUE(std::isnan(StudentTQuantile(0.5, 0.05)));
}

TEST(MedianRatioIntervalTest, HoldsTheRatioOfMedians) {
  const Runs a = {{2.0, 2.1, 2.05}, {2.0, 2.1, 2.1}, {2.05, 2.02, 2.0}};
  const Runs b = {{1.0, 1.01, 1.02}, {1.0, 1.03, 1.01}, {1.01, 1.02, 1.0}};
  const Interval ratio = MedianRatioInterval(a, b);
  EXPECT_NEAR(ratio.value, 2.05 / 1.01, 1e-9);
  BootstrapOptions strict;
  strict.confidence = 0.999;
  EXPECT_LT(MedianRatioInterval(a, b, strict).low, ratio.low);
  EXPECT_FALSE(MedianRatioInterval(a, {}).known());
}

}  // namespace
}  // namespace paceline
