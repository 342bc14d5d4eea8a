#include "analysis/import/csv_table.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::absl::StrContains;

TEST(CsvTableTest, ReadsRecordsAndKeepsTheSource) {
  absl::StatusOr<CsvTable> table = CsvTable::Parse(
      "# source: a lab\n# 2 hosts\nname,bytes,seconds\r\n\"a, \"\"b\"\"\", 8 ,1e-5\n\n# "
      "later\nc,16,\n",
      "t.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->source(), "source: a lab\n2 hosts");
  ASSERT_EQ(table->rows().size(), 2u);
  EXPECT_EQ(*table->rows()[0].Text("name"), "a, \"b\"");
  EXPECT_EQ(*table->rows()[0].Integer("bytes"), 8);
  EXPECT_DOUBLE_EQ(*table->rows()[0].PositiveNumber("seconds"), 1e-5);
  EXPECT_FALSE(table->rows()[1].OptionalNumber("seconds")->has_value());
  EXPECT_FALSE(table->rows()[1].OptionalNumber("nodes")->has_value());
  EXPECT_EQ(table->rows()[1].place(), "t.csv:7");
}

TEST(CsvTableTest, NamesFileLineAndColumnOfBadNumbers) {
  absl::StatusOr<CsvTable> table =
      CsvTable::Parse("bytes,seconds\n8,0\n8,-1\n8,nan\n8,fast\n1.5,1\n", "t.csv");
  ASSERT_TRUE(table.ok()) << table.status();
  for (int i = 0; i < 4; ++i) {
    const absl::Status status = table->rows()[i].PositiveNumber("seconds").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(StrContains(status.message(), absl::StrCat("t.csv:", i + 2, ": seconds is ")))
        << status;
  }
  EXPECT_TRUE(StrContains(table->rows()[4].Integer("bytes").status().message(), "whole number"));
  EXPECT_TRUE(StrContains(table->rows()[0].Number("time").status().message(),
                          "no column \"time\"; its columns are bytes, seconds"));
}

TEST(CsvTableTest, RejectsDamagedFiles) {
  EXPECT_TRUE(StrContains(CsvTable::Parse("a,b\n1,2\n3\n", "t.csv").status().message(),
                          "t.csv:3: 1 fields, expected 2 (a, b)"));
  EXPECT_TRUE(StrContains(CsvTable::Parse("a,a\n", "t.csv").status().message(), "two columns"));
  EXPECT_TRUE(StrContains(CsvTable::Parse("a\n\"x\n", "t.csv").status().message(), "not closed"));
  EXPECT_TRUE(
      StrContains(CsvTable::Parse("# only a comment\n", "t.csv").status().message(), "empty"));
  EXPECT_EQ(CsvTable::Read("/no/such/file.csv").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace paceline
