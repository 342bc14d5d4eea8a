#include <limits>
#include <string>

#include "analysis/report/csv.h"
#include "analysis/report/html.h"
#include "analysis/report/json.h"
#include "analysis/stats/statistics.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(CsvWriterTest, QuotesAsRfc4180Says) {
  CsvWriter csv({"a", "b", "c"});
  csv.Add("plain");
  csv.Add("comma, \"quote\"");
  csv.Add("two\nlines");
  csv.EndRow();
  EXPECT_EQ(csv.text(), "a,b,c\nplain,\"comma, \"\"quote\"\"\",\"two\nlines\"\n");
}

TEST(CsvWriterTest, UnknownNumbersAndMissingFieldsAreEmpty) {
  CsvWriter csv({"a", "b", "c", "d"});
  csv.Add(kUnknown);
  csv.Add(0.1);
  csv.Add(std::numeric_limits<double>::infinity());
  csv.EndRow();
  EXPECT_EQ(csv.text(), "a,b,c,d\n,0.1,,\n");
}

TEST(JsonWriterTest, NestsAndEscapes) {
  JsonWriter json;
  json.BeginObject().Key("a\"").String("\\ \n \x01");
  json.Key("list").BeginArray().Number(1).Number(kUnknown).Bool(true).BeginObject().EndObject();
  json.EndArray().EndObject();
  EXPECT_EQ(json.text(), "{\"a\\\"\":\"\\\\ \\n \xEF\xBF\xBD\",\"list\":[1,null,true,{}]}");
}

TEST(JsonWriterTest, NumbersReadBackEqual) {
  for (double value : {0.1, 1.0 / 3, 1e-300, 123456789.125, -0.0478912345678901}) {
    EXPECT_EQ(std::stod(ShortestNumber(value)), value);
  }
  EXPECT_EQ(ShortestNumber(0.1), "0.1");
}

TEST(ValidUtf8Test, KeepsTextAndReplacesBrokenBytes) {
  EXPECT_EQ(ValidUtf8("\xC3\xA9\xF0\x9F\x98\x80"), "\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(ValidUtf8("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(ValidUtf8("\xC3"), "\xEF\xBF\xBD") << "cut short";
  EXPECT_EQ(ValidUtf8("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD") << "overlong";
}

TEST(EscapeHtmlTest, LeavesNoMarkup) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
}

}  // namespace
}  // namespace paceline
