#include "analysis/cost/collective_model.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "analysis/cost/collective_cost.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr LinkCost kLink{20e-6, 1e-9, 0};

std::vector<CollectiveMeasurement> Measured(AllReduceAlgorithm algorithm, std::vector<int> ranks,
                                            double noise, double smallest = 1e3,
                                            double largest = 1e8) {
  std::mt19937_64 generator(3);
  std::normal_distribution<double> normal(0, noise);
  std::vector<CollectiveMeasurement> measurements;
  for (int n : ranks) {
    for (double bytes = smallest; bytes <= largest; bytes *= 2) {
      CollectiveMeasurement m;
      m.bytes = bytes;
      m.ranks = m.nodes = n;
      m.seconds = *AllReduceSeconds(algorithm, bytes, n, kLink) * std::exp(normal(generator));
      m.collective = "allreduce";
      m.place = "synthetic";
      measurements.push_back(m);
    }
  }
  return measurements;
}

std::string Flags(const CollectivePrediction& p) { return absl::StrJoin(p.flags, "; "); }

TEST(CollectiveModelTest, RecoversParametersOfARing) {
  absl::StatusOr<CollectiveModel> model =
      CollectiveModel::Fit(Measured(AllReduceAlgorithm::kRing, {4, 8, 16}, 0.01));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->law(true, true).law, GrowthLaw::kRing);
  EXPECT_EQ(model->law(true, true).steps, 2);
  const IdentifiabilityReport& report = model->identifiability();
  EXPECT_EQ(report.rank, 2) << report.Text();
  ASSERT_TRUE(report.estimates[0].value.has_value()) << report.Text();
  EXPECT_NEAR(*report.estimates[0].value, 20e-6, 0.5e-6);
  EXPECT_LE(*report.estimates[0].low, 20.2e-6);
  EXPECT_GE(*report.estimates[0].high, 19.8e-6);
  EXPECT_NEAR(*report.estimates[1].value, 1e-9, 0.02e-9);
  EXPECT_FALSE(report.estimates[2].value.has_value()) << "gamma hides in beta";
  EXPECT_TRUE(absl::StrContains(report.estimates[2].note, "all-gather"));
}

TEST(CollectiveModelTest, PredictsTwiceTheRanksByTheLawThatTheDataShow) {
  for (AllReduceAlgorithm algorithm :
       {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kHalvingDoubling,
        AllReduceAlgorithm::kRecursiveDoubling}) {
    absl::StatusOr<CollectiveModel> model =
        CollectiveModel::Fit(Measured(algorithm, {4, 8, 16}, 0.005));
    ASSERT_TRUE(model.ok());
    for (double bytes : {5e3, 1e6, 5e7}) {
      const CollectivePrediction p = model->Predict(bytes, 32, 32);
      EXPECT_NEAR(p.seconds / *AllReduceSeconds(algorithm, bytes, 32, kLink), 1, 0.08)
          << AllReduceAlgorithmName(algorithm) << " " << bytes << " by " << p.method;
      EXPECT_TRUE(p.flags.empty()) << Flags(p);
      EXPECT_TRUE(p.extrapolated);
    }
  }
}

TEST(CollectiveModelTest, UnknownGrowthIsFlaggedWithTheMeasurementToTake) {
  absl::StatusOr<CollectiveModel> model =
      CollectiveModel::Fit(Measured(AllReduceAlgorithm::kRing, {2}, 0.01));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(absl::StrContains(absl::StrJoin(model->flags(), " "), "measure 4"));
  CollectivePrediction p = model->Predict(1e6, 4, 4);
  EXPECT_TRUE(absl::StrContains(Flags(p), "over 4 ranks")) << Flags(p);
  EXPECT_GT(p.high_seconds / p.low_seconds, 1.8);

  model = CollectiveModel::Fit(Measured(AllReduceAlgorithm::kRing, {4}, 0.01));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(absl::StrContains(Flags(model->Predict(1e6, 8, 8)), "assumed"));
  EXPECT_TRUE(model->Predict(1e6, 4, 4).flags.empty());

  model = CollectiveModel::Fit(Measured(AllReduceAlgorithm::kRing, {4, 8}, 0.01));
  ASSERT_TRUE(model.ok());
  p = model->Predict(1e6, 16, 16);
  EXPECT_TRUE(absl::StrContains(Flags(p), "one step only")) << Flags(p);
  EXPECT_TRUE(absl::StrContains(Flags(p), "over 16 ranks")) << Flags(p);
}

