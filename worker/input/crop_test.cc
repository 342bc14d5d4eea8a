#include "worker/input/crop.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "proto/paceline/v1/network.pb.h"
#include "worker/input/image_planes.h"
#include "worker/input/sample_order.h"

namespace paceline {
namespace {

v1::ImageSize Size(int channels, int height, int width) {
  v1::ImageSize size;
  size.set_channels(channels);
  size.set_height(height);
  size.set_width(width);
  return size;
}

struct TestPlane {
  ImagePlane plane;
  std::vector<uint8_t> bytes;
  TestPlane(int width, int height, int seed) {
    SampleRandom random(static_cast<uint64_t>(seed));
    bytes.resize(static_cast<size_t>(width * height + kPlaneSlackBytes));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
    plane = {bytes.data(), width, width, height};
  }
};

// Bilinear in double, from the definition.
double Sample(const ImagePlane& plane, const Crop& crop, int out_width, int out_height, int x,
              int y) {
  const double sx = static_cast<double>(plane.width) / crop.image_width;
  const double sy = static_cast<double>(plane.height) / crop.image_height;
  const double at_x =
      std::clamp((crop.x + (x + 0.5) * crop.width / out_width) * sx - 0.5, 0.0, plane.width - 1.0);
  const double at_y = std::clamp((crop.y + (y + 0.5) * crop.height / out_height) * sy - 0.5, 0.0,
                                 plane.height - 1.0);
  const int x0 = static_cast<int>(at_x);
  const int y0 = static_cast<int>(at_y);
  const int x1 = std::min(x0 + 1, plane.width - 1);
  const int y1 = std::min(y0 + 1, plane.height - 1);
  const auto at = [&](int px, int py) {
    return static_cast<double>(plane.data[py * plane.stride + px]);
  };
  const double top = at(x0, y0) + (at(x1, y0) - at(x0, y0)) * (at_x - x0);
  const double low = at(x0, y1) + (at(x1, y1) - at(x0, y1)) * (at_x - x0);
  return top + (low - top) * (at_y - y0);
}

void ExpectNearReference(const ImagePlanes& image, const Crop& crop, const v1::ImageSize& output) {
  const int width = output.width();
  const int height = output.height();
  std::vector<float> pixels(static_cast<size_t>(output.channels() * width * height));
  std::vector<float> portable(pixels.size());
  Resampler resampler;
  resampler.Run(image, crop, output, pixels.data());
  Resampler().RunPortable(image, crop, output, portable.data());
  double worst = 0;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      double v[3];
      for (int p = 0; p < image.plane_count(); ++p) {
        v[p] = Sample(image.planes[p], crop, width, height, crop.flip ? width - 1 - x : x, y);
      }
      double rgb[3];
      if (image.colour == PlaneColour::kRgb) {
        std::copy(v, v + 3, rgb);
      } else if (image.colour == PlaneColour::kLuminance) {
        std::fill(rgb, rgb + 3, v[0]);
      } else {
        rgb[0] = v[0] + 1.402 * (v[2] - 128);
        rgb[1] = v[0] - 0.344136 * (v[1] - 128) - 0.714136 * (v[2] - 128);
        rgb[2] = v[0] + 1.772 * (v[1] - 128);
      }
      for (int c = 0; c < output.channels(); ++c) {
        double value = std::clamp(rgb[c], 0.0, 255.0);
        double mean = kChannelMean[c];
        double deviation = kChannelDeviation[c];
        if (output.channels() == 1) {
          value = image.colour == PlaneColour::kRgb
                      ? 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
                      : v[0];
          mean = kLuminanceMean;
          deviation = kLuminanceDeviation;
        }
        const double expected = (value / 255 - mean) / deviation;
        const auto at = static_cast<size_t>((c * height + y) * width + x);
        worst = std::max(worst, std::abs(pixels[at] - expected) * 255 * deviation);
        ASSERT_NEAR(pixels[at], portable[at], 1e-5);
      }
    }
  }
  // Pixel steps. Horizontal weights have 7 bits: at most 255 / 127 / 2 off per plane on noise.
  EXPECT_LT(worst, image.colour == PlaneColour::kYCbCr ? 3.5 : 1.1);
}

