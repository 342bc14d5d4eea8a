#include "worker/input/jpeg_decoder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/input/image_planes.h"
#include "worker/input/sample_order.h"
#include "worker/input/test_images.h"

namespace paceline {
namespace {

constexpr int kWidth = 101;  // No multiple of a block.
constexpr int kHeight = 75;

absl::StatusOr<ImagePlanes> DecodeAt(JpegDecoder& decoder, const std::string& jpeg,
                                     const JpegDecodeOptions& options) {
  absl::StatusOr<JpegHeader> header = decoder.ReadHeader(jpeg);
  if (!header.ok()) return header.status();
  return decoder.Decode(options);
}

// RGB of the pixel by the textbook formula, chroma from the nearest stored sample.
std::vector<int> PixelAt(const ImagePlanes& image, int x, int y) {
  int value[3] = {0, 0, 0};
  for (int p = 0; p < image.plane_count(); ++p) {
    const ImagePlane& plane = image.planes[p];
    const int px = std::min(x * plane.width / image.width, plane.width - 1);
    const int py = std::min(y * plane.height / image.height, plane.height - 1);
    value[p] = plane.data[py * plane.stride + px];
  }
  if (image.colour == PlaneColour::kRgb) return {value[0], value[1], value[2]};
  if (image.colour == PlaneColour::kLuminance) return {value[0], value[0], value[0]};
  const double b = value[1] - 128.0;
  const double r = value[2] - 128.0;
  return {static_cast<int>(value[0] + 1.402 * r),
          static_cast<int>(value[0] - 0.344136 * b - 0.714136 * r),
          static_cast<int>(value[0] + 1.772 * b)};
}

double MeanError(const ImagePlanes& image, const std::vector<uint8_t>& expected, bool gray) {
  double sum = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const uint8_t* rgb =
          &expected[(static_cast<size_t>(y) * kWidth + static_cast<size_t>(x)) * 3];
      const std::vector<int> got = PixelAt(image, x, y);
      const double luminance = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
      for (size_t c = 0; c < 3; ++c) sum += std::abs(got[c] - (gray ? luminance : rgb[c]));
    }
  }
  return sum / (3.0 * image.width * image.height);
}

TEST(JpegDecoderTest, DecodesEveryWayOfStoringColour) {
  const std::vector<uint8_t> expected = TestPixels(kWidth, kHeight, 3);
  JpegDecoder decoder;
  for (TestJpegKind kind : {TestJpegKind::kGray, TestJpegKind::kYcc444, TestJpegKind::kYcc422,
                            TestJpegKind::kProgressive, TestJpegKind::kRgb, TestJpegKind::kCmyk}) {
    const std::string jpeg = TestJpegOfKind(kWidth, kHeight, 3, kind);
    absl::StatusOr<ImagePlanes> image = DecodeAt(decoder, jpeg, {});
    ASSERT_TRUE(image.ok()) << static_cast<int>(kind) << image.status();
    EXPECT_EQ(image->width, kWidth);
    EXPECT_EQ(image->height, kHeight);
    EXPECT_LT(MeanError(*image, expected, kind == TestJpegKind::kGray), 4.0)
        << static_cast<int>(kind);
  }
}

TEST(JpegDecoderTest, ReducedSizesRoundUp) {
  JpegDecoder decoder;
  for (int denominator : {1, 2, 4, 8}) {
    JpegDecodeOptions options;
    options.denominator = denominator;
    absl::StatusOr<ImagePlanes> image = DecodeAt(decoder, TestJpeg(kWidth, kHeight, 1), options);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, (kWidth + denominator - 1) / denominator);
    EXPECT_EQ(image->height, (kHeight + denominator - 1) / denominator);
  }
}

TEST(JpegDecoderTest, UpperRowsAreThoseOfTheWholeImage) {
  JpegDecoder whole_decoder;
  JpegDecoder decoder;
  for (TestJpegKind kind :
       {TestJpegKind::kYcc444, TestJpegKind::kProgressive, TestJpegKind::kCmyk}) {
    const std::string jpeg = TestJpegOfKind(kWidth, kHeight, 5, kind);
    absl::StatusOr<ImagePlanes> whole = DecodeAt(whole_decoder, jpeg, {});
    JpegDecodeOptions options;
    options.rows = 21;
    absl::StatusOr<ImagePlanes> part = DecodeAt(decoder, jpeg, options);
    ASSERT_TRUE(whole.ok() && part.ok()) << whole.status() << part.status();
    EXPECT_EQ(part->height, kHeight);
    for (int p = 0; p < whole->plane_count(); ++p) {
      for (int y = 0; y < 21 * whole->planes[p].height / kHeight; ++y) {
        EXPECT_EQ(memcmp(whole->planes[p].data + y * whole->planes[p].stride,
                         part->planes[p].data + y * part->planes[p].stride,
                         static_cast<size_t>(whole->planes[p].width)),
                  0);
      }
    }
  }
}

