// Encodes interleaved RGB as a baseline 4:2:0 JPEG.
//
//   absl::StatusOr<std::string> jpeg = EncodeJpeg(pixels.data(), 500, 375, /*quality=*/90);
#ifndef PACELINE_WORKER_INPUT_JPEG_ENCODER_H_
#define PACELINE_WORKER_INPUT_JPEG_ENCODER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace paceline {

absl::StatusOr<std::string> EncodeJpeg(const uint8_t* rgb, int width, int height, int quality);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_JPEG_ENCODER_H_
