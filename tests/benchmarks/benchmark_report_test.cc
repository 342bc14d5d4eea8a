#include "tests/benchmarks/benchmark_report.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

BenchmarkRow Row(double value, double reference_value, double goal, bool lower_is_better) {
  BenchmarkRow row;
  row.name = "a \"row\"";
  row.value = value;
  row.unit = "images/s";
  row.reference = "other";
  row.reference_value = reference_value;
  row.goal = goal;
  row.lower_is_better = lower_is_better;
  return row;
}

TEST(BenchmarkReportTest, GoalsAreForTheRatioWhereThereIsAReference) {
  EXPECT_TRUE(*Row(300, 200, 1.5, false).met());
  EXPECT_FALSE(*Row(299, 200, 1.5, false).met());
  EXPECT_TRUE(*Row(1, 2, 0.5, true).met());
  EXPECT_FALSE(Row(1, 0, 0.5, true).met().has_value());  // Not measured.
  BenchmarkRow alone = Row(0.4, 0, 0.5, true);
  alone.reference.clear();
  EXPECT_TRUE(*alone.met());
  EXPECT_FALSE(alone.ratio().has_value());
}

TEST(BenchmarkReportTest, WritesEveryColumnAsJson) {
  BenchmarkReport report("title");
  report.Add(Row(300, 200, 1.5, false));
  BenchmarkRow alone;
  alone.name = "alone";
  report.Add(alone);
  EXPECT_EQ(report.Json(),
            "[\n"
            "  {\"name\": \"a \\\"row\\\"\", \"value\": 300, \"unit\": \"images/s\", "
            "\"reference\": \"other\", \"reference_value\": 200, \"ratio\": 1.5, \"goal\": 1.5, "
            "\"met\": true},\n"
            "  {\"name\": \"alone\", \"value\": 0, \"unit\": \"\", \"reference\": null, "
            "\"reference_value\": null, \"ratio\": null, \"goal\": null, \"met\": null}\n"
            "]\n");
  EXPECT_TRUE(absl::StrContains(report.Table(), "met"));
}

}  // namespace
}  // namespace paceline
