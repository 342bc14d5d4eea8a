#include "models/networks/import/prototxt_import.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/networks/import/network_builder.h"
#include "models/networks/import/same_tensors.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A network of ours as Caffe has it: batch normalization in two layers, rounding up in every
// pooling, in-place ReLUs, labels and an Accuracy for the TEST phase.
std::string WriteAsPrototxt(const ShapedNetwork& network) {
  const v1::ImageSize& input = network.network.input();
  std::string text = absl::StrCat(
      "name: 'net'\nlayer { name: 'in' type: 'Input' top: 'data' top: 'label' input_param { shape "
      "{ "
      "dim: 8 dim: ",
      input.channels(), " dim: ", input.height(), " dim: ", input.width(),
      " } shape { dim: 8 } } }\n");
  // The blob that holds a layer's output; that of an in-place layer is its bottom's.
  std::vector<std::string> blobs;
  std::vector<int> readers(network.layers.size(), 0);
  for (const ShapedLayer& shaped : network.layers) {
    for (const int i : shaped.inputs) {
      if (i != kDataInput) ++readers[i];
    }
  }
  for (const ShapedLayer& shaped : network.layers) {
    const v1::Layer& layer = shaped.layer;
    std::string bottoms;
    for (const int i : shaped.inputs) {
      absl::StrAppend(&bottoms, " bottom: '", i == kDataInput ? "data" : blobs[i], "'");
    }
    std::string top = layer.name();
    std::string type, param;
    const auto stride = [](int32_t value) { return std::max(1, value); };
    switch (layer.kind_case()) {
      case v1::Layer::kConvolution: {
        const v1::Convolution& c = layer.convolution();
        type = "Convolution";
        param = absl::StrCat("convolution_param { num_output: ", c.output_channels(),
                             " kernel_size: ", c.kernel(), " stride: ", stride(c.stride()),
                             " pad: ", c.pad(), " group: ", stride(c.groups()),
                             " bias_term: ", c.no_bias() ? "false" : "true", " }");
        break;
      }
      case v1::Layer::kPooling: {
        const v1::Pooling& p = layer.pooling();
        type = "Pooling";
        param = absl::StrCat("pooling_param { pool: ",
                             p.method() == v1::Pooling::METHOD_MAX ? "MAX" : "AVE");
        if (p.global()) {
          absl::StrAppend(&param, " global_pooling: true }");
        } else {
          absl::StrAppend(&param, " kernel_size: ", p.kernel(), " stride: ", stride(p.stride()),
                          " pad: ", p.pad(), p.ceil_mode() ? "" : " round_mode: FLOOR", " }");
        }
        break;
      }
      case v1::Layer::kRelu:
        type = "ReLU";
        if (shaped.inputs[0] != kDataInput && readers[shaped.inputs[0]] == 1) {
          top = blobs[shaped.inputs[0]];
        }
        break;
      case v1::Layer::kLrn:
        type = "LRN";
        param = absl::StrCat("lrn_param { local_size: ", layer.lrn().local_size(),
                             " alpha: ", layer.lrn().alpha(), " beta: ", layer.lrn().beta(), " }");
        break;
      case v1::Layer::kBatchNorm:
        absl::StrAppend(&text, "layer { name: '", layer.name(), "' type: 'BatchNorm'", bottoms,
                        " top: '", layer.name(), "' }\n");
        blobs.push_back(layer.name());
        absl::StrAppend(&text, "layer { name: '", layer.name(), ".scale' type: 'Scale' bottom: '",
                        layer.name(), "' top: '", layer.name(),
                        "' scale_param { bias_term: true } }\n");
        continue;
      case v1::Layer::kConcat:
        type = "Concat";
        break;
      case v1::Layer::kAdd:
        type = "Eltwise";
        break;
      case v1::Layer::kDropout:
        type = "Dropout";
        param = absl::StrCat("dropout_param { dropout_ratio: ", layer.dropout().ratio(), " }");
        break;
      case v1::Layer::kFullyConnected:
        type = "InnerProduct";
        param = absl::StrCat(
            "inner_product_param { num_output: ", layer.fully_connected().outputs(),
            " bias_term: ", layer.fully_connected().no_bias() ? "false" : "true", " }");
        break;
      case v1::Layer::kSoftmaxLoss:
        absl::StrAppend(&text, "layer { name: '", layer.name(), ".top1' type: 'Accuracy'", bottoms,
                        " bottom: 'label' top: '", layer.name(),
                        ".top1' include { phase: TEST } }\n");
        type = "SoftmaxWithLoss";
        absl::StrAppend(&bottoms, " bottom: 'label'");
        if (layer.softmax_loss().loss_weight() != 0) {
          param = absl::StrCat("loss_weight: ", layer.softmax_loss().loss_weight());
        }
        break;
      case v1::Layer::KIND_NOT_SET:
        break;
    }
    absl::StrAppend(&text, "layer { name: '", layer.name(), "' type: '", type, "'", bottoms,
                    " top: '", top, "' ", param, " }\n");
    blobs.push_back(top);
  }
  return text;
}

