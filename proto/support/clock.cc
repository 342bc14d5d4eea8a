#include "proto/support/clock.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/mutex.h"

namespace paceline {
namespace {

class SystemClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  void SleepUntil(absl::Time time) override {
    // In steps, so that a change of the system's time is noticed.
    for (absl::Duration left = time - Now(); left > absl::ZeroDuration(); left = time - Now()) {
      absl::SleepFor(std::min(left, absl::Seconds(1)));
    }
  }
};

}  // namespace

Clock* RealClock() {
  static Clock* const clock = new SystemClock;
  return clock;
}

absl::Time FakeClock::Now() {
  MutexLock lock(&mu_);
  return now_;
}

void FakeClock::SleepUntil(absl::Time time) {
  MutexLock lock(&mu_);
  if (now_ >= time) return;
  sleepers_.insert(time);
  changed_.NotifyAll();
  // AdvanceTo removes the sleepers it wakes. A test that never does hangs until its own timeout.
  while (now_ < time) changed_.WaitFor(&mu_, absl::Minutes(1));
}

void FakeClock::AdvanceBy(absl::Duration duration) { AdvanceTo(Now() + duration); }

void FakeClock::AdvanceTo(absl::Time time) {
  MutexLock lock(&mu_);
  now_ = std::max(now_, time);
  sleepers_.erase(sleepers_.begin(), sleepers_.upper_bound(now_));
  changed_.NotifyAll();
}

bool FakeClock::AwaitSleepers(int count, absl::Duration timeout) {
  MutexLock lock(&mu_);
  return changed_.WaitFor(&mu_, timeout, [this, count] {
    mu_.AssertHeld();
    return static_cast<int>(sleepers_.size()) >= count;
  });
}

}  // namespace paceline