TEST(ResamplerTest, AgreesWithBilinearByDefinition) {
  const TestPlane luma(500, 375, 1);
  const TestPlane blue(250, 188, 2);
  const TestPlane red(250, 188, 3);
  ImagePlanes image;
  image.width = 500;
  image.height = 375;
  image.colour = PlaneColour::kYCbCr;
  image.planes[0] = luma.plane;
  image.planes[1] = blue.plane;
  image.planes[2] = red.plane;
  SampleRandom random(7);
  for (const v1::ImageSize& output :
       {Size(3, 224, 224), Size(3, 227, 227), Size(1, 224, 224), Size(3, 299, 301)}) {
    for (int i = 0; i < 3; ++i) {
      ExpectNearReference(image, PlanCrop(500, 375, output, random), output);
    }
  }
}

TEST(ResamplerTest, EnlargesSmallImages) {
  const TestPlane red(40, 50, 1);
  const TestPlane green(40, 50, 2);
  const TestPlane blue(40, 50, 3);
  ImagePlanes image;
  image.width = 40;
  image.height = 50;
  image.colour = PlaneColour::kRgb;
  image.planes[0] = red.plane;
  image.planes[1] = green.plane;
  image.planes[2] = blue.plane;
  SampleRandom random(8);
  for (const v1::ImageSize& output : {Size(3, 64, 64), Size(1, 28, 28), Size(3, 33, 70)}) {
    ExpectNearReference(image, PlanCrop(40, 50, output, random), output);
  }
}

TEST(ResamplerTest, HalvesBeforeScalingDownFurther) {
  // A checkerboard has a mean of 127.5 everywhere; skipping pixels would show black or white.
  std::vector<uint8_t> bytes(1000 * 800 + kPlaneSlackBytes);
  for (int y = 0; y < 800; ++y) {
    for (int x = 0; x < 1000; ++x) {
      bytes[static_cast<size_t>(y * 1000 + x)] = (x + y) % 2 == 0 ? 255 : 0;
    }
  }
  ImagePlanes image;
  image.width = 1000;
  image.height = 800;
  image.planes[0] = {bytes.data(), 1000, 1000, 800};
  const v1::ImageSize output = Size(1, 32, 32);
  SampleRandom random(9);
  std::vector<float> pixels(32 * 32);
  Resampler resampler;
  resampler.Run(image, PlanCrop(1000, 800, output, random), output, pixels.data());
  for (float pixel : pixels) {
    EXPECT_NEAR(pixel * kLuminanceDeviation + kLuminanceMean, 0.5, 0.01);
  }
}

TEST(PlanCropTest, StaysInsideAndCoversEveryPlace) {
  SampleRandom random(10);
  for (const v1::ImageSize& output : {Size(3, 224, 224), Size(3, 32, 32), Size(3, 100, 300)}) {
    for (int i = 0; i < 2000; ++i) {
      const int width = static_cast<int>(1 + random.Below(3000));
      const int height = static_cast<int>(1 + random.Below(3000));
      const Crop crop = PlanCrop(width, height, output, random);
      ASSERT_GE(crop.x, 0);
      ASSERT_GE(crop.y, 0);
      ASSERT_LE(crop.x + crop.width, width + 1e-9);
      ASSERT_LE(crop.y + crop.height, height + 1e-9);
      ASSERT_NEAR(crop.width / crop.height, 1.0 * output.width() / output.height(), 1e-9);
      // The decoded image must not be enlarged again if the original is large enough.
      if (crop.denominator > 1) ASSERT_GE(crop.width / crop.denominator, output.width());
    }
  }
  bool left = false;
  bool right = false;
  int flips = 0;
  for (int i = 0; i < 2000; ++i) {
    const Crop crop = PlanCrop(500, 375, Size(3, 224, 224), random);
    EXPECT_EQ(crop.denominator, 1);
    EXPECT_NEAR(crop.height, 375 * 7.0 / 8.0, 1e-9);
    left |= crop.x == 0;
    right |= crop.x > 500 - crop.width - 0.6;
    flips += crop.flip;
  }
  EXPECT_TRUE(left && right);
  EXPECT_NEAR(flips, 1000, 150);
}

}  // namespace
}  // namespace paceline
