#include "models/networks/network.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string WriteTemporary(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  EXPECT_TRUE(WriteFile(text, path).ok());
  return path;
}

constexpr char kTinyWithHead[] = R"(
  name: "tiny" classes: 3 input { channels: 1 height: 4 width: 4 }
  layers { name: "conv" convolution { output_channels: 2 kernel: 3 } }
  layers { name: "head" auxiliary: true fully_connected { outputs: 3 } }
  layers { name: "head_loss" auxiliary: true softmax_loss {} }
  layers { name: "fc" fully_connected { outputs: 3 } }
  layers { name: "loss" softmax_loss {} }
)";

TEST(LoadNetworkTest, KnowsTheNetworksSortedByName) {
  const std::vector<std::string> names = KnownNetworks();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"alexnet_caffe", "alexnet_owt", "googlenet_bvlc", "googlenet_bn",
                           "resnet50_v1", "resnet50_v1.5", "vgg16", "lenet5", "cifar_resnet20"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

TEST(LoadNetworkTest, EveryNetworkIsValidAndNamedAsItsFile) {
  for (const std::string& name : KnownNetworks()) {
    const absl::StatusOr<v1::Network> network = LoadNetwork(name);
    ASSERT_TRUE(network.ok()) << network.status();
    EXPECT_EQ(network->name(), name);
    EXPECT_FALSE(network->title().empty()) << name;
    EXPECT_FALSE(network->source().empty()) << name;
    EXPECT_TRUE(InferShapes(*network).ok()) << name;
  }
}

TEST(LoadNetworkTest, KeepsAuxiliaryLayersOnlyWhenAsked) {
  const absl::StatusOr<v1::Network> plain = LoadNetwork("googlenet_bvlc");
  const absl::StatusOr<v1::Network> with_heads = LoadNetwork("googlenet_bvlc+aux");
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(with_heads.ok()) << with_heads.status();
  EXPECT_EQ(plain->name(), "googlenet_bvlc");
  EXPECT_EQ(with_heads->name(), "googlenet_bvlc+aux");
  for (const v1::Layer& layer : plain->layers()) EXPECT_FALSE(layer.auxiliary()) << layer.name();
  int auxiliary_losses = 0;
  for (const v1::Layer& layer : with_heads->layers()) {
    if (layer.auxiliary() && layer.has_softmax_loss()) {
      ++auxiliary_losses;
      EXPECT_EQ(layer.softmax_loss().loss_weight(), 0.3);
    }
  }
  EXPECT_EQ(auxiliary_losses, 2);
}

TEST(LoadNetworkTest, UnknownNameListsTheKnownOnesAndTheClosest) {
  const absl::Status status = LoadNetwork("resnet50_v1.6").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'resnet50_v1.6'"), HasSubstr("did you mean 'resnet50_v1.5'?"),
                    HasSubstr("alexnet_owt"), HasSubstr("vgg16"), HasSubstr(".textproto")));
  EXPECT_EQ(LoadNetwork("").status().code(), absl::StatusCode::kNotFound);
}

TEST(LoadNetworkTest, RefusesAuxiliaryLayersOfANetworkWithoutAny) {
  const absl::Status status = LoadNetwork("vgg16+aux").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'vgg16' has no auxiliary layers"));
}

TEST(LoadNetworkTest, ReadsAFile) {
  const std::string path = WriteTemporary("tiny.textproto", kTinyWithHead);
  const absl::StatusOr<v1::Network> plain = LoadNetwork(path);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->layers_size(), 3);
  const absl::StatusOr<ShapedNetwork> shaped = InferShapes(*plain);
  ASSERT_TRUE(shaped.ok()) << shaped.status();
  const absl::StatusOr<v1::Network> with_head = LoadNetwork(path + "+aux");
  ASSERT_TRUE(with_head.ok()) << with_head.status();
  EXPECT_EQ(with_head->name(), "tiny+aux");
  // "fc" follows the head in the file and still reads "conv".
  const absl::StatusOr<ShapedNetwork> shaped_with_head = InferShapes(*with_head);
  ASSERT_TRUE(shaped_with_head.ok()) << shaped_with_head.status();
  EXPECT_EQ(shaped_with_head->layers[3].layer.name(), "fc");
  EXPECT_EQ(shaped_with_head->layers[3].inputs, std::vector<int>{0});
}

TEST(LoadNetworkTest, NamesTheLinesOfAFileThatDoesNotParse) {
  const std::string path = WriteTemporary("broken.textproto", "name: \"x\"\nclases: 3\n");
  const absl::Status status = LoadNetwork(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("broken.textproto:2:"), HasSubstr("clases")));
}

TEST(LoadNetworkTest, NamesAMissingFile) {
  const absl::Status status = LoadNetwork("/nowhere/net.textproto").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/net.textproto"));
}

TEST(LoadNetworkTest, RefusesAFileThatTakesABuiltInNameForAnotherNetwork) {
  std::string text = kTinyWithHead;
  text.replace(text.find("tiny"), 4, "vgg16");
  const absl::Status status = LoadNetwork(WriteTemporary("mine.textproto", text)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("choose another name"));
}

TEST(LoadNetworkTest, ReportsAReferenceToAnAuxiliaryLayerThoughItIsLeftOut) {
  std::string text = kTinyWithHead;
  text.replace(text.find("name: \"fc\""), 10, "name: \"fc\" inputs: \"head\"");
  const absl::Status status = LoadNetwork(WriteTemporary("leak.textproto", text)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("leak.textproto"), HasSubstr("layer fc: inputs: 'head' is auxiliary")));
}

}  // namespace
}  // namespace paceline
