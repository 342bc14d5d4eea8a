#include "worker/input/crop.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "proto/paceline/v1/network.pb.h"
#include "worker/input/image_planes.h"
#include "worker/input/sample_order.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define PACELINE_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace paceline {
namespace {

constexpr double kMargin = 8.0 / 7.0;  // 256 / 224.

// Weights of a pixel pair are w and kWeightOne - w in 7 bits: the largest that a signed byte holds,
// and 255 * 127 still fits the 16-bit sum of pmaddubsw.
constexpr int kWeightOne = 127;

constexpr int kGroup = 8;

// One output row. Colour c of pixel x is
//   clamp(sum over planes p of matrix[c][p] * v_p + offset[c], 0, 255) * scale[c] + shift[c]
// with v_p = row0[p][x] + (row1[p][x] - row0[p][x]) * weight[p].
struct RowJob {
  int width;
  int colours;
  int planes;
  const int16_t* row0[3];
  const int16_t* row1[3];
  float weight[3];
  float matrix[3][3];
  float offset[3];
  float scale[3];
  float shift[3];
  float* out[3];
};

void ColourRowPortable(const RowJob& job) {
  for (int x = 0; x < job.width; ++x) {
    float value[3] = {0, 0, 0};
    for (int p = 0; p < job.planes; ++p) {
      const float top = job.row0[p][x];
      value[p] = top + (static_cast<float>(job.row1[p][x]) - top) * job.weight[p];
    }
    for (int c = 0; c < job.colours; ++c) {
      float sum = job.offset[c];
      for (int p = 0; p < job.planes; ++p) sum += job.matrix[c][p] * value[p];
      sum = std::min(std::max(sum, 0.0f), 255.0f);
      job.out[c][x] = sum * job.scale[c] + job.shift[c];
    }
  }
}

#if defined(__x86_64__)

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

template <int kPlanes>
PACELINE_AVX2 void ColourRowAvx2(const RowJob& job) {
  __m256 weight[kPlanes];
  for (int p = 0; p < kPlanes; ++p) weight[p] = _mm256_set1_ps(job.weight[p]);
  const __m256 zero = _mm256_setzero_ps();
  const __m256 most = _mm256_set1_ps(255.0f);
  for (int x = 0; x < job.width; x += kGroup) {
    __m256 value[kPlanes];
    for (int p = 0; p < kPlanes; ++p) {
      const __m128i top = _mm_loadu_si128(reinterpret_cast<const __m128i*>(job.row0[p] + x));
      const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(job.row1[p] + x));
      const __m256 top_value = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(top));
      const __m256 low_value = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(low));
      value[p] = _mm256_fmadd_ps(_mm256_sub_ps(low_value, top_value), weight[p], top_value);
    }
    for (int c = 0; c < job.colours; ++c) {
      __m256 sum = _mm256_set1_ps(job.offset[c]);
      for (int p = 0; p < kPlanes; ++p) {
        sum = _mm256_fmadd_ps(_mm256_set1_ps(job.matrix[c][p]), value[p], sum);
      }
      sum = _mm256_min_ps(_mm256_max_ps(sum, zero), most);
      sum = _mm256_fmadd_ps(sum, _mm256_set1_ps(job.scale[c]), _mm256_set1_ps(job.shift[c]));
      if (x + kGroup <= job.width) {
        _mm256_storeu_ps(job.out[c] + x, sum);
      } else {
        float tail[kGroup];
        _mm256_storeu_ps(tail, sum);
        std::memcpy(job.out[c] + x, tail, sizeof(float) * static_cast<size_t>(job.width - x));
      }
    }
  }
}

#else
bool HasAvx2() { return false; }
#endif

// Means of 2x2 pixels.
ImagePlane Halve(const ImagePlane& in, std::vector<uint8_t>& storage) {
  ImagePlane out;
  out.width = out.stride = (in.width + 1) / 2;
  out.height = (in.height + 1) / 2;
  storage.resize(static_cast<size_t>(out.stride) * static_cast<size_t>(out.height) +
                 kPlaneSlackBytes);
  for (int y = 0; y < out.height; ++y) {
    const uint8_t* top = in.data + static_cast<ptrdiff_t>(2 * y) * in.stride;
    const uint8_t* low = 2 * y + 1 < in.height ? top + in.stride : top;
    uint8_t* to = storage.data() + static_cast<ptrdiff_t>(y) * out.stride;
    for (int x = 0; x < out.width; ++x) {
      const int left = 2 * x;
      const int right = std::min(left + 1, in.width - 1);
      to[x] = static_cast<uint8_t>((top[left] + top[right] + low[left] + low[right] + 2) / 4);
    }
  }
  out.data = storage.data();
  return out;
}

}  // namespace

