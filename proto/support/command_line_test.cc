#include "proto/support/command_line.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string plan = "builtin:default";
  int workers = 0;
  double limit = 1.5;
  bool resume = false;
};

absl::StatusOr<std::vector<std::string>> ParseInto(Values* values,
                                                   std::vector<const char*> arguments,
                                                   std::string* help = nullptr) {
  CommandLine line("program", "Does things.", {"program --plan=x"});
  line.AddString("plan", &values->plan, "FILE", "What to run.", "--plan=a.textproto");
  line.AddInt("workers", &values->workers, "N", "How many.", "--workers=2");
  line.AddDouble("limit", &values->limit, "SECONDS", "How long.", "--limit=0.5");
  line.AddBool("resume", &values->resume, "Goes on.", "--resume");
  if (help != nullptr) *help = line.Help();
  arguments.insert(arguments.begin(), "program");
  return line.Parse(static_cast<int>(arguments.size()), arguments.data());
}

TEST(CommandLineTest, TakesFlagsInEveryCustomaryForm) {
  Values values;
  const auto rest = ParseInto(
      &values, {"first", "--plan=a=b", "-workers", "-3", "--resume", "--limit", "2", "--", "--x"});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_THAT(*rest, ElementsAre("first", "--x"));
  EXPECT_EQ(values.plan, "a=b");
  EXPECT_EQ(values.workers, -3);
  EXPECT_EQ(values.limit, 2);
  EXPECT_TRUE(values.resume);
  ASSERT_TRUE(ParseInto(&values, {"--noresume"}).ok());
  EXPECT_FALSE(values.resume);
}

TEST(CommandLineTest, ReportsEveryProblemAndSuggests) {
  Values values;
  const auto rest = ParseInto(&values, {"--plam=x", "--workers=two", "--plan"});
  ASSERT_EQ(rest.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rest.status().message()),
              HasSubstr("--plam: unknown flag; did you mean --plan?"));
  EXPECT_THAT(std::string(rest.status().message()),
              HasSubstr("--workers: expected a whole number"));
  EXPECT_THAT(std::string(rest.status().message()), HasSubstr("--plan: needs a value"));
}

TEST(CommandLineTest, HelpExplainsEveryFlagByAnExample) {
  Values values;
  std::string help;
  ASSERT_TRUE(ParseInto(&values, {}, &help).ok());
  EXPECT_THAT(help, HasSubstr("--plan=FILE   (default: builtin:default)"));
  EXPECT_THAT(help, HasSubstr("Example: --workers=2"));
  EXPECT_THAT(help, HasSubstr("Example: --resume"));
}

}  // namespace
}  // namespace paceline
