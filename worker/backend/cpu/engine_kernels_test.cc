#include "worker/backend/cpu/engine_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<float> Ramp(int n, float step) {
  std::vector<float> values(n);
  for (int i = 0; i < n; ++i) values[i] = step * static_cast<float>(i - n / 2);
  return values;
}

TEST(EngineKernelsTest, SgdFollowsItsFormula) {
  const int n = 1003;
  std::vector<float> w = Ramp(n, 0.1f), v = Ramp(n, 0.01f), g = Ramp(n, -0.3f);
  std::vector<float> w0 = w, v0 = v;
  Kernels().sgd(w.data(), v.data(), g.data(), n, {0.1f, 0.9f, 0.01f, 0.5f});
  for (int i = 0; i < n; ++i) {
    const double velocity = 0.9 * v0[i] + 0.1 * (g[i] * 0.5 + 0.01 * w0[i]);
    EXPECT_NEAR(v[i], velocity, 1e-5);
    EXPECT_NEAR(w[i], w0[i] - velocity, 1e-5);
  }
}

TEST(EngineKernelsTest, SgdWithCopyEqualsSgdAndInterleavesPairsOfRows) {
  const int row = 48, n = 6 * row;
  for (const EngineKernels* kernels : {&GenericKernels(), &Kernels()}) {
    alignas(64) float w[n], v[n], g[n];
    alignas(64) uint16_t copy[n];
    std::vector<float> w0 = Ramp(n, 0.1f), v0 = Ramp(n, 0.01f), g0 = Ramp(n, -0.3f);
    w0[5] = std::nanf("");
    std::copy(w0.begin(), w0.end(), w);
    std::copy(v0.begin(), v0.end(), v);
    std::copy(g0.begin(), g0.end(), g);
    const SgdStep step = {0.1f, 0.9f, 0.01f, 0.5f};
    kernels->sgd_with_copy(w, v, g, copy, row, n, step);
    kernels->sgd(w0.data(), v0.data(), g0.data(), n, step);
    std::vector<uint16_t> half(n);
    kernels->bf16.from_float(half.data(), w, n);
    for (int i = 0; i < n; ++i) {
      if (i == 5) {
        EXPECT_TRUE(std::isnan(w[i]));
      } else {
        EXPECT_NEAR(w[i], w0[i], 1e-5);
        EXPECT_NEAR(v[i], v0[i], 1e-5);
      }
      const int r = i / row, c = i % row;
      EXPECT_EQ(copy[r / 2 * 2 * row + 2 * c + r % 2], half[i]) << i;
    }
  }
}

TEST(EngineKernelsTest, SmallBatchFullyConnectedGradientsFollowTheirFormula) {
  const int samples = 11, inputs = 32, outputs = 128;
  auto x = [](int n, int i) { return static_cast<float>((n * 7 + i * 3) % 5 - 2); };
  auto dy = [](int n, int o) { return static_cast<float>((n * 5 + o * 2) % 7 - 3); };
  auto w = [](int o, int i) { return static_cast<float>((o * 3 + i) % 9 - 4); };
  // Small integers: exact in fp32 and bf16.
  std::vector<float> x_blocks(inputs * 16), dy_blocks(outputs * 16);
  std::vector<float> weights(inputs * outputs);
  std::vector<uint16_t> halves(inputs * outputs);
  auto at = [&](int o, int i) {
    return ((o / 64 * (inputs / 16) + i / 16) * 16 + i % 16) * 64 + o % 64;
  };
  for (int n = 0; n < samples; ++n) {
    for (int i = 0; i < inputs; ++i) x_blocks[i * 16 + n] = x(n, i);
    for (int o = 0; o < outputs; ++o) dy_blocks[o / 64 * 1024 + n * 64 + o % 64] = dy(n, o);
  }
  for (int o = 0; o < outputs; ++o) {
    for (int i = 0; i < inputs; ++i) {
      weights[at(o, i)] = w(o, i);
      const int half = at(o, i) / 128 * 128 + o % 64 * 2 + i % 2;
      Kernels().bf16.from_float(&halves[half], &weights[at(o, i)], 1);
    }
  }
  const SmallBatchFullyConnected layer = {samples, inputs / 16, outputs / 64, dy_blocks.data(),
                                          x_blocks.data()};
  for (const EngineKernels* kernels : {&GenericKernels(), &Kernels()}) {
    alignas(64) float gradient[inputs * outputs];
    kernels->fully_connected_weights(layer, gradient, 0, 4);
    for (int o = 0; o < outputs; ++o) {
      for (int i = 0; i < inputs; ++i) {
        float sum = 0;
        for (int n = 0; n < samples; ++n) sum += x(n, i) * dy(n, o);
        ASSERT_EQ(gradient[at(o, i)], sum) << o << " " << i;
      }
    }
    std::vector<float> dx(samples * inputs);
    std::vector<uint16_t> dx16(samples * inputs), expected16(samples * inputs);
    kernels->fp32.fully_connected_data(layer, weights.data(), dx.data(), 0, 2);
    kernels->bf16.fully_connected_data(layer, halves.data(), dx16.data(), 0, 2);
    for (int n = 0; n < samples; ++n) {
      for (int i = 0; i < inputs; ++i) {
        float sum = 0;
        for (int o = 0; o < outputs; ++o) sum += dy(n, o) * w(o, i);
        ASSERT_EQ(dx[n * inputs + i], sum) << n << " " << i;
      }
    }
    kernels->bf16.from_float(expected16.data(), dx.data(), samples * inputs);
    EXPECT_EQ(dx16, expected16);
  }
}

