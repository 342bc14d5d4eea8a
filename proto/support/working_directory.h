// Paths a user gives are relative to where the user stands. `bazel run` starts programs elsewhere,
// and says where the user stood in BUILD_WORKING_DIRECTORY.
//
//   const std::string run_dir = ResolveUserPath(absl::GetFlag(FLAGS_run_dir));
#ifndef PACELINE_PROTO_SUPPORT_WORKING_DIRECTORY_H_
#define PACELINE_PROTO_SUPPORT_WORKING_DIRECTORY_H_

#include <string>

#include "absl/strings/string_view.h"

namespace paceline {

// Where the user stands: BUILD_WORKING_DIRECTORY, or the current directory.
std::string UserDirectory();

// `path` made absolute; an empty path stays empty ("not given").
std::string ResolveUserPath(absl::string_view path);

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_WORKING_DIRECTORY_H_
