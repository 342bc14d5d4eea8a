// Decodes a JPEG to planes, at a reduced size and only as far down as asked.
//
//   JpegDecoder decoder;
//   absl::StatusOr<JpegHeader> header = decoder.ReadHeader(bytes);
//   JpegDecodeOptions options;
//   options.denominator = 2;                       // Half the size.
//   absl::StatusOr<ImagePlanes> image = decoder.Decode(options);   // Valid until the next call.
//
// DATA_LOSS: the JPEG is damaged; a warning of libjpeg counts, since it means that pixels were made
// up. Not thread-safe: one decoder per thread, reused, since it keeps its buffers.
#ifndef PACELINE_WORKER_INPUT_JPEG_DECODER_H_
#define PACELINE_WORKER_INPUT_JPEG_DECODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/input/image_planes.h"

namespace paceline {

// Larger images are refused before anything is allocated: a few kilobytes can claim gigapixels.
inline constexpr int64_t kMaxJpegPixels = 50'000'000;

struct JpegHeader {
  int width = 0;
  int height = 0;
};

struct JpegDecodeOptions {
  int denominator = 1;          // 1, 2, 4 or 8: sizes with a vectorised inverse DCT.
  bool luminance_only = false;  // Leaves out chroma where the JPEG stores it separately.
  int rows = 0;                 // Rows needed from the top, in decoded pixels; 0: all.
};

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // `jpeg` must stay valid until Decode has returned.
  absl::StatusOr<JpegHeader> ReadHeader(absl::string_view jpeg);
  // Of the image whose header was read last; once.
  absl::StatusOr<ImagePlanes> Decode(const JpegDecodeOptions& options);
  // Whole image as interleaved RGB, for tools and tests.
  absl::Status DecodeRgb(absl::string_view jpeg, int& width, int& height,
                         std::vector<uint8_t>& pixels);

  int64_t MemoryBytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_JPEG_DECODER_H_
