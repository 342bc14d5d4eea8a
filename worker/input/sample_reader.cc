#include "worker/input/sample_reader.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/input/crop.h"
#include "worker/input/data_set.h"
#include "worker/input/image_planes.h"
#include "worker/input/jpeg_decoder.h"
#include "worker/input/sample_order.h"

namespace paceline {

SampleReader::SampleReader(const DataSet& data_set, int reader, SampleOptions options)
    : data_set_(data_set), reader_(reader), options_(std::move(options)) {}

absl::Status SampleReader::CheckLabel(int32_t& label) const {
  if (record_.label >= 0 && (options_.wrap_labels || record_.label < options_.classes)) {
    label = static_cast<int32_t>(record_.label % options_.classes);
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("label ", record_.label, " is outside [0, ",
                                          options_.classes, "), the network's classes"));
}

ImagePlanes SampleReader::RawPlanes() {
  raw_.resize(record_.bytes.size() + kPlaneSlackBytes);
  std::memcpy(raw_.data(), record_.bytes.data(), record_.bytes.size());
  ImagePlanes image;
  image.width = record_.width;
  image.height = record_.height;
  image.colour = record_.channels == 3 ? PlaneColour::kRgb : PlaneColour::kLuminance;
  for (int c = 0; c < record_.channels; ++c) {
    // Stored blue first.
    const ptrdiff_t stored = record_.channels - 1 - c;
    image.planes[c] = {raw_.data() + stored * record_.width * record_.height, record_.width,
                       record_.width, record_.height};
  }
  return image;
}

absl::Status SampleReader::Read(int64_t index, SampleRandom& random, float* pixels,
                                int32_t& label) {
  if (absl::Status status = data_set_.Read(index, reader_, record_); !status.ok()) return status;
  if (absl::Status status = CheckLabel(label); !status.ok()) return status;
  if (record_.raw) {
    const Crop crop = PlanCrop(record_.width, record_.height, options_.image, random);
    resampler_.Run(RawPlanes(), crop, options_.image, pixels);
    return absl::OkStatus();
  }
  absl::StatusOr<JpegHeader> header = decoder_.ReadHeader(record_.bytes);
  if (!header.ok()) return header.status();
  const Crop crop = PlanCrop(header->width, header->height, options_.image, random);
  JpegDecodeOptions decode;
  decode.denominator = crop.denominator;
  decode.rows = crop.rows;
  decode.luminance_only = options_.image.channels() == 1;
  absl::StatusOr<ImagePlanes> planes = decoder_.Decode(decode);
  if (!planes.ok()) return planes.status();
  resampler_.Run(*planes, crop, options_.image, pixels);
  return absl::OkStatus();
}

absl::Status SampleReader::Verify(int64_t index) {
  if (absl::Status status = data_set_.Read(index, reader_, record_); !status.ok()) return status;
  int32_t label;
  if (absl::Status status = CheckLabel(label); !status.ok()) return status;
  if (record_.raw) return absl::OkStatus();
  if (absl::StatusOr<JpegHeader> header = decoder_.ReadHeader(record_.bytes); !header.ok()) {
    return header.status();
  }
  return decoder_.Decode(JpegDecodeOptions()).status();
}

}  // namespace paceline
