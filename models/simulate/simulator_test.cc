#include "models/simulate/simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `layers` layers with one tensor each.
ShapedNetwork Chain(int layers) {
  ShapedNetwork network;
  network.network.set_name("chain");
  for (int layer = 0; layer < layers; ++layer) {
    ShapedLayer shaped;
    shaped.parameters = {layer};
    shaped.backward_flops = 1000;
    network.layers.push_back(shaped);
    ParameterTensor tensor;
    tensor.elements = 1000;
    tensor.layer = layer;
    network.parameters.push_back(tensor);
    network.gradient_bytes += tensor.gradient_bytes();
  }
  return network;
}

IterationSchedule Compiled(const ShapedNetwork& network, const v1::FrameworkPolicy& policy,
                           int ranks) {
  v1::ClusterShape cluster;
  cluster.set_hosts(1);
  cluster.set_devices_per_host(ranks);
  absl::StatusOr<IterationSchedule> schedule = CompileSchedule(network, policy, cluster, 1);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *schedule;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Random phase durations, and the durations per operation they mean for a schedule. Vectors are per
// layer; communication per group, in the schedule's order of groups.
struct Durations {
  double read = 0, copy = 0, update = 0;
  std::vector<double> forward, backward, first, second, pack, unpack;

  Durations(int layers, int groups, std::mt19937& random, double input_scale = 1) {
    std::uniform_real_distribution<double> uniform(0.1, 1);
    read = input_scale * layers * uniform(random);
    copy = input_scale * layers * uniform(random);
    update = uniform(random);
    for (int layer = 0; layer < layers; ++layer) {
      forward.push_back(uniform(random));
      backward.push_back(uniform(random));
    }
    for (int group = 0; group < groups; ++group) {
      first.push_back(2 * uniform(random));
      second.push_back(2 * uniform(random));
      pack.push_back(0.1 * uniform(random));
      unpack.push_back(0.1 * uniform(random));
    }
  }

  std::vector<double> PerOperation(const IterationSchedule& schedule) const {
    std::vector<double> seconds;
    for (const Operation& operation : schedule.operations) {
      switch (operation.kind) {
        case OperationKind::kRead:
          seconds.push_back(read);
          break;
        case OperationKind::kCopyInput:
          seconds.push_back(copy);
          break;
        case OperationKind::kForward:
          seconds.push_back(forward[operation.layer]);
          break;
        case OperationKind::kBackward:
          seconds.push_back(backward[operation.layer]);
          break;
        case OperationKind::kPack:
          seconds.push_back(pack[operation.group]);
          break;
        case OperationKind::kUnpack:
          seconds.push_back(unpack[operation.group]);
          break;
        case OperationKind::kAllReduce:
        case OperationKind::kReduceToOwner:
        case OperationKind::kPush:
          seconds.push_back(first[operation.group]);
          break;
        case OperationKind::kBroadcast:
        case OperationKind::kPull:
          seconds.push_back(second[operation.group]);
          break;
        case OperationKind::kUpdate:
          seconds.push_back(update);
          break;
      }
    }
    return seconds;
  }
};

Timeline Simulated(const IterationSchedule& schedule, const std::vector<double>& seconds) {
  absl::StatusOr<Timeline> timeline = Simulate(schedule, seconds);
  EXPECT_TRUE(timeline.ok()) << timeline.status();
  return *timeline;
}

v1::FrameworkPolicy Policy(absl::string_view name, int prefetch_batches = -1,
                           bool copy_overlaps_compute = true) {
  v1::FrameworkPolicy policy = *LoadPolicy(name);
  if (prefetch_batches >= 0) {
    policy.mutable_input()->set_prefetch_batches(prefetch_batches);
    policy.mutable_input()->set_copy_overlaps_compute(copy_overlaps_compute);
  }
  return policy;
}

constexpr int kTrials = 50;
constexpr double kRounding = 1e-9;

TEST(SimulateTest, OneDeviceMatchesTheClosedFormsOfInput) {
  std::mt19937 random(1);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 1 + trial % 7;
    const ShapedNetwork network = Chain(layers);
    const Durations d(layers, 0, random);
    const double compute = Sum(d.forward) + Sum(d.backward) + d.update;
    const auto period = [&](int prefetch, bool overlap) {
      const IterationSchedule schedule = Compiled(network, Policy("bsp", prefetch, overlap), 1);
      return Simulated(schedule, d.PerOperation(schedule)).period_seconds;
    };
    // Nothing overlapped; one stage of prefetch; staged.
    EXPECT_NEAR(period(0, false), d.read + d.copy + compute, kRounding);
    EXPECT_NEAR(period(1, true), std::max(d.read + d.copy, compute), kRounding);
    EXPECT_NEAR(period(2, true), std::max({d.read, d.copy, compute}), kRounding);
    EXPECT_NEAR(period(4, true), std::max({d.read, d.copy, compute}), kRounding);
    // The copy on the compute stream.
    EXPECT_NEAR(period(2, false), std::max(d.read, d.copy + compute), kRounding);
  }
}

