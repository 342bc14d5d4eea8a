#include "models/schedule/compiler.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShapedNetwork Shaped(absl::string_view name) {
  absl::StatusOr<v1::Network> network = LoadNetwork(name);
  EXPECT_TRUE(network.ok()) << network.status();
  return *InferShapes(*network);
}

v1::ClusterShape Cluster(int hosts, int devices_per_host) {
  v1::ClusterShape cluster;
  cluster.set_hosts(hosts);
  cluster.set_devices_per_host(devices_per_host);
  return cluster;
}

IterationSchedule Compiled(const ShapedNetwork& network, const v1::FrameworkPolicy& policy,
                           const v1::ClusterShape& cluster) {
  absl::StatusOr<IterationSchedule> schedule = CompileSchedule(network, policy, cluster, 8);
  EXPECT_TRUE(schedule.ok()) << policy.name() << ": " << schedule.status();
  return schedule.ok() ? *schedule : IterationSchedule();
}

IterationSchedule Compiled(absl::string_view network, absl::string_view policy, int hosts = 1,
                           int devices_per_host = 4) {
  return Compiled(Shaped(network), *LoadPolicy(policy), Cluster(hosts, devices_per_host));
}

std::vector<int> Of(const IterationSchedule& schedule, OperationKind kind) {
  std::vector<int> operations;
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    if (schedule.operations[i].kind == kind) operations.push_back(static_cast<int>(i));
  }
  return operations;
}

int LastBackward(const IterationSchedule& schedule) {
  return Of(schedule, OperationKind::kBackward).back();
}

// Streams run in order and dependencies hold: plays `iterations` iterations with random durations,
// to see what the schedule really guarantees.
class Playback {
 public:
  Playback(const IterationSchedule& schedule, int iterations, uint32_t seed) : schedule_(schedule) {
    std::mt19937 random(seed);
    // Wide spread: slow and fast operations in every combination.
    std::lognormal_distribution<double> seconds(0, 2.5);
    std::vector<double> stream_free(schedule.streams.size(), 0);
    for (int k = 0; k < iterations; ++k) {
      begin_.emplace_back();
      end_.emplace_back();
      for (const Operation& operation : schedule.operations) {
        double begin = stream_free[operation.stream];
        for (const Dependency& dependency : operation.dependencies) {
          if (k >= dependency.distance) {
            begin = std::max(begin, end_[k - dependency.distance][dependency.operation]);
          }
        }
        begin_[k].push_back(begin);
        end_[k].push_back(begin + seconds(random));
        stream_free[operation.stream] = end_[k].back();
      }
    }
  }
  double Begin(int iteration, int operation) const { return begin_[iteration][operation]; }
  double End(int iteration, int operation) const { return end_[iteration][operation]; }

 private:
  const IterationSchedule& schedule_;
  std::vector<std::vector<double>> begin_, end_;
};

