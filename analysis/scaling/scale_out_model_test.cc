#include "analysis/scaling/scale_out_model.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

ScaleOutSetting Setting(OverlapSchedule schedule, int devices_per_host = 0) {
  ScaleOutSetting setting;
  setting.schedule = schedule;
  setting.devices_per_host = devices_per_host;
  return setting;
}

// Bulk synchronous on a ring: compute + volume (n - 1) / n, and `growth` per doubling on top.
std::vector<ScalePoint> RingTimes(double compute, double volume, double growth,
                                  const std::vector<int>& devices) {
  std::vector<ScalePoint> points;
  for (int n : devices) {
    points.push_back({n, (compute + volume * (n - 1) / n) * std::exp(growth * std::log2(n))});
  }
  return points;
}

// Clusters whose configurations all grow by `growth` per doubling beyond the ring.
ScaleOutPrior LearnedPrior(double growth) {
  std::vector<ScaleOutConfiguration> known;
  for (int i = 0; i < 12; ++i) {
    ScaleOutConfiguration configuration;
    configuration.cluster = absl::StrCat("cluster ", i % 3);
    configuration.setting = Setting(OverlapSchedule::kBulkSynchronous);
    configuration.points = RingTimes(0.1 + 0.01 * i, 0.05, 0, {1, 2});
    // The step to 4 and 8 as the model has it.
    const double x =
        configuration.points[1].iteration_seconds - configuration.points[0].iteration_seconds;
    configuration.points.push_back(
        {4, (configuration.points[1].iteration_seconds + 0.5 * x) * std::exp(growth)});
    known.push_back(configuration);
  }
  absl::StatusOr<ScaleOutPrior> prior = ScaleOutPrior::Learn(known);
  EXPECT_TRUE(prior.ok()) << prior.status();
  return *prior;
}

TEST(ScaleOutModelTest, RecoversRingFromSmallClusters) {
  const std::vector<ScalePoint> all = RingTimes(0.2, 0.1, 0, {1, 2, 4, 8, 16, 32});
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({all[0], all[1], all[2], all[3]},
                         Setting(OverlapSchedule::kBulkSynchronous), LearnedPrior(0));
  ASSERT_TRUE(model.ok()) << model.status();
  for (size_t i = 4; i < all.size(); ++i) {
    absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(all[i].devices);
    ASSERT_TRUE(prediction.ok());
    EXPECT_NEAR(prediction->iteration_seconds, all[i].iteration_seconds, 1e-9);
    EXPECT_EQ(prediction->structure, "exposed ring");
    EXPECT_TRUE(prediction->identified) << prediction->note;
    EXPECT_LE(prediction->low_seconds, prediction->iteration_seconds);
    EXPECT_GE(prediction->high_seconds, prediction->iteration_seconds);
  }
}

TEST(ScaleOutModelTest, LearnsGrowthBeyondTheRingFromOtherClusters) {
  const ScaleOutPrior prior = LearnedPrior(0.03);
  const ScaleOutGrowth& growth =
      prior.growth(OverlapSchedule::kBulkSynchronous, ScaleOutStep::kWithinHost);
  EXPECT_NEAR(growth.per_doubling, 0.03, 1e-9);
  EXPECT_EQ(growth.clusters, 3);
  EXPECT_EQ(growth.steps, 12);
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({{1, 0.1}, {2, 0.12}}, Setting(OverlapSchedule::kBulkSynchronous), prior);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->own_steps(), 0);
  EXPECT_NEAR(model->Predict(4)->iteration_seconds, 0.13 * std::exp(0.03), 1e-9);
}

TEST(ScaleOutModelTest, OneClustersHabitIsNoExperience) {
  std::vector<ScaleOutConfiguration> known(4);
  for (ScaleOutConfiguration& configuration : known) {
    configuration.cluster = "the only one";
    configuration.points = {{1, 0.1}, {2, 0.11}, {4, 0.2}};
  }
  absl::StatusOr<ScaleOutPrior> prior = ScaleOutPrior::Learn(known);
  ASSERT_TRUE(prior.ok());
  EXPECT_EQ(
      prior->growth(OverlapSchedule::kBulkSynchronous, ScaleOutStep::kWithinHost).per_doubling,
      ScaleOutPrior::Uninformed()
          .growth(OverlapSchedule::kBulkSynchronous, ScaleOutStep::kWithinHost)
          .per_doubling);
}

