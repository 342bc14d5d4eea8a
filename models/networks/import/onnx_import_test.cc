#include "models/networks/import/onnx_import.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/networks/import/network_builder.h"
#include "models/networks/import/same_tensors.h"
#include "models/networks/network.h"
#include "onnx/onnx.pb.h"
#include "proto/paceline/v1/network.pb.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Shape = std::vector<int64_t>;

// Writes models as exporters do. A node's output is called as the node.
class OnnxWriter {
 public:
  explicit OnnxWriter(int64_t opset = 17) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    graph().set_name("net");
  }

  onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  std::string Bytes() const { return model_.SerializeAsString(); }

  static void SetType(onnx::ValueInfoProto* info, const std::string& name, const Shape& shape,
                      int type = onnx::TensorProto::FLOAT) {
    info->set_name(name);
    info->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    for (const int64_t size : shape) {
      auto* dim = info->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
      if (size < 0) {
        dim->set_dim_param("N");
      } else {
        dim->set_dim_value(size);
      }
    }
  }
  void Image(const Shape& shape) { SetType(graph().add_input(), "image", shape); }
  void Output(const std::string& name) { graph().add_output()->set_name(name); }

  // Weights have shapes only, as where their data lies in another file.
  std::string Weight(const std::string& name, const Shape& shape) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const int64_t size : shape) tensor.add_dims(size);
    return name;
  }
  std::string Integers(const std::string& name, const Shape& values) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.add_dims(static_cast<int64_t>(values.size()));
    for (const int64_t value : values) tensor.add_int64_data(value);
    return name;
  }

  std::string Node(const std::string& op_type, const std::string& name,
                   const std::vector<std::string>& inputs) {
    onnx::NodeProto& node = *graph().add_node();
    node.set_op_type(op_type);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(name);
    return name;
  }
  // Attributes of the last node.
  OnnxWriter& Int(const std::string& name, int64_t value) {
    onnx::AttributeProto& attribute = Attribute(name, onnx::AttributeProto::INT);
    attribute.set_i(value);
    return *this;
  }
  OnnxWriter& Float(const std::string& name, double value) {
    onnx::AttributeProto& attribute = Attribute(name, onnx::AttributeProto::FLOAT);
    attribute.set_f(static_cast<float>(value));
    return *this;
  }
  OnnxWriter& Text(const std::string& name, const std::string& value) {
    onnx::AttributeProto& attribute = Attribute(name, onnx::AttributeProto::STRING);
    attribute.set_s(value);
    return *this;
  }
  OnnxWriter& Ints(const std::string& name, const Shape& values) {
    onnx::AttributeProto& attribute = Attribute(name, onnx::AttributeProto::INTS);
    for (const int64_t value : values) attribute.add_ints(value);
    return *this;
  }

 private:
  onnx::AttributeProto& Attribute(const std::string& name,
                                  onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto& attribute =
        *graph().mutable_node(graph().node_size() - 1)->add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }

  onnx::ModelProto model_;
};

