#include "analysis/import/collective_logs.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::absl::StrContains;

constexpr char kOsuHeader[] =
    "# OSU MPI Allreduce Latency Test v9.9\n"
    "# Size       Avg Latency(us)\n";

TEST(OsuTest, ReadsSizesAndTimes) {
  absl::StatusOr<ImportedCollectives> imported = ParseOsuCollective(
      absl::StrCat("Warning: a message of mpirun\n", kOsuHeader, "4      10.50\n8      11.00\n"),
      "osu.log", {4, 2});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(imported->flags.empty());
  ASSERT_EQ(imported->measurements.size(), 2u);
  const CollectiveMeasurement& m = imported->measurements[1];
  EXPECT_EQ(m.bytes, 8);
  EXPECT_EQ(m.ranks, 4);
  EXPECT_EQ(m.nodes, 2);
  EXPECT_DOUBLE_EQ(m.seconds, 11e-6);
  EXPECT_EQ(m.collective, "allreduce");
  EXPECT_EQ(m.tool, "OSU MPI Allreduce Latency Test v9.9");
  EXPECT_EQ(m.place, "osu.log:5");
}

TEST(OsuTest, ReadsTheFullFormat) {
  absl::StatusOr<ImportedCollectives> imported = ParseOsuCollective(
      "# OSU MPI Broadcast Latency Test v9.9\n"
      "# Size  Avg Latency(ms)  Min Latency(ms)  Max Latency(ms)  Iterations\n"
      "1024  0.5  0.4  0.6  1000\n",
      "bcast.log", {2, 2});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->measurements[0].collective, "bcast");
  EXPECT_EQ(imported->measurements[0].iterations, 1000);
  EXPECT_DOUBLE_EQ(imported->measurements[0].seconds, 5e-4);
}

TEST(OsuTest, RejectsWhatIsWrongWithAPlace) {
  const auto message = [](absl::string_view rows) {
    return std::string(
        ParseOsuCollective(absl::StrCat(kOsuHeader, rows), "x.log", {2, 2}).status().message());
  };
  EXPECT_TRUE(StrContains(message("4 0.00\n"), "x.log:3: latency is 0.00")) << message("4 0.00\n");
  EXPECT_TRUE(StrContains(message("4 -1\n"), "more than 0"));
  EXPECT_TRUE(StrContains(message("4 1\n8\n"), "x.log:4: 1 columns, expected 2"));
  EXPECT_TRUE(StrContains(message("8 1\n4 1\n"), "two runs"));
  EXPECT_TRUE(StrContains(message("4 1..5\n"), "expected a number"));
  EXPECT_TRUE(StrContains(message(""), "no measurement"));
  EXPECT_TRUE(
      StrContains(ParseOsuCollective("# Size Latency\n4 1\n", "x.log", {2, 2}).status().message(),
                  "no unit of time"));
  EXPECT_TRUE(StrContains(ParseOsuCollective("4 1\n", "x.log", {2, 2}).status().message(),
                          "numbers before"));
  EXPECT_TRUE(StrContains(ParseOsuCollective(kOsuHeader, "x.log", {0, 0}).status().message(),
                          "how many ranks"));
  EXPECT_TRUE(
      StrContains(ParseOsuCollective(
                      "# OSU MPI Allreduce Latency Test\n# Size  Avg Latency(us)  Min Latency(us) "
                      " Max Latency(us)  Iterations\n4 500 0.4 0.6 10\n",
                      "x.log", {2, 2})
                      .status()
                      .message(),
                  "mixed units"));
}

TEST(OsuTest, FlagsALogThatIsCutOffWithinANumber) {
  absl::StatusOr<ImportedCollectives> imported =
      ParseOsuCollective(absl::StrCat(kOsuHeader, "4 10.5\n8 1"), "osu.log", {4, 2});
  ASSERT_TRUE(imported.ok());
  ASSERT_EQ(imported->flags.size(), 1u);
  EXPECT_TRUE(StrContains(imported->flags[0], "truncated"));
}

