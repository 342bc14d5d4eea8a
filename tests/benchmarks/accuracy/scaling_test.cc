#include "tests/benchmarks/accuracy/scaling.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr char kMxnetHeader[] = "# source\nmodel,batch_per_gpu,model_mb,gpus,images_per_sec\n";

// Throughput of a ring that nothing hides: T(n) = alone + volume (n - 1) / n.
std::string RingRow(const std::string& model, double alone, double volume, int gpus) {
  const double seconds = alone + volume * (gpus - 1) / gpus;
  return absl::StrCat(model, ",32,100,", gpus, ",", 32 * gpus / seconds, "\n");
}

class ScalingTest : public ::testing::Test {
 protected:
  static std::string Folder(const std::string& name) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/scaling_test_", name);
    mkdir(path.c_str(), 0700);
    return path;
  }
  static void Write(const std::string& folder, const std::string& name, const std::string& text) {
    std::ofstream(absl::StrCat(folder, "/", name)) << text;
  }
  static const AccuracyRow* Find(const AccuracyReport& report, const std::string& task,
                                 const std::string& split) {
    for (const AccuracyRow& row : report.rows()) {
      if (row.task == task && row.split == split) return &row;
    }
    return nullptr;
  }
};

TEST_F(ScalingTest, ScoresHeldOutRowsAndNamesMissingFiles) {
  AccuracyData data;
  data.data_dir = Folder("data");
  data.heldout_dir = Folder("heldout");
  std::string known = kMxnetHeader, held_out = kMxnetHeader;
  for (int n : {1, 2, 4}) {
    absl::StrAppend(&known, RingRow("alexnet", 0.2, 0.1, n), RingRow("resnet-152", 1.5, 0.2, n));
  }
  absl::StrAppend(&held_out, RingRow("alexnet", 0.2, 0.1, 4));  // Known: not scored.
  absl::StrAppend(&held_out, RingRow("alexnet", 0.2, 0.1, 8), RingRow("resnet-152", 1.5, 0.2, 8));
  absl::StrAppend(&held_out, RingRow("inception-v3", 1, 0.1, 1),
                  RingRow("inception-v3", 1, 0.1, 4));
  Write(data.data_dir, "mxnet_p2_16xlarge_scaling.csv", known);
  Write(data.heldout_dir, "mxnet_p2_16xlarge_scaling.csv", held_out);
  AccuracyReport report;
  const absl::Status status = EvaluateScaling(data, report);
  ASSERT_TRUE(status.ok()) << status;

  const AccuracyRow* twice = Find(report, "scale-out n to 2n, parameter server", "folder");
  ASSERT_NE(twice, nullptr);
  EXPECT_EQ(twice->ours.points, 2);
  EXPECT_LT(twice->ours.mean, 0.02);
  EXPECT_LT(twice->ours.mean, *twice->baseline_constant);
  EXPECT_TRUE(twice->met());
  const AccuracyRow* network = Find(report, "new network, known cluster, T(1) given", "folder");
  ASSERT_NE(network, nullptr);
  EXPECT_EQ(network->ours.points, 1);  // inception-v3 on 4; its time on 1 is given.
  EXPECT_THAT(absl::StrJoin(report.skipped(), "\n"),
              HasSubstr("ddl_benchmarks_throughput.csv: not in"));
}

TEST_F(ScalingTest, NamesTheBadField) {
  AccuracyData data;
  data.data_dir = Folder("bad");
  Write(data.data_dir, "mxnet_p2_16xlarge_scaling.csv",
        absl::StrCat(kMxnetHeader, "alexnet,32,100,1,457\nalexnet,32,100,two,870\n"));
  AccuracyReport report;
  const absl::Status status = EvaluateScaling(data, report);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("mxnet_p2_16xlarge_scaling.csv:4"));
}

TEST_F(ScalingTest, RefusesTimesThatAreNotPositive) {
  AccuracyData data;
  data.data_dir = Folder("negative");
  Write(data.data_dir, "mxnet_p2_16xlarge_scaling.csv",
        absl::StrCat(kMxnetHeader, "alexnet,32,100,1,457\nalexnet,32,100,2,-870\n"));
  AccuracyReport report;
  const absl::Status status = EvaluateScaling(data, report);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(status.message(), HasSubstr("mxnet P2.16xlarge"));
}

}  // namespace
}  // namespace paceline
