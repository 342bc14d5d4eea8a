#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A network of these layers behind an image of 3x8x8, ten classes.
v1::Network WithLayers(absl::string_view layers) {
  absl::StatusOr<v1::Network> network = ParseTextProto<v1::Network>(
      absl::StrCat("name: 'test' classes: 10 input { channels: 3 height: 8 width: 8 }\n", layers));
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

// The layers, then a classifier that reads the last one.
v1::Network Classifying(absl::string_view layers) {
  return WithLayers(absl::StrCat(layers, R"(
    layers { name: "fc" fully_connected { outputs: 10 } }
    layers { name: "loss" softmax_loss {} }
  )"));
}

ShapedNetwork Shaped(const v1::Network& network) {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(network);
  EXPECT_TRUE(shaped.ok()) << shaped.status();
  return shaped.ok() ? *std::move(shaped) : ShapedNetwork{};
}

std::string Problems(const v1::Network& network) {
  const absl::Status status = InferShapes(network).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::vector<int64_t> Dimensions(const FeatureShape& shape) {
  return {shape.channels, shape.height, shape.width};
}

// ---- Shapes and work.

TEST(InferShapesTest, ConvolutionHasWeightAndBiasAndCountsItsWork) {
  const ShapedNetwork shaped = Shaped(Classifying(R"(
    layers { name: "a" convolution { output_channels: 6 kernel: 3 stride: 2 pad: 1 } }
    layers { name: "b" convolution { output_channels: 4 kernel: 3 groups: 2 no_bias: true } }
  )"));
  const ShapedLayer& a = shaped.layers[0];
  EXPECT_THAT(Dimensions(a.output), ElementsAre(6, 4, 4));
  EXPECT_THAT(a.inputs, ElementsAre(kDataInput));
  EXPECT_EQ(a.forward_macs, 6 * 3 * 9 * 16);
  EXPECT_EQ(a.forward_flops, 2 * a.forward_macs + 6 * 16);
  EXPECT_EQ(a.backward_flops, 2 * a.forward_macs + 6 * 16);  // No gradient of the image.
  EXPECT_EQ(a.output_bytes, 4 * 6 * 16);
  const ShapedLayer& b = shaped.layers[1];
  EXPECT_THAT(Dimensions(b.output), ElementsAre(4, 2, 2));
  EXPECT_EQ(b.forward_macs, 4 * 3 * 9 * 4);
  EXPECT_EQ(b.backward_flops, 4 * b.forward_macs);

  ASSERT_EQ(shaped.parameters.size(), 5);
  EXPECT_EQ(shaped.parameters[0].name, "a.weight");
  EXPECT_THAT(shaped.parameters[0].shape, ElementsAre(6, 3, 3, 3));
  EXPECT_EQ(shaped.parameters[1].name, "a.bias");
  EXPECT_EQ(shaped.parameters[2].name, "b.weight");
  EXPECT_THAT(shaped.parameters[2].shape, ElementsAre(4, 3, 3, 3));
  EXPECT_THAT(shaped.layers[1].parameters, ElementsAre(2));
  EXPECT_EQ(shaped.parameters[2].layer, 1);
  EXPECT_THAT(shaped.parameters[3].shape, ElementsAre(10, 16));  // fc reads 4x2x2 flattened.
}

TEST(InferShapesTest, TotalsAreTheSumsOfLayersAndTensors) {
  const ShapedNetwork shaped = Shaped(Classifying(R"(
    layers { name: "a" convolution { output_channels: 6 kernel: 3 no_bias: true } }
    layers { name: "a.bn" batch_norm {} }
    layers { name: "a.relu" relu {} }
    layers { name: "n" lrn { local_size: 5 alpha: 1e-4 beta: 0.75 } }
    layers { name: "p" pooling { method: METHOD_MAX kernel: 2 stride: 2 } }
    layers { name: "d" dropout { ratio: 0.5 } }
  )"));
  int64_t macs = 0, forward = 0, backward = 0, bytes = 0, parameters = 0;
  for (const ShapedLayer& layer : shaped.layers) {
    macs += layer.forward_macs;
    forward += layer.forward_flops;
    backward += layer.backward_flops;
    bytes += layer.output_bytes;
  }
  for (const ParameterTensor& parameter : shaped.parameters) parameters += parameter.elements;
  EXPECT_EQ(shaped.forward_macs, macs);
  EXPECT_EQ(shaped.forward_flops, forward);
  EXPECT_EQ(shaped.backward_flops, backward);
  EXPECT_EQ(shaped.activation_bytes, bytes);
  EXPECT_EQ(shaped.parameter_count, parameters);
  EXPECT_EQ(shaped.gradient_bytes, 4 * parameters);

  const int64_t elements = 6 * 6 * 6;
  EXPECT_EQ(shaped.layers[1].forward_flops, 8 * elements);
  EXPECT_EQ(shaped.layers[1].backward_flops, 10 * elements);
  EXPECT_EQ(shaped.layers[2].forward_flops, elements);
  EXPECT_EQ(shaped.layers[3].forward_flops, 10 * elements);
  EXPECT_EQ(shaped.layers[3].backward_flops, 12 * elements);
  EXPECT_EQ(shaped.layers[4].forward_flops, 6 * 9 * 4);
  EXPECT_EQ(shaped.layers[4].backward_flops, 6 * 9);
  EXPECT_EQ(shaped.parameters[1].name, "a.bn.gamma");
  EXPECT_EQ(shaped.parameters[2].name, "a.bn.beta");
}

TEST(InferShapesTest, BranchesAreConcatenatedAndAdded) {
  const ShapedNetwork shaped = Shaped(Classifying(R"(
    layers { name: "a" convolution { output_channels: 4 kernel: 1 } }
    layers { name: "b" inputs: "data" convolution { output_channels: 5 kernel: 3 pad: 1 } }
    layers { name: "cat" inputs: ["a", "b"] concat {} }
    layers { name: "c" convolution { output_channels: 9 kernel: 1 } }
    layers { name: "sum" inputs: ["c", "cat"] add {} }
  )"));
  EXPECT_THAT(Dimensions(shaped.layers[2].output), ElementsAre(9, 8, 8));
  EXPECT_THAT(shaped.layers[2].inputs, ElementsAre(0, 1));
  EXPECT_THAT(shaped.layers[4].inputs, ElementsAre(3, 2));
  EXPECT_EQ(shaped.layers[4].forward_flops, 9 * 64);
  // "cat" is read by "c" and "sum": one addition an element to sum its gradients.
  EXPECT_EQ(shaped.layers[2].backward_flops, 9 * 64);
}

TEST(InferShapesTest, CeilModePoolingFollowsCaffe) {
  struct Case {
    int size, kernel, stride, pad;
    bool ceil;
    int64_t expected;
  };
  const Case cases[] = {
      {55, 3, 2, 0, true, 27},    // AlexNet pool1: both agree.
      {112, 3, 2, 0, true, 56},   // GoogLeNet pool1.
      {112, 3, 2, 0, false, 55},  //
      {14, 3, 2, 0, true, 7},     // GoogLeNet pool4.
      {14, 5, 3, 0, true, 4},     // Its auxiliary heads.
      {28, 3, 1, 1, true, 28},    // Its pooling branches.
      {4, 2, 2, 1, true, 3},      // Windows at -1, 1, 3.
      {3, 2, 2, 1, true, 2},      // Windows at -1, 1; rounding up has nothing to add.
      {3, 3, 2, 1, true, 2},      // Windows at -1, 1.
      {2, 2, 3, 1, true, 1},      // Windows at -1, 2: the second starts behind the image.
      {5, 1, 3, 0, true, 2},      // Windows at 0, 3, 6: the third starts behind the image.
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.size, " ", c.kernel, " ", c.stride, " ", c.pad, " ", c.ceil));
    v1::Network network = Classifying("layers { name: 'p' pooling { method: METHOD_MAX } }");
    network.mutable_input()->set_height(c.size);
    network.mutable_input()->set_width(c.size);
    v1::Pooling* pooling = network.mutable_layers(0)->mutable_pooling();
    pooling->set_kernel(c.kernel);
    pooling->set_stride(c.stride);
    pooling->set_pad(c.pad);
    pooling->set_ceil_mode(c.ceil);
    const ShapedNetwork shaped = Shaped(network);
    EXPECT_THAT(Dimensions(shaped.layers[0].output), ElementsAre(3, c.expected, c.expected));
  }
}

// Counts windows one by one. Rounding down: windows that lie wholly in the padded image. Rounding
// up: one more if the last did not reach its end, unless it would start behind image and left
// padding.
int64_t CountWindows(int64_t size, int64_t kernel, int64_t stride, int64_t pad, bool ceil) {
  int64_t windows = 0;
  for (int64_t start = -pad; start + kernel <= size + pad; start += stride) ++windows;
  const int64_t last_end = -pad + (windows - 1) * stride + kernel;
  const int64_t next_start = -pad + windows * stride;
  if (ceil && last_end < size + pad && next_start < size) ++windows;
  return windows;
}

TEST(InferShapesTest, PooledSizeEqualsCountedWindows) {
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 3000; ++trial) {
    v1::Network network = Classifying("layers { name: 'p' pooling { method: METHOD_MAX } }");
    network.mutable_input()->set_height(draw(1, 40));
    network.mutable_input()->set_width(draw(1, 40));
    v1::Pooling* pooling = network.mutable_layers(0)->mutable_pooling();
    pooling->set_kernel(draw(1, 9));
    pooling->set_stride(draw(1, 9));
    pooling->set_pad(draw(0, pooling->kernel() - 1));
    pooling->set_ceil_mode(draw(0, 1) == 1);
    const int64_t smallest = std::min(network.input().height(), network.input().width());
    if (pooling->kernel() > smallest + 2 * pooling->pad()) {
      EXPECT_THAT(Problems(network), HasSubstr("layer p: pooling.kernel"));
      continue;
    }
    const ShapedNetwork shaped = Shaped(network);
    const auto windows = [&](int64_t size) {
      return CountWindows(size, pooling->kernel(), pooling->stride(), pooling->pad(),
                          pooling->ceil_mode());
    };
    ASSERT_THAT(Dimensions(shaped.layers[0].output),
                ElementsAre(3, windows(network.input().height()), windows(network.input().width())))
        << network.ShortDebugString();
  }
}

TEST(InferShapesTest, GlobalPoolingCoversTheImage) {
  const ShapedNetwork shaped = Shaped(Classifying(
      "layers { name: 'p' pooling { method: METHOD_AVERAGE_INCLUDE_PADDING global: true } }"));
  EXPECT_THAT(Dimensions(shaped.layers[0].output), ElementsAre(3, 1, 1));
  EXPECT_EQ(shaped.layers[0].forward_flops, 3 * 64);
}

// ---- Bad input.

TEST(InferShapesTest, ReportsAllProblemsWithLayerAndField) {
  const std::string problems = Problems(WithLayers(R"(
    layers { name: "conv1" convolution { output_channels: -3 kernel: 3 } }
    layers { name: "conv2" inputs: "conv1x" convolution { output_channels: 4 kernel: 0 stride: -1 } }
    layers { name: "drop" dropout { ratio: 1.5 } }
    layers { name: "drop" dropout { ratio: nan } }
    layers { name: "mystery" }
    layers { fully_connected { outputs: 10 } }
    layers { name: "loss" softmax_loss { loss_weight: -1 } }
  )"));
  EXPECT_THAT(
      problems,
      AllOf(HasSubstr("network 'test' has 10 problems"),
            HasSubstr("layer conv1: convolution.output_channels: must be positive, got -3"),
            HasSubstr("layer conv2: inputs: unknown layer 'conv1x' (did you mean 'conv1'?)"),
            HasSubstr("layer conv2: convolution.kernel: must be positive, got 0"),
            HasSubstr("layer conv2: convolution.stride: must not be negative, got -1"),
            HasSubstr("layer drop: dropout.ratio: must lie between 0 and 1, got 1.5"),
            HasSubstr("layer drop: name: is used twice, by layers[2] and layers[3]"),
            HasSubstr("got nan"), HasSubstr("layer mystery: kind: is missing"),
            HasSubstr("layers[5]: name: needs letters"),
            HasSubstr("layer loss: softmax_loss.loss_weight: must not be negative, got -1")));
}

TEST(InferShapesTest, ReportsProblemsOfTheNetworkItself) {
  EXPECT_THAT(Problems(v1::Network()),
              AllOf(HasSubstr("name: needs letters"), HasSubstr("input.channels: must be positive"),
                    HasSubstr("input.height"), HasSubstr("input.width"),
                    HasSubstr("classes: must be positive"), HasSubstr("softmax_loss")));
}

struct BadLayers {
  const char* what;
  const char* layers;
  const char* expected;
};

class BadLayersTest : public testing::TestWithParam<BadLayers> {};

TEST_P(BadLayersTest, NamesLayerAndField) {
  EXPECT_THAT(Problems(Classifying(GetParam().layers)),
              AllOf(HasSubstr("has a problem:"), HasSubstr(GetParam().expected)));
}

INSTANTIATE_TEST_SUITE_P(
    , BadLayersTest,
    testing::ValuesIn<BadLayers>({
        {"GroupsDoNotDivideOutputs",
         "layers { name: 'c' convolution { output_channels: 4 kernel: 1 groups: 3 } }",
         "layer c: convolution.groups: 3 groups do not divide 4 output channels"},
        {"GroupsDoNotDivideInputs",
         "layers { name: 'c' convolution { output_channels: 4 kernel: 1 groups: 4 } }",
         "layer c: convolution.groups: 4 groups do not divide 3 input channels"},
        {"KernelLargerThanImage",
         "layers { name: 'c' convolution { output_channels: 4 kernel: 11 pad: 1 } }",
         "layer c: convolution.kernel: 11 is larger than the image of 8x8 with padding 1"},
        {"FillerWithoutDeviation",
         "layers { name: 'c' convolution { output_channels: 4 kernel: 1 "
         "weight_filler { kind: KIND_GAUSSIAN } } }",
         "layer c: convolution.weight_filler.standard_deviation: must be positive"},
        {"FillerWithNeedlessDeviation",
         "layers { name: 'c' fully_connected { outputs: 4 "
         "weight_filler { kind: KIND_MSRA standard_deviation: 1 } } }",
         "layer c: fully_connected.weight_filler.standard_deviation: is for KIND_GAUSSIAN only"},
        {"PoolingMethodMissing", "layers { name: 'p' pooling { kernel: 2 } }",
         "layer p: pooling.method: must be METHOD_MAX"},
        {"PoolingPadTooLarge",
         "layers { name: 'p' pooling { method: METHOD_MAX kernel: 2 pad: 2 } }",
         "layer p: pooling.pad: must be less than the kernel, 2, got 2"},
        {"PoolingGlobalWithStride",
         "layers { name: 'p' pooling { method: METHOD_MAX global: true stride: 2 } }",
         "layer p: pooling.stride: cannot be set with `global`, got 2"},
        {"LrnEvenSize", "layers { name: 'n' lrn { local_size: 4 alpha: 1 beta: 1 } }",
         "layer n: lrn.local_size: must be positive and odd, got 4"},
        {"LrnNegativeSize", "layers { name: 'n' lrn { local_size: -2147483648 alpha: 1 beta: 1 } }",
         "layer n: lrn.local_size: must be positive and odd"},
        {"BatchNormEpsilon", "layers { name: 'b' batch_norm { epsilon: inf } }",
         "layer b: batch_norm.epsilon: must not be negative, got inf"},
        {"TwoInputsForRelu",
         "layers { name: 'a' relu {} } layers { name: 'b' inputs: ['a', 'data'] relu {} }",
         "layer b: inputs: must list one layer, got 2"},
        {"OneInputForAdd", "layers { name: 'a' add {} }",
         "layer a: inputs: must list two or more layers, got 1"},
        {"RepeatedInput", "layers { name: 'a' inputs: ['data', 'data'] add {} }",
         "layer a: inputs: 'data' is listed twice"},
        {"AddOfDifferentShapes",
         "layers { name: 'a' convolution { output_channels: 4 kernel: 1 } }"
         "layers { name: 's' inputs: ['a', 'data'] add {} }",
         "layer s: inputs: must agree in shape: 'a' has 4x8x8, 'data' has 3x8x8"},
        {"ConcatOfDifferentSizes",
         "layers { name: 'a' convolution { output_channels: 4 kernel: 3 } }"
         "layers { name: 's' inputs: ['data', 'a'] concat {} }",
         "layer s: inputs: must agree in height and width: 'data' has 3x8x8, 'a' has 4x6x6"},
        {"ReadsALaterLayer",
         "layers { name: 'a' inputs: 'b' relu {} } layers { name: 'b' inputs: 'data' relu {} }",
         "layer a: inputs: 'b' does not come before this layer"},
        {"ReadsItself", "layers { name: 'a' inputs: 'a' relu {} }",
         "layer a: inputs: 'a' does not come before this layer"},
        {"DeadLayer",
         "layers { name: 'a' relu {} } layers { name: 'dead' relu {} }"
         "layers { name: 'b' inputs: 'a' relu {} }",
         "layer dead: name: no loss depends on this layer"},
        {"ReadsAuxiliary",
         "layers { name: 'a' auxiliary: true relu {} } layers { name: 'b' inputs: 'a' relu {} }",
         "layer b: inputs: 'a' is auxiliary, and this layer is not"},
        {"NamedData", "layers { name: 'data' relu {} }",
         "layer data: name: 'data' is the network's input"},
        {"NameWithSpace", "layers { name: 'a b' relu {} }", "layer a b: name: needs letters"},
        {"TooManyMultiplications",
         "layers { name: 'c' fully_connected { outputs: 2147483647 } }"
         "layers { name: 'd' fully_connected { outputs: 2147483647 } }",
         "layer d: fully_connected.outputs: needs more than 2^46 multiply-accumulates"},
        {"HugePadding",
         "layers { name: 'c' convolution { output_channels: 2147483647 kernel: 1 "
         "pad: 2147483647 } }",
         "layer c: convolution.output_channels: needs more than 2^46 multiply-accumulates"},
    }),
    [](const testing::TestParamInfo<BadLayers>& info) { return info.param.what; });

TEST(InferShapesTest, LossNeedsAsManyValuesAsClasses) {
  EXPECT_THAT(Problems(WithLayers("layers { name: 'fc' fully_connected { outputs: 11 } }"
                                  "layers { name: 'loss' softmax_loss {} }")),
              HasSubstr("layer loss: inputs: a softmax over 10 classes needs as many values, 'fc' "
                        "has 11 (11x1x1)"));
}

TEST(InferShapesTest, NothingReadsALoss) {
  EXPECT_THAT(Problems(Classifying("layers { name: 'f' fully_connected { outputs: 10 } }"
                                   "layers { name: 'early' softmax_loss {} }")),
              HasSubstr("layer fc: inputs: 'early' is a loss, which nothing can read"));
}

TEST(InferShapesTest, ANetworkWithoutLossIsOneProblem) {
  EXPECT_THAT(Problems(WithLayers("layers { name: 'a' relu {} } layers { name: 'b' relu {} }")),
              AllOf(HasSubstr("has a problem:"), HasSubstr("needs a softmax_loss"),
                    Not(HasSubstr("depends"))));
}

TEST(InferShapesTest, SurvivesExtremeFieldsWithoutOverflow) {
  // Values around every limit, in random places; the address and overflow sanitizers watch.
  const int32_t extremes[] = {std::numeric_limits<int32_t>::min(), -1, 0, 1, 2, 3, 1 << 16,
                              std::numeric_limits<int32_t>::max()};
  std::mt19937 random(11);
  const auto draw = [&] { return extremes[std::uniform_int_distribution<int>(0, 7)(random)]; };
  for (int trial = 0; trial < 20000; ++trial) {
    v1::Network network = Classifying(R"(
      layers { name: "c" convolution {} }
      layers { name: "n" lrn { alpha: 1 beta: 1 } }
      layers { name: "p" pooling { method: METHOD_MAX } }
      layers { name: "b" batch_norm {} }
      layers { name: "a" inputs: ["b", "p"] add {} }
      layers { name: "k" inputs: ["a", "b", "p"] concat {} }
    )");
    network.mutable_input()->set_channels(draw());
    network.mutable_input()->set_height(draw());
    network.mutable_input()->set_width(draw());
    v1::Convolution* convolution = network.mutable_layers(0)->mutable_convolution();
    convolution->set_output_channels(draw());
    convolution->set_kernel(draw());
    convolution->set_stride(draw());
    convolution->set_pad(draw());
    convolution->set_groups(draw());
    network.mutable_layers(1)->mutable_lrn()->set_local_size(draw());
    v1::Pooling* pooling = network.mutable_layers(2)->mutable_pooling();
    pooling->set_kernel(draw());
    pooling->set_stride(draw());
    pooling->set_pad(draw());
    pooling->set_ceil_mode(trial % 2 == 0);
    const absl::StatusOr<ShapedNetwork> shaped = InferShapes(network);
    if (!shaped.ok()) continue;
    for (const ShapedLayer& layer : shaped->layers) {
      ASSERT_GT(layer.output.elements(), 0);
      ASSERT_GE(layer.forward_flops, 0);
      ASSERT_GE(layer.backward_flops, 0);
    }
    ASSERT_GT(shaped->backward_flops, 0);
  }
}

}  // namespace
}  // namespace paceline
