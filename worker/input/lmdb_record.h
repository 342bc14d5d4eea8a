// The values of a Paceline LMDB: "PLI1", the label as a little-endian 32-bit integer, the JPEG.
// Also reads Caffe's Datum messages. docs/data_sets.md is the specification.
#ifndef PACELINE_WORKER_INPUT_LMDB_RECORD_H_
#define PACELINE_WORKER_INPUT_LMDB_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/input/data_set.h"

namespace paceline {

std::string MakeLmdbRecord(int32_t label, absl::string_view jpeg);

// `record.bytes` points into `value` or into record.buffer. DATA_LOSS says what is wrong.
absl::Status ParseLmdbRecord(absl::string_view value, Record& record);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_LMDB_RECORD_H_
