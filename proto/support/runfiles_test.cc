#include "proto/support/runfiles.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TEST(RunfilesTest, FindsADataFileOfThisRepositoryAndOfAnotherOne) {
  absl::StatusOr<std::string> path = FindRunfile("proto/support/testdata/hello.txt");
  ASSERT_TRUE(path.ok()) << path.status();
  std::string word;
  std::ifstream(*path) >> word;
  EXPECT_EQ(word, "hello");
  path = FindRunfile("@photographs/photographs/copyright");
  EXPECT_TRUE(path.ok()) << path.status();
}

TEST(RunfilesTest, FindsAFolder) { EXPECT_TRUE(FindRunfile("proto/support/testdata").ok()); }

TEST(RunfilesTest, MissingFileNamesThePlacesLookedAt) {
  const absl::Status status = FindRunfile("proto/support/no_such_file").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(".runfiles/paceline/proto/support/no_such_file"));
}

TEST(RunfilesTest, CopiedBinaryLooksBesideItself) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/copied");
  mkdir(folder.c_str(), 0755);
  mkdir(absl::StrCat(folder, "/runfiles").c_str(), 0755);
  mkdir(absl::StrCat(folder, "/runfiles/paceline").c_str(), 0755);
  std::ofstream(absl::StrCat(folder, "/runfiles/paceline/data.txt")) << "x";
  absl::StatusOr<std::string> path = internal::FindRunfileUnder(
      internal::RunfilesRoots(absl::StrCat(folder, "/worker")), "data.txt");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, absl::StrCat(folder, "/runfiles/paceline/data.txt"));
}

TEST(RunfilesTest, ProgramAmongAnothersRunfilesLooksThere) {
  EXPECT_THAT(internal::RunfilesRoots("/bin/coordinator.runfiles/paceline/worker/worker"),
              testing::Contains("/bin/coordinator.runfiles"));
}

}  // namespace
}  // namespace paceline
