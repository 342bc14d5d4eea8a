#include "proto/support/working_directory.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(WorkingDirectoryTest, UnderBazelRunPathsAreRelativeToTheUser) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/user/plans", 1);
  EXPECT_EQ(ResolveUserPath("runs/1"), "/home/user/plans/runs/1");
  EXPECT_EQ(ResolveUserPath("./a"), "/home/user/plans/a");
  EXPECT_EQ(ResolveUserPath("."), "/home/user/plans");
  EXPECT_EQ(ResolveUserPath("/tmp/x"), "/tmp/x");
  EXPECT_EQ(ResolveUserPath(""), "");
  unsetenv("BUILD_WORKING_DIRECTORY");
}

TEST(WorkingDirectoryTest, OtherwiseToTheCurrentDirectory) {
  unsetenv("BUILD_WORKING_DIRECTORY");
  char* current = getcwd(nullptr, 0);
  EXPECT_EQ(ResolveUserPath("a"), absl::StrCat(current, "/a"));
  free(current);
}

}  // namespace
}  // namespace paceline
