// Labelled images in a fixed order, with random access: what the pipeline reads from.
//
//   absl::StatusOr<std::unique_ptr<DataSet>> set = OpenDataSet(path, /*readers=*/2);
//   Record record;
//   absl::Status status = (*set)->Read(17, /*reader=*/0, record);
//
// Layouts: docs/data_sets.md.
#ifndef PACELINE_WORKER_INPUT_DATA_SET_H_
#define PACELINE_WORKER_INPUT_DATA_SET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// One record. Reused between reads, so that its buffer is allocated once.
struct Record {
  int64_t label = 0;
  // An encoded image, or where `raw`, planes of bytes, blue first: {channels, height, width}.
  // Valid until the reader's next Read.
  absl::string_view bytes;
  bool raw = false;
  int channels = 0, height = 0, width = 0;  // Where `raw`.
  std::string buffer;                       // Owns `bytes` where the data set does not.
};

class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual int64_t size() const = 0;
  // One more than the largest label; 0 where only reading every record would tell.
  virtual int classes() const = 0;
  // For messages: a file, or a key within a file.
  virtual std::string Name(int64_t index) const = 0;
  // Any number of threads, each with a reader number of its own in [0, readers). DATA_LOSS: this
  // record cannot be had.
  virtual absl::Status Read(int64_t index, int reader, Record& record) const = 0;
  virtual int64_t MemoryBytes() const = 0;
};

// A folder of class folders of JPEG files.
absl::StatusOr<std::unique_ptr<DataSet>> OpenImageFolder(absl::string_view path);

// An LMDB, given as its file or as the folder with its data.mdb.
absl::StatusOr<std::unique_ptr<DataSet>> OpenLmdb(absl::string_view path, int readers);

// Whichever of both lies at `path`.
absl::StatusOr<std::unique_ptr<DataSet>> OpenDataSet(absl::string_view path, int readers);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_DATA_SET_H_