// A network of ours as an exporter would write it: nodes named as the layers, a Flatten before the
// fully connected layers, no loss.
std::string WriteAsOnnx(const ShapedNetwork& network) {
  OnnxWriter writer;
  const v1::ImageSize& input = network.network.input();
  writer.Image({-1, input.channels(), input.height(), input.width()});
  std::vector<std::string> outputs;
  for (const ShapedLayer& shaped : network.layers) {
    const v1::Layer& layer = shaped.layer;
    std::vector<std::string> inputs;
    for (const int i : shaped.inputs) {
      inputs.push_back(i == kDataInput ? "image" : network.layers[i].layer.name());
    }
    const auto weights = [&] {
      for (const int i : shaped.parameters) {
        inputs.push_back(writer.Weight(network.parameters[i].name, network.parameters[i].shape));
      }
    };
    const auto window = [&](int64_t kernel, int64_t stride, int64_t pad) {
      writer.Ints("kernel_shape", {kernel, kernel});
      writer.Ints("strides", {std::max<int64_t>(stride, 1), std::max<int64_t>(stride, 1)});
      writer.Ints("pads", {pad, pad, pad, pad});
    };
    switch (layer.kind_case()) {
      case v1::Layer::kConvolution:
        weights();
        writer.Node("Conv", layer.name(), inputs);
        window(layer.convolution().kernel(), layer.convolution().stride(),
               layer.convolution().pad());
        writer.Int("group", std::max(1, layer.convolution().groups()));
        break;
      case v1::Layer::kPooling: {
        const v1::Pooling& pooling = layer.pooling();
        const bool is_max = pooling.method() == v1::Pooling::METHOD_MAX;
        if (pooling.global()) {
          writer.Node(is_max ? "GlobalMaxPool" : "GlobalAveragePool", layer.name(), inputs);
          break;
        }
        writer.Node(is_max ? "MaxPool" : "AveragePool", layer.name(), inputs);
        window(pooling.kernel(), pooling.stride(), pooling.pad());
        writer.Int("ceil_mode", pooling.ceil_mode());
        if (!is_max) writer.Int("count_include_pad", 1);
        break;
      }
      case v1::Layer::kRelu:
        writer.Node("Relu", layer.name(), inputs);
        break;
      case v1::Layer::kLrn:
        writer.Node("LRN", layer.name(), inputs);
        writer.Int("size", layer.lrn().local_size()).Float("alpha", layer.lrn().alpha());
        writer.Float("beta", layer.lrn().beta());
        break;
      case v1::Layer::kBatchNorm:
        weights();
        inputs.push_back(writer.Weight(layer.name() + ".mean", {shaped.input.channels}));
        inputs.push_back(writer.Weight(layer.name() + ".variance", {shaped.input.channels}));
        writer.Node("BatchNormalization", layer.name(), inputs);
        break;
      case v1::Layer::kConcat:
        writer.Node("Concat", layer.name(), inputs);
        writer.Int("axis", 1);
        break;
      case v1::Layer::kAdd:
        writer.Node("Add", layer.name(), inputs);
        break;
      case v1::Layer::kDropout:
        writer.Node("Dropout", layer.name(), inputs);
        writer.Float("ratio", layer.dropout().ratio());
        break;
      case v1::Layer::kFullyConnected:
        inputs = {writer.Node("Flatten", layer.name() + ".flat", inputs)};
        weights();
        writer.Node("Gemm", layer.name(), inputs);
        writer.Int("transB", 1);
        break;
      case v1::Layer::kSoftmaxLoss:
        // The main output first.
        outputs.insert(layer.auxiliary() ? outputs.end() : outputs.begin(), inputs[0]);
        break;
      case v1::Layer::KIND_NOT_SET:
        break;
    }
  }
  for (const std::string& output : outputs) writer.Output(output);
  return writer.Bytes();
}

ImportOptions Options() {
  ImportOptions options;
  options.file = "m.onnx";
  options.name = "mine";
  return options;
}

// A small network with everything between image and classes; `change` edits it before the end.
std::string TinyModel(const std::function<void(OnnxWriter*)>& change = nullptr) {
  OnnxWriter writer;
  writer.Image({1, 3, 8, 8});
  writer.Node("Conv", "conv",
              {"image", writer.Weight("c.weight", {4, 3, 3, 3}), writer.Weight("c.bias", {4})});
  writer.Ints("pads", {1, 1, 1, 1});
  writer.Node("Relu", "relu", {"conv"});
  writer.Node("GlobalAveragePool", "pool", {"relu"});
  writer.Node("Flatten", "flat", {"pool"});
  writer.Node("Gemm", "fc",
              {"flat", writer.Weight("fc.weight", {10, 4}), writer.Weight("fc.bias", {10})});
  writer.Int("transB", 1);
  writer.Output("fc");
  if (change) change(&writer);
  return writer.Bytes();
}

std::string Error(const std::string& bytes, const ImportOptions& options = Options()) {
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(bytes, options);
  EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(imported.status().message());
}

std::vector<std::string> LayerNames(const v1::Network& network) {
  std::vector<std::string> names;
  for (const v1::Layer& layer : network.layers()) names.push_back(layer.name());
  return names;
}

TEST(ImportOnnxTest, NetworksComeBackAsTheyWereWritten) {
  for (const char* name : {"alexnet_caffe", "googlenet_bvlc", "googlenet_bvlc+aux", "googlenet_bn",
                           "resnet50_v1", "resnet50_v1.5", "vgg16", "lenet5"}) {
    SCOPED_TRACE(name);
    const absl::StatusOr<v1::Network> network = LoadNetwork(name);
    ASSERT_TRUE(network.ok()) << network.status();
    const absl::StatusOr<ShapedNetwork> original = InferShapes(*network);
    ASSERT_TRUE(original.ok()) << original.status();
    const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(WriteAsOnnx(*original), Options());
    ASSERT_TRUE(imported.ok()) << imported.status();
    ExpectSameTensors(imported->shaped, *original);
  }
}

