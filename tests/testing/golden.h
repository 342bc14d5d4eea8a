// Golden files: expected text output, kept in the repository and reviewed as a diff.
//
//   EXPECT_TRUE(MatchesGolden("tests/golden/networks/vgg16.txt", LayerTable(network)));
//
// The test declares its golden files as `data` and carries the tag "golden"; tools/update_goldens
// runs all such tests in a mode (environment variable UPDATE_GOLDENS = the checkout) in which they
// rewrite their files. Thread-safe for different files.
#ifndef PACELINE_TESTS_TESTING_GOLDEN_H_
#define PACELINE_TESTS_TESTING_GOLDEN_H_

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace paceline {

// Compares `actual` with the golden file at `path` (relative to the repository root). A failure
// shows the first lines that differ; the whole actual text goes to the test's undeclared outputs
// (bazel-testlogs/.../test.outputs).
testing::AssertionResult MatchesGolden(absl::string_view path, absl::string_view actual);

}  // namespace paceline

#endif  // PACELINE_TESTS_TESTING_GOLDEN_H_
