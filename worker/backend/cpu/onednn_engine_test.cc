#include "worker/backend/cpu/onednn_engine.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/networks/network.h"
#include "proto/support/text_proto.h"
#include "worker/backend/cpu/engine_testing.h"

namespace paceline {
namespace {

// A network with `layers` between a first convolution (whose gradient needs the gradients of all
// that follows) and a classifier.
ShapedNetwork Shaped(const std::string& layers,
                     const std::string& image = "channels: 3 height: 9 width: 7",
                     int first_channels = 16) {
  const std::string text =
      absl::StrCat("name: 'test' input {", image, "} classes: 5 ",
                   "layers { name: 'first' convolution { output_channels: ", first_channels,
                   " kernel: 3 pad: 1 } } ", layers,
                   " layers { name: 'classes' fully_connected { outputs: 5 } } ",
                   "layers { name: 'loss' softmax_loss {} }");
  absl::StatusOr<v1::Network> network = ParseTextProto<v1::Network>(text);
  EXPECT_TRUE(network.ok()) << network.status();
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
  EXPECT_TRUE(shaped.ok()) << shaped.status();
  return *shaped;
}

ShapedNetwork Known(const std::string& name) {
  absl::StatusOr<v1::Network> network = LoadNetwork(name);
  EXPECT_TRUE(network.ok()) << network.status();
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
  EXPECT_TRUE(shaped.ok()) << shaped.status();
  return *shaped;
}

std::unique_ptr<TestEngine> Engine(const ShapedNetwork& network, int batch, bool dropout = false) {
  EngineOptions options = TestOptions(network, batch);
  options.training.set_no_dropout(!dropout);
  OneDnnOptions cpu;
  cpu.threads = 2;
  return TestEngine::Create(network, options, cpu);
}

struct LayerKindCase {
  const char* name;
  const char* layers;
  int first_channels = 16;
};

class LayerKindTest : public testing::TestWithParam<LayerKindCase> {};

// For each tensor: the loss's change along a random direction, by central differences, equals the
// gradient along it.
TEST_P(LayerKindTest, GradientsAgreeWithFiniteDifferences) {
  const ShapedNetwork network =
      Shaped(GetParam().layers, "channels: 3 height: 9 width: 7", GetParam().first_channels);
  auto test = Engine(network, 3);
  test->UseHashedWeights();
  test->LoadAndForward();
  test->Backward();
  std::vector<std::vector<float>> gradients;
  for (int t : test->all_tensors) gradients.push_back(test->Gradient(t));
  for (int t : test->all_tensors) {
    const std::vector<float> weights = test->Weights(t);
    std::vector<double> direction = HashedValues(500 + t, static_cast<int64_t>(weights.size()));
    double slope = 0, size = 0, largest = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      slope += direction[i] * gradients[t][i];
      size += direction[i] * direction[i];
      largest += static_cast<double>(gradients[t][i]) * gradients[t][i];
    }
    // Small enough that few ReLUs and maxima switch, large enough for fp32.
    const double step = 1e-3 / std::sqrt(size);
    double losses[2];
    for (int side = 0; side < 2; ++side) {
      std::vector<float> moved = weights;
      for (size_t i = 0; i < moved.size(); ++i) {
        moved[i] += static_cast<float>((side == 0 ? -step : step) * direction[i]);
      }
      ASSERT_TRUE(test->engine->WriteWeights(t, moved).ok());
      test->LoadAndForward();
      losses[side] = test->engine->Loss();
      test->Backward();
    }
    ASSERT_TRUE(test->engine->WriteWeights(t, weights).ok());
    const double difference = (losses[1] - losses[0]) / (2 * step);
    const double scale = std::sqrt(largest * size / static_cast<double>(weights.size()));
    // Sums in fp32 leave about 1e-6 of the loss.
    const double rounding = 1e-6 * losses[0] / (2 * step);
    EXPECT_NEAR(difference, slope, 0.02 * scale + rounding) << network.parameters[t].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LayerKindTest,
    testing::Values(
        LayerKindCase{
            "Convolution",
            "layers { name: 'x' convolution { output_channels: 32 kernel: 3 stride: 2 } }"},
        LayerKindCase{
            "ConvolutionOddChannels",
            "layers { name: 'x' convolution { output_channels: 13 kernel: 2 stride: 2 pad: 1 } }",
            7},
        LayerKindCase{
            "ConvolutionNoBias",
            "layers { name: 'x' convolution { output_channels: 16 kernel: 1 no_bias: true } }"},
        LayerKindCase{
            "GroupedConvolution",
            "layers { name: 'x' convolution { output_channels: 32 kernel: 3 pad: 1 groups: 2 } }",
            32},
        LayerKindCase{
            "GroupedConvolutionOddChannels",
            "layers { name: 'x' convolution { output_channels: 12 kernel: 3 pad: 1 groups: 3 } }",
            9},
        LayerKindCase{"Relu", "layers { name: 'x' relu {} }"},
        LayerKindCase{
            "ReluWithOtherConsumers",
            "layers { name: 'x' relu {} } layers { name: 'y' inputs: ['first', 'x'] add {} }"},
        LayerKindCase{"ReluOfPooling",
                      "layers { name: 'p' pooling { method: METHOD_AVERAGE_EXCLUDE_PADDING kernel: "
                      "2 } } layers { name: 'x' relu {} }"},
        LayerKindCase{"MaxPooling",
                      "layers { name: 'x' pooling { method: METHOD_MAX kernel: 3 stride: 2 } }"},
        LayerKindCase{"MaxPoolingCeilPadded",
                      "layers { name: 'x' pooling { method: METHOD_MAX kernel: 3 stride: 2 pad: 1 "
                      "ceil_mode: true } }",
                      10},
        LayerKindCase{"AveragePoolingExclude",
                      "layers { name: 'x' pooling { method: METHOD_AVERAGE_EXCLUDE_PADDING kernel: "
                      "3 stride: 2 pad: 1 ceil_mode: true } }"},
        LayerKindCase{"AveragePoolingInclude",
                      "layers { name: 'x' pooling { method: METHOD_AVERAGE_INCLUDE_PADDING kernel: "
                      "3 stride: 1 pad: 1 } }"},
        LayerKindCase{"AveragePoolingCeil",
                      "layers { name: 'x' pooling { method: METHOD_AVERAGE_INCLUDE_PADDING kernel: "
                      "3 stride: 2 ceil_mode: true } }"},
        LayerKindCase{
            "GlobalPooling",
            "layers { name: 'x' pooling { method: METHOD_AVERAGE_EXCLUDE_PADDING global: true } }"},
        LayerKindCase{
            "GlobalPoolingOddChannels",
            "layers { name: 'x' pooling { method: METHOD_AVERAGE_EXCLUDE_PADDING global: true } }",
            11},
        LayerKindCase{"LocalResponseNormalization",
                      "layers { name: 'x' lrn { local_size: 5 alpha: 0.5 beta: 0.75 } }", 32},
        LayerKindCase{"LocalResponseNormalizationK",
                      "layers { name: 'x' lrn { local_size: 3 alpha: 0.3 beta: 0.5 k: 2 } }", 10},
        LayerKindCase{"BatchNorm", "layers { name: 'x' batch_norm {} }"},
        LayerKindCase{"BatchNormOddChannels", "layers { name: 'x' batch_norm { epsilon: 1e-3 } }",
                      9},
        LayerKindCase{"BatchNormRelu",
                      "layers { name: 'x' batch_norm {} } layers { name: 'y' relu {} }"},
        LayerKindCase{"BatchNormReluOddChannels",
                      "layers { name: 'x' batch_norm {} } layers { name: 'y' relu {} }", 9},
        LayerKindCase{
            "BatchNormAddRelu",
            "layers { name: 'c' convolution { output_channels: 16 kernel: 1 no_bias: true } } "
            "layers { name: 'x' batch_norm {} } layers { name: 'y' inputs: ['x', 'first'] add {} } "
            "layers { name: 'z' relu {} }"},
        LayerKindCase{
            "BatchNormBothAddRelu",
            "layers { name: 'a' batch_norm {} } "
            "layers { name: 'c' inputs: 'first' convolution { output_channels: 16 kernel: 1 "
            "no_bias: true } } "
            "layers { name: 'b' batch_norm {} } layers { name: 'y' inputs: ['a', 'b'] add {} } "
            "layers { name: 'z' relu {} }"},
        LayerKindCase{"BatchNormConcat",
                      "layers { name: 'a' batch_norm {} } layers { name: 'ar' relu {} } "
                      "layers { name: 'c' inputs: 'first' convolution { output_channels: 32 "
                      "kernel: 3 pad: 1 no_bias: true } } "
                      "layers { name: 'b' batch_norm {} } layers { name: 'br' relu {} } "
                      "layers { name: 'x' inputs: ['ar', 'br'] concat {} }"},
        LayerKindCase{"Concat",
                      "layers { name: 'a' convolution { output_channels: 16 kernel: 1 } } "
                      "layers { name: 'b' inputs: 'first' convolution { output_channels: 32 "
                      "kernel: 3 pad: 1 } } "
                      "layers { name: 'x' inputs: ['a', 'b', 'first'] concat {} }"},
        LayerKindCase{
            "ConcatConvolutionReluAndPooling",
            "layers { name: 'a' convolution { output_channels: 16 kernel: 1 } } layers { name: "
            "'ar' relu {} } "
            "layers { name: 'p' inputs: 'first' pooling { method: METHOD_MAX kernel: 3 pad: 1 } } "
            "layers { name: 'x' inputs: ['ar', 'p'] concat {} } "
            "layers { name: 'z' convolution { output_channels: 16 kernel: 1 } }"},
        LayerKindCase{"ConcatOddChannels",
                      "layers { name: 'a' convolution { output_channels: 5 kernel: 1 } } "
                      "layers { name: 'b' inputs: 'first' convolution { output_channels: 18 "
                      "kernel: 3 pad: 1 } } "
                      "layers { name: 'x' inputs: ['a', 'b'] concat {} }",
                      7},
        LayerKindCase{
            "AddOfThreeWithRelu",
            "layers { name: 'a' convolution { output_channels: 16 kernel: 1 } } "
            "layers { name: 'b' inputs: 'first' convolution { output_channels: 16 kernel: 3 pad: 1 "
            "} } "
            "layers { name: 'x' inputs: ['a', 'b', 'first'] add {} } layers { name: 'y' relu {} }"},
        LayerKindCase{
            "ResidualBlocks",
            "layers { name: 'r0' relu {} } "
            "layers { name: 'a' convolution { output_channels: 16 kernel: 3 pad: 1 } } "
            "layers { name: 'ar' relu {} } layers { name: 'b' convolution { output_channels: 16 "
            "kernel: 3 pad: 1 } } "
            "layers { name: 'x' inputs: ['b', 'r0'] add {} } layers { name: 'xr' relu {} } "
            "layers { name: 'c' convolution { output_channels: 16 kernel: 1 } } "
            "layers { name: 'y' inputs: ['xr', 'c'] add {} } layers { name: 'z' inputs: ['y', "
            "'xr'] add {} }"},
        LayerKindCase{
            "FullyConnected",
            "layers { name: 'x' fully_connected { outputs: 33 } } layers { name: 'y' relu {} }"},
        LayerKindCase{"FullyConnectedNoBias",
                      "layers { name: 'x' fully_connected { outputs: 16 no_bias: true } }", 5},
        LayerKindCase{"DropoutPassedThrough",
                      "layers { name: 'x' relu {} } layers { name: 'd' dropout { ratio: 0.5 } }"},
        LayerKindCase{"WeightedLosses",
                      "layers { name: 'h' fully_connected { outputs: 5 } } "
                      "layers { name: 'early' softmax_loss { loss_weight: 0.3 } } "
                      "layers { name: 'next' inputs: 'first' convolution { output_channels: 8 "
                      "kernel: 3 } }"}),
    [](const testing::TestParamInfo<LayerKindCase>& info) { return info.param.name; });

TEST(OneDnnEngineTest, LossFallsOnAFixedBatch) {
  for (const char* name : {"lenet5", "cifar_resnet20"}) {
    auto test = Engine(Known(name), 8);
    const double first = test->Iterate();
    double last = first;
    for (int i = 0; i < 12; ++i) last = test->Iterate();
    EXPECT_LT(last, 0.7 * first) << name;
  }
}

TEST(OneDnnEngineTest, Bf16TrainsLikeFp32) {
  if (!CpuHasBf16()) GTEST_SKIP() << "this CPU has no avx512_bf16";
  const ShapedNetwork network = Known("cifar_resnet20");
  auto fp32 = Engine(network, 8);
  EngineOptions options = TestOptions(network, 8);
  options.precision = v1::PRECISION_BF16;
  OneDnnOptions cpu;
  cpu.threads = 2;
  auto bf16 = TestEngine::Create(network, options, cpu);
  for (int i = 0; i < 6; ++i) {
    const double a = fp32->Iterate(), b = bf16->Iterate();
    EXPECT_NEAR(b, a, 0.05 * a) << "iteration " << i;  // bf16 keeps 8 bits.
  }
}

TEST(OneDnnEngineTest, EnginesWithTheSameSeedStayEqual) {
  const ShapedNetwork network = Known("lenet5");
  auto a = Engine(network, 4, /*dropout=*/true), b = Engine(network, 4, /*dropout=*/true);
  EXPECT_EQ(a->engine->WeightsChecksum(), b->engine->WeightsChecksum());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(a->Iterate(), b->Iterate());
    EXPECT_EQ(a->engine->WeightsChecksum(), b->engine->WeightsChecksum());
  }
}

TEST(OneDnnEngineTest, MemoryReuseChangesNoResult) {
  for (const char* name : {"cifar_resnet20", "googlenet_bn"}) {
    const ShapedNetwork network = Known(name);
    EngineOptions options = TestOptions(network, 2);
    OneDnnOptions cpu;
    cpu.threads = 2;
    auto reusing = TestEngine::Create(network, options, cpu);
    cpu.reuse_memory = false;
    auto separate = TestEngine::Create(network, options, cpu);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(reusing->Iterate(), separate->Iterate()) << name;
    EXPECT_EQ(reusing->engine->WeightsChecksum(), separate->engine->WeightsChecksum()) << name;
    EXPECT_LT(reusing->engine->Memory().activations_bytes(),
              0.8 * separate->engine->Memory().activations_bytes());
  }
}

TEST(OneDnnEngineTest, DropoutDiffersBetweenRanksAndIterations) {
  const ShapedNetwork network = Shaped("layers { name: 'd' dropout { ratio: 0.5 } }");
  EngineOptions options = TestOptions(network, 2);
  OneDnnOptions cpu;
  cpu.threads = 2;
  cpu.reuse_memory = false;
  auto zero = TestEngine::Create(network, options, cpu);
  options.rank = 1;
  auto one = TestEngine::Create(network, options, cpu);
  zero->LoadAndForward();
  one->LoadAndForward();
  const std::vector<float> first = *zero->engine->ReadOutput(1);
  EXPECT_NE(first, *one->engine->ReadOutput(1));
  zero->Backward();
  zero->LoadAndForward();
  EXPECT_NE(first, *zero->engine->ReadOutput(1));
  int zeros = 0;
  for (float value : first) zeros += value == 0;
  EXPECT_NEAR(static_cast<double>(zeros) / first.size(), 0.5, 0.06);
}

TEST(OneDnnEngineTest, UpdateIsSgdWithMomentumAndWeightDecay) {
  auto test = Engine(Shaped(""), 2);
  const std::vector<float> before = test->Weights(0);
  test->LoadAndForward();
  test->Backward();
  const std::vector<float> gradient = test->Gradient(0);
  test->Update(0.5f);
  test->Update(0.5f);
  const std::vector<float> after = test->Weights(0);
  for (size_t i = 0; i < before.size(); ++i) {
    double v = 0.01 * (0.5 * gradient[i] + 5e-4 * before[i]);
    double w = before[i] - v;
    v = 0.9 * v + 0.01 * (0.5 * gradient[i] + 5e-4 * w);
    w -= v;
    EXPECT_NEAR(after[i], w, 1e-6);
  }
}

TEST(OneDnnEngineTest, SpansFollowTensorOrderWithoutOverlap) {
  const ShapedNetwork network = Known("lenet5");
  auto test = Engine(network, 2);
  const float* end = nullptr;
  for (int t = static_cast<int>(network.parameters.size()) - 1; t >= 0; --t) {
    const int tensor[] = {t};
    DeviceSpan span = test->engine->GradientSpan(tensor);
    EXPECT_GE(span.elements, network.parameters[t].elements);
    if (end != nullptr) EXPECT_EQ(span.data, end);
    end = span.data + span.elements;
  }
  DeviceSpan all = test->engine->GradientSpan(test->all_tensors);
  EXPECT_EQ(all.data + all.elements, end);
}

TEST(OneDnnEngineTest, WeightsWrittenThroughTheirSpanTakeEffect) {
  // As a broadcast does: the span of one engine copied into another's.
  const ShapedNetwork network = Known("lenet5");
  auto from = Engine(network, 2);
  from->Iterate();
  EngineOptions options = TestOptions(network, 2);
  options.training.set_seed(2);
  OneDnnOptions cpu;
  cpu.threads = 2;
  auto to = TestEngine::Create(network, options, cpu);
  EXPECT_NE(from->engine->WeightsChecksum(), to->engine->WeightsChecksum());
  DeviceSpan source = from->engine->WeightSpan(from->all_tensors);
  DeviceSpan target = to->engine->WeightSpan(to->all_tensors);
  ASSERT_EQ(source.elements, target.elements);
  std::memcpy(target.data, source.data, source.bytes());
  ASSERT_TRUE(to->engine->WeightsChanged(to->all_tensors, to->stream).ok());
  from->LoadAndForward();
  to->LoadAndForward();
  EXPECT_EQ(from->engine->Loss(), to->engine->Loss());
  from->Backward();
  to->Backward();
  EXPECT_EQ(from->Gradient(0), to->Gradient(0));
}

TEST(OneDnnEngineTest, NextInputMayBeLoadedBeforeBackward) {
  const ShapedNetwork network = Known("lenet5");
  auto plain = Engine(network, 2), ahead = Engine(network, 2);
  HostBatch other = HashedBatch(network, 2, 77);
  plain->LoadAndForward();
  plain->Backward();
  ahead->LoadAndForward();
  ASSERT_TRUE(ahead->engine->LoadInput(other, ahead->stream).ok());
  ahead->Backward();
  EXPECT_EQ(plain->Gradient(0), ahead->Gradient(0));
  // The next forward pass sees the new batch.
  plain->batch = other;
  plain->LoadAndForward();
  for (size_t l = 0; l < network.layers.size(); ++l) {
    ASSERT_TRUE(ahead->engine->Forward(static_cast<int>(l), ahead->stream).ok());
  }
  EXPECT_EQ(plain->engine->Loss(), ahead->engine->Loss());
}

TEST(OneDnnEngineTest, FirstWeightsFollowTheirFillers) {
  const ShapedNetwork network = Shaped(
      "layers { name: 'x' convolution { output_channels: 64 kernel: 3 weight_filler { kind: "
      "KIND_GAUSSIAN standard_deviation: 0.25 } } } layers { name: 'n' batch_norm {} }");
  auto test = Engine(network, 1);
  double squares = 0;
  const std::vector<float> gaussian = test->Weights(2);
  for (float w : gaussian) squares += w * w;
  EXPECT_NEAR(std::sqrt(squares / gaussian.size()), 0.25, 0.01);
  for (float bias : test->Weights(3)) EXPECT_EQ(bias, 0);
  for (float scale : test->Weights(4)) EXPECT_EQ(scale, 1);
  for (float shift : test->Weights(5)) EXPECT_EQ(shift, 0);
  const std::vector<float> xavier = test->Weights(6);  // classes: 64 inputs x 7 x 5.
  const double range = std::sqrt(3.0 / (static_cast<double>(xavier.size()) / 5));
  for (float w : xavier) EXPECT_LE(std::abs(w), range);
}

TEST(OneDnnEngineTest, MistakesGetClearErrors) {
  const ShapedNetwork network = Known("lenet5");
  OneDnnOptions cpu;
  EngineOptions options = TestOptions(network, 2);
  options.precision = v1::PRECISION_FP16;
  options.tensor_order.pop_back();
  absl::Status status = CreateOneDnnEngine(network, options, cpu).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "PRECISION_FP16")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "tensor_order")) << status;

  auto test = Engine(network, 2);
  EXPECT_EQ(test->engine->Forward(1, test->stream).code(), absl::StatusCode::kFailedPrecondition);
  test->batch.labels[1] = 10;
  status = test->engine->LoadInput(test->batch, test->stream);
  EXPECT_TRUE(absl::StrContains(status.message(), "sample 1 of the batch: label 10")) << status;
}

TEST(OneDnnEngineTest, BatchThatDoesNotFitIsResourceExhausted) {
  const ShapedNetwork network = Known("vgg16");
  absl::Status status =
      CreateOneDnnEngine(network, TestOptions(network, 1 << 15), OneDnnOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "smaller batch")) << status;
}

TEST(OneDnnEngineTest, FusedLayersSayWhereTheirOutputIs) {
  auto test = Engine(Shaped("layers { name: 'x' relu {} }"), 2);
  test->LoadAndForward();
  absl::Status status = test->engine->ReadOutput(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "ReLU")) << status;
}

}  // namespace
}  // namespace paceline