TEST(ImportOnnxTest, LayersAreNamedAsTheModulesOfTheirWeightsAndNumbersAddUp) {
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(TinyModel(), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->network.name(), "mine");
  EXPECT_EQ(imported->network.source(), "m.onnx");
  EXPECT_EQ(imported->network.classes(), 10);
  EXPECT_THAT(LayerNames(imported->network), ElementsAre("c", "relu", "pool", "fc", "loss"));
  EXPECT_EQ(imported->shaped.parameter_count, 4 * 27 + 4 + 40 + 10);
  EXPECT_EQ(imported->shaped.forward_macs, 4 * 27 * 64 + 40);
  EXPECT_THAT(imported->notes, Contains(HasSubstr("a softmax loss was added behind 'fc'")));
  EXPECT_THAT(ImportSummary(*imported),
              AllOf(HasSubstr("parameters   162\n"), HasSubstr("6952 multiply-accumulates"),
                    HasSubstr("1 convolution, 1 fully_connected")));
}

TEST(ImportOnnxTest, NamesOfPyTorchModulesAreTakenApart) {
  const std::string bytes = TinyModel([](OnnxWriter* writer) {
    writer->graph().mutable_node(1)->set_name("/layer1/layer1.0/relu/Relu_1");
    writer->graph().mutable_node(2)->set_name("a pool: 1");
  });
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(bytes, Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(LayerNames(imported->network),
              ElementsAre("c", "layer1.0.relu", "a_pool__1", "fc", "loss"));
}

TEST(ImportOnnxTest, LayersOfOneNameAndDataAreToldApart) {
  OnnxWriter writer;
  writer.Image({-1, 1, 4, 4});
  std::string last = "image";
  for (int i = 0; i < 3; ++i) last = writer.Node("Relu", absl::StrCat("r", i), {last});
  last = writer.Node("Relu", "r3", {last});
  for (int i = 0; i < 4; ++i) writer.graph().mutable_node(i)->set_name(i < 3 ? "x" : "data");
  writer.Node("Flatten", "flat", {last});
  writer.Node("MatMul", "fc", {"flat", writer.Weight("w", {16, 2})});
  writer.Output("fc");
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(writer.Bytes(), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(LayerNames(imported->network),
              ElementsAre("x", "x.2", "x.3", "data.2", "fc", "loss"));
}

TEST(ImportOnnxTest, ABiasAddedToAConvolutionOrMatMulIsTheirs) {
  OnnxWriter writer;
  writer.Image({-1, 3, 8, 8});
  writer.Node("Conv", "conv", {"image", writer.Weight("c.weight", {4, 3, 3, 3})});
  writer.Node("Add", "conv_b", {"conv", writer.Weight("cb", {1, 4, 1, 1})});
  writer.Node("Flatten", "flat", {"conv_b"});
  writer.Node("Transpose", "wt", {writer.Weight("w", {10, 144})});
  writer.Ints("perm", {1, 0});
  writer.Node("MatMul", "fc", {"flat", "wt"});
  writer.Node("Add", "fc_b", {writer.Weight("fb", {10}), "fc"});
  writer.Node("Softmax", "scores", {"fc_b"});
  writer.Output("scores");
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(writer.Bytes(), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->shaped.parameter_count, 4 * 27 + 4 + 1440 + 10);
  EXPECT_EQ(imported->network.layers_size(), 3);
}

TEST(ImportOnnxTest, FlatteningIsFoundHoweverItIsWritten) {
  const std::vector<std::function<void(OnnxWriter*)>> ways = {
      [](OnnxWriter* w) { w->Node("Flatten", "flat", {"pool"}); },
      [](OnnxWriter* w) {
        w->Node("Reshape", "flat", {"pool", w->Integers("s", {0, -1})});
      },
      [](OnnxWriter* w) {
        w->Node("Reshape", "flat", {"pool", w->Integers("s", {-1, 4})});
      },
      [](OnnxWriter* w) {
        w->Node("Squeeze", "flat", {"pool", w->Integers("axes", {-1, 2})});
      },
      [](OnnxWriter* w) {
        w->Node("Squeeze", "flat", {"pool"}), w->Ints("axes", {2, 3});
      },
      // x.view(x.size(0), -1) of PyTorch.
      [](OnnxWriter* w) {
        w->Node("Shape", "shape", {"pool"});
        w->Node("Gather", "batch", {"shape", w->Integers("zero", {0})});
        w->Node("Concat", "target", {"batch", w->Integers("rest", {-1})}), w->Int("axis", 0);
        w->Node("Reshape", "flat", {"pool", "target"});
      },
      [](OnnxWriter* w) {
        w->Node("Shape", "shape", {"pool"});
        w->Node(
            "Slice", "batch",
            {"shape", w->Integers("from", {0}), w->Integers("to", {1}), w->Integers("axes", {0})});
        w->Node("Concat", "target", {"batch", w->Integers("rest", {-1})}), w->Int("axis", 0);
        w->Node("Reshape", "flat", {"pool", "target"});
      },
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(i);
    OnnxWriter writer;
    writer.Image({-1, 4, 8, 8});
    writer.Node("ReduceMean", "pool", {"image"});
    writer.Ints("axes", {-2, -1});
    ways[i](&writer);
    writer.Node("Gemm", "fc", {"flat", writer.Weight("fc.weight", {4, 10})});
    writer.Output("fc");
    const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(writer.Bytes(), Options());
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->shaped.parameter_count, 40);
  }
}

TEST(ImportOnnxTest, RatiosAreReadInTheFormOfEveryOpset) {
  for (const bool as_input : {false, true}) {
    const std::string bytes = TinyModel([&](OnnxWriter* writer) {
      onnx::NodeProto& relu = *writer->graph().mutable_node(1);
      relu.set_op_type("Dropout");
      if (as_input) {
        onnx::TensorProto& ratio = *writer->graph().add_initializer();
        ratio.set_name("ratio");
        ratio.set_data_type(onnx::TensorProto::FLOAT);
        const float value = 0.3F;
        ratio.set_raw_data(&value, sizeof(value));
        relu.add_input("ratio");
      } else {
        onnx::AttributeProto& ratio = *relu.add_attribute();
        ratio.set_name("ratio");
        ratio.set_f(0.3F);
      }
    });
    const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(bytes, Options());
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->network.layers(1).dropout().ratio(), 0.3);
  }
}

