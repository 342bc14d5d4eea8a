#include "analysis/main/command_line.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "analysis/merge/merge.h"
#include "gtest/gtest.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

struct Ran {
  int status;
  std::string out;
  std::string error;
};

Ran RunCommand(const std::vector<std::string>& arguments) {
  std::ostringstream out, error;
  const int status = RunAnalysis(arguments, out, error);
  return {status, out.str(), error.str()};
}

// A run store in a new folder, and the folder's name.
std::string MakeRun(const std::string& name) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/", name);
  SyntheticRunOptions options;
  options.networks = {"lenet5"};
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  EXPECT_TRUE(run.ok());
  const absl::Status written = WriteSyntheticRun(*run, dir);
  EXPECT_TRUE(written.ok()) << written;
  return dir;
}

TEST(RunAnalysisTest, HelpExplainsEveryFlagWithAnExample) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"help"}, {"report", "--help"}}) {
    const Ran ran = RunCommand(arguments);
    EXPECT_EQ(ran.status, 0);
    for (const char* part : {"--out=DIR", "--out=reports/monday", "--limit=F", "--limit=0.1",
                             "report RUN...", "replay RUN..."}) {
      EXPECT_TRUE(absl::StrContains(ran.out, part)) << part;
    }
  }
}

TEST(RunAnalysisTest, BadUsageIsExplained) {
  EXPECT_EQ(RunCommand({}).status, 2);
  EXPECT_TRUE(absl::StrContains(RunCommand({"reprot", "x"}).error, "did you mean 'report'"));
  EXPECT_TRUE(absl::StrContains(RunCommand({"report"}).error, "needs at least one run"));
  EXPECT_TRUE(
      absl::StrContains(RunCommand({"report", "x", "--oout=y"}).error, "did you mean 'out'"));
  EXPECT_TRUE(absl::StrContains(RunCommand({"report", "x", "--out"}).error, "needs a value"));
  EXPECT_TRUE(
      absl::StrContains(RunCommand({"replay", "x", "--limit=abc"}).error, "positive number"));
}

TEST(RunAnalysisTest, ReportsRelativeToWhereTheUserStands) {
  MakeRun("user_run");
  ASSERT_EQ(setenv("BUILD_WORKING_DIRECTORY", testing::TempDir().c_str(), 1), 0);
  const Ran ran = RunCommand({"report", "user_run", "--out", "user_report"});
  unsetenv("BUILD_WORKING_DIRECTORY");
  ASSERT_EQ(ran.status, 0) << ran.error;
  EXPECT_TRUE(absl::StrContains(ran.out, "4 configurations measured, 0 failed")) << ran.out;
  EXPECT_TRUE(std::ifstream(absl::StrCat(testing::TempDir(), "/user_report/report.html")).good());
}

TEST(RunAnalysisTest, ReplayFailsBeyondItsLimit) {
  const std::string run = MakeRun("replayed_run");
  Ran ran = RunCommand({"replay", run});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.error;
  EXPECT_TRUE(absl::StrContains(ran.out, "4 replayed, 0 further off than 5 %")) << ran.out;
  ran = RunCommand({"replay", run, "--limit=1e-9"});
  EXPECT_EQ(ran.status, 1);
}

TEST(RunAnalysisTest, AMissingRunIsNamed) {
  const Ran ran = RunCommand({"report", "/no/such/run"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(absl::StrContains(ran.error, "/no/such/run")) << ran.error;
}

}  // namespace
}  // namespace paceline
