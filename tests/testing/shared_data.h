// Public measurements that tests compare against. They are not part of the repository: they lie in
// the folder `shared/data` beside the checkout.
//
//   for (const std::vector<std::string>& row : ReadSharedCsv("network_summary.csv")) ...
//
// Thread-safe.
#ifndef PACELINE_TESTS_TESTING_SHARED_DATA_H_
#define PACELINE_TESTS_TESTING_SHARED_DATA_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

// Absolute path of a file in the shared data folder: $PACELINE_SHARED_DATA if set (pass it with
// --test_env), otherwise the first `shared/data` beside the checkout or beside one of the folders
// above it. Ends the test program with a message that says where it looked if the file is not
// there: a comparison is never skipped.
std::string SharedDataPath(absl::string_view file_name);

// The rows of a comma-separated file, split into fields. Lines that start with '#' are left out;
// the first row returned holds the column names. Quoted fields may hold commas.
std::vector<std::vector<std::string>> ReadSharedCsv(absl::string_view file_name);

}  // namespace paceline

#endif  // PACELINE_TESTS_TESTING_SHARED_DATA_H_
