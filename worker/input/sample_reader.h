// Reads, decodes and augments one sample: what a pool thread does over and over.
//
//   SampleReader reader(data_set, /*reader=*/0, options);
//   absl::Status status = reader.Read(record, random, pixels, label);   // DATA_LOSS: corrupt.
//
// Not thread-safe: one per thread.
#ifndef PACELINE_WORKER_INPUT_SAMPLE_READER_H_
#define PACELINE_WORKER_INPUT_SAMPLE_READER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/paceline/v1/network.pb.h"
#include "worker/input/crop.h"
#include "worker/input/data_set.h"
#include "worker/input/image_planes.h"
#include "worker/input/jpeg_decoder.h"
#include "worker/input/sample_order.h"

namespace paceline {

struct SampleOptions {
  v1::ImageSize image;
  int classes = 1000;
  // Labels are taken modulo `classes` (the photographs, whose labels mean nothing) instead of being
  // refused when too large.
  bool wrap_labels = false;
};

class SampleReader {
 public:
  // Does not own `data_set`.
  SampleReader(const DataSet& data_set, int reader, SampleOptions options);

  // Writes channels * height * width floats and the label.
  absl::Status Read(int64_t index, SampleRandom& random, float* pixels, int32_t& label);
  // Decodes the whole image and drops it.
  absl::Status Verify(int64_t index);
  // Of the latest record.
  int64_t encoded_bytes() const { return static_cast<int64_t>(record_.bytes.size()); }

 private:
  absl::Status CheckLabel(int32_t& label) const;
  ImagePlanes RawPlanes();

  const DataSet& data_set_;
  const int reader_;
  const SampleOptions options_;
  Record record_;
  JpegDecoder decoder_;
  Resampler resampler_;
  std::vector<uint8_t> raw_;  // With the slack that the resampler needs.
};

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_SAMPLE_READER_H_