ImportOptions Options() {
  ImportOptions options;
  options.file = "net.prototxt";
  options.name = "mine";
  return options;
}

constexpr char kInput[] = "input: 'data' input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8\n";
constexpr char kClassifier[] =
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'fc' "
    "inner_product_param { num_output: 5 } }\n";

// `layers` make blob 'x' of blob 'data'; a classifier of 5 classes follows.
absl::StatusOr<ImportedNetwork> Import(const std::string& layers) {
  return ImportPrototxt(absl::StrCat(kInput, layers, "\n", kClassifier), Options());
}

std::string Error(const absl::StatusOr<ImportedNetwork>& imported) {
  EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(imported.status().message());
}

TEST(ImportPrototxtTest, NetworksComeBackAsTheyWereWritten) {
  for (const char* name : {"alexnet_caffe", "googlenet_bvlc", "googlenet_bvlc+aux", "resnet50_v1",
                           "resnet50_v1.5", "vgg16", "cifar_resnet20"}) {
    SCOPED_TRACE(name);
    const absl::StatusOr<v1::Network> network = LoadNetwork(name);
    ASSERT_TRUE(network.ok()) << network.status();
    const absl::StatusOr<ShapedNetwork> original = InferShapes(*network);
    ASSERT_TRUE(original.ok()) << original.status();
    const absl::StatusOr<ImportedNetwork> imported =
        ImportPrototxt(WriteAsPrototxt(*original), Options());
    ASSERT_TRUE(imported.ok()) << imported.status();
    ExpectSameTensors(imported->shaped, *original);
  }
}

TEST(ImportPrototxtTest, TheOlderFormMeansTheSame) {
  constexpr char kOlder[] = R"(
    name: "old"
    layers { name: "d" type: DATA top: "data" top: "label"
      data_param { source: "x" batch_size: 2 } transform_param { crop_size: 9 mean_value: 1
        mean_value: 2 mean_value: 3 } include { phase: TRAIN } }
    layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2
      convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "gaussian" std: 0.01 } } }
    layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
    layers { name: "pool" type: POOLING bottom: "conv" top: "pool"
      pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
    layers { name: "fc" type: INNER_PRODUCT bottom: "pool" top: "fc"
      inner_product_param { num_output: 3 } }
    layers { name: "loss" type: SOFTMAX_LOSS bottom: "fc" bottom: "label" }
  )";
  const absl::StatusOr<ImportedNetwork> imported = ImportPrototxt(kOlder, Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->network.input().height(), 9);
  // 7x7 pooled by 2, rounded up: 4x4.
  EXPECT_EQ(imported->shaped.parameter_count, 4 * 27 + 4 + 3 * 64 + 3);
  EXPECT_THAT(imported->notes, IsEmpty());
  const v1::Filler& filler = imported->network.layers(0).convolution().weight_filler();
  EXPECT_EQ(filler.kind(), v1::Filler::KIND_GAUSSIAN);
  EXPECT_EQ(filler.standard_deviation(), 0.01);
}

TEST(ImportPrototxtTest, OnlyTheLayersOfTheTrainingPhaseAreTaken) {
  const absl::StatusOr<ImportedNetwork> imported = Import(R"(
    layer { name: "a" type: "ReLU" bottom: "data" top: "x" include { phase: TRAIN } }
    layer { name: "b" type: "ReLU" bottom: "data" top: "x" include { phase: TEST } }
    layer { name: "c" type: "ReLU" bottom: "x" top: "x" exclude { phase: TRAIN } }
    layer { name: "d" type: "ReLU" bottom: "x" top: "x" include { stage: "deploy" } }
    layer { name: "e" type: "ReLU" bottom: "x" top: "x" include { min_level: 1 } }
    layer { name: "f" type: "ReLU" bottom: "x" top: "x" exclude { not_stage: "deploy" } }
    layer { name: "g" type: "ReLU" bottom: "x" top: "x" include { phase: TEST } include { phase: TRAIN } }
  )");
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<std::string> names;
  for (const v1::Layer& layer : imported->network.layers()) names.push_back(layer.name());
  EXPECT_THAT(names, ElementsAre("a", "g", "fc", "loss"));
  EXPECT_THAT(imported->notes, Contains("left out, as not of the TRAIN phase: b, c, d, e, f"));
}