Crop PlanCrop(int image_width, int image_height, const v1::ImageSize& output,
              SampleRandom& random) {
  Crop crop;
  crop.image_width = image_width;
  crop.image_height = image_height;
  const double ratio = std::min(image_width / (output.width() * kMargin),
                                image_height / (output.height() * kMargin));
  const auto slack_x = static_cast<int64_t>(std::lround(image_width / ratio)) - output.width();
  const auto slack_y = static_cast<int64_t>(std::lround(image_height / ratio)) - output.height();
  crop.width = output.width() * ratio;
  crop.height = output.height() * ratio;
  crop.x =
      std::min(static_cast<double>(random.Below(slack_x + 1)) * ratio, image_width - crop.width);
  crop.y =
      std::min(static_cast<double>(random.Below(slack_y + 1)) * ratio, image_height - crop.height);
  crop.flip = (random.Next() >> 63) != 0;
  while (crop.denominator < 8 && ratio >= 2 * crop.denominator) crop.denominator *= 2;
  // One row more for interpolation, one (two of luma) for chroma's offset. An image still to be
  // halved is needed as a whole.
  if (ratio < 2 * crop.denominator) {
    crop.rows = static_cast<int>(std::ceil((crop.y + crop.height) / crop.denominator)) + 3;
  }
  return crop;
}

void Resampler::Prepare(const ImagePlanes& planes, const Crop& crop, int out_width, int out_height,
                        int plane_count) {
  for (int p = 0; p < plane_count; ++p) {
    PlaneState& state = states_[p];
    state.plane = planes.planes[p];
    int next = 0;
    // Plane pixels per output pixel, and the crop's corner, in the plane's own pixels.
    double x_scale = static_cast<double>(state.plane.width) / crop.image_width;
    double y_scale = static_cast<double>(state.plane.height) / crop.image_height;
    while (crop.width * x_scale >= 2.0 * out_width || crop.height * y_scale >= 2.0 * out_height) {
      if (std::min(state.plane.width, state.plane.height) < 2) break;
      state.plane = Halve(state.plane, state.halved[next]);
      next = 1 - next;
      x_scale = static_cast<double>(state.plane.width) / crop.image_width;
      y_scale = static_cast<double>(state.plane.height) / crop.image_height;
    }
    const double x_step = crop.width * x_scale / out_width;
    const double x0 = crop.x * x_scale + 0.5 * x_step - 0.5;  // Pixel centres lie at .5.
    state.y_step = crop.height * y_scale / out_height;
    state.y0 = crop.y * y_scale + 0.5 * state.y_step - 0.5;

    const int groups = (out_width + kGroup - 1) / kGroup;
    state.groups.resize(static_cast<size_t>(groups));
    const int last = state.plane.width - 1;
    for (int g = 0; g < groups; ++g) {
      Group& group = state.groups[static_cast<size_t>(g)];
      int index[kGroup];
      int weight[kGroup];
      for (int i = 0; i < kGroup; ++i) {
        int x = std::min(g * kGroup + i, out_width - 1);
        if (crop.flip) x = out_width - 1 - x;
        const double at = std::min(std::max(x0 + x * x_step, 0.0), static_cast<double>(last));
        index[i] = static_cast<int>(at);
        weight[i] = static_cast<int>(std::lround((at - index[i]) * kWeightOne));
      }
      group.first = *std::min_element(index, index + kGroup);
      for (int i = 0; i < kGroup; ++i) {
        // Below 15, except in images too small to halve, where any choice is as good.
        const int offset = std::min(index[i] - group.first, 14);
        group.shuffle[2 * i] = static_cast<uint8_t>(offset);
        group.shuffle[2 * i + 1] = static_cast<uint8_t>(offset + 1);
        group.weights[2 * i] = static_cast<int8_t>(kWeightOne - weight[i]);
        group.weights[2 * i + 1] = static_cast<int8_t>(weight[i]);
      }
    }
    for (int r = 0; r < 2; ++r) {
      state.rows[r].resize(static_cast<size_t>(groups) * kGroup);
      state.row_index[r] = -1;
    }
  }
}