TEST(SimulateTest, BspMatchesItsClosedForm) {
  std::mt19937 random(2);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 1 + trial % 9;
    const IterationSchedule schedule = Compiled(Chain(layers), Policy("bsp"), 4);
    const Durations d(layers, 1, random);
    const Timeline timeline = Simulated(schedule, d.PerOperation(schedule));
    const double work = Sum(d.forward) + Sum(d.backward) + d.first[0] + d.update;
    EXPECT_NEAR(timeline.period_seconds, std::max({d.read, d.copy, work}), kRounding);
    EXPECT_NEAR(timeline.exposed_communication_seconds, d.first[0], kRounding);
    EXPECT_NEAR(timeline.hidden_communication_seconds, 0, kRounding);
    EXPECT_NEAR(timeline.input_wait_seconds, timeline.period_seconds - work, kRounding);
  }
}

TEST(SimulateTest, WfbpMatchesTheRecurrenceOfThePaper) {
  std::mt19937 random(3);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 1 + trial % 12;
    const IterationSchedule schedule = Compiled(Chain(layers), Policy("wfbp"), 4);
    const Durations d(layers, layers, random, 0.2);
    const Timeline timeline = Simulated(schedule, d.PerOperation(schedule));
    // r(L) = t_f + t_b(L); s(l) = max(r(l), e(l+1)); e(l) = s(l) + t_c(l). Group 0 is layer L.
    double ready = Sum(d.forward), end = 0;
    for (int layer = layers - 1; layer >= 0; --layer) {
      ready += d.backward[layer];
      end = std::max(ready, end) + d.first[layers - 1 - layer];
    }
    const double work = std::max(ready, end) + d.update;
    EXPECT_NEAR(timeline.period_seconds, std::max({d.read, d.copy, work}), kRounding);
    EXPECT_NEAR(timeline.exposed_communication_seconds, std::max(0.0, end - ready), kRounding);
    EXPECT_NEAR(timeline.communication_seconds, Sum(d.first), kRounding);
    EXPECT_NEAR(timeline.hidden_communication_seconds, Sum(d.first) - (end - ready), kRounding);
  }
}

TEST(SimulateTest, BucketsMatchTheirRecurrenceWithCopies) {
  std::mt19937 random(4);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 2 + trial % 11;
    v1::FrameworkPolicy policy = Policy("pytorch_ddp");
    v1::ByBytes& rule = *policy.mutable_communication()->mutable_grouping()->mutable_by_bytes();
    rule.set_first_bytes(4000);  // One tensor, then three at a time.
    rule.set_bytes(12000);
    const IterationSchedule schedule = Compiled(Chain(layers), policy, 4);
    const int buckets = static_cast<int>(schedule.groups.size());
    ASSERT_EQ(buckets, 1 + (layers - 1 + 2) / 3);
    const Durations d(layers, buckets, random, 0.1);
    double now = d.copy + Sum(d.forward), end = 0;
    std::vector<double> ends;
    for (int bucket = 0, layer = layers - 1; bucket < buckets; ++bucket) {
      for (size_t i = 0; i < schedule.groups[bucket].tensors.size(); ++i)
        now += d.backward[layer--];
      now += d.pack[bucket];
      end = std::max(now, end) + d.first[bucket];
      ends.push_back(end);
    }
    for (int bucket = 0; bucket < buckets; ++bucket) {
      now = std::max(now, ends[bucket]) + d.unpack[bucket];
    }
    EXPECT_NEAR(Simulated(schedule, d.PerOperation(schedule)).period_seconds, now + d.update,
                kRounding);
  }
}

TEST(SimulateTest, ParameterServerAfterBackwardIsAFlowShopOfPushAndPull) {
  std::mt19937 random(5);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 1 + trial % 8;
    v1::FrameworkPolicy policy = Policy("mxnet_dist_sync");
    policy.mutable_communication()->set_overlaps_backward(false);
    policy.mutable_update()->set_iteration_barrier(true);
    policy.mutable_input()->set_copy_overlaps_compute(true);
    const IterationSchedule schedule = Compiled(Chain(layers), policy, 4);
    const Durations d(layers, layers, random, 0.1);
    // Two machines in series: max over i of (pushes up to i, then pulls from i on).
    double transfer = 0;
    for (int i = 0; i < layers; ++i) {
      double path = 0;
      for (int j = 0; j <= i; ++j) path += d.first[j];
      for (int j = i; j < layers; ++j) path += d.second[j];
      transfer = std::max(transfer, path);
    }
    const Timeline timeline = Simulated(schedule, d.PerOperation(schedule));
    EXPECT_NEAR(timeline.period_seconds, Sum(d.forward) + Sum(d.backward) + transfer, kRounding);
    EXPECT_NEAR(timeline.exposed_communication_seconds, transfer, kRounding);
  }
}

