#include "proto/support/working_directory.h"

#include <linux/limits.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace paceline {

std::string UserDirectory() {
  const char* bazel = std::getenv("BUILD_WORKING_DIRECTORY");
  if (bazel != nullptr && *bazel != '\0') return bazel;
  char current[PATH_MAX];
  return getcwd(current, sizeof(current)) != nullptr ? current : ".";
}

std::string ResolveUserPath(absl::string_view path) {
  if (path.empty() || path[0] == '/') return std::string(path);
  while (absl::ConsumePrefix(&path, "./")) {
  }
  if (path.empty() || path == ".") return UserDirectory();
  return absl::StrCat(absl::StripSuffix(UserDirectory(), "/"), "/", path);
}

}  // namespace paceline
