#include "tests/testing/shared_data.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/support/runfiles.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

// Folders to look in, best first.
std::vector<std::string> Candidates() {
  if (const char* folder = std::getenv("PACELINE_SHARED_DATA")) return {folder};
  std::vector<std::string> folders;
  // In Bazel's runfiles every file is a chain of links that ends in the checkout.
  const absl::StatusOr<std::string> runfile = FindRunfile("tests/testing/shared_data.h");
  if (!runfile.ok()) return folders;
  std::error_code error;
  std::string folder = std::filesystem::canonical(*runfile, error).string();
  if (error) return folders;
  for (size_t slash = folder.rfind('/'); slash != std::string::npos; slash = folder.rfind('/')) {
    folder.resize(slash);
    folders.push_back(absl::StrCat(folder, "/shared/data"));
  }
  return folders;
}

std::vector<std::string> SplitCsvLine(absl::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace

std::string SharedDataPath(absl::string_view file_name) {
  const std::vector<std::string> folders = Candidates();
  for (const std::string& folder : folders) {
    std::string path = absl::StrCat(folder, "/", file_name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  std::cerr << "Shared data file '" << file_name << "' not found. Looked in:\n  "
            << absl::StrJoin(folders, "\n  ")
            << "\nPut the folder `shared` beside the checkout, or pass "
               "--test_env=PACELINE_SHARED_DATA=/absolute/path/of/shared/data."
            << std::endl;
  std::exit(1);
}

std::vector<std::vector<std::string>> ReadSharedCsv(absl::string_view file_name) {
  const absl::StatusOr<std::string> text = ReadFile(SharedDataPath(file_name));
  if (!text.ok()) {
    std::cerr << text.status() << std::endl;
    std::exit(1);
  }
  std::vector<std::vector<std::string>> rows;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    rows.push_back(SplitCsvLine(line));
  }
  return rows;
}

}  // namespace paceline
