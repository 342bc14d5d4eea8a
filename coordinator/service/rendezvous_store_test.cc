#include "coordinator/service/rendezvous_store.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RendezvousStoreTest, RanksMeet) {
  RendezvousStore store;
  store.AttemptStarted("t/1");
  constexpr int kRanks = 4;
  std::vector<std::thread> ranks;
  std::vector<std::vector<std::string>> seen(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      ASSERT_TRUE(store.Put("t/1", absl::StrCat("rank", rank), absl::StrCat("v", rank)).ok());
      auto values = store.Get("t/1", {"rank3", "rank0", "rank1", "rank2"}, absl::Seconds(50));
      ASSERT_TRUE(values.ok()) << values.status();
      seen[rank] = *values;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& values : seen) EXPECT_THAT(values, ElementsAre("v3", "v0", "v1", "v2"));
}

TEST(RendezvousStoreTest, AttemptsDoNotSeeEachOther) {
  RendezvousStore store;
  store.AttemptStarted("t/1");
  store.AttemptStarted("t/2");
  ASSERT_TRUE(store.Put("t/1", "key", "one").ok());
  EXPECT_EQ(store.Get("t/2", {"key"}, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(*store.Get("t/1", {"key"}, absl::ZeroDuration()), ElementsAre("one"));
  ASSERT_TRUE(store.Put("t/1", "key", "two").ok());
  EXPECT_THAT(*store.Get("t/1", {"key"}, absl::ZeroDuration()), ElementsAre("two"));
}

TEST(RendezvousStoreTest, EndOfTheAttemptWakesWhoWaits) {
  RendezvousStore store;
  store.AttemptStarted("t/1");
  absl::Status status;
  std::thread waiter([&] { status = store.Get("t/1", {"never"}, absl::Seconds(50)).status(); });
  store.AttemptEnded("t/1");
  waiter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(store.Put("t/1", "key", "value").code(), absl::StatusCode::kAborted);
  store.Close();
  store.AttemptStarted("t/2");
  EXPECT_EQ(store.Put("t/2", "key", "value").code(), absl::StatusCode::kAborted);
}

TEST(RendezvousStoreTest, NamesTheMissingKey) {
  RendezvousStore store;
  store.AttemptStarted("t/1");
  ASSERT_TRUE(store.Put("t/1", "rank0", "").ok());
  const absl::Status status = store.Get("t/1", {"rank0", "rank1"}, absl::Milliseconds(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("key rank1"));
}

TEST(RendezvousStoreTest, StopsWaitingForACallerThatHasGone) {
  RendezvousStore store;
  store.AttemptStarted("t/1");
  EXPECT_EQ(store.Get("t/1", {"never"}, absl::Seconds(50), [] { return true; }).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(RendezvousStoreTest, KeepsToItsLimits) {
  RendezvousStore store;
  store.AttemptStarted("t/1");
  EXPECT_EQ(store.Put("t/1", "", "value").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store.Put("t/1", "large", std::string(RendezvousStore::kMaxValueBytes, 'x')).ok());
  EXPECT_EQ(store.Put("t/1", "key", std::string(RendezvousStore::kMaxValueBytes + 1, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
  for (size_t i = 1; i < RendezvousStore::kMaxKeysPerAttempt; ++i) {
    ASSERT_TRUE(store.Put("t/1", absl::StrCat(i), "").ok());
  }
  EXPECT_EQ(store.Put("t/1", "one more", "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.Put("t/1", "large", "small").ok());
}

}  // namespace
}  // namespace paceline
