#include "worker/backend/cpu/affinity.h"

#include <sched.h>

#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(AffinityTest, SharesCoverAllCoresOnceAndDifferByAtMostOne) {
  const std::vector<int> cores = {0, 1, 2, 3, 8, 9, 10, 11, 12, 13};
  for (int count = 1; count <= 10; ++count) {
    std::vector<int> all;
    for (int index = 0; index < count; ++index) {
      const std::vector<int> share = ShareOfCores(cores, index, count);
      EXPECT_GE(share.size(), cores.size() / count);
      EXPECT_LE(share.size(), cores.size() / count + 1);
      all.insert(all.end(), share.begin(), share.end());
    }
    EXPECT_EQ(all, cores) << count;
  }
}

TEST(AffinityTest, MoreRanksThanCoresTakeTurns) {
  EXPECT_EQ(ShareOfCores({4, 5}, 0, 3), std::vector<int>({4}));
  EXPECT_EQ(ShareOfCores({4, 5}, 1, 3), std::vector<int>({5}));
  EXPECT_EQ(ShareOfCores({4, 5}, 2, 3), std::vector<int>({4}));
}

TEST(AffinityTest, PinsTheCallingThread) {
  const int core = AvailableCores().back();
  std::thread([core] {
    ASSERT_TRUE(PinThisThread({core}).ok());
    EXPECT_EQ(sched_getcpu(), core);
  }).join();
}

TEST(AffinityTest, RefusedCoresAreNamed) {
  const absl::Status status = PinThisThread({100000});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("100000"), status.message().npos) << status;
}

}  // namespace
}  // namespace paceline