TEST(ImportOnnxTest, PaddingBehindAMaximumIsRoundingUp) {
  OnnxWriter writer;
  writer.Image({1, 1, 8, 8});
  writer.Node("MaxPool", "pool", {"image"});
  writer.Ints("kernel_shape", {3, 3}).Ints("strides", {2, 2}).Ints("pads", {0, 0, 1, 1});
  writer.Node("Flatten", "flat", {"pool"});
  writer.Node("Gemm", "fc", {"flat", writer.Weight("fc.weight", {16, 2})});
  writer.Output("fc");
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(writer.Bytes(), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(imported->network.layers(0).pooling().ceil_mode());
  // 7: no padding would be seen, (7 + 2 - 3) / 2 + 1 = 4 with two pixels.
  writer.graph().mutable_node(0)->mutable_attribute(2)->set_ints(2, 3);
  writer.graph().mutable_node(0)->mutable_attribute(2)->set_ints(3, 3);
  EXPECT_THAT(Error(writer.Bytes()), HasSubstr("is not the same as rounding up"));
}

TEST(ImportOnnxTest, ALossOfATrainingGraphIsTaken) {
  const std::string bytes = TinyModel([](OnnxWriter* writer) {
    OnnxWriter::SetType(writer->graph().add_input(), "labels", {-1}, onnx::TensorProto::INT64);
    writer->Node("SoftmaxCrossEntropyLoss", "xent", {"fc", "labels"});
    writer->graph().clear_output();
    writer->Output("xent");
  });
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(bytes, Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(LayerNames(imported->network), ElementsAre("c", "relu", "pool", "fc", "xent"));
  EXPECT_THAT(imported->notes, Not(Contains(HasSubstr("added"))));
}

TEST(ImportOnnxTest, MergedBatchNormalizationIsSaid) {
  const std::string bytes = TinyModel([](OnnxWriter* writer) {
    writer->graph().mutable_node(0)->set_input(1, "onnx::Conv_7");
    writer->graph().mutable_initializer(0)->set_name("onnx::Conv_7");
  });
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(bytes, Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->notes, Contains(HasSubstr("merged batch normalization into 1 conv")));
}

TEST(ImportOnnxTest, EqualWeightsStoredOnceAreCountedForEachLayerAndSaid) {
  OnnxWriter writer;
  writer.Image({-1, 2, 4, 4});
  writer.Weight("ones", {2});
  writer.Node("Identity", "bn2.weight", {"ones"});
  writer.Node("BatchNormalization", "a", {"image", "ones", "ones", "ones", "ones"});
  writer.Node("BatchNormalization", "b", {"a", "bn2.weight", "ones", "ones", "ones"});
  writer.Node("GlobalAveragePool", "pool", {"b"});
  writer.Node("Flatten", "flat", {"pool"});
  writer.Output("flat");
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(writer.Bytes(), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->shaped.parameter_count, 8);
  EXPECT_EQ(imported->network.layers(1).name(), "bn2");
  EXPECT_THAT(imported->notes, Contains(HasSubstr("stored tensors are used by several layers")));
}

TEST(ImportOnnxTest, ImagesOfChannelsLastAndScaledAreTaken) {
  OnnxWriter writer;
  writer.Image({-1, 6, 8, 3});
  writer.Node("Transpose", "turned", {"image"});
  writer.Ints("perm", {0, 3, 1, 2});
  writer.Node("Sub", "centred", {"turned", writer.Weight("mean", {3, 1, 1})});
  writer.Node("Div", "scaled", {"centred", writer.Weight("std", {3, 1, 1})});
  writer.Node("GlobalMaxPool", "pool", {"scaled"});
  writer.Node("Flatten", "flat", {"pool"});
  writer.Node("Gemm", "fc", {"flat", writer.Weight("fc.weight", {3, 5})});
  writer.Output("fc");
  const absl::StatusOr<ImportedNetwork> imported = ImportOnnx(writer.Bytes(), Options());
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->network.input().channels(), 3);
  EXPECT_EQ(imported->network.input().height(), 6);
  EXPECT_EQ(imported->network.input().width(), 8);
  EXPECT_THAT(imported->notes, Contains(HasSubstr("scaling of the image by Div")));
}

TEST(ImportOnnxTest, AnOpenImageSizeHasToBeGiven) {
  const std::string bytes = TinyModel([](OnnxWriter* writer) {
    writer->graph().clear_input();
    writer->Image({-1, 3, -1, -1});
  });
  EXPECT_THAT(Error(bytes), HasSubstr("give --input=CHANNELSxHEIGHTxWIDTH"));
  ImportOptions options = Options();
  options.input.set_channels(3);
  options.input.set_height(8);
  options.input.set_width(8);
  EXPECT_TRUE(ImportOnnx(bytes, options).ok());
}

TEST(ImportOnnxTest, EveryProblemIsListedWithItsNodeAndOperator) {
  const std::string bytes = TinyModel([](OnnxWriter* writer) {
    writer->graph().mutable_node(1)->set_op_type("HardSwish");
    writer->Node("Gelu", "g1", {"fc"});
    writer->graph().mutable_node(5)->set_domain("com.microsoft");
    writer->Node("Conv", "wide", {"image", writer->Weight("wide.weight", {4, 3, 1, 7})});
    writer->Node("Conv", "dilated", {"image", "c.weight"});
    writer->Ints("dilations", {2, 2});
  });
  EXPECT_THAT(Error(bytes),
              AllOf(HasSubstr("for 4 reasons"),
                    HasSubstr("node 'relu': operator HardSwish is not supported"),
                    HasSubstr("node 'g1': operator com.microsoft.Gelu is not supported"),
                    HasSubstr("node 'wide' (Conv): kernel_shape: must be equal"),
                    HasSubstr("node 'dilated' (Conv): dilations: only 1 is supported, got 2, 2"),
                    HasSubstr("Supported operators: Add, AveragePool")));
}

TEST(ImportOnnxTest, WhatTheNetworkFileCannotHoldIsRefused) {
  struct Case {
    std::string expected;
    std::function<void(OnnxWriter*)> change;
  };
  const std::vector<Case> cases = {
      {"pads: only equal padding on all sides",
       [](OnnxWriter* w) {
         w->Node("Conv", "n", {"image", "c.weight"}), w->Ints("pads", {0, 0, 1, 1});
       }},
      {"auto_pad: SAME_UPPER with stride 2",
       [](OnnxWriter* w) {
         w->Node("Conv", "n", {"image", "c.weight"});
         w->Text("auto_pad", "SAME_UPPER").Ints("strides", {2, 2});
       }},
      {"strides: expected 1 to 2147483647, got 0",
       [](OnnxWriter* w) {
         w->Node("Conv", "n", {"image", "c.weight"}), w->Ints("strides", {0, 0});
       }},
      {"group: expected 1 to 2147483647, got -1",
       [](OnnxWriter* w) {
         w->Node("Conv", "n", {"image", "c.weight"}), w->Int("group", -1);
       }},
      {"the weight must be a constant",
       [](OnnxWriter* w) {
         w->Node("Conv", "n", {"image", "conv"});
       }},
      {"must have 4 dimensions, has the shape 4x3x3",
       [](OnnxWriter* w) {
         w->Node("Conv", "n", {"image", w->Weight("w", {4, 3, 3})});
       }},
      {"kernel_shape: expected 1", [](OnnxWriter* w) { w->Node("MaxPool", "n", {"conv"}); }},
      {"has a height and width; flatten it first",
       [](OnnxWriter* w) {
         w->Node("MatMul", "n", {"conv", "fc.weight"});
       }},
      {"two computed values are not a layer",
       [](OnnxWriter* w) {
         w->Node("MatMul", "n", {"flat", "fc"});
       }},
      {"alpha: only 1",
       [](OnnxWriter* w) {
         w->Node("Gemm", "n", {"flat", "fc.weight"}), w->Float("alpha", 2);
       }},
      {"transA: only 0",
       [](OnnxWriter* w) {
         w->Node("Gemm", "n", {"flat", "fc.weight"}), w->Int("transA", 1);
       }},
      {"axis: only concatenation of channels",
       [](OnnxWriter* w) {
         w->Node("Concat", "n", {"conv", "relu"}), w->Int("axis", 2);
       }},
      {"only the bias of a convolution or MatMul",
       [](OnnxWriter* w) {
         w->Node("Add", "n", {"relu", "c.bias"});
       }},
      {"supported on the input image only",
       [](OnnxWriter* w) {
         w->Node("Mul", "n", {"relu", "c.bias"});
       }},
      {"only flattening to {batch, values} is supported, got {1, 2, 2, 8, 8}",
       [](OnnxWriter* w) {
         w->Node("Reshape", "n", {"conv", w->Integers("s", {1, 2, 2, 8, 8})});
       }},
      {"bias: must be positive",
       [](OnnxWriter* w) { w->Node("LRN", "n", {"conv"}), w->Int("size", 5).Float("bias", 0); }},
      {"is a softmax, which only the loss can read",
       [](OnnxWriter* w) { w->Node("Softmax", "s", {"fc"}), w->Node("Relu", "n", {"s"}); }},
      {"axes: only the mean over height and width",
       [](OnnxWriter* w) { w->Node("ReduceMean", "n", {"conv"}), w->Ints("axes", {1}); }},
      {"from which another node makes a layer with a bias",
       [](OnnxWriter* w) {
         w->Node("Conv", "k", {"image", "c.weight"});
         w->Node("Add", "kb", {"k", "c.bias"});
         w->Node("Relu", "n", {"k"});
       }},
      {"which is not a layer's output",
       [](OnnxWriter* w) {
         w->Node("Dropout", "d", {"conv"});
         w->graph().mutable_node(5)->add_output("mask");
         w->Node("Relu", "n", {"mask"});
       }},
  };
  for (const Case& c : cases) EXPECT_THAT(Error(TinyModel(c.change)), HasSubstr(c.expected));
}

TEST(ImportOnnxTest, ShapesThatDisagreeWithTheFileNameTheLayer) {
  EXPECT_THAT(
      Error(TinyModel([](OnnxWriter* w) { w->graph().mutable_initializer(2)->set_dims(1, 5); })),
      HasSubstr("node 'fc' (Gemm): weight 'fc.weight': layer fc: shape inference gives "
                "fc.weight the shape 10x4, the file 10x5"));
  EXPECT_THAT(
      Error(TinyModel([](OnnxWriter* w) { w->graph().mutable_initializer(1)->set_dims(0, 3); })),
      HasSubstr("layer c: shape inference gives c.bias the shape 4, the file 3"));
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) {
                OnnxWriter::SetType(w->graph().add_value_info(), "relu", {1, 4, 8, 9});
              })),
              HasSubstr("value 'relu': layer relu: shape inference gives 4x8x8, the file 4x8x9"));
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) {
                OnnxWriter::SetType(w->graph().add_value_info(), "fc", {-1, 11});
              })),
              HasSubstr("10 values a sample, the file 11"));
  // A group count that does not fit its weight.
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) {
                onnx::AttributeProto& group = *w->graph().mutable_node(0)->add_attribute();
                group.set_name("group");
                group.set_i(2);
              })),
              HasSubstr("layer c:"));
}