TEST(CollectiveModelTest, ANewKindOfLinkIsFlagged) {
  std::vector<CollectiveMeasurement> measurements =
      Measured(AllReduceAlgorithm::kRing, {4, 8}, 0.01);
  for (CollectiveMeasurement& m : measurements) m.nodes = 1;
  absl::StatusOr<CollectiveModel> model = CollectiveModel::Fit(measurements);
  ASSERT_TRUE(model.ok());
  const CollectivePrediction p = model->Predict(1e6, 16, 2);
  EXPECT_TRUE(absl::StrContains(Flags(p), "16 ranks on 2 nodes")) << Flags(p);
}

TEST(CollectiveModelTest, NoPointValueForLatencyWithoutSmallMessages) {
  absl::StatusOr<CollectiveModel> model = CollectiveModel::Fit(
      Measured(AllReduceAlgorithm::kRing, {4, 8}, 0.02, /*smallest=*/2e7, /*largest=*/1e9));
  ASSERT_TRUE(model.ok());
  const IdentifiabilityReport& report = model->identifiability();
  EXPECT_FALSE(report.estimates[0].value.has_value());
  EXPECT_TRUE(absl::StrContains(report.estimates[0].note, "measure")) << report.Text();
  ASSERT_TRUE(report.estimates[1].value.has_value());
  EXPECT_NEAR(*report.estimates[1].value, 1e-9, 0.05e-9);
}

TEST(CollectiveModelTest, OneSizeOnlyIsAnError) {
  const absl::Status status =
      CollectiveModel::Fit(Measured(AllReduceAlgorithm::kRing, {4, 8}, 0, 1e6, 1e6)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "1 size measured")) << status;
}

TEST(CollectiveModelTest, RejectsMeasurementsThatCannotBelongTogether) {
  std::vector<CollectiveMeasurement> measurements = Measured(AllReduceAlgorithm::kRing, {4}, 0);
  const auto with = [&](void (*change)(CollectiveMeasurement*)) {
    std::vector<CollectiveMeasurement> changed = measurements;
    changed.push_back(measurements[0]);
    change(&changed.back());
    return CollectiveModel::Fit(changed).status();
  };
  EXPECT_TRUE(absl::StrContains(
      with([](CollectiveMeasurement* m) { m->seconds *= 1000; }).message(), "mixed units"));
  EXPECT_TRUE(absl::StrContains(with([](CollectiveMeasurement* m) { m->seconds = 0; }).message(),
                                "above 0"));
  EXPECT_TRUE(absl::StrContains(with([](CollectiveMeasurement* m) { m->seconds = -1; }).message(),
                                "above 0"));
  EXPECT_TRUE(
      absl::StrContains(with([](CollectiveMeasurement* m) { m->collective = "bcast"; }).message(),
                        "each collective"));
  EXPECT_TRUE(absl::StrContains(with([](CollectiveMeasurement* m) { m->nodes = 1; }).message(),
                                "each placement"));
  EXPECT_FALSE(CollectiveModel::Fit({}).ok());
}

TEST(CollectiveModelTest, ImpossibleQueriesGiveNoNumber) {
  absl::StatusOr<CollectiveModel> model =
      CollectiveModel::Fit(Measured(AllReduceAlgorithm::kRing, {4}, 0));
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(std::isnan(model->Predict(-1, 4).seconds));
  EXPECT_TRUE(std::isnan(model->Predict(1e6, 0).seconds));
  EXPECT_EQ(model->Predict(1e6, 1).seconds, 0);
}

}  // namespace
}  // namespace paceline