TEST(SimulateTest, PullsBeforeLayersOverlapForward) {
  std::mt19937 random(6);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 1 + trial % 8;
    const IterationSchedule schedule =
        Compiled(Chain(layers), Policy("tensorflow_parameter_server"), 4);
    const Durations d(layers, layers, random, 0.1);
    // From the barrier on: pulls in forward order (group L-1-l is layer l), forward behind them.
    double pulled = 0, now = 0;
    for (int layer = 0; layer < layers; ++layer) {
      pulled += d.second[layers - 1 - layer];
      now = std::max(now, pulled) + d.forward[layer];
    }
    // Backward with pushes, until all are there.
    double end = 0;
    for (int layer = layers - 1; layer >= 0; --layer) {
      now += d.backward[layer];
      end = std::max(now, end) + d.first[layers - 1 - layer];
    }
    EXPECT_NEAR(Simulated(schedule, d.PerOperation(schedule)).period_seconds, end, kRounding);
  }
}

TEST(SimulateTest, UpdatesOfCaffeMpiDelayLaterReductions) {
  std::mt19937 random(7);
  for (int trial = 0; trial < kTrials; ++trial) {
    const int layers = 1 + trial % 8;
    v1::FrameworkPolicy policy = Policy("caffe_mpi");
    policy.mutable_communication()->mutable_grouping()->mutable_per_layer();
    const IterationSchedule schedule = Compiled(Chain(layers), policy, 4);
    const Durations d(layers, layers, random, 0.1);
    double ready = Sum(d.forward), end = 0;
    for (int layer = layers - 1; layer >= 0; --layer) {
      ready += d.backward[layer];
      end = std::max(ready, end) + d.first[layers - 1 - layer] + d.update;
    }
    const Timeline timeline = Simulated(schedule, d.PerOperation(schedule));
    EXPECT_NEAR(timeline.period_seconds, end, kRounding);
    EXPECT_NEAR(timeline.exposed_communication_seconds, end - ready, kRounding);
    EXPECT_EQ(timeline.update_on_compute_seconds, 0);
  }
}

TEST(SimulateTest, SharesOfTheComputeStreamAddUpToThePeriod) {
  std::mt19937 random(8);
  for (const std::string& name : KnownPolicies()) {
    const v1::FrameworkPolicy policy = Policy(name);
    // Ticks of a fixed clock have no steady state to compare with.
    if (policy.communication().grouping().by_bytes().cycle_seconds() > 0) continue;
    for (const double input_scale : {0.05, 1.0, 5.0}) {
      for (int trial = 0; trial < 20; ++trial) {
        const int layers = 2 + trial % 6;
        const IterationSchedule schedule = Compiled(Chain(layers), policy, 1 + trial % 4);
        const Durations d(layers, static_cast<int>(schedule.groups.size()), random, input_scale);
        const Timeline t = Simulated(schedule, d.PerOperation(schedule));
        EXPECT_NEAR(t.compute_seconds + t.update_on_compute_seconds + t.copy_on_compute_seconds +
                        t.exposed_communication_seconds + t.input_wait_seconds,
                    t.period_seconds, kRounding)
            << name;
        EXPECT_GE(t.exposed_communication_seconds, 0) << name;
        EXPECT_GE(t.input_wait_seconds, 0) << name;
      }
    }
  }
}

TEST(SimulateTest, CriticalPathCoversThePeriodInTimeOrder) {
  std::mt19937 random(9);
  for (const char* name : {"bsp", "wfbp", "caffe_mpi", "mxnet_dist_sync"}) {
    const IterationSchedule schedule = Compiled(Chain(5), Policy(name), 4);
    const Durations d(5, static_cast<int>(schedule.groups.size()), random, 0.1);
    const std::vector<double> seconds = d.PerOperation(schedule);
    const Timeline timeline = Simulated(schedule, seconds);
    double length_seconds = 0;
    for (const int operation : timeline.critical_path) length_seconds += seconds[operation];
    // Communication that reaches into the next iteration may begin before the iteration does.
    EXPECT_GE(length_seconds, timeline.period_seconds - kRounding) << name;
  }
  const IterationSchedule schedule = Compiled(Chain(2), Policy("bsp"), 2);
  const Durations d(2, 1, random, 0.01);
  std::vector<absl::string_view> names;
  for (const int i : Simulated(schedule, d.PerOperation(schedule)).critical_path) {
    names.push_back(OperationKindName(schedule.operations[i].kind));
  }
  EXPECT_THAT(names,
              ElementsAre("forward", "forward", "backward", "backward", "all_reduce", "update"));
}

