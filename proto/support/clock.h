// Clock: where code gets the time and waits, so that tests can drive both.
//
//   Agent(Clock* clock) ...          clock->SleepUntil(clock->Now() + poll_interval);
//
//   FakeClock clock;                 // In a test:
//   std::thread agent([&] { RunAgent(&clock); });
//   ASSERT_TRUE(clock.AwaitSleepers(1, absl::Seconds(30)));
//   clock.AdvanceBy(absl::Seconds(10));
//
// State machines take `absl::Time now` as an argument instead; measurements use steady nanoseconds
// of their own. Both clocks are thread-safe.
#ifndef PACELINE_PROTO_SUPPORT_CLOCK_H_
#define PACELINE_PROTO_SUPPORT_CLOCK_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/support/mutex.h"

namespace paceline {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
  // Returns once Now() is at or past `time`.
  virtual void SleepUntil(absl::Time time) = 0;

  void SleepFor(absl::Duration duration) { SleepUntil(Now() + duration); }
};

// The machine's clock. Owned by the library; never deleted.
Clock* RealClock();

// Stands still until a test moves it.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}

  absl::Time Now() override;
  void SleepUntil(absl::Time time) override;

  void AdvanceBy(absl::Duration duration);
  // Does nothing if `time` has passed already.
  void AdvanceTo(absl::Time time);

  // Waits, in real time, until `count` threads are asleep on this clock; false if `timeout` passes
  // first.
  bool AwaitSleepers(int count, absl::Duration timeout);

 private:
  Mutex mu_;
  CondVar changed_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  // The time each sleeping thread waits for; one that is due has left the set already.
  std::multiset<absl::Time> sleepers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_CLOCK_H_