// Everything that training needs in order to be right, whatever the operations' durations.
void ExpectTrainsCorrectly(const ShapedNetwork& network, const IterationSchedule& schedule,
                           uint32_t seed) {
  constexpr int kIterations = 6;
  const Playback played(schedule, kIterations, seed);
  const int layer_count = static_cast<int>(network.layers.size());
  std::vector<int> forward(layer_count), backward(layer_count);
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    if (operation.kind == OperationKind::kForward) forward[operation.layer] = static_cast<int>(i);
    if (operation.kind == OperationKind::kBackward) backward[operation.layer] = static_cast<int>(i);
  }
  const int read = Of(schedule, OperationKind::kRead).front();
  const int copy = Of(schedule, OperationKind::kCopyInput).front();

  for (int k = 0; k < kIterations; ++k) {
    // Input: read, copied, used; no buffer overwritten while in use.
    ASSERT_GE(played.Begin(k, copy), played.End(k, read));
    ASSERT_GE(played.Begin(k, forward[0]), played.End(k, copy));
    if (k >= schedule.input_buffers) {
      ASSERT_GE(played.Begin(k, copy), played.End(k - schedule.input_buffers, backward[0]));
    }
    const int host_batches = std::max(1, schedule.prefetch_batches);
    if (k >= host_batches) ASSERT_GE(played.Begin(k, read), played.End(k - host_batches, copy));

    for (int layer = 0; layer < layer_count; ++layer) {
      ASSERT_GE(played.Begin(k, backward[layer]), played.End(k, forward[layer_count - 1]));
      if (layer + 1 < layer_count) {
        ASSERT_GE(played.Begin(k, forward[layer + 1]), played.End(k, forward[layer]));
        ASSERT_GE(played.Begin(k, backward[layer]), played.End(k, backward[layer + 1]));
      }
    }

    // Each tensor: gradient, then everything that happens to it in list order, then the next
    // forward of its layer (and so the next gradient).
    for (size_t tensor = 0; tensor < network.parameters.size(); ++tensor) {
      const int layer = network.parameters[tensor].layer;
      double previous_end = played.End(k, backward[layer]);
      for (size_t i = 0; i < schedule.operations.size(); ++i) {
        const Operation& operation = schedule.operations[i];
        const bool of_all = operation.kind == OperationKind::kUpdate && operation.group < 0;
        if (!of_all) {
          if (operation.group < 0) continue;
          const std::vector<int>& tensors = schedule.groups[operation.group].tensors;
          if (std::find(tensors.begin(), tensors.end(), tensor) == tensors.end()) continue;
          // Parts of a repacked concatenation travel side by side.
          if (schedule.groups[operation.group].partial) {
            ASSERT_GE(played.Begin(k, static_cast<int>(i)), played.End(k, backward[layer]));
            continue;
          }
        }
        ASSERT_GE(played.Begin(k, static_cast<int>(i)), previous_end)
            << OperationKindName(operation.kind) << " of tensor " << tensor;
        previous_end = played.End(k, static_cast<int>(i));
      }
      if (k + 1 < kIterations) {
        ASSERT_GE(played.Begin(k + 1, forward[layer]), previous_end) << "tensor " << tensor;
      }
    }
    // All parts before the update of all.
    for (const int update : Of(schedule, OperationKind::kUpdate)) {
      if (schedule.operations[update].group >= 0) continue;
      for (size_t i = 0; i < schedule.operations.size(); ++i) {
        if (schedule.operations[i].group >= 0) {
          ASSERT_GE(played.Begin(k, update), played.End(k, static_cast<int>(i)));
        }
      }
    }
  }
}

