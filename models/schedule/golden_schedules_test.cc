// Pins what every policy compiles to: the whole schedule of a small network, and one line of facts
// for each of the large ones. tools/update_goldens rewrites the files; review the diff.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"
#include "tests/testing/golden.h"

namespace paceline {
namespace {

constexpr int kBatch = 32;

ShapedNetwork Shaped(absl::string_view name) {
  absl::StatusOr<v1::Network> network = LoadNetwork(name);
  EXPECT_TRUE(network.ok()) << network.status();
  return *InferShapes(*network);
}

// Two hosts of two devices: enough for owners, servers and the divisor to show.
IterationSchedule Compiled(const ShapedNetwork& network, absl::string_view policy) {
  v1::ClusterShape cluster;
  cluster.set_hosts(2);
  cluster.set_devices_per_host(2);
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(network, *LoadPolicy(policy), cluster, kBatch);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *schedule;
}

TEST(GoldenSchedulesTest, Lenet5UnderEveryPolicy) {
  const ShapedNetwork network = Shaped("lenet5");
  for (const std::string& policy : KnownPolicies()) {
    const std::string path = absl::StrCat("tests/golden/schedules/lenet5/", policy, ".txt");
    EXPECT_TRUE(MatchesGolden(path, ScheduleToText(Compiled(network, policy))));
  }
}

// groups: how many, and their sizes; during: those that may travel while backward runs, and their
// share of the bytes; update: who, and where.
std::string Facts(const IterationSchedule& schedule) {
  std::vector<int64_t> sizes;
  for (const Group& group : schedule.groups) sizes.push_back(group.bytes);
  std::sort(sizes.begin(), sizes.end());
  int last_backward = 0;
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    if (schedule.operations[i].kind == OperationKind::kBackward) last_backward = i;
  }
  int during = 0;
  int64_t total_bytes = 0, during_bytes = 0;
  std::string update = schedule.servers_update ? absl::StrCat(schedule.servers, " servers") : "";
  int updates = 0;
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    const Operation& operation = schedule.operations[i];
    if (operation.kind == OperationKind::kAllReduce || operation.kind == OperationKind::kPush ||
        operation.kind == OperationKind::kReduceToOwner) {
      total_bytes += operation.bytes;
      if (i < last_backward) ++during, during_bytes += operation.bytes;
    }
    if (operation.kind == OperationKind::kUpdate) {
      ++updates;
      update = absl::StrCat(updates, operation.at_owner_only ? " at owner, " : " on ",
                            schedule.streams[operation.stream].name);
    }
  }
  return absl::StrFormat("%-34s %6d %9d %9d %10d %7d %6.1f  %s\n", schedule.policy, sizes.size(),
                         sizes.front(), sizes[sizes.size() / 2], sizes.back(), during,
                         100.0 * during_bytes / total_bytes, update);
}

TEST(GoldenSchedulesTest, FactsOfTheLargeNetworksUnderEveryPolicy) {
  for (const char* name : {"alexnet_caffe", "googlenet_bvlc", "googlenet_bvlc+aux", "resnet50_v1",
                           "resnet50_v1.5", "vgg16"}) {
    const ShapedNetwork network = Shaped(name);
    std::string table = absl::StrFormat(
        "# %s, 2 hosts of 2 devices, batch %d\n%-34s %6s %9s %9s %10s %7s %6s  %s\n", name, kBatch,
        "# policy", "groups", "smallest", "median", "largest", "during", "bytes%", "update");
    for (const std::string& policy : KnownPolicies()) {
      table += Facts(Compiled(network, policy));
    }
    EXPECT_TRUE(MatchesGolden(absl::StrCat("tests/golden/schedules/", name, ".txt"), table));
  }
}

}  // namespace
}  // namespace paceline