TEST(JpegDecoderTest, LuminanceOnlyLeavesOutChroma) {
  JpegDecoder decoder;
  JpegDecodeOptions options;
  options.luminance_only = true;
  absl::StatusOr<ImagePlanes> image = DecodeAt(decoder, TestJpeg(kWidth, kHeight, 2), options);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->colour, PlaneColour::kLuminance);
  EXPECT_LT(MeanError(*image, TestPixels(kWidth, kHeight, 2), true), 3.0);
}

TEST(JpegDecoderTest, TruncatedIsDataLossEvenWhereTheRowsAreThere) {
  JpegDecoder decoder;
  const std::string jpeg = TestJpeg(kWidth, kHeight, 4);
  JpegDecodeOptions top;
  top.rows = 8;
  for (size_t keep : {jpeg.size() - 2, jpeg.size() - 40, jpeg.size() / 2, size_t{30}, size_t{3}}) {
    EXPECT_EQ(DecodeAt(decoder, jpeg.substr(0, keep), {}).status().code(),
              absl::StatusCode::kDataLoss)
        << keep;
    EXPECT_EQ(DecodeAt(decoder, jpeg.substr(0, keep), top).status().code(),
              absl::StatusCode::kDataLoss)
        << keep;
  }
  EXPECT_TRUE(DecodeAt(decoder, jpeg, top).ok());
}

TEST(JpegDecoderTest, WarningsCountAsDamage) {
  std::string jpeg = TestJpeg(kWidth, kHeight, 4);
  // A marker in the middle of the scan: libjpeg warns and goes on with made-up pixels.
  jpeg[jpeg.size() / 2] = '\xff';
  jpeg[jpeg.size() / 2 + 1] = '\xd3';
  JpegDecoder decoder;
  const absl::Status status = DecodeAt(decoder, jpeg, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  // And the decoder is good for the next image.
  EXPECT_TRUE(DecodeAt(decoder, TestJpeg(kWidth, kHeight, 4), {}).ok());
}

// Under the address sanitizer this looks for reads and writes outside the planes.
TEST(JpegDecoderTest, DamagedFilesAreDecodedOrRefusedButNeverCrash) {
  JpegDecoder decoder;
  SampleRandom random(1);
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string jpeg = TestJpegOfKind(60, 45, i, static_cast<TestJpegKind>(i % 6));
    for (int64_t changes = 1 + random.Below(4); changes > 0; --changes) {
      // Mostly in the headers, which come first.
      const int64_t range = random.Below(2) == 0 ? 700 : static_cast<int64_t>(jpeg.size());
      const auto at =
          static_cast<size_t>(random.Below(std::min(range, static_cast<int64_t>(jpeg.size()))));
      jpeg[at] = static_cast<char>(random.Next());
    }
    JpegDecodeOptions options;
    options.denominator = 1 << random.Below(4);
    options.rows = static_cast<int>(random.Below(40));
    options.luminance_only = random.Below(4) == 0;
    refused += DecodeAt(decoder, jpeg, options).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST(JpegDecoderTest, OtherFilesAreNamed) {
  JpegDecoder decoder;
  EXPECT_TRUE(absl::StrContains(decoder.ReadHeader("\x89PNG....").status().message(), "PNG"));
  EXPECT_TRUE(absl::StrContains(decoder.ReadHeader("").status().message(), "empty"));
  EXPECT_TRUE(absl::StrContains(decoder.ReadHeader("hello").status().message(), "not a JPEG"));
}

TEST(JpegDecoderTest, RefusesGigapixelClaims) {
  std::string jpeg = TestJpeg(kWidth, kHeight, 4);
  // SOF0: FF C0, length, precision, then height and width.
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xfd\xe8\xfd\xe8");
  JpegDecoder decoder;
  const absl::Status status = decoder.ReadHeader(jpeg).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "65000x65000")) << status;
}

}  // namespace
}  // namespace paceline
