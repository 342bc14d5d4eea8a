#include "analysis/scaling/new_network.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TEST(NewNetworkModelTest, AddsCommunicationThatNothingHides) {
  // 1 ns per byte, computing 2 % slower.
  const auto seconds = [](double bytes, double alone) { return 1.02 * alone + 1e-9 * bytes; };
  absl::StatusOr<NewNetworkModel> model = NewNetworkModel::Fit(
      {{"a", 100e6, 0.2, seconds(100e6, 0.2)}, {"b", 500e6, 0.3, seconds(500e6, 0.3)}},
      OverlapSchedule::kBulkSynchronous);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE(model->overlapped());
  EXPECT_NEAR(model->seconds_per_byte(), 1e-9, 1e-15);
  EXPECT_NEAR(model->compute_share(), 0.02, 1e-6);
  EXPECT_NEAR(model->Predict(240e6, 0.5)->iteration_seconds, seconds(240e6, 0.5), 1e-9);
}

TEST(NewNetworkModelTest, HidesCommunicationBehindBackward) {
  const auto seconds = [](double bytes, double alone) {
    return alone + std::max(0.0, 1e-9 * bytes - 0.5 * alone);
  };
  absl::StatusOr<NewNetworkModel> model = NewNetworkModel::Fit(
      {{"a", 440e6, 0.3, seconds(440e6, 0.3)}, {"b", 1344e6, 0.16, seconds(1344e6, 0.16)}},
      OverlapSchedule::kWaitFree);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->overlapped());
  EXPECT_NEAR(model->compute_share(), 0.5, 1e-9);
  // All of it hidden.
  EXPECT_NEAR(model->Predict(100e6, 0.25)->iteration_seconds, 0.25, 1e-9);
  EXPECT_THAT(model->Predict(100e6, 0.25)->note, HasSubstr("beyond"));
  EXPECT_NEAR(model->Predict(600e6, 0.2)->iteration_seconds, seconds(600e6, 0.2), 1e-9);
}

TEST(NewNetworkModelTest, NeverPredictsLessThanOneDevice) {
  // Faster with more devices, which no model explains.
  absl::StatusOr<NewNetworkModel> model = NewNetworkModel::Fit(
      {{"a", 100e6, 0.2, 0.19}, {"b", 500e6, 0.3, 0.28}}, OverlapSchedule::kBucketed);
  ASSERT_TRUE(model.ok());
  EXPECT_NEAR(model->Predict(300e6, 0.25)->iteration_seconds, 0.25, 1e-9);
}

TEST(NewNetworkModelTest, RejectsWhatDeterminesNothing) {
  EXPECT_EQ(
      NewNetworkModel::Fit({{"a", 1e6, 0.1, 0.2}, {"a", 1e6, 0.2, 0.3}}, OverlapSchedule::kBucketed)
          .status()
          .code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      NewNetworkModel::Fit({{"a", 1e6, 0, 0.2}}, OverlapSchedule::kBucketed).status().message(),
      HasSubstr("network 'a'"));
}

}  // namespace
}  // namespace paceline