std::string NcclLog(absl::string_view rows, absl::string_view footer) {
  return absl::StrCat(
      "# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20\n"
      "# Using devices\n"
      "#  Rank  0 Pid  11 on alpha device  0 [0x01] Some GPU\n"
      "#  Rank  1 Pid  12 on beta device  1 [0x02] Some GPU\n"
      "#\n"
      "#                                       out-of-place                 in-place\n"
      "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
      "#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)\n",
      rows, footer);
}

constexpr char kNcclFooter[] = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5\n";

TEST(NcclTestsTest, ReadsOutOfPlaceTimesRanksAndHosts) {
  absl::StatusOr<ImportedCollectives> imported = ParseNcclTests(
      NcclLog("1048576  262144  float  sum  -1  500.0  2.10  2.10  0  510.0  2.06  2.06  0\n",
              kNcclFooter),
      "nccl.log", {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(imported->flags.empty());
  ASSERT_EQ(imported->measurements.size(), 1u);
  const CollectiveMeasurement& m = imported->measurements[0];
  EXPECT_EQ(m.ranks, 2);
  EXPECT_EQ(m.nodes, 2);
  EXPECT_EQ(m.iterations, 20);
  EXPECT_EQ(m.library, "NCCL");
  EXPECT_DOUBLE_EQ(m.seconds, 500e-6);
}

TEST(NcclTestsTest, FlagsTruncationAndWrongResults) {
  absl::StatusOr<ImportedCollectives> imported = ParseNcclTests(
      NcclLog("1048576  262144  float  sum  -1  500.0  2.10  2.10  3  510.0  2.06  2.06  0\n", ""),
      "nccl.log", {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->flags.size(), 2u);
  EXPECT_TRUE(StrContains(imported->flags[0], "nccl.log:9: 3 wrong values"));
  EXPECT_TRUE(StrContains(imported->flags[1], "truncated"));
}

TEST(NcclTestsTest, RejectsMixedUnitsAndDamage) {
  const auto message = [](absl::string_view rows, int ranks = 0) {
    return std::string(
        ParseNcclTests(NcclLog(rows, kNcclFooter), "n.log", {ranks, 0}).status().message());
  };
  EXPECT_TRUE(StrContains(
      message("1048576  262144  float  sum  -1  0.5  2.10  2.10  0  510.0  2.06  2.06  0\n"),
      "n.log:9: time gives"));
  EXPECT_TRUE(StrContains(message("1048576  262144  float  sum  -1  500\n"), "truncated"));
  EXPECT_TRUE(StrContains(
      message("1048576  262144  float  sum  -1  0.0  2.10  2.10  0  510.0  2.06  2.06  0\n"),
      "time is 0.0"));
  EXPECT_TRUE(StrContains(
      message("1048576  262144  float  sum  -1  500  2.10  2.10  0  510.0  2.06  2.06  0\n", 4),
      "lists 2 ranks, but 4"));
}

TEST(CollectiveCsvTest, ReadsOneUnitOnly) {
  absl::StatusOr<CsvTable> table =
      CsvTable::Parse("# source: a lab\nbytes,ranks,milliseconds\n8,4,2\n", "t.csv");
  ASSERT_TRUE(table.ok());
  absl::StatusOr<ImportedCollectives> imported = ImportCollectiveCsv(*table);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_DOUBLE_EQ(imported->measurements[0].seconds, 2e-3);
  EXPECT_EQ(imported->measurements[0].tool, "source: a lab");

  table = CsvTable::Parse("bytes,ranks,milliseconds,seconds\n8,4,2,3\n", "t.csv");
  EXPECT_TRUE(StrContains(ImportCollectiveCsv(*table).status().message(), "mixed units"));
  table = CsvTable::Parse("bytes,ranks,time\n8,4,2\n", "t.csv");
  EXPECT_TRUE(StrContains(ImportCollectiveCsv(*table).status().message(), "no column of times"));
  table = CsvTable::Parse("bytes,ranks,seconds\n8,4,0\n", "t.csv");
  EXPECT_TRUE(StrContains(ImportCollectiveCsv(*table).status().message(), "t.csv:2"));
}

}  // namespace
}  // namespace paceline
