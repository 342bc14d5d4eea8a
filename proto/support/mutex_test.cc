#include "proto/support/mutex.h"

#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

struct Counter {
  Mutex mu;
  CondVar changed;
  int value ABSL_GUARDED_BY(mu) = 0;
};

TEST(MutexTest, ExcludesOtherThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int j = 0; j < 1000; ++j) {
        MutexLock lock(&counter.mu);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&counter.mu);
  EXPECT_EQ(counter.value, 4000);
}

TEST(MutexTest, TryLockFailsWhileAnotherThreadHoldsIt) {
  Mutex mu;
  MutexLock lock(&mu);
  std::thread([&mu] {
    const bool taken = mu.TryLock();
    EXPECT_FALSE(taken);
    if (taken) mu.Unlock();
  }).join();
}

TEST(CondVarTest, NotifiedWaiterSeesTheChange) {
  Counter counter;
  std::thread waiter([&counter] {
    MutexLock lock(&counter.mu);
    EXPECT_TRUE(counter.changed.WaitFor(&counter.mu, absl::Minutes(1), [&counter] {
      counter.mu.AssertHeld();
      return counter.value == 1;
    }));
  });
  {
    MutexLock lock(&counter.mu);
    counter.value = 1;
  }
  counter.changed.NotifyAll();
  waiter.join();
}

TEST(CondVarTest, GivesUpAtTheDeadline) {
  Counter counter;
  MutexLock lock(&counter.mu);
  EXPECT_FALSE(counter.changed.WaitFor(&counter.mu, absl::Milliseconds(1), [] { return false; }));
  const absl::Time deadline = absl::Now() + absl::Milliseconds(1);
  EXPECT_FALSE(counter.changed.WaitUntil(&counter.mu, deadline, [] { return false; }));
  EXPECT_GE(absl::Now(), deadline);
}

TEST(CondVarTest, ReturnsAtOnceWhenThePredicateHoldsOrTheDeadlineHasPassed) {
  Counter counter;
  MutexLock lock(&counter.mu);
  EXPECT_TRUE(counter.changed.WaitUntil(&counter.mu, absl::InfinitePast(), [] { return true; }));
  EXPECT_FALSE(counter.changed.WaitUntil(&counter.mu, absl::InfinitePast()));
  EXPECT_FALSE(counter.changed.WaitFor(&counter.mu, -absl::Seconds(1)));
}

TEST(CondVarTest, InfiniteTimeoutsWaitForTheNotification) {
  Counter counter;
  std::thread waiter([&counter] {
    MutexLock lock(&counter.mu);
    while (counter.value < 1) {
      ASSERT_TRUE(counter.changed.WaitUntil(&counter.mu, absl::InfiniteFuture()));
    }
    while (counter.value < 2) {
      ASSERT_TRUE(counter.changed.WaitFor(&counter.mu, absl::InfiniteDuration()));
    }
  });
  for (int value = 1; value <= 2; ++value) {
    {
      MutexLock lock(&counter.mu);
      counter.value = value;
    }
    counter.changed.NotifyOne();
  }
  waiter.join();
}

}  // namespace
}  // namespace paceline
