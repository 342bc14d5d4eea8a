// Writes a data set that appears at its path complete or not at all: work goes to a temporary name
// beside it, which Finish renames.
//
//   absl::StatusOr<std::unique_ptr<DataSetWriter>> writer = CreateLmdbWriter(path, expected_bytes);
//   absl::Status status = (*writer)->Add(/*label=*/3, "cat", jpeg);
//   if (status.ok()) status = (*writer)->Finish();
//
// Not thread-safe. A full disk comes back as RESOURCE_EXHAUSTED naming the path.
#ifndef PACELINE_WORKER_INPUT_DATA_SET_WRITER_H_
#define PACELINE_WORKER_INPUT_DATA_SET_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

class DataSetWriter {
 public:
  // Removes what was written, unless Finish succeeded.
  virtual ~DataSetWriter() = default;
  // Records in increasing order of label; a folder stores the class name, an LMDB the label.
  virtual absl::Status Add(int32_t label, absl::string_view class_name, absl::string_view jpeg) = 0;
  // ALREADY_EXISTS if another process has put something at the path meanwhile.
  virtual absl::Status Finish() = 0;
};

// ALREADY_EXISTS if there is something at `path`.
absl::StatusOr<std::unique_ptr<DataSetWriter>> CreateFolderWriter(const std::string& path);
// `expected_bytes`: an upper bound of the JPEGs' sum; only address space is reserved.
absl::StatusOr<std::unique_ptr<DataSetWriter>> CreateLmdbWriter(const std::string& path,
                                                                int64_t expected_bytes);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_DATA_SET_WRITER_H_