TEST(ScaleOutModelTest, FallsBackToTheBaselineThatWins) {
  // Growth that jumps up and down: an exposed ring is worse than constant time.
  std::vector<ScaleOutConfiguration> known;
  for (int i = 0; i < 12; ++i) {
    ScaleOutConfiguration configuration;
    configuration.cluster = absl::StrCat("cluster ", i % 4);
    configuration.points = {{1, 0.1}, {2, 0.14}, {4, 0.14}, {8, 0.14}};
    known.push_back(configuration);
  }
  known[0].points[2].iteration_seconds = 0.30;
  known[0].points[3].iteration_seconds = 0.30;
  absl::StatusOr<ScaleOutPrior> prior = ScaleOutPrior::Learn(known);
  ASSERT_TRUE(prior.ok());
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({{1, 0.1}, {2, 0.14}}, Setting(OverlapSchedule::kBulkSynchronous), *prior);
  ASSERT_TRUE(model.ok());
  absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(4);
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->structure, "constant time");
  EXPECT_EQ(prediction->iteration_seconds, prediction->constant_seconds);
  EXPECT_THAT(prediction->note, HasSubstr("fell back to the baseline"));
}

TEST(ScaleOutModelTest, WaitFreeAcrossHostsPaysForEachMessage) {
  // 100 tensors, 10 us per message and hop: 2 ms per device. Long enough to know it itself.
  ScaleOutSetting setting = Setting(OverlapSchedule::kWaitFree, 4);
  setting.gradient_tensors = 100;
  const double full_host = 0.2;
  const auto seconds = [&](int n) { return full_host + 0.1 * (n - 1) / n + 0.002 * n; };
  absl::StatusOr<ScaleOutModel> model = ScaleOutModel::Fit(
      {{1, 0.19}, {4, full_host}, {8, seconds(8)}, {16, seconds(16)}, {32, seconds(32)}}, setting);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->own_steps(), 2);
  EXPECT_NEAR(model->Predict(64)->iteration_seconds / seconds(64), 1, 0.03);
}

TEST(ScaleOutModelTest, ParameterServersThatGrowWithTheWorkersStayConstant) {
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({{4, 0.2}, {8, 0.4}}, Setting(OverlapSchedule::kParameterServer, 4));
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR(model->Predict(16)->iteration_seconds, 0.4, 0.01);
}

TEST(ScaleOutModelTest, FlagsTheFirstStepAcrossHosts) {
  absl::StatusOr<ScaleOutModel> model = ScaleOutModel::Fit(
      {{1, 0.1}, {2, 0.11}, {4, 0.12}}, Setting(OverlapSchedule::kBulkSynchronous, 4));
  ASSERT_TRUE(model.ok());
  absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(8);
  ASSERT_TRUE(prediction.ok());
  EXPECT_FALSE(prediction->identified);
  EXPECT_THAT(prediction->note, HasSubstr("measure 8 devices on two hosts"));
  EXPECT_GT(prediction->high_seconds, 1.5 * prediction->iteration_seconds);
}

TEST(ScaleOutModelTest, UsesTheLinkBetweenHostsIfItIsKnown) {
  ScaleOutSetting setting = Setting(OverlapSchedule::kBulkSynchronous, 4);
  setting.gradient_bytes = 100e6;
  setting.network_bytes_per_second = 1e9;
  absl::StatusOr<ScaleOutModel> model = ScaleOutModel::Fit({{1, 0.1}, {4, 0.11}}, setting);
  ASSERT_TRUE(model.ok());
  absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(8);
  ASSERT_TRUE(prediction.ok());
  EXPECT_NEAR(prediction->iteration_seconds, 0.1 + 0.2 * 7 / 8, 1e-9);
  EXPECT_FALSE(prediction->identified);
  EXPECT_THAT(prediction->note, HasSubstr("nominal speed"));
}

TEST(ScaleOutModelTest, FlagsOneNAlone) {
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({{4, 0.12}, {4, 0.13}}, Setting(OverlapSchedule::kBucketed));
  ASSERT_TRUE(model.ok());
  absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(8);
  ASSERT_TRUE(prediction.ok());
  EXPECT_FALSE(prediction->identified);
  EXPECT_THAT(prediction->note, HasSubstr("one n alone (4)"));
  EXPECT_THAT(prediction->note, HasSubstr("measure 2 or 8 devices"));
}

TEST(ScaleOutModelTest, FlagsFarExtrapolation) {
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({{1, 0.1}, {2, 0.11}, {4, 0.115}}, Setting(OverlapSchedule::kBucketed));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(model->Predict(16)->identified);
  EXPECT_FALSE(model->Predict(64)->identified);
  EXPECT_THAT(model->Predict(64)->note, HasSubstr("measure 32 devices"));
}

