// Chooses what part of an image becomes a training sample, and turns it into the network's input.
//
//   Crop crop = PlanCrop(header.width, header.height, options.image, random);
//   ... decode at crop.denominator, crop.rows rows ...
//   Resampler resampler;
//   resampler.Run(planes, crop, options.image, pixels);   // {channels, height, width}, normalised.
//
// The image is scaled so that the network's input times 8/7 just fits inside (the shorter side
// becomes 256 for an input of 224), then cropped at a random place and flipped with probability one
// half: the augmentation of Caffe's and MXNet's ImageNet examples. Scaling is bilinear; before
// it, halving (in the JPEG decoder's inverse DCT, or by 2x2 means) brings the factor below 2, so
// nothing is skipped over.
//
// Pixels become (value / 255 - mean) / deviation, with ImageNet's mean and deviation per channel;
// one channel gets luminance with the mean of both. Resampler: one per thread.
#ifndef PACELINE_WORKER_INPUT_CROP_H_
#define PACELINE_WORKER_INPUT_CROP_H_

#include <cstdint>
#include <vector>

#include "proto/paceline/v1/network.pb.h"
#include "worker/input/image_planes.h"
#include "worker/input/sample_order.h"

namespace paceline {

inline constexpr float kChannelMean[3] = {0.485f, 0.456f, 0.406f};
inline constexpr float kChannelDeviation[3] = {0.229f, 0.224f, 0.225f};
inline constexpr float kLuminanceMean = 0.449f;
inline constexpr float kLuminanceDeviation = 0.226f;

struct Crop {
  int denominator = 1;  // Decode at 1/denominator of the size: 1, 2, 4 or 8.
  int rows = 0;         // Decoded rows needed from the top; 0: all.
  // Region in the whole image's pixels (not the decoded ones).
  double x = 0, y = 0, width = 0, height = 0;
  int image_width = 0, image_height = 0;
  bool flip = false;
};

Crop PlanCrop(int image_width, int image_height, const v1::ImageSize& output, SampleRandom& random);

class Resampler {
 public:
  // `planes` is the whole image at any size that crop.denominator allows. Writes
  // output.channels * height * width floats.
  void Run(const ImagePlanes& planes, const Crop& crop, const v1::ImageSize& output, float* pixels);
  // The same without vector instructions, for tests; equal within a few units in the last place.
  void RunPortable(const ImagePlanes& planes, const Crop& crop, const v1::ImageSize& output,
                   float* pixels);

 private:
  // Eight outputs read at most 16 neighbouring bytes: pixel pairs are picked by `shuffle` from
  // `first` on and weighted by `weights` (sum kWeightOne).
  struct Group {
    int first;
    uint8_t shuffle[16];
    int8_t weights[16];
  };
  struct PlaneState {
    ImagePlane plane;
    std::vector<uint8_t> halved[2];
    double y0 = 0, y_step = 0;
    std::vector<Group> groups;
    std::vector<int16_t> rows[2];  // Horizontally scaled source rows, times kWeightOne.
    int row_index[2] = {-1, -1};
  };

  void Prepare(const ImagePlanes& planes, const Crop& crop, int out_width, int out_height,
               int plane_count);
  template <bool kVector>
  void RunImpl(const ImagePlanes& planes, const Crop& crop, const v1::ImageSize& output,
               float* pixels);

  PlaneState states_[3];
};

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_CROP_H_