TEST(CompileScheduleTest, EveryPolicyTrainsCorrectlyWhateverTheDurations) {
  for (const char* name : {"lenet5", "cifar_resnet20", "googlenet_bvlc+aux"}) {
    const ShapedNetwork network = Shaped(name);
    for (const std::string& policy_name : KnownPolicies()) {
      v1::FrameworkPolicy policy = *LoadPolicy(policy_name);
      for (int prefetch : {-1, 0, 1, 3}) {
        if (prefetch >= 0) policy.mutable_input()->set_prefetch_batches(prefetch);
        if (prefetch == 0) policy.mutable_input()->set_copy_overlaps_compute(false);
        for (const auto& cluster : {Cluster(1, 1), Cluster(1, 2), Cluster(3, 2)}) {
          const IterationSchedule schedule = Compiled(network, policy, cluster);
          SCOPED_TRACE(absl::StrCat(name, " ", policy_name, " ranks ", schedule.ranks, " prefetch ",
                                    schedule.prefetch_batches));
          ExpectTrainsCorrectly(network, schedule, 7 + prefetch);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(CompileScheduleTest, CombinationsBeyondTheBuiltInPoliciesTrainCorrectly) {
  const ShapedNetwork network = Shaped("lenet5");
  using v1::CommunicationPolicy;
  for (const std::string& policy_name : KnownPolicies()) {
    for (int streams : {1, 2, 3, 5}) {
      for (int order : {CommunicationPolicy::ORDER_BACKWARD, CommunicationPolicy::ORDER_FORWARD}) {
        for (bool overlaps : {false, true}) {
          v1::FrameworkPolicy policy = *LoadPolicy(policy_name);
          CommunicationPolicy& communication = *policy.mutable_communication();
          communication.set_streams(streams);
          communication.set_order(static_cast<CommunicationPolicy::Order>(order));
          communication.set_overlaps_backward(overlaps);
          const IterationSchedule schedule = Compiled(network, policy, Cluster(2, 2));
          SCOPED_TRACE(absl::StrCat(policy_name, " streams ", streams, " order ", order));
          ExpectTrainsCorrectly(network, schedule, streams);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// The counts come from running the framework's own rule.
TEST(CaffeMpiTest, ReducesAlmostLayerByLayer) {
  EXPECT_EQ(Compiled("alexnet_caffe", "caffe_mpi").groups.size(), 10u);
  EXPECT_EQ(Compiled("googlenet_bvlc", "caffe_mpi").groups.size(), 58u);
  EXPECT_EQ(Compiled("googlenet_bvlc+aux", "caffe_mpi").groups.size(), 64u);
  EXPECT_EQ(Compiled("resnet50_v1", "caffe_mpi").groups.size(), 54u);
}

TEST(CaffeMpiTest, LargeWeightsReachTheTargetBeforeTheirBiasArrives) {
  const ShapedNetwork network = Shaped("alexnet_caffe");
  const IterationSchedule schedule = Compiled("alexnet_caffe", "caffe_mpi");
  // fc8 together; the weights of fc7 and fc6 alone, then their biases alone.
  EXPECT_THAT(schedule.groups[0].tensors, ElementsAre(14, 15));
  EXPECT_THAT(schedule.groups[1].tensors, ElementsAre(12));
  EXPECT_THAT(schedule.groups[2].tensors, ElementsAre(13));
  EXPECT_THAT(schedule.groups[3].tensors, ElementsAre(10));
  EXPECT_EQ(network.parameters[10].name, "fc6.weight");
}

TEST(CaffeMpiTest, UpdatesLateLayersDuringBackwardAndDividesByDevicesOfHost) {
  const IterationSchedule schedule = Compiled("alexnet_caffe", "caffe_mpi", 3, 2);
  EXPECT_EQ(schedule.ranks, 6);
  EXPECT_EQ(schedule.gradient_divisor, 2);
  const std::vector<int> updates = Of(schedule, OperationKind::kUpdate);
  EXPECT_EQ(updates.size(), 10u);
  EXPECT_LT(updates.front(), LastBackward(schedule));
  EXPECT_EQ(schedule.streams[schedule.operations[updates.front()].stream].kind,
            StreamKind::kCommunication);
}

TEST(CntkTest, OverlapsNothingWithBackward) {
  for (const char* network : {"alexnet_caffe", "resnet50_v1"}) {
    const IterationSchedule schedule = Compiled(network, "cntk");
    for (const int all_reduce : Of(schedule, OperationKind::kAllReduce)) {
      EXPECT_GT(all_reduce, LastBackward(schedule));
    }
    const Operation& first = schedule.operations[Of(schedule, OperationKind::kPack).front()];
    EXPECT_EQ(schedule.streams[first.stream].kind, StreamKind::kCompute);
  }
}

TEST(CntkTest, PacksTensorsUpTo32KibInOneMessage) {
  const ShapedNetwork network = Shaped("resnet50_v1");
  const IterationSchedule schedule = Compiled("resnet50_v1", "cntk");
  int packed_groups = 0;
  for (const Group& group : schedule.groups) {
    if (group.tensors.size() == 1) {
      EXPECT_GT(group.bytes, 32768);
      continue;
    }
    ++packed_groups;
    for (const int tensor : group.tensors) {
      EXPECT_LE(network.parameters[tensor].gradient_bytes(), 32768);
    }
  }
  EXPECT_EQ(packed_groups, 1);
  // Only the packed message is copied.
  EXPECT_EQ(Of(schedule, OperationKind::kPack).size(), 1u);
  EXPECT_EQ(Of(schedule, OperationKind::kUnpack).size(), 1u);
}

TEST(MxnetTest, ServersUpdateAndLargeArraysAreSplit) {
  const IterationSchedule schedule = Compiled("alexnet_caffe", "mxnet_dist_sync", 4, 1);
  EXPECT_EQ(schedule.servers, 4);
  EXPECT_TRUE(schedule.servers_update);
  EXPECT_TRUE(Of(schedule, OperationKind::kUpdate).empty());
  for (const Group& group : schedule.groups) {
    EXPECT_TRUE(group.carries_weights);
    EXPECT_EQ(group.shards.size(), group.bytes / 4 >= 1000000 ? 4u : 1u);
    if (group.shards.size() == 1) {
      // Keys count in forward order, and each tensor is a key.
      EXPECT_EQ(group.shards[0].server, group.tensors[0] * 9973 % 4);
    }
  }
}

TEST(MxnetTest, DeviceKvstoreUpdatesAtTheOwner) {
  const IterationSchedule schedule = Compiled("alexnet_caffe", "mxnet_device");
  EXPECT_FALSE(schedule.servers_update);
  std::vector<int64_t> owned_bytes(4);
  for (const Group& group : schedule.groups) owned_bytes[group.owner] += group.bytes;
  // fc6.weight alone is 62 % of AlexNet: its owner has nothing else.
  EXPECT_EQ(*std::max_element(owned_bytes.begin(), owned_bytes.end()), 37748736 * 4);
  for (const int update : Of(schedule, OperationKind::kUpdate)) {
    EXPECT_TRUE(schedule.operations[update].at_owner_only);
  }
  EXPECT_EQ(Of(schedule, OperationKind::kUpdate).size(), 16u);
}

TEST(MxnetTest, BlockingPushOfVersion010RemovesOverlap) {
  const IterationSchedule schedule = Compiled("alexnet_caffe", "mxnet_0.10_dist_sync");
  EXPECT_GT(Of(schedule, OperationKind::kPush).front(), LastBackward(schedule));
  EXPECT_LT(Of(Compiled("alexnet_caffe", "mxnet_dist_sync"), OperationKind::kPush).front(),
            LastBackward(schedule));
}

TEST(TensorflowTest, RepackingRemovesOverlap) {
  const IterationSchedule plain = Compiled("resnet50_v1", "tensorflow_replicated");
  EXPECT_LT(Of(plain, OperationKind::kReduceToOwner).front(), LastBackward(plain));
  const IterationSchedule repacked = Compiled("resnet50_v1", "tensorflow_replicated_repack8");
  EXPECT_EQ(repacked.groups.size(), 8u);
  EXPECT_GT(Of(repacked, OperationKind::kAllReduce).front(), LastBackward(repacked));
  // Even asked to overlap, it cannot: a part needs the whole concatenation.
  v1::FrameworkPolicy policy = *LoadPolicy("tensorflow_replicated_repack8");
  policy.mutable_communication()->set_overlaps_backward(true);
  const IterationSchedule asked = Compiled(Shaped("resnet50_v1"), policy, Cluster(1, 4));
  const std::vector<int> backward = Of(asked, OperationKind::kBackward);
  int first_tensor_backward = 0;
  for (const int i : backward) {
    if (asked.operations[i].layer == 0) first_tensor_backward = i;
  }
  EXPECT_GT(Of(asked, OperationKind::kAllReduce).front(), first_tensor_backward);
}

TEST(TensorflowTest, ParameterServerSendsWeightsInForwardOrderAfterTheBarrier) {
  const IterationSchedule schedule = Compiled("alexnet_caffe", "tensorflow_parameter_server", 4, 1);
  const std::vector<int> pulls = Of(schedule, OperationKind::kPull);
  ASSERT_EQ(pulls.size(), 16u);
  EXPECT_GT(pulls.front(), Of(schedule, OperationKind::kPush).back());
  int tensor = 0;
  for (const int pull : pulls) {
    EXPECT_THAT(schedule.groups[schedule.operations[pull].group].tensors, ElementsAre(tensor++));
  }
  // Each layer waits for its own weights of the iteration before.
  for (const int i : Of(schedule, OperationKind::kForward)) {
    for (const Dependency& dependency : schedule.operations[i].dependencies) {
      if (dependency.distance == 0) continue;
      EXPECT_EQ(schedule.operations[dependency.operation].kind, OperationKind::kPull);
      EXPECT_EQ(dependency.distance, 1);
    }
  }
}

TEST(TensorflowTest, ReplicatedReducesTensorIOnDeviceIModN) {
  const IterationSchedule schedule = Compiled("alexnet_caffe", "tensorflow_replicated");
  for (const Group& group : schedule.groups) EXPECT_EQ(group.owner, group.tensors[0] % 4);
}

TEST(PytorchTest, FirstBucketClosesAt1MibAndTheOthersAt25MibInReverseOrder) {
  const ShapedNetwork network = Shaped("resnet50_v1.5");
  const IterationSchedule schedule = Compiled("resnet50_v1.5", "pytorch_ddp");
  int expected_tensor = static_cast<int>(network.parameters.size()) - 1;
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    const int64_t limit = g == 0 ? 1 << 20 : 25 << 20;
    const bool last = g + 1 == schedule.groups.size();
    // The limit is reached with the tensor that joined last, and not before.
    if (!last) EXPECT_GE(group.bytes, limit);
    EXPECT_LT(group.bytes - network.parameters[group.tensors.front()].gradient_bytes(), limit);
    EXPECT_EQ(group.tensors.back(), expected_tensor);
    expected_tensor = group.tensors.front() - 1;
  }
  EXPECT_EQ(expected_tensor, -1);
  EXPECT_EQ(schedule.groups.size(), 5u);
  EXPECT_LT(Of(schedule, OperationKind::kAllReduce).front(), LastBackward(schedule));
  // The optimizer overlaps nothing.
  EXPECT_EQ(Of(schedule, OperationKind::kUpdate).size(), 1u);
}

TEST(HorovodTest, FusesWhatBecomesReadyWithinACycle) {
  const ShapedNetwork network = Shaped("resnet50_v1.5");
  const v1::FrameworkPolicy policy = *LoadPolicy("horovod");
  ScheduleCosts costs;
  costs.backward_seconds.assign(network.layers.size(), 1e-9);
  // A fast device finishes within one cycle; a slow one sends every layer alone.
  EXPECT_EQ(CompileSchedule(network, policy, Cluster(1, 2), 1, costs)->groups.size(), 1u);
  costs.backward_seconds.assign(network.layers.size(), 0.01);
  const IterationSchedule slow = *CompileSchedule(network, policy, Cluster(1, 2), 1, costs);
  std::set<int> layers;
  for (const ParameterTensor& parameter : network.parameters) layers.insert(parameter.layer);
  EXPECT_EQ(slow.groups.size(), layers.size());
  EXPECT_EQ(slow.collect_cycle_seconds, 0.001);
}

TEST(ReferenceTest, MergedGradientsLieBetweenOneMessageAndOnePerLayer) {
  const ShapedNetwork network = Shaped("googlenet_bvlc");
  const v1::FrameworkPolicy policy = *LoadPolicy("mg_wfbp");
  ScheduleCosts costs;
  costs.backward_seconds.assign(network.layers.size(), 1e-3);
  costs.beta_seconds_per_byte = 1e-10;
  const auto groups = [&](double alpha_seconds) {
    costs.alpha_seconds = alpha_seconds;
    return CompileSchedule(network, policy, Cluster(1, 8), 1, costs)->groups.size();
  };
  EXPECT_EQ(groups(0), 58u);    // Nothing to gain from merging.
  EXPECT_EQ(groups(1000), 1u);  // One message is dear enough to wait for all.
  const size_t some = groups(2.5e-3);
  EXPECT_GT(some, 1u);
  EXPECT_LT(some, 58u);
}

TEST(CompileScheduleTest, OneRankCommunicatesNothing) {
  for (const std::string& policy : KnownPolicies()) {
    const IterationSchedule schedule = Compiled("lenet5", policy, 1, 1);
    EXPECT_TRUE(schedule.groups.empty()) << policy;
    EXPECT_EQ(schedule.servers, 0) << policy;
    EXPECT_EQ(schedule.gradient_divisor, 1) << policy;
    const std::vector<int> updates = Of(schedule, OperationKind::kUpdate);
    ASSERT_EQ(updates.size(), 1u) << policy;
    EXPECT_EQ(schedule.operations[updates[0]].group, -1) << policy;
    for (const ScheduleStream& stream : schedule.streams) {
      EXPECT_NE(stream.kind, StreamKind::kCommunication) << policy;
    }
  }
}

TEST(CompileScheduleTest, WithoutPrefetchReadingWaitsForTheIterationBefore) {
  v1::FrameworkPolicy policy = *LoadPolicy("caffe_mpi");
  policy.mutable_input()->set_prefetch_batches(0);
  policy.mutable_input()->set_copy_overlaps_compute(false);
  const IterationSchedule schedule = Compiled(Shaped("lenet5"), policy, Cluster(1, 2));
  const Operation& read = schedule.operations[Of(schedule, OperationKind::kRead).front()];
  std::set<StreamKind> waits_for;
  for (const Dependency& dependency : read.dependencies) {
    EXPECT_EQ(dependency.distance, 1);
    waits_for.insert(schedule.streams[schedule.operations[dependency.operation].stream].kind);
  }
  EXPECT_THAT(waits_for, ElementsAre(StreamKind::kCompute, StreamKind::kCommunication));
}

TEST(CompileScheduleTest, BadInputNamesTheFieldAtFault) {
  const ShapedNetwork network = Shaped("lenet5");
  v1::FrameworkPolicy policy = *LoadPolicy("bsp");
  EXPECT_THAT(std::string(CompileSchedule(network, policy, Cluster(0, 2), 8).status().message()),
              HasSubstr("hosts and devices_per_host must be positive"));
  EXPECT_THAT(std::string(CompileSchedule(network, policy, Cluster(1, 2), 0).status().message()),
              HasSubstr("batch_per_device"));
  policy.mutable_communication()->clear_grouping();
  EXPECT_THAT(std::string(CompileSchedule(network, policy, Cluster(1, 2), 8).status().message()),
              HasSubstr("communication.grouping: required"));
  ScheduleCosts costs;
  costs.backward_seconds = {1, 2};
  EXPECT_THAT(
      std::string(
          CompileSchedule(network, *LoadPolicy("bsp"), Cluster(1, 2), 8, costs).status().message()),
      HasSubstr("costs.backward_seconds has 2 entries"));
}

TEST(ValidateScheduleTest, NamesEveryBreach) {
  IterationSchedule schedule = Compiled("lenet5", "wfbp", 1, 2);
  const ShapedNetwork network = Shaped("lenet5");
  const int layers = static_cast<int>(network.layers.size());
  const int parameters = static_cast<int>(network.parameters.size());
  ASSERT_TRUE(ValidateSchedule(schedule, layers, parameters).ok());

  schedule.operations[0].dependencies.push_back({99999, 1});
  schedule.operations[1].dependencies.push_back({5, 0});
  schedule.operations[2].stream = 17;
  schedule.groups[0].tensors.pop_back();
  const std::vector<int> all_reduces = Of(schedule, OperationKind::kAllReduce);
  schedule.operations.erase(schedule.operations.begin() + all_reduces.back());
  const absl::Status status = ValidateSchedule(schedule, layers, parameters);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  for (const char* breach :
       {"depends on operation 99999, which does not exist", "which comes later in the list",
        "no stream 17", "is in 0 groups", "is summed 0 times"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(breach));
  }
}

TEST(ScheduleHashTest, ChangesWithTheScheduleAndOnlyThen) {
  const std::string hash = ScheduleHash(Compiled("lenet5", "wfbp", 1, 2));
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash, ScheduleHash(Compiled("lenet5", "wfbp", 1, 2)));
  EXPECT_NE(hash, ScheduleHash(Compiled("lenet5", "wfbp", 1, 4)));
  EXPECT_NE(hash, ScheduleHash(Compiled("lenet5", "bsp", 1, 2)));
}

}  // namespace
}  // namespace paceline
