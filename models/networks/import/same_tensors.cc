#include "models/networks/import/same_tensors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<std::string> Tensors(const ShapedNetwork& network) {
  std::vector<std::string> tensors;
  for (const ParameterTensor& tensor : network.parameters) {
    tensors.push_back(absl::StrCat(tensor.name, " ", absl::StrJoin(tensor.shape, "x"),
                                   tensor.auxiliary ? " auxiliary" : ""));
  }
  return tensors;
}

}  // namespace

void ExpectSameTensors(const ShapedNetwork& imported, const ShapedNetwork& original) {
  EXPECT_THAT(Tensors(imported), testing::ElementsAreArray(Tensors(original)));
  EXPECT_EQ(imported.parameter_count, original.parameter_count);
  EXPECT_EQ(imported.network.classes(), original.network.classes());
  EXPECT_EQ(imported.network.layers_size(), original.network.layers_size());
  EXPECT_EQ(imported.forward_macs, original.forward_macs);
  EXPECT_EQ(imported.forward_flops, original.forward_flops);
  EXPECT_EQ(imported.backward_flops, original.backward_flops);
  EXPECT_EQ(imported.activation_bytes, original.activation_bytes);
}

}  // namespace paceline