namespace {

template <typename Group>
void ScaleRowPortable(const uint8_t* source, const std::vector<Group>& groups, int16_t* out) {
  for (const Group& group : groups) {
    const uint8_t* from = source + group.first;
    for (int i = 0; i < kGroup; ++i) {
      *out++ = static_cast<int16_t>(from[group.shuffle[2 * i]] * group.weights[2 * i] +
                                    from[group.shuffle[2 * i + 1]] * group.weights[2 * i + 1]);
    }
  }
}

#if defined(__x86_64__)
template <typename Group>
PACELINE_AVX2 void ScaleRowAvx2(const uint8_t* source, const std::vector<Group>& groups,
                                int16_t* out) {
  for (const Group& group : groups) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + group.first));
    const __m128i shuffle = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group.shuffle));
    const __m128i weights = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group.weights));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_maddubs_epi16(_mm_shuffle_epi8(bytes, shuffle), weights));
    out += kGroup;
  }
}
#endif

}  // namespace

template <bool kVector>
void Resampler::RunImpl(const ImagePlanes& planes, const Crop& crop, const v1::ImageSize& output,
                        float* pixels) {
  const int width = output.width();
  const int height = output.height();
  RowJob job = {};
  job.width = width;
  job.colours = output.channels();
  // One channel is luminance: of YCbCr only the first plane matters.
  job.planes = planes.colour == PlaneColour::kRgb ? 3 : job.colours == 1 ? 1 : planes.plane_count();
  Prepare(planes, crop, width, height, job.planes);

  constexpr float kUnit = 1.0f / kWeightOne;
  for (int c = 0; c < job.colours; ++c) {
    if (planes.colour == PlaneColour::kRgb) {
      constexpr float kLuminance[3] = {0.299f, 0.587f, 0.114f};  // BT.601.
      for (int p = 0; p < 3; ++p) {
        job.matrix[c][p] = kUnit * (job.colours == 1 ? kLuminance[p] : p == c ? 1.0f : 0.0f);
      }
    } else {
      job.matrix[c][0] = kUnit;
      if (job.planes == 3) {
        constexpr float kBlue[3] = {0.0f, -0.344136f, 1.772f};  // JFIF 1.02.
        constexpr float kRed[3] = {1.402f, -0.714136f, 0.0f};
        job.matrix[c][1] = kUnit * kBlue[c];
        job.matrix[c][2] = kUnit * kRed[c];
        job.offset[c] = -128.0f * (kBlue[c] + kRed[c]);
      }
    }
    const float mean = job.colours == 1 ? kLuminanceMean : kChannelMean[c];
    const float deviation = job.colours == 1 ? kLuminanceDeviation : kChannelDeviation[c];
    job.scale[c] = 1.0f / (255.0f * deviation);
    job.shift[c] = -mean / deviation;
  }

  for (int y = 0; y < height; ++y) {
    for (int p = 0; p < job.planes; ++p) {
      PlaneState& state = states_[p];
      const int last = state.plane.height - 1;
      const double at =
          std::min(std::max(state.y0 + y * state.y_step, 0.0), static_cast<double>(last));
      const int top = static_cast<int>(at);
      const int low = std::min(top + 1, last);
      job.weight[p] = static_cast<float>(at - top);
      // Source rows come in order, so row r always goes to slot r % 2.
      for (int row : {top, low}) {
        if (state.row_index[row % 2] == row) continue;
        state.row_index[row % 2] = row;
        const uint8_t* source = state.plane.data + static_cast<ptrdiff_t>(row) * state.plane.stride;
        int16_t* to = state.rows[row % 2].data();
#if defined(__x86_64__)
        if (kVector) {
          ScaleRowAvx2(source, state.groups, to);
          continue;
        }
#endif
        ScaleRowPortable(source, state.groups, to);
      }
      job.row0[p] = state.rows[top % 2].data();
      job.row1[p] = state.rows[low % 2].data();
    }
    for (int c = 0; c < job.colours; ++c) {
      job.out[c] = pixels + (static_cast<ptrdiff_t>(c) * height + y) * width;
    }
#if defined(__x86_64__)
    if (kVector) {
      job.planes == 3 ? ColourRowAvx2<3>(job) : ColourRowAvx2<1>(job);
      continue;
    }
#endif
    ColourRowPortable(job);
  }
}

void Resampler::Run(const ImagePlanes& planes, const Crop& crop, const v1::ImageSize& output,
                    float* pixels) {
  if (HasAvx2()) {
    RunImpl<true>(planes, crop, output, pixels);
  } else {
    RunImpl<false>(planes, crop, output, pixels);
  }
}

void Resampler::RunPortable(const ImagePlanes& planes, const Crop& crop,
                            const v1::ImageSize& output, float* pixels) {
  RunImpl<false>(planes, crop, output, pixels);
}

}  // namespace paceline
