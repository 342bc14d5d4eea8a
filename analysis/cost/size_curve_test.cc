#include "analysis/cost/size_curve.h"

#include <cmath>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// Two protocols: eager up to 64 KiB, then a handshake that costs 200 us; 1 % noise.
double Truth(double bytes) {
  return bytes <= 65536 ? 20e-6 + 1e-9 * bytes : 220e-6 + 0.8e-9 * bytes;
}

std::vector<SizePoint> Noisy(double first, double last, double factor, double noise) {
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal(0, noise);
  std::vector<SizePoint> points;
  for (double bytes = first; bytes <= last; bytes *= factor) {
    points.push_back({bytes, Truth(bytes) * std::exp(normal(generator))});
  }
  return points;
}

TEST(SizeCurveTest, FindsTheBreakAndBothLines) {
  absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(Noisy(256, 4 << 20, 1.2, 0.01));
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_EQ(curve->pieces().size(), 2u);
  EXPECT_LE(curve->pieces()[0].last_bytes, 65536);
  EXPECT_GT(curve->pieces()[1].first_bytes, 65536);
  EXPECT_NEAR(curve->pieces()[0].intercept_seconds, 20e-6, 0.5e-6);
  EXPECT_NEAR(curve->pieces()[1].slope_seconds_per_byte, 0.8e-9, 0.02e-9);
  EXPECT_EQ(curve->regimes().size(), 2u) << "time jumps by more than 1.6";
  for (double bytes : {3000.0, 50000.0, 100e3, 3e6}) {
    const CurvePrediction p = curve->Predict(bytes);
    EXPECT_NEAR(p.seconds / Truth(bytes), 1, 0.02) << bytes;
    EXPECT_LT(p.low_seconds, p.seconds);
    EXPECT_GT(p.high_seconds, p.seconds);
    EXPECT_FALSE(p.extrapolated);
  }
}

TEST(SizeCurveTest, OneLineStaysOneLine) {
  std::vector<SizePoint> points;
  for (double bytes = 1e3; bytes < 1e8; bytes *= 2) points.push_back({bytes, 1e-5 + 1e-9 * bytes});
  absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(points);
  ASSERT_TRUE(curve.ok());
  EXPECT_EQ(curve->pieces().size(), 1u);
  EXPECT_NEAR(curve->Predict(4e8).seconds, 1e-5 + 0.4, 1e-6);
}

TEST(SizeCurveTest, AnOutlierDoesNotBendTheLine) {
  std::vector<SizePoint> points;
  for (double bytes = 1e3; bytes < 1e7; bytes *= 2) points.push_back({bytes, 1e-5 + 1e-9 * bytes});
  points[7].seconds *= 3;
  absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(points);
  ASSERT_TRUE(curve.ok());
  EXPECT_NEAR(curve->Predict(points[7].bytes).seconds, points[7].seconds / 3,
              0.05 * points[7].seconds / 3);
}

TEST(SizeCurveTest, ExtrapolationIsFlaggedAndNamesTheMeasurement) {
  absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(Noisy(256, 1 << 20, 1.2, 0.01));
  ASSERT_TRUE(curve.ok());
  const CurvePrediction p = curve->Predict(4 << 20);
  EXPECT_TRUE(p.extrapolated);
  EXPECT_NEAR(p.seconds / Truth(4 << 20), 1, 0.1);
  EXPECT_TRUE(absl::StrContains(p.note, "measure 4.19e+06 bytes")) << p.note;
  const CurvePrediction inside = curve->Predict(1 << 19);
  EXPECT_GT(p.high_seconds / p.low_seconds, inside.high_seconds / inside.low_seconds);
}

TEST(SizeCurveTest, TheGapOfABreakIsWideAndSaysSo) {
  std::vector<SizePoint> points;
  for (double bytes : {1e3, 2e3, 4e3, 8e3, 16e3, 32e3})
    points.push_back({bytes, 1e-5 + 1e-9 * bytes});
  for (double bytes : {64e3, 128e3, 256e3, 512e3, 1e6})
    points.push_back({bytes, 3e-4 + 1e-9 * bytes});
  absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(points);
  ASSERT_TRUE(curve.ok());
  ASSERT_EQ(curve->pieces().size(), 2u);
  const CurvePrediction p = curve->Predict(48e3);
  EXPECT_LE(p.low_seconds, 1e-5 + 48e-6);
  EXPECT_GE(p.high_seconds, 3e-4 + 48e-6);
  EXPECT_TRUE(absl::StrContains(p.note, "time jumps")) << p.note;
}

TEST(SizeCurveTest, RejectsTooFewAndBadPoints) {
  EXPECT_EQ(SizeCurve::Fit({}).status().code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status one = SizeCurve::Fit({{1e6, 1e-3}, {1e6, 1.1e-3}}).status();
  EXPECT_TRUE(absl::StrContains(one.message(), "1 size measured")) << one;
  for (const SizePoint bad :
       {SizePoint{0, 1}, SizePoint{1, 0}, SizePoint{1, -1}, SizePoint{1, NAN}}) {
    EXPECT_EQ(SizeCurve::Fit({{1e6, 1e-3}, bad}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace paceline
