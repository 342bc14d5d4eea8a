#include "analysis/cost/contention_model.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<ContentionPoint> Measured(std::vector<int> jobs, double alone, double share) {
  std::vector<ContentionPoint> points;
  for (double bytes : {1e6, 2e6, 4e6}) {
    for (int k : jobs) points.push_back({k, bytes, std::hypot(alone, k * share * bytes)});
  }
  return points;
}

TEST(ContentionModelTest, RecoversLatencyAndShare) {
  absl::StatusOr<ContentionModel> model = ContentionModel::Fit(Measured({1, 2, 4}, 1e-2, 1e-8));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NEAR(model->curves()[0].alone_seconds, 1e-2, 1e-6);
  EXPECT_NEAR(model->curves()[0].share_seconds, 1e-2, 1e-6);
  const ContentionPrediction p = model->Predict(8, 4e6);
  EXPECT_NEAR(p.seconds, std::hypot(1e-2, 8 * 4e-2), 1e-6);
  EXPECT_TRUE(p.extrapolated);
  EXPECT_TRUE(p.flags.empty()) << "checked on 4 jobs from 1 and 2";
  EXPECT_LT(p.low_seconds, p.seconds);
}

TEST(ContentionModelTest, SharingThatCostsExtraIsLearnedFromSharedRunsOnly) {
  std::vector<ContentionPoint> points;
  for (double bytes : {1e6, 2e6, 4e6}) {
    points.push_back({1, bytes, 1e-8 * bytes});
    points.push_back({2, bytes, 2 * 1.4e-8 * bytes});
  }
  absl::StatusOr<ContentionModel> model = ContentionModel::Fit(points);
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR(model->Predict(1, 2e6).seconds, 2e-2, 1e-9);
  EXPECT_NEAR(model->Predict(4, 2e6).seconds, 4 * 2.8e-2, 1e-6);
}

TEST(ContentionModelTest, OneJobOnlyIsFlaggedAndWide) {
  absl::StatusOr<ContentionModel> model = ContentionModel::Fit(Measured({1}, 0, 1e-8));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(absl::StrContains(absl::StrJoin(model->flags(), " "), "run 2"));
  const ContentionPrediction p = model->Predict(4, 2e6);
  EXPECT_TRUE(absl::StrContains(absl::StrJoin(p.flags, " "), "run 2 jobs"));
  EXPECT_LE(p.low_seconds, 2e-2) << "no effect is possible";
  EXPECT_GE(p.high_seconds, 8e-2) << "and fair sharing";
}

TEST(ContentionModelTest, SizesBetweenAndBeyondTheMeasured) {
  absl::StatusOr<ContentionModel> model = ContentionModel::Fit(Measured({1, 2, 4}, 0, 1e-8));
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR(model->Predict(2, 3e6).seconds, 6e-2, 1e-3);
  EXPECT_TRUE(model->Predict(2, 3e6).flags.empty());
  EXPECT_NEAR(model->Predict(2, 8e6).seconds, 16e-2, 1e-3);
  EXPECT_FALSE(model->Predict(2, 8e6).flags.empty());
}

TEST(ContentionModelTest, RejectsBadInput) {
  EXPECT_FALSE(ContentionModel::Fit({}).ok());
  EXPECT_FALSE(ContentionModel::Fit({{0, 1e6, 1}}).ok());
  EXPECT_FALSE(ContentionModel::Fit({{1, 1e6, 0}}).ok());
  EXPECT_FALSE(ContentionModel::Fit({{1, 1e6, -2}}).ok());
  absl::StatusOr<ContentionModel> model = ContentionModel::Fit(Measured({1, 2}, 0, 1e-8));
  EXPECT_TRUE(std::isnan(model->Predict(0, 1e6).seconds));
}

}  // namespace
}  // namespace paceline
