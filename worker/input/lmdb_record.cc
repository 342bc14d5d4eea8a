#include "worker/input/lmdb_record.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/input/caffe_datum.pb.h"
#include "worker/input/data_set.h"
#include "worker/input/jpeg_decoder.h"

namespace paceline {
namespace {

// Not a valid beginning of a Datum: 'P' would be a field that Datum does not have.
constexpr absl::string_view kMagic = "PLI1";
constexpr size_t kHeaderBytes = 8;

}  // namespace

std::string MakeLmdbRecord(int32_t label, absl::string_view jpeg) {
  std::string record(kMagic);
  record.reserve(kHeaderBytes + jpeg.size());
  for (int shift = 0; shift < 32; shift += 8) {
    record.push_back(static_cast<char>(static_cast<uint32_t>(label) >> shift & 0xff));
  }
  record.append(jpeg.data(), jpeg.size());
  return record;
}

absl::Status ParseLmdbRecord(absl::string_view value, Record& record) {
  record.raw = false;
  if (value.substr(0, kMagic.size()) == kMagic) {
    if (value.size() < kHeaderBytes)
      return absl::DataLossError("record is shorter than its header");
    uint32_t label = 0;
    for (size_t i = 0; i < 4; ++i) {
      label |= static_cast<uint32_t>(static_cast<uint8_t>(value[kMagic.size() + i])) << (8 * i);
    }
    record.label = static_cast<int32_t>(label);
    record.bytes = value.substr(kHeaderBytes);
    return absl::OkStatus();
  }
  v1::CaffeDatum datum;
  if (!datum.ParseFromArray(value.data(), static_cast<int>(value.size())) || !datum.has_data()) {
    return absl::DataLossError(
        "record is neither Paceline's (\"PLI1\", label, JPEG) nor a Caffe Datum with image bytes");
  }
  record.label = datum.label();
  record.buffer = std::move(*datum.mutable_data());
  record.bytes = record.buffer;
  if (datum.encoded()) return absl::OkStatus();
  record.raw = true;
  record.channels = datum.channels();
  record.height = datum.height();
  record.width = datum.width();
  const bool shape_ok = (record.channels == 1 || record.channels == 3) && record.height > 0 &&
                        record.width > 0 &&
                        static_cast<int64_t>(record.height) * record.width <= kMaxJpegPixels;
  if (!shape_ok || record.bytes.size() != static_cast<size_t>(record.channels) *
                                              static_cast<size_t>(record.height) *
                                              static_cast<size_t>(record.width)) {
    return absl::DataLossError(absl::StrCat("Caffe Datum says ", record.channels, "x",
                                            record.height, "x", record.width, " but holds ",
                                            record.bytes.size(), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace paceline
