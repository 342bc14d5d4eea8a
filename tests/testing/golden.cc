#include "tests/testing/golden.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "proto/support/runfiles.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

absl::Status Write(const std::string& path, absl::string_view text) {
  std::error_code ignored;  // WriteFile says what cannot be written.
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  return WriteFile(text, path);
}

// The first lines that differ, with their numbers.
std::string FirstDifference(absl::string_view expected, absl::string_view actual) {
  constexpr size_t kShown = 5;
  const std::vector<absl::string_view> want = absl::StrSplit(expected, '\n');
  const std::vector<absl::string_view> got = absl::StrSplit(actual, '\n');
  size_t first = 0;
  while (first < want.size() && first < got.size() && want[first] == got[first]) ++first;
  std::string out;
  for (size_t i = first; i < std::min(first + kShown, std::max(want.size(), got.size())); ++i) {
    if (i < want.size() && i < got.size() && want[i] == got[i]) continue;
    if (i < want.size()) absl::StrAppend(&out, "  line ", i + 1, " golden: ", want[i], "\n");
    if (i < got.size()) absl::StrAppend(&out, "  line ", i + 1, " actual: ", got[i], "\n");
  }
  return out;
}

}  // namespace

testing::AssertionResult MatchesGolden(absl::string_view path, absl::string_view actual) {
  if (const char* checkout = std::getenv("UPDATE_GOLDENS")) {
    const absl::Status status = Write(absl::StrCat(checkout, "/", path), actual);
    if (status.ok()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << status << "; run this through tools/update_goldens";
  }

  absl::StatusOr<std::string> file = FindRunfile(path);
  absl::StatusOr<std::string> expected = file.ok() ? ReadFile(*file) : file.status();
  if (expected.ok() && *expected == actual) return testing::AssertionSuccess();

  if (const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR")) {
    Write(absl::StrCat(outputs, "/", path), actual).IgnoreError();
  }
  return testing::AssertionFailure()
         << (expected.ok() ? absl::StrCat(path, " differs:\n", FirstDifference(*expected, actual))
                           : absl::StrCat(expected.status().message(), "\n"))
         << "If the change is meant, run tools/update_goldens and review the diff.";
}

}  // namespace paceline
