#include "analysis/scaling/trace_replay.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

IterationTrace RandomTrace(std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.0001, 0.01);
  IterationTrace trace;
  trace.other_seconds = 0.05;
  const int layers = 2 + random() % 20;
  for (int layer = 0; layer < layers; ++layer) {
    trace.tensors.push_back(
        {layer, 1000 + static_cast<int64_t>(random() % 100000), seconds(random), seconds(random)});
    if (random() % 2) trace.tensors.push_back({layer, 64, 0, seconds(random) / 10});
  }
  return trace;
}

TEST(TraceReplayTest, WaitFreeAgreesWithTheRecurrence) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const IterationTrace trace = RandomTrace(random);
    double ready = 0, end = 0;
    for (int i = static_cast<int>(trace.tensors.size()) - 1; i >= 0; --i) {
      // A layer's second tensor comes first on the way back, and is ready with the first.
      if (i + 1 == static_cast<int>(trace.tensors.size()) ||
          trace.tensors[i + 1].layer != trace.tensors[i].layer) {
        const int layer = trace.tensors[i].layer;
        for (const TracedTensor& tensor : trace.tensors) {
          if (tensor.layer == layer) ready += tensor.backward_seconds;
        }
      }
      end = std::max(ready, end) + trace.tensors[i].communication_seconds;
    }
    absl::StatusOr<double> seconds = ReplaySeconds(trace, OneMessagePerTensor(trace));
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_NEAR(*seconds, trace.other_seconds + end, 1e-9);
  }
}

TEST(TraceReplayTest, OneMessageFollowsBackwardAndSavesStartUps) {
  IterationTrace trace;
  trace.other_seconds = 1;
  trace.tensors = {
      {0, 10, 0.5, 0.1}, {1, 1000, 0.25, 0.3}, {2, 1000, 0.25, 0.3}, {3, 1000, 0.5, 0.3}};
  EXPECT_DOUBLE_EQ(MessageStartUpSeconds(trace), 0.1);
  absl::StatusOr<double> seconds = ReplaySeconds(trace, OneMessage(trace));
  ASSERT_TRUE(seconds.ok());
  EXPECT_NEAR(*seconds, 1 + 1.5 + (1.0 - 3 * 0.1), 1e-9);
}

TEST(TraceReplayTest, MergesTensorsThatFollowWithinAStartUp) {
  IterationTrace trace;
  // Start-up 0.1; layers 3 and 2 come 0.01 apart, layers 1 and 0 much later.
  trace.tensors = {
      {0, 10, 0.5, 0.1}, {1, 1000, 0.5, 0.2}, {2, 1000, 0.01, 0.2}, {3, 1000, 0.01, 0.2}};
  const Messages messages = MergedMessages(trace);
  ASSERT_EQ(messages.size(), 3);
  EXPECT_THAT(messages[0], ElementsAre(3, 2));
  EXPECT_THAT(messages[1], ElementsAre(1));
  EXPECT_THAT(messages[2], ElementsAre(0));
}

TEST(TraceReplayTest, MergingNeverDelaysRandomTracesMuch) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const IterationTrace trace = RandomTrace(random);
    absl::StatusOr<double> merged = ReplaySeconds(trace, MergedMessages(trace));
    absl::StatusOr<double> wait_free = ReplaySeconds(trace, OneMessagePerTensor(trace));
    ASSERT_TRUE(merged.ok() && wait_free.ok());
    EXPECT_LE(*merged, *wait_free + MessageStartUpSeconds(trace) + 1e-9);
  }
}

TEST(TraceReplayTest, FixedSecondsHasTheSmallestRelativeError) {
  absl::StatusOr<double> fixed = FitFixedSeconds({1.0, 1.0, 1.0}, {1.1, 1.2, 1.9});
  ASSERT_TRUE(fixed.ok());
  EXPECT_NEAR(*fixed, 0.1, 0.11);
  EXPECT_EQ(*FitFixedSeconds({2.0}, {1.0}), 0);  // Never negative.
  EXPECT_FALSE(FitFixedSeconds({}, {}).ok());
  EXPECT_FALSE(FitFixedSeconds({1.0}, {1.0, 2.0}).ok());
}

TEST(TraceReplayTest, RejectsBadTraces) {
  IterationTrace trace;
  EXPECT_THAT(ReplaySeconds(trace, {}).status().message(), HasSubstr("no tensors"));
  trace.tensors = {{0, 10, 0.1, 0.1}, {1, 10, 0.1, -0.1}};
  EXPECT_THAT(ReplaySeconds(trace, OneMessage(trace)).status().message(), HasSubstr("tensors[1]"));
  trace.tensors[1].communication_seconds = 0.1;
  EXPECT_THAT(ReplaySeconds(trace, {{1}}).status().message(), HasSubstr("tensor 0 is in no"));
  EXPECT_THAT(ReplaySeconds(trace, {{1, 0}, {1}}).status().message(), HasSubstr("has tensor 1"));
  trace.tensors[1].layer = 5;
  EXPECT_THAT(ReplaySeconds(trace, OneMessage(trace)).status().message(),
              HasSubstr("layers must ascend"));
  trace.tensors[1].layer = 1;
  trace.other_seconds = -1;
  EXPECT_EQ(ReplaySeconds(trace, OneMessage(trace)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace paceline
