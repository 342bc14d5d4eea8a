// A decoded image as it comes out of the JPEG decoder: planes of bytes, chroma possibly at a lower
// resolution. Not owned.
#ifndef PACELINE_WORKER_INPUT_IMAGE_PLANES_H_
#define PACELINE_WORKER_INPUT_IMAGE_PLANES_H_

#include <cstdint>

namespace paceline {

struct ImagePlane {
  // Rows of `stride` bytes. kPlaneSlackBytes more than the last row must be readable.
  const uint8_t* data = nullptr;
  int stride = 0;
  int width = 0;
  int height = 0;
};

// The resampler reads 16 bytes at a time.
inline constexpr int kPlaneSlackBytes = 64;

enum class PlaneColour {
  kLuminance,  // One plane.
  kYCbCr,      // Three planes, JFIF (BT.601, full range).
  kRgb,        // Three planes.
};

struct ImagePlanes {
  int width = 0;  // Of the whole image; a plane's own size may be smaller (subsampled chroma).
  int height = 0;
  PlaneColour colour = PlaneColour::kLuminance;
  ImagePlane planes[3];
  int plane_count() const { return colour == PlaneColour::kLuminance ? 1 : 3; }
};

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_IMAGE_PLANES_H_
