#include "proto/support/runfiles.h"

#include <linux/limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace paceline {
namespace internal {

std::vector<std::string> RunfilesRoots(absl::string_view executable_path) {
  std::vector<std::string> roots;
  const absl::string_view folder = executable_path.substr(0, executable_path.rfind('/'));
  // The program's own come first: a child process inherits its parent's variables.
  roots.push_back(absl::StrCat(executable_path, ".runfiles"));
  roots.push_back(absl::StrCat(folder, "/runfiles"));
  for (const char* variable : {"RUNFILES_DIR", "TEST_SRCDIR"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') roots.push_back(value);
  }
  // A program that is itself a runfile of another one: .../x.runfiles/paceline/worker/worker.
  constexpr absl::string_view kMarker = ".runfiles/";
  const size_t marker = executable_path.rfind(kMarker);
  if (marker != absl::string_view::npos) {
    roots.emplace_back(executable_path.substr(0, marker + kMarker.size() - 1));
  }
  return roots;
}

absl::StatusOr<std::string> FindRunfileUnder(const std::vector<std::string>& roots,
                                             absl::string_view path) {
  const std::string under =
      absl::ConsumePrefix(&path, "@") ? std::string(path) : absl::StrCat("paceline/", path);
  std::vector<std::string> candidates;
  for (const std::string& root : roots) {
    candidates.push_back(absl::StrCat(root, "/", under));
    if (access(candidates.back().c_str(), F_OK) == 0) return candidates.back();
  }
  return absl::NotFoundError(
      absl::StrCat("the program's data file ", path,
                   " is missing (a copied binary needs the runfiles folder beside it); ",
                   "looked for ", absl::StrJoin(candidates, ", ")));
}

}  // namespace internal

absl::StatusOr<std::string> ExecutablePath() {
  char path[PATH_MAX];
  const ssize_t length_bytes = readlink("/proc/self/exe", path, sizeof(path));
  if (length_bytes < 0) return absl::ErrnoToStatus(errno, "cannot read /proc/self/exe");
  return std::string(path, length_bytes);
}

absl::StatusOr<std::string> FindRunfile(absl::string_view path) {
  absl::StatusOr<std::string> executable = ExecutablePath();
  if (!executable.ok()) return executable.status();
  return internal::FindRunfileUnder(internal::RunfilesRoots(*executable), path);
}

}  // namespace paceline
