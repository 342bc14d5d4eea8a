#include "tests/testing/golden.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGolden[] = "tests/testing/testdata/golden.txt";

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override { unsetenv("UPDATE_GOLDENS"); }
};

TEST_F(GoldenTest, AcceptsEqualText) { EXPECT_TRUE(MatchesGolden(kGolden, "one\ntwo\nthree\n")); }

TEST_F(GoldenTest, ShowsTheFirstLinesThatDifferAndWhatToDo) {
  const testing::AssertionResult result = MatchesGolden(kGolden, "one\nzwei\nthree\n");
  EXPECT_FALSE(result);
  EXPECT_THAT(std::string(result.message()),
              AllOf(HasSubstr("line 2 golden: two"), HasSubstr("line 2 actual: zwei"),
                    Not(HasSubstr("line 1")), HasSubstr("tools/update_goldens")));
}

TEST_F(GoldenTest, NamesAMissingFile) {
  const testing::AssertionResult result = MatchesGolden("tests/testing/testdata/none.txt", "x");
  EXPECT_FALSE(result);
  EXPECT_THAT(std::string(result.message()), HasSubstr("tests/testing/testdata/none.txt"));
}

TEST_F(GoldenTest, RewritesTheFileWhenAsked) {
  const std::string folder = testing::TempDir();
  setenv("UPDATE_GOLDENS", folder.c_str(), /*overwrite=*/1);
  EXPECT_TRUE(MatchesGolden("a/b/new.txt", "new"));
  unsetenv("UPDATE_GOLDENS");
}

}  // namespace
}  // namespace paceline