TEST(ImportPrototxtTest, LossesOfLessWeightMakeAuxiliaryHeads) {
  const absl::StatusOr<ImportedNetwork> imported = ImportPrototxt(R"(
    layer { name: "in" type: "DummyData" top: "data" top: "label"
      dummy_data_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } shape { dim: 1 } } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
      convolution_param { num_output: 4 kernel_size: 3 } }
    layer { name: "head" type: "InnerProduct" bottom: "conv" top: "head"
      inner_product_param { num_output: 5 } }
    layer { name: "head_loss" type: "SoftmaxWithLoss" bottom: "head" bottom: "label" top: "l1"
      loss_weight: 0.3 }
    layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
      inner_product_param { num_output: 5 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "l2" }
    layer { name: "top1" type: "Accuracy" bottom: "fc" bottom: "label" top: "top1" }
  )",
                                                                  Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->network.layers_size(), 5);
  EXPECT_FALSE(imported->network.layers(0).auxiliary());
  EXPECT_TRUE(imported->network.layers(1).auxiliary());
  EXPECT_TRUE(imported->network.layers(2).auxiliary());
  EXPECT_EQ(imported->network.layers(2).softmax_loss().loss_weight(), 0.3);
  EXPECT_FALSE(imported->network.layers(4).auxiliary());
  EXPECT_THAT(imported->notes, Contains("left out: Accuracy 'top1'"));
  EXPECT_THAT(ImportSummary(*imported), HasSubstr("used with the suffix +aux"));
}

TEST(ImportPrototxtTest, TheFileWrittenLoadsAsANetwork) {
  const absl::StatusOr<v1::Network> network = LoadNetwork("googlenet_bvlc+aux");
  ASSERT_TRUE(network.ok());
  const absl::StatusOr<ShapedNetwork> original = InferShapes(*network);
  ASSERT_TRUE(original.ok());
  const absl::StatusOr<ImportedNetwork> imported =
      ImportPrototxt(WriteAsPrototxt(*original), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::string path = absl::StrCat(testing::TempDir(), "/mine.textproto");
  ASSERT_TRUE(WriteTextProtoFile(imported->network, path, ImportSummary(*imported)).ok());
  for (const char* suffix : {"", "+aux"}) {
    const absl::StatusOr<v1::Network> loaded = LoadNetwork(path + suffix);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const absl::StatusOr<ShapedNetwork> shaped = InferShapes(*loaded);
    ASSERT_TRUE(shaped.ok()) << shaped.status();
    EXPECT_EQ(shaped->parameter_count, *suffix == '+' ? 13378280 : 6998552);
  }
}

TEST(ImportPrototxtTest, DeadBranchesAreLeftOutAndNamed) {
  const absl::StatusOr<ImportedNetwork> imported = ImportPrototxt(
      absl::StrCat(R"(
    input: "data" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
    input: "label" input_shape { dim: 1 }
    layer { name: "r" type: "ReLU" bottom: "data" top: "x" }
    layer { name: "dead" type: "Pooling" bottom: "x" top: "d" pooling_param { kernel_size: 2 } }
  )",
                   kClassifier,
                   "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' }"),
      Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->network.layers_size(), 3);
  EXPECT_THAT(imported->notes, ElementsAre("left out, as no loss depends on them: dead"));
}

