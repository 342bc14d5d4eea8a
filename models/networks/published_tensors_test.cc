// The built-in networks against tables of parameters, tensors and multiply-accumulates computed by
// others from the published definitions (shared/data/network_summary.csv, network_tensors.csv).
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"
#include "tests/testing/shared_data.h"

namespace paceline {
namespace {

// How a model of the tables is made from a network of ours.
struct Definition {
  std::string network;
  int image_size = 0;  // 0: as the network has it.
  int classes = 0;     // 0: as the network has it.
};

const std::map<std::string, Definition>& Definitions() {
  static const auto* definitions = new std::map<std::string, Definition>{
      {"alexnet_caffe_grouped_227", {"alexnet_caffe"}},
      {"alexnet_owt_torchvision_224", {"alexnet_owt"}},
      {"alexnet_mxnet_v1.1_symbol_224", {"alexnet_mxnet"}},
      {"alexnet_mxnet_v1.1_symbol_227", {"alexnet_mxnet", 227}},
      {"alexnet_tf_cnn_benchmarks_227_1001cls", {"alexnet_tf"}},
      {"googlenet_bvlc_caffe_224", {"googlenet_bvlc"}},
      {"googlenet_bn_torchvision_224", {"googlenet_bn"}},
      {"googlenet_tf_cnn_benchmarks_224_1001cls", {"googlenet_tf"}},
      {"resnet50_v1_224", {"resnet50_v1"}},
      {"resnet50_v1.5_224", {"resnet50_v1.5"}},
      {"resnet50_v1.5_224_1001cls", {"resnet50_v1.5", 0, 1001}},
      {"vgg16_224", {"vgg16"}},
  };
  return *definitions;
}

absl::StatusOr<ShapedNetwork> Shaped(const Definition& definition, bool with_auxiliary) {
  absl::StatusOr<v1::Network> network =
      LoadNetwork(absl::StrCat(definition.network, with_auxiliary ? "+aux" : ""));
  if (!network.ok()) return network.status();
  if (definition.image_size != 0) {
    network->mutable_input()->set_height(definition.image_size);
    network->mutable_input()->set_width(definition.image_size);
  }
  if (definition.classes != 0) {
    for (v1::Layer& layer : *network->mutable_layers()) {
      if (layer.has_fully_connected() && layer.fully_connected().outputs() == network->classes()) {
        layer.mutable_fully_connected()->set_outputs(definition.classes);
      }
    }
    network->set_classes(definition.classes);
  }
  return InferShapes(*network);
}

// Rows by column name.
std::vector<std::map<std::string, std::string>> ReadTable(absl::string_view file_name) {
  const std::vector<std::vector<std::string>> lines = ReadSharedCsv(file_name);
  std::vector<std::map<std::string, std::string>> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (size_t column = 0; column < lines[0].size(); ++column) {
      row[lines[0][column]] = column < lines[i].size() ? lines[i][column] : "";
    }
  }
  return rows;
}

int64_t Number(const std::string& text) {
  int64_t number = -1;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << "not a number: " << text;
  return number;
}

TEST(PublishedTensorsTest, EverySummaryRowEqualsOurNetwork) {
  const auto rows = ReadTable("network_summary.csv");
  ASSERT_FALSE(rows.empty());
  for (auto row : rows) {
    const bool with_auxiliary = row["with_aux"] == "1";
    SCOPED_TRACE(absl::StrCat(row["model"], with_auxiliary ? " with auxiliary heads" : ""));
    const auto definition = Definitions().find(row["model"]);
    ASSERT_NE(definition, Definitions().end()) << "no network for this row";
    const absl::StatusOr<ShapedNetwork> shaped = Shaped(definition->second, with_auxiliary);
    ASSERT_TRUE(shaped.ok()) << shaped.status();

    int64_t convolutions = 0;
    int64_t fully_connected = 0;
    for (const ShapedLayer& layer : shaped->layers) {
      convolutions += layer.layer.has_convolution();
      fully_connected += layer.layer.has_fully_connected();
    }
    const ParameterTensor* largest = &shaped->parameters[0];
    for (const ParameterTensor& parameter : shaped->parameters) {
      if (parameter.elements > largest->elements) largest = &parameter;
    }
    EXPECT_EQ(shaped->parameter_count, Number(row["learnable_params"]));
    EXPECT_EQ(shaped->gradient_bytes, Number(row["grad_bytes_fp32"]));
    EXPECT_EQ(shaped->parameters.size(), Number(row["grad_tensors"]));
    EXPECT_EQ(convolutions, Number(row["conv_layers"]));
    EXPECT_EQ(fully_connected, Number(row["fc_layers"]));
    EXPECT_EQ(shaped->forward_macs, Number(row["forward_macs"]));
    EXPECT_EQ(largest->name, row["largest_tensor"]);
    EXPECT_EQ(largest->elements, Number(row["largest_tensor_params"]));
    EXPECT_EQ(absl::StrFormat("%.4f", 1.0 * largest->elements / shaped->parameter_count),
              row["share_of_largest"]);
  }
}

TEST(PublishedTensorsTest, EveryTensorHasItsPublishedNameShapeAndPlace) {
  // Lines "tensor shape parameters bytes auxiliary" of each model, in order.
  std::map<std::string, std::vector<std::string>> published;
  for (auto row : ReadTable("network_tensors.csv")) {
    std::vector<std::string>& tensors = published[row["model"]];
    ASSERT_EQ(Number(row["index"]), tensors.size()) << row["model"];
    tensors.push_back(absl::StrCat(row["tensor"], " ", row["shape"], " ", row["params"], " ",
                                   row["bytes_fp32"], " ", row["aux"]));
  }
  EXPECT_EQ(published.size(), Definitions().size());
  for (const auto& [model, tensors] : published) {
    SCOPED_TRACE(model);
    const auto definition = Definitions().find(model);
    ASSERT_NE(definition, Definitions().end()) << "no network for this model";
    const bool with_auxiliary = LoadNetwork(absl::StrCat(definition->second.network, "+aux")).ok();
    const absl::StatusOr<ShapedNetwork> shaped = Shaped(definition->second, with_auxiliary);
    ASSERT_TRUE(shaped.ok()) << shaped.status();
    std::vector<std::string> ours;
    for (const ParameterTensor& tensor : shaped->parameters) {
      ours.push_back(absl::StrCat(tensor.name, " ", absl::StrJoin(tensor.shape, "x"), " ",
                                  tensor.elements, " ", tensor.gradient_bytes(), " ",
                                  tensor.auxiliary ? 1 : 0));
    }
    EXPECT_THAT(ours, testing::ElementsAreArray(tensors));
  }
}

}  // namespace
}  // namespace paceline
