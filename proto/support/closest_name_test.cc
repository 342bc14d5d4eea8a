#include "proto/support/closest_name.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

const std::vector<std::string>& Names() {
  static const auto* names = new std::vector<std::string>{
      "alexnet_caffe", "alexnet_owt", "googlenet_bn", "resnet50_v1", "resnet50_v1.5", "vgg16"};
  return *names;
}

TEST(ClosestNameTest, FindsTheNameWithFewestEdits) {
  EXPECT_EQ(ClosestName("resnet50_v1.4", Names()), "resnet50_v1.5");
  EXPECT_EQ(ClosestName("vgg-16", Names()), "vgg16");
  EXPECT_EQ(ClosestName("gogolenet_bn", Names()), "googlenet_bn");
  EXPECT_EQ(ClosestName("AlexNet_OWT", Names()), "alexnet_owt");
}

TEST(ClosestNameTest, OffersTheFirstNameThatContinuesAPrefix) {
  EXPECT_EQ(ClosestName("alexnet", Names()), "alexnet_caffe");
  EXPECT_EQ(ClosestName("resnet50", Names()), "resnet50_v1");
}

TEST(ClosestNameTest, OffersNothingWhenNothingIsClose) {
  EXPECT_EQ(ClosestName("bert", Names()), "");
  EXPECT_EQ(ClosestName("", Names()), "");
  EXPECT_EQ(ClosestName("vgg16", {}), "");
  EXPECT_EQ(DidYouMean("bert", Names()), "");
}

TEST(ClosestNameTest, HandlesVeryLongNames) {
  EXPECT_EQ(ClosestName(std::string(1000000, 'x'), Names()), "");
}

TEST(ClosestNameTest, WordsTheSuggestion) {
  EXPECT_EQ(DidYouMean("vgg1", Names()), " (did you mean 'vgg16'?)");
}

}  // namespace
}  // namespace paceline
