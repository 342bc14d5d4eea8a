// Whole networks against PyTorch (double precision) on the same weights and images:
// tests/golden/pytorch/make_goldens.py made the values.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "models/networks/network.h"
#include "proto/support/runfiles.h"
#include "proto/support/text_proto.h"
#include "worker/backend/cpu/engine_testing.h"
#include "worker/backend/cpu/onednn_engine.h"

namespace paceline {
namespace {

struct GoldenLine {
  std::string kind;  // "output", "gradient".
  std::string name;
  double norm = 0;
  double spread = 0;
  std::vector<std::pair<int64_t, double>> samples;
};

struct Golden {
  int batch = 0;
  double loss = 0;
  std::vector<GoldenLine> lines;
};

double Number(absl::string_view text) {
  double value = 0;
  EXPECT_TRUE(absl::SimpleAtod(text, &value)) << text;
  return value;
}

Golden ReadGolden(const std::string& name) {
  Golden golden;
  auto path = FindRunfile(absl::StrCat("tests/golden/pytorch/", name, ".txt"));
  EXPECT_TRUE(path.ok()) << path.status();
  auto text = ReadFile(*path);
  EXPECT_TRUE(text.ok()) << text.status();
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "network") golden.batch = static_cast<int>(Number(words[3]));
    if (words[0] == "loss") golden.loss = Number(words[1]);
    if (words[0] != "output" && words[0] != "gradient") continue;
    GoldenLine entry = {words[0], words[1], Number(words[2]), Number(words[3]), {}};
    for (size_t i = 4; i < words.size(); ++i) {
      std::pair<std::string, std::string> sample = absl::StrSplit(words[i], ':');
      entry.samples.push_back({static_cast<int64_t>(Number(sample.first)), Number(sample.second)});
    }
    golden.lines.push_back(entry);
  }
  return golden;
}

// fp32 against fp64: rounding flips a few ReLUs and maxima, and batch norm amplifies that, as it
// does in PyTorch's own fp32 run, whose deviation (`spread`) the file states. One flip is little in
// a norm, more in a single value. A wrong layout or formula is off by 100 %.
void ExpectAgrees(const GoldenLine& golden, const std::vector<float>& values) {
  double squares = 0;
  for (float value : values) squares += static_cast<double>(value) * value;
  const double tolerance = 2e-3 + 2 * golden.spread;
  EXPECT_NEAR(std::sqrt(squares), golden.norm, tolerance * golden.norm + 1e-7)
      << golden.kind << " " << golden.name;
  const double typical = golden.norm / std::sqrt(static_cast<double>(values.size()));
  int close = 0;
  for (const auto& [index, value] : golden.samples) {
    ASSERT_LT(index, static_cast<int64_t>(values.size())) << golden.name;
    const double error = std::abs(values[index] - value) / std::max(typical, std::abs(value));
    EXPECT_LT(error, 0.05 + 12 * golden.spread)
        << golden.kind << " " << golden.name << "[" << index << "] is " << values[index]
        << ", expected " << value;
    close += error < 0.01 + 2 * golden.spread;
  }
  EXPECT_GE(2 * close, static_cast<int>(golden.samples.size())) << golden.name;
}

class OneDnnEngineGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(OneDnnEngineGoldenTest, ForwardAndBackwardAgreeWithPyTorch) {
  const std::string name = GetParam();
  const Golden golden =
      ReadGolden(absl::StrCat(std::vector<std::string>(absl::StrSplit(name, '+'))[0],
                              absl::StrContains(name, "+aux") ? "_aux" : ""));
  absl::StatusOr<v1::Network> network = LoadNetwork(name);
  ASSERT_TRUE(network.ok()) << network.status();
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
  ASSERT_TRUE(shaped.ok()) << shaped.status();
  EngineOptions options = TestOptions(*shaped, golden.batch);
  options.training.set_no_dropout(true);
  OneDnnOptions cpu;
  cpu.threads = 2;
  cpu.reuse_memory = false;
  auto test = TestEngine::Create(*shaped, options, cpu);
  test->UseHashedWeights();
  test->LoadAndForward();
  EXPECT_NEAR(test->engine->Loss(), golden.loss, 1e-4 * golden.loss);
  int compared = 0;
  for (const GoldenLine& line : golden.lines) {
    if (line.kind != "output") continue;
    for (size_t l = 0; l < shaped->layers.size(); ++l) {
      if (shaped->layers[l].layer.name() != line.name) continue;
      absl::StatusOr<std::vector<float>> output = test->engine->ReadOutput(static_cast<int>(l));
      if (!output.ok()) continue;  // Exists only with its ReLU.
      ExpectAgrees(line, *output);
      ++compared;
    }
  }
  EXPECT_GE(compared, 2);
  test->Backward();
  int gradients = 0;
  for (const GoldenLine& line : golden.lines) {
    if (line.kind != "gradient") continue;
    for (size_t t = 0; t < shaped->parameters.size(); ++t) {
      if (shaped->parameters[t].name != line.name) continue;
      ExpectAgrees(line, test->Gradient(static_cast<int>(t)));
      ++gradients;
    }
  }
  EXPECT_EQ(gradients, static_cast<int>(shaped->parameters.size()));
}

INSTANTIATE_TEST_SUITE_P(Networks, OneDnnEngineGoldenTest,
                         testing::Values("lenet5", "cifar_resnet20", "alexnet_owt", "alexnet_caffe",
                                         "googlenet_bvlc+aux", "googlenet_bn", "resnet50_v1.5"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '+' || c == '.') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace paceline
