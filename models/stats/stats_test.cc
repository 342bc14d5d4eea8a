#include "models/stats/stats.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(StatsTest, QuantilesInterpolateBetweenOrderStatistics) {
  const std::vector<double> samples = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(Median(samples), 2.5);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(samples, 1), 4);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.25), 1.75);
  EXPECT_TRUE(std::isnan(Median({})));
}

// An AR(1) series x = phi x' + noise has tau = 0.5 (1 + phi) / (1 - phi).
TEST(StatsTest, AutocorrelationTimeOfAnAutoregressiveSeries) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise;
  for (double phi : {0.0, 0.5, 0.8}) {
    std::vector<double> series;
    double x = 0;
    for (int i = 0; i < 20000; ++i) series.push_back(x = phi * x + noise(random));
    const double expected = 0.5 * (1 + phi) / (1 - phi);
    EXPECT_NEAR(AutocorrelationTime(series), expected, 0.15 * expected) << phi;
  }
}

// The interval must cover the true median in about 95 % of experiments, correlated or not.
TEST(StatsTest, MedianIntervalCoversTheTrueMedian) {
  std::mt19937 random(11);
  std::normal_distribution<double> noise;
  for (double phi : {0.0, 0.6}) {
    int covered = 0;
    constexpr int kExperiments = 1000;
    for (int e = 0; e < kExperiments; ++e) {
      std::vector<double> series;
      double x = 0;
      for (int i = 0; i < 200; ++i) series.push_back(x = phi * x + noise(random));
      if (std::abs(Median(series)) <= MedianHalfWidth(series)) ++covered;
    }
    EXPECT_GT(covered, 0.88 * kExperiments) << phi;
  }
}

TEST(StatsTest, TooFewSamplesHaveNoFiniteInterval) {
  EXPECT_TRUE(std::isinf(MedianHalfWidth(std::vector<double>{1, 1, 1, 1, 1})));
  EXPECT_TRUE(std::isinf(MedianHalfWidth({})));
  EXPECT_FALSE(std::isinf(MedianHalfWidth(std::vector<double>{1, 2, 1, 2, 1, 2})));
}

TEST(StatsTest, WarmupIsTheSlowBeginning) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(1.0, 0.01);
  std::vector<double> series;
  for (int i = 0; i < 60; ++i) series.push_back(noise(random) + (i < 10 ? 1.0 : 0.0));
  EXPECT_EQ(WarmupLength(series), 10u);
  EXPECT_EQ(WarmupLength(absl::MakeConstSpan(series).subspan(0, 19)), 0u);
}

TEST(StatsTest, SteadySeriesLosesLittle) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(1.0, 0.01);
  std::vector<double> series;
  for (int i = 0; i < 100; ++i) series.push_back(noise(random));
  EXPECT_LE(WarmupLength(series), 50u);
}

}  // namespace
}  // namespace paceline