TEST(ImportPrototxtTest, WhatIsIgnoredOrAssumedIsSaid) {
  const absl::StatusOr<ImportedNetwork> imported = Import(R"(
    layer { name: "conv" type: "Convolution" bottom: "data" top: "c" param { lr_mult: 0 }
      convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "bilinear" } }
      colour: "blue" }
    layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" batch_norm_param {
      use_global_stats: true eps: 0.001 } }
    layer { name: "sc" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
    layer { name: "drop" type: "Dropout" bottom: "c" top: "x" dropout_param { dropout_ratio: 0 } }
  )");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->network.layers(1).name(), "bn");
  EXPECT_EQ(imported->network.layers(1).batch_norm().epsilon(), 0.001);
  EXPECT_THAT(
      imported->notes,
      AllOf(Contains(AllOf(HasSubstr("ignored: net.prototxt:5:"), HasSubstr("\"colour\""))),
            Contains("learning rate 0 in the file, trained here: conv"),
            Contains(HasSubstr("filler 'bilinear'")), Contains(HasSubstr("use_global_stats")),
            Contains("left out: Dropout with ratio 0"),
            Contains(HasSubstr("a softmax loss was added behind 'fc'"))));
}

TEST(ImportPrototxtTest, WhatTheNetworkFileCannotHoldIsRefused) {
  const auto layer = [](const std::string& type, const std::string& rest) {
    return absl::StrCat("layer { name: 'n' type: '", type, "' bottom: 'data' top: 'x' ", rest,
                        " }");
  };
  const auto convolution = [&](const std::string& param) {
    return layer("Convolution", absl::StrCat("convolution_param { num_output: 4 ", param, " }"));
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {convolution("kernel_size: 3 dilation: 2"), "dilation: only 1 is supported, got 2"},
      {convolution("kernel_h: 1 kernel_w: 7"), "kernel_size: must be equal in height and width"},
      {convolution("kernel_size: 3 pad_h: 1"), "pad: must be equal in height and width, got 1, 0"},
      {convolution("kernel_size: 3 stride: 0"), "stride: expected 1 to 2147483647, got 0"},
      {convolution("kernel_size: 3 group: 0"), "group: expected 1"},
      {convolution(""), "kernel_size: expected 1 to 2147483647, got 0"},
      {convolution("kernel_size: 4000000000"), "kernel_size: expected 1 to 2147483647"},
      {layer("Convolution", "convolution_param { kernel_size: 3 }"), "num_output: expected 1"},
      {layer("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }"),
       "net.prototxt:2: layer 'n' (LRN): norm_region: only ACROSS_CHANNELS"},
      {layer("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"), "got STOCHASTIC"},
      {layer("Pooling", "pooling_param { global_pooling: true kernel_size: 2 }"),
       "leave out kernel_size"},
      {layer("ReLU", "relu_param { negative_slope: 0.1 }"), "negative_slope: only 0"},
      {layer("Concat", "bottom: 'data' concat_param { axis: 2 }"), "axis: only concatenation of"},
      {layer("Eltwise", "bottom: 'data' eltwise_param { operation: MAX }"), "got MAX"},
      {layer("Eltwise", "bottom: 'data' eltwise_param { coeff: 1 coeff: -1 }"), "coeff: only 1"},
      {layer("Eltwise", ""), "needs 2 bottoms, has 1"},
      {layer("InnerProduct", "inner_product_param { num_output: 3 axis: 2 }"), "axis: only 1"},
      {layer("Scale", "scale_param { bias_term: true }"), "only a Scale right behind a BatchNorm"},
      {layer("BatchNorm", ""), "no Scale with bias_term follows"},
      {layer("PReLU", ""), "layer 'n' (PReLU): type PReLU is not supported"},
      {layer("", ""), "type ? is not supported"},
      {layer("ReLU", "loss_weight: 1"), "loss_weight: only of SoftmaxWithLoss"},
      {layer("SoftmaxWithLoss", ""), "needs two bottoms, the output of a layer and the labels"},
  };
  for (const auto& [text, expected] : cases) {
    SCOPED_TRACE(text);
    EXPECT_THAT(Error(Import(text)), HasSubstr(expected));
  }
}