TEST(ImportOnnxTest, CyclesAndMissingValuesAreNamed) {
  EXPECT_THAT(
      Error(TinyModel([](OnnxWriter* w) { w->graph().mutable_node(1)->set_input(0, "pool"); })),
      HasSubstr("node 'relu' (Relu): reads 'pool', which a later node computes: a cycle"));
  EXPECT_THAT(
      Error(TinyModel([](OnnxWriter* w) { w->graph().mutable_node(1)->set_input(0, "relu"); })),
      HasSubstr("a cycle"));
  EXPECT_THAT(
      Error(TinyModel([](OnnxWriter* w) { w->graph().mutable_node(1)->set_input(0, "nix"); })),
      HasSubstr("node 'relu' (Relu): reads 'nix', which nothing computes"));
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) { w->Output("nix"); })),
              HasSubstr("output 'nix': no node computes it"));
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) { w->Node("Relu", "relu", {"conv"}); })),
              HasSubstr("computes 'relu', which was there before"));
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) { w->graph().clear_input(); })),
              HasSubstr("expected one image of four dimensions, found none"));
  EXPECT_THAT(Error(TinyModel([](OnnxWriter* w) {
                OnnxWriter::SetType(w->graph().add_input(), "second", {1, 3, 8, 8});
              })),
              HasSubstr("found image, second"));
}