TEST(ScaleOutModelTest, FirstStepAcrossHostsIsNotLearnedFromOtherNetworks) {
  // Two clusters with slow links say nothing about the link of a third.
  std::vector<ScaleOutConfiguration> known(6);
  for (size_t i = 0; i < known.size(); ++i) {
    known[i].cluster = absl::StrCat("slow ", i % 2);
    known[i].setting = Setting(OverlapSchedule::kBulkSynchronous, 2);
    known[i].points = {{1, 0.1}, {2, 0.11}, {4, 0.3}, {8, 0.35}};
  }
  absl::StatusOr<ScaleOutPrior> prior = ScaleOutPrior::Learn(known);
  ASSERT_TRUE(prior.ok());
  absl::StatusOr<ScaleOutModel> model = ScaleOutModel::Fit(
      {{1, 0.1}, {2, 0.11}}, Setting(OverlapSchedule::kBulkSynchronous, 2), *prior);
  ASSERT_TRUE(model.ok());
  absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(4);
  ASSERT_TRUE(prediction.ok());
  EXPECT_LT(prediction->iteration_seconds, 0.13);
  EXPECT_FALSE(prediction->identified);
  EXPECT_GT(prediction->high_seconds, 0.2);
}

TEST(ScaleOutModelTest, RepeatsCountWithTheirMedianAndSpread) {
  absl::StatusOr<ScaleOutModel> model =
      ScaleOutModel::Fit({{2, 0.13}, {1, 0.1}, {2, 0.12}, {2, 0.5}, {4, 0.14}},
                         Setting(OverlapSchedule::kBulkSynchronous));
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->points().size(), 3);
  EXPECT_EQ(model->points()[1].devices, 2);
  EXPECT_EQ(model->points()[1].iteration_seconds, 0.13);
  absl::StatusOr<ScaleOutPrediction> measured = model->Predict(2);
  EXPECT_EQ(measured->structure, "measured");
  EXPECT_EQ(measured->low_seconds, 0.12);
  EXPECT_EQ(measured->high_seconds, 0.5);
  absl::StatusOr<ScaleOutPrediction> between = model->Predict(3);
  EXPECT_EQ(between->structure, "interpolated");
  EXPECT_GT(between->iteration_seconds, 0.13);
  EXPECT_LT(between->iteration_seconds, 0.14);
}

TEST(ScaleOutModelTest, RejectsBadPoints) {
  const ScaleOutSetting setting = Setting(OverlapSchedule::kBulkSynchronous);
  EXPECT_THAT(ScaleOutModel::Fit({}, setting).status().message(), HasSubstr("no points"));
  for (double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity()}) {
    absl::StatusOr<ScaleOutModel> model = ScaleOutModel::Fit({{1, 0.1}, {2, bad}}, setting);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(model.status().message(), HasSubstr("points[1].iteration_seconds (2 devices)"));
  }
  EXPECT_THAT(ScaleOutModel::Fit({{0, 0.1}}, setting).status().message(),
              HasSubstr("points[0].devices is 0"));
  EXPECT_FALSE(ScaleOutModel::Fit({{1, 0.1}}, setting)->Predict(0).ok());
  ScaleOutConfiguration bad;
  bad.cluster = "lab";
  EXPECT_THAT(ScaleOutPrior::Learn({bad}).status().message(), HasSubstr("cluster 'lab'"));
}

TEST(ScaleOutModelTest, IntervalsCoverNoisySteps) {
  // Steps whose growth varies by 2 % (standard deviation) between configurations.
  std::mt19937 random(7);
  std::normal_distribution<double> growth(0.02, 0.02);
  const auto configuration = [&](int cluster) {
    ScaleOutConfiguration drawn;
    drawn.cluster = absl::StrCat(cluster);
    drawn.setting = Setting(OverlapSchedule::kBucketed);
    drawn.points = {{1, 0.1}, {2, 0.11}, {4, 0.115 * std::exp(growth(random))}};
    return drawn;
  };
  std::vector<ScaleOutConfiguration> known;
  for (int i = 0; i < 60; ++i) known.push_back(configuration(i % 6));
  absl::StatusOr<ScaleOutPrior> prior = ScaleOutPrior::Learn(known);
  ASSERT_TRUE(prior.ok());
  int covered = 0;
  constexpr int kDraws = 500;
  for (int i = 0; i < kDraws; ++i) {
    const ScaleOutConfiguration drawn = configuration(100);
    absl::StatusOr<ScaleOutModel> model =
        ScaleOutModel::Fit({drawn.points[0], drawn.points[1]}, drawn.setting, *prior);
    absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(4);
    const double seconds = drawn.points[2].iteration_seconds;
    covered += prediction->low_seconds <= seconds && seconds <= prediction->high_seconds;
  }
  EXPECT_GT(covered, 0.83 * kDraws);
  EXPECT_LT(covered, 0.98 * kDraws);
}

}  // namespace
}  // namespace paceline