TEST(SimulateTest, SpansAreRelativeToTheFirstForward) {
  const IterationSchedule schedule = Compiled(Chain(3), Policy("wfbp"), 2);
  const Timeline timeline =
      Simulated(schedule, std::vector<double>(schedule.operations.size(), 1.0));
  ASSERT_EQ(timeline.spans.size(), schedule.operations.size());
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    const Timeline::Span& span = timeline.spans[i];
    EXPECT_NEAR(span.end_seconds - span.begin_seconds, 1, kRounding);
    if (operation.kind == OperationKind::kRead) EXPECT_LT(span.begin_seconds, 0);
    if (operation.kind == OperationKind::kForward) {
      EXPECT_NEAR(span.begin_seconds, operation.layer, kRounding);
    }
  }
}

// Three streams in a ring whose last edge spans two iterations: two iterations are in flight, and
// the ring's mean, (a + b + c) / 2, exceeds every single operation.
TEST(SimulateTest, FindsThePeriodOfSystemsThatAlternate) {
  IterationSchedule schedule;
  schedule.streams = {{StreamKind::kCompute, "compute"},
                      {StreamKind::kCommunication, "communication_0"},
                      {StreamKind::kCommunication, "communication_1"}};
  schedule.operations.resize(3);
  schedule.operations[0].kind = OperationKind::kForward;
  schedule.operations[1].kind = OperationKind::kPush;
  schedule.operations[2].kind = OperationKind::kPull;
  for (int i = 0; i < 3; ++i) schedule.operations[i].stream = i;
  schedule.operations[1].dependencies = {{0, 0}};
  schedule.operations[2].dependencies = {{1, 0}};
  schedule.operations[0].dependencies = {{2, 2}};
  const Timeline timeline = Simulated(schedule, {1.0, 1.25, 1.5});
  EXPECT_NEAR(timeline.period_seconds, 3.75 / 2, kRounding);
  EXPECT_NEAR(timeline.compute_seconds + timeline.exposed_communication_seconds, 3.75 / 2,
              kRounding);
}

TEST(SimulateTest, HorovodGroupsStartOnTicksOfTheCycle) {
  const ShapedNetwork network = Chain(3);
  v1::FrameworkPolicy policy = Policy("horovod");
  ScheduleCosts costs;
  costs.backward_seconds = {1, 1, 1};  // Far apart: one group a layer.
  v1::ClusterShape cluster;
  cluster.set_hosts(1);
  cluster.set_devices_per_host(2);
  policy.mutable_communication()->mutable_grouping()->mutable_by_bytes()->set_cycle_seconds(0.25);
  const IterationSchedule schedule = *CompileSchedule(network, policy, cluster, 1, costs);
  ASSERT_EQ(schedule.groups.size(), 3u);
  std::vector<double> seconds;
  for (const Operation& operation : schedule.operations) {
    const bool input =
        operation.kind == OperationKind::kRead || operation.kind == OperationKind::kCopyInput;
    seconds.push_back(input                                         ? 0
                      : operation.kind == OperationKind::kAllReduce ? 0.1
                      : operation.kind == OperationKind::kUpdate    ? 0.05
                                                                    : 0.3);
  }
  const Timeline timeline = Simulated(schedule, seconds);
  // 6 x 0.3 s, up to one tick, 0.1 s, 0.05 s.
  EXPECT_GE(timeline.period_seconds, 1.8 + 0.1 + 0.05 - kRounding);
  EXPECT_LE(timeline.period_seconds, 1.8 + 0.25 + 0.1 + 0.05 + kRounding);
  // An iteration ends 0.15 s after a tick; its successor's last gradient is there 1.95 s after that
  // tick and travels at the next, 2 s after it.
  EXPECT_NEAR(timeline.period_seconds, 2.0, 1e-6);
}

TEST(SimulateTest, RejectsDurationsThatMakeNoSense) {
  const IterationSchedule schedule = Compiled(Chain(2), Policy("bsp"), 2);
  std::vector<double> seconds(schedule.operations.size(), 1.0);
  seconds.pop_back();
  EXPECT_THAT(std::string(Simulate(schedule, seconds).status().message()),
              HasSubstr("operation_seconds has 7 entries, but the schedule has 8 operations"));
  seconds.push_back(1.0);
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    seconds[2] = bad;
    const absl::Status status = Simulate(schedule, seconds).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("operation_seconds[2] (forward)"));
  }
}

}  // namespace
}  // namespace paceline