TEST(ImportOnnxTest, AnythingThatIsNoModelIsRefused) {
  EXPECT_THAT(Error(""), HasSubstr("m.onnx: is no ONNX model, or was cut off: it holds no nodes"));
  EXPECT_THAT(Error("name: \"a prototxt\""), HasSubstr("is no ONNX model"));
  const std::string bytes = TinyModel();
  // Wherever a file is cut off, it is an error or, where whole fields are missing, a smaller model;
  // never a crash.
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    refused += !ImportOnnx(bytes.substr(0, size), Options()).ok();
  }
  EXPECT_EQ(refused, bytes.size());
}

TEST(ImportOnnxTest, HostileSizesAreRefused) {
  const int64_t huge = int64_t{1} << 62;
  for (const Shape& shape :
       {Shape{huge, huge, 3, 3}, Shape{-4, 3, 3, 3}, Shape{0, 3, 3, 3}, Shape{4, 3, 0, 0},
        Shape{int64_t{1} << 31, 3, 1, 1}, Shape{int64_t{1} << 30, 3, 1, 1}}) {
    SCOPED_TRACE(absl::StrJoin(shape, "x"));
    EXPECT_FALSE(Error(TinyModel([&](OnnxWriter* w) {
                   w->Node("Conv", "n", {"image", w->Weight("n.weight", shape)});
                   w->graph().mutable_node(1)->set_input(0, "image");
                   w->Output("n");
                 })).empty());
  }
  EXPECT_THAT(Error(TinyModel([&](OnnxWriter* w) {
                w->graph().clear_input();
                w->Image({1, 3, huge, huge});
              })),
              HasSubstr("input: height: expected 1 to 2147483647"));
  EXPECT_THAT(Error(TinyModel([&](OnnxWriter* w) {
                w->Node("Gather", "n", {w->Integers("some", {1, 2}), w->Integers("at", {-huge})});
              })),
              HasSubstr("is outside the 2 values"));
}

TEST(ImportOnnxTest, ABuiltInNameIsRefused) {
  ImportOptions options = Options();
  options.name = "vgg16";
  EXPECT_THAT(Error(TinyModel(), options), HasSubstr("give --name=ANOTHER"));
}

}  // namespace
}  // namespace paceline
