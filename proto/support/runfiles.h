// Finds the data files and programs a binary was built with (its `data` in the BUILD file),
// wherever it runs: under `bazel run` and `bazel test`, from bazel-bin, or as a copy on another
// machine.
//
//   absl::StatusOr<std::string> path = FindRunfile("models/networks/alexnet.textproto");
//   absl::StatusOr<std::string> jpegs = FindRunfile("@photographs/photographs");
//
// A copied binary looks into runfiles/ beside itself, which //tools:portable.bzl lays out.
#ifndef PACELINE_PROTO_SUPPORT_RUNFILES_H_
#define PACELINE_PROTO_SUPPORT_RUNFILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// The file or folder at `path`, relative to the repository's root; "@name/path" for one of an
// external repository. NOT_FOUND names the places looked at.
absl::StatusOr<std::string> FindRunfile(absl::string_view path);

// The path of the running program, links resolved.
absl::StatusOr<std::string> ExecutablePath();

namespace internal {

// The folders that hold one folder for every repository, in the order in which they are searched.
std::vector<std::string> RunfilesRoots(absl::string_view executable_path);
absl::StatusOr<std::string> FindRunfileUnder(const std::vector<std::string>& roots,
                                             absl::string_view path);

}  // namespace internal
}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_RUNFILES_H_
