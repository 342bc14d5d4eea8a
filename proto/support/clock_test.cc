#include "proto/support/clock.h"

#include <atomic>
#include <thread>  // NOLINT(build/c++11)

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(RealClockTest, FollowsTheSystemAndSleeps) {
  const absl::Time before = absl::Now();
  const absl::Time wake = before + absl::Milliseconds(2);
  RealClock()->SleepUntil(wake);
  EXPECT_GE(RealClock()->Now(), wake);
  RealClock()->SleepUntil(absl::InfinitePast());
}

TEST(FakeClockTest, StandsStillUntilAdvanced) {
  FakeClock clock(absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(100));
  clock.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(105));
  clock.AdvanceTo(absl::FromUnixSeconds(90));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(105));
  clock.SleepUntil(absl::FromUnixSeconds(105));  // Due: returns.
}

TEST(FakeClockTest, SleeperWakesOnlyWhenItsTimeHasCome) {
  FakeClock clock;
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    clock.SleepFor(absl::Seconds(10));
    EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(12));
    awake = true;
  });
  ASSERT_TRUE(clock.AwaitSleepers(1, absl::Minutes(1)));
  clock.AdvanceBy(absl::Seconds(9));
  EXPECT_TRUE(clock.AwaitSleepers(1, absl::ZeroDuration()));
  EXPECT_FALSE(awake);
  clock.AdvanceBy(absl::Seconds(3));
  sleeper.join();
  EXPECT_FALSE(clock.AwaitSleepers(1, absl::ZeroDuration()));
}

}  // namespace
}  // namespace paceline
