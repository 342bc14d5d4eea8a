// The layer table of every built-in network, against tests/golden/networks.
#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"
#include "tests/testing/golden.h"

namespace paceline {
namespace {

std::string KindName(const v1::Layer& layer) {
  const auto* field = layer.GetDescriptor()->FindFieldByNumber(layer.kind_case());
  return field == nullptr ? "none" : field->name();
}

std::string LayerTable(const ShapedNetwork& shaped) {
  const auto row = [](const std::vector<std::string>& cells) {
    return absl::StrFormat("%-18s %-16s %-14s %10s %12s %12s %12s  %s\n", cells[0], cells[1],
                           cells[2], cells[3], cells[4], cells[5], cells[6], cells[7]);
  };
  std::string table = absl::StrCat(
      "# ", shaped.network.name(), ", one image of ", shaped.network.input().channels(), "x",
      shaped.network.input().height(), "x", shaped.network.input().width(), "\n");
  table +=
      row({"# layer", "kind", "output", "parameters", "macs", "forward", "backward", "inputs"});
  for (const ShapedLayer& layer : shaped.layers) {
    int64_t parameters = 0;
    for (const int parameter : layer.parameters)
      parameters += shaped.parameters[parameter].elements;
    std::vector<std::string> inputs;
    for (const int input : layer.inputs) {
      inputs.push_back(input == kDataInput ? "data" : shaped.layers[input].layer.name());
    }
    table +=
        row({layer.layer.name(), KindName(layer.layer),
             absl::StrCat(layer.output.channels, "x", layer.output.height, "x", layer.output.width),
             absl::StrCat(parameters), absl::StrCat(layer.forward_macs),
             absl::StrCat(layer.forward_flops), absl::StrCat(layer.backward_flops),
             absl::StrJoin(inputs, " ")});
  }
  absl::StrAppend(&table, "# ", shaped.layers.size(), " layers, ", shaped.parameters.size(),
                  " tensors, ", shaped.parameter_count, " parameters, ", shaped.gradient_bytes,
                  " gradient bytes, ", shaped.activation_bytes, " activation bytes\n# ",
                  shaped.forward_macs, " macs, ", shaped.forward_flops, " forward flops, ",
                  shaped.backward_flops, " backward flops\n");
  return table;
}

class LayerTablesTest : public testing::TestWithParam<std::string> {};

TEST_P(LayerTablesTest, EqualsGolden) {
  const absl::StatusOr<v1::Network> network = LoadNetwork(GetParam());
  ASSERT_TRUE(network.ok()) << network.status();
  const absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
  ASSERT_TRUE(shaped.ok()) << shaped.status();
  EXPECT_TRUE(MatchesGolden(absl::StrCat("tests/golden/networks/", GetParam(), ".txt"),
                            LayerTable(*shaped)));
}

std::vector<std::string> NetworksWithAndWithoutAuxiliaryLayers() {
  std::vector<std::string> names;
  for (const std::string& name : KnownNetworks()) {
    names.push_back(name);
    if (LoadNetwork(name + "+aux").ok()) names.push_back(name + "+aux");
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(, LayerTablesTest,
                         testing::ValuesIn(NetworksWithAndWithoutAuxiliaryLayers()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace paceline
