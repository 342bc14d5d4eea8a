#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/support/runfiles.h"
#include "proto/support/text_proto.h"
#include "tools/embedded_file.h"
#include "tools/embedded_test_files.h"

namespace paceline {
namespace {

TEST(EmbedFilesTest, ContentsEqualTheFilesSortedByName) {
  std::string names;
  for (const EmbeddedFile& file : EmbeddedTestFiles()) {
    absl::StrAppend(&names, file.name, " ");
    const absl::StatusOr<std::string> path =
        FindRunfile(absl::StrCat("tools/testdata/", file.name));
    ASSERT_TRUE(path.ok()) << path.status();
    const absl::StatusOr<std::string> contents = ReadFile(*path);
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_EQ(file.contents, *contents) << file.name;
  }
  EXPECT_EQ(names, "awkward.bin empty.txt plain.txt ");
}

}  // namespace
}  // namespace paceline