TEST(ImportPrototxtTest, EveryProblemIsListed) {
  EXPECT_THAT(Error(Import(R"(
    layer { name: "a" type: "Tile" bottom: "data" top: "y" }
    layer { name: "b" type: "ReLU" bottom: "dada" top: "z" }
    layer { name: "c" type: "ReLU" bottom: "y" top: "y" }
    layer { name: "d" type: "LRN" bottom: "data" top: "x" lrn_param { norm_region: WITHIN_CHANNEL } }
  )")),
              AllOf(HasSubstr("for 3 reasons"), HasSubstr("net.prototxt:3: layer 'a' (Tile)"),
                    HasSubstr("bottom 'dada' is made by no layer before this one (did you mean "
                              "'data'?)"),
                    HasSubstr("layer 'd' (LRN)"), HasSubstr("Supported types: Accuracy")));
}

TEST(ImportPrototxtTest, CyclesAndSharedWeightsAreNamed) {
  EXPECT_THAT(Error(Import(R"(
    layer { name: "a" type: "ReLU" bottom: "b" top: "a" }
    layer { name: "b" type: "ReLU" bottom: "a" top: "b" }
    layer { name: "c" type: "ReLU" bottom: "b" top: "x" }
  )")),
              HasSubstr("layer 'a' (ReLU): bottom 'b' is made by no layer before this one (layer "
                        "'b', further down, makes it: a cycle"));
  EXPECT_THAT(Error(Import(R"(
    layer { name: "a" type: "Convolution" bottom: "data" top: "a" param { name: "w" }
      convolution_param { num_output: 3 kernel_size: 1 } }
    layer { name: "b" type: "Convolution" bottom: "a" top: "x" param { name: "w" }
      convolution_param { num_output: 3 kernel_size: 1 } }
  )")),
              HasSubstr("param 'w' is shared with layer 'a'"));
}

TEST(ImportPrototxtTest, ANormalizedBlobIsReadByItsScaleOnly) {
  EXPECT_THAT(Error(Import(R"(
    layer { name: "bn" type: "BatchNorm" bottom: "data" top: "n" }
    layer { name: "sc" type: "Scale" bottom: "n" top: "x" scale_param { bias_term: true } }
    layer { name: "r" type: "ReLU" bottom: "n" top: "y" }
  )")),
              HasSubstr("bottom 'n' is a BatchNorm, which only a Scale can read"));
}

TEST(ImportPrototxtTest, AnImageSizeThatTheFileLacksHasToBeGiven) {
  const std::string text = absl::StrCat(
      "layer { name: 'd' type: 'Data' top: 'x' data_param { batch_size: 1 } }", kClassifier);
  EXPECT_THAT(Error(ImportPrototxt(text, Options())), HasSubstr("give --input="));
  ImportOptions options = Options();
  options.input.set_channels(1);
  options.input.set_height(28);
  options.input.set_width(28);
  const absl::StatusOr<ImportedNetwork> imported = ImportPrototxt(text, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->shaped.parameter_count, 28 * 28 * 5 + 5);
}

TEST(ImportPrototxtTest, TextThatIsNoDefinitionIsRefused) {
  EXPECT_THAT(Error(ImportPrototxt("\x08\x07 not text {", Options())),
              HasSubstr("net.prototxt:1:"));
  EXPECT_THAT(Error(ImportPrototxt("layer { name: 'a' ", Options())), HasSubstr("net.prototxt:1:"));
  EXPECT_THAT(Error(ImportPrototxt("layer { type: 7 }", Options())),
              HasSubstr("net.prototxt:1:15"));
  EXPECT_THAT(Error(ImportPrototxt("net: 'train_val.prototxt' base_lr: 0.01", Options())),
              HasSubstr("and not a solver's?"));
  EXPECT_THAT(Error(ImportPrototxt("", Options())), HasSubstr("holds no layers"));
  EXPECT_THAT(Error(ImportPrototxt("layers { layer { name: 'c' type: 'conv' } bottom: 'data' }",
                                   Options())),
              HasSubstr("is the form before 2014"));
}

TEST(ImportPrototxtTest, HostileSizesAreRefused) {
  EXPECT_THAT(Error(Import("layer { name: 'n' type: 'Convolution' bottom: 'data' top: 'x' "
                           "convolution_param { num_output: 2147483647 kernel_size: 2000000000 "
                           "pad: 2000000000 } }")),
              HasSubstr("layer n"));
  EXPECT_THAT(
      Error(ImportPrototxt(absl::StrCat("input: 'x' input_dim: 1 input_dim: 3 input_dim: -8 "
                                        "input_dim: 8\n",
                                        kClassifier),
                           Options())),
      HasSubstr("input 'x': height: expected 1 to 2147483647, got -8"));
  EXPECT_THAT(Error(ImportPrototxt(
                  absl::StrCat("input: 'x' input_dim: 1 input_dim: 3\n", kClassifier), Options())),
              HasSubstr("layer 'fc' (InnerProduct): bottom 'x' is a label"));
}

}  // namespace
}  // namespace paceline
