#include "analysis/fit/line_fit.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<LinePoint> Points(double intercept, double slope, double min_x, double max_x, int count,
                              double noise) {
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal(0, noise);
  std::vector<LinePoint> points;
  for (int i = 0; i < count; ++i) {
    const double x = min_x * std::pow(max_x / min_x, i / (count - 1.0));
    points.push_back({x, (intercept + slope * x) * std::exp(normal(generator)), i / 6});
  }
  return points;
}

TEST(LineFitTest, RecoversAlphaAndBetaFromThreeDecades) {
  const LineFit fit = FitLine(Points(200e-6, 1e-9, 1e4, 1e8, 60, 0.05));
  ASSERT_TRUE(fit.intercept_identified) << fit.note;
  ASSERT_TRUE(fit.slope_identified) << fit.note;
  EXPECT_NEAR(fit.intercept.value, 200e-6, 20e-6);
  EXPECT_NEAR(fit.slope.value, 1e-9, 0.05e-9);
  EXPECT_LE(fit.intercept.low, 200e-6);
  EXPECT_GE(fit.intercept.high, 200e-6);
  EXPECT_LT(fit.median_absolute_residual, 0.06);
}

TEST(LineFitTest, OutliersMoveItLittle) {
  std::vector<LinePoint> points = Points(200e-6, 1e-9, 1e4, 1e8, 60, 0.02);
  for (int i = 0; i < 60; i += 12) points[i].y *= 4;
  const LineFit fit = FitLine(points);
  EXPECT_NEAR(fit.intercept.value, 200e-6, 20e-6);
  EXPECT_NEAR(fit.slope.value, 1e-9, 0.05e-9);
}

TEST(LineFitTest, NarrowSpreadLeavesAlphaUnidentifiedButPredictsWell) {
  const LineFit fit = FitLine(Points(200e-6, 1e-9, 1e7, 8e7, 30, 0.02));
  EXPECT_FALSE(fit.intercept_identified);
  EXPECT_TRUE(fit.slope_identified) << fit.note;
  EXPECT_NE(fit.note.find("two decades"), std::string::npos) << fit.note;
  EXPECT_NEAR(fit.Evaluate(3e7), 200e-6 + 1e-9 * 3e7, 0.001);
}

TEST(LineFitTest, OneSizeIdentifiesNothing) {
  const LineFit fit = FitLine({{1e6, 1e-3, 0}, {1e6, 1.1e-3, 1}, {1e6, 0.9e-3, 2}});
  EXPECT_FALSE(fit.intercept_identified);
  EXPECT_FALSE(fit.slope_identified);
  EXPECT_NEAR(fit.Evaluate(1e6), 1e-3, 0.05e-3);
}

TEST(LineFitTest, NeverGivesNegativeCoefficients) {
  const LineFit fit = FitLine({{1, 1, 0}, {2, 2.5, 1}, {3, 4, 2}, {4, 5.6, 3}});
  EXPECT_GE(fit.intercept.value, 0);
  EXPECT_GT(fit.slope.value, 0);
}

TEST(LineFitTest, IgnoresPointsThatAreNotTimes) {
  const LineFit fit = FitLine({{1, kUnknown, 0}, {2, 0, 0}, {3, -1, 0}});
  EXPECT_FALSE(fit.known());
  EXPECT_EQ(fit.note, "nothing measured");
}

}  // namespace
}  // namespace paceline