TEST(EngineKernelsTest, InstructionSetsAgree) {
  if (&Kernels() == &GenericKernels()) GTEST_SKIP() << "this CPU has no AVX-512";
  const int n = 777;
  std::vector<float> a = Ramp(n, 0.37f), b = Ramp(n, -0.11f), x(n), y(n);
  std::vector<uint16_t> a16(n), x16(n), y16(n);
  GenericKernels().bf16.from_float(x16.data(), a.data(), n);
  Avx512Kernels().bf16.from_float(y16.data(), a.data(), n);
  EXPECT_EQ(x16, y16);
  a16 = x16;
  const uint16_t* halves[] = {a16.data(), a16.data()};
  GenericKernels().bf16.sum(x16.data(), halves, 2, nullptr, true, n);
  Avx512Kernels().bf16.sum(y16.data(), halves, 2, nullptr, true, n);
  EXPECT_EQ(x16, y16);
  const float* terms[] = {a.data(), b.data()};
  GenericKernels().fp32.sum(x.data(), terms, 2, a.data(), false, n);
  Avx512Kernels().fp32.sum(y.data(), terms, 2, a.data(), false, n);
  EXPECT_EQ(x, y);
  GenericKernels().fp32.dropout(x.data(), a.data(), n, 5, 99, 1u << 31, 2.0f);
  Avx512Kernels().fp32.dropout(y.data(), a.data(), n, 5, 99, 1u << 31, 2.0f);
  EXPECT_EQ(x, y);
}

TEST(EngineKernelsTest, DropoutKeepsItsShareAndRepeats) {
  const int n = 100000;
  std::vector<float> ones(n, 1.0f), out(n), again(n);
  const auto threshold = static_cast<uint32_t>(0.3 * 4294967296.0);
  Kernels().fp32.dropout(out.data(), ones.data(), n, 0, 42, threshold, 1 / 0.7f);
  int kept = 0;
  for (float value : out) kept += value != 0;
  // Standard deviation of the share is 0.0014.
  EXPECT_NEAR(static_cast<double>(kept) / n, 0.7, 0.008);
  // In two parts, as two threads would.
  Kernels().fp32.dropout(again.data(), ones.data(), 1000, 0, 42, threshold, 1 / 0.7f);
  Kernels().fp32.dropout(again.data() + 1000, ones.data() + 1000, n - 1000, 1000, 42, threshold,
                         1 / 0.7f);
  EXPECT_EQ(out, again);
  Kernels().fp32.dropout(again.data(), ones.data(), n, 0, 43, threshold, 1 / 0.7f);
  EXPECT_NE(out, again);
}

TEST(EngineKernelsTest, Bf16RoundsToNearestEvenAndKeepsNan) {
  std::vector<float> in = {1.0f, 1.00390625f, 1.01171875f, -2.5f, NAN, INFINITY};
  std::vector<uint16_t> out(in.size());
  std::vector<float> back(in.size());
  Kernels().bf16.from_float(out.data(), in.data(), in.size());
  Kernels().bf16.to_float(back.data(), out.data(), in.size());
  EXPECT_EQ(back[0], 1.0f);
  EXPECT_EQ(back[1], 1.0f);       // Half way: to even, down.
  EXPECT_EQ(back[2], 1.015625f);  // Half way: to even, up.
  EXPECT_EQ(back[3], -2.5f);
  EXPECT_TRUE(std::isnan(back[4]));
  EXPECT_TRUE(std::isinf(back[5]));
}

}  // namespace
}  // namespace paceline
