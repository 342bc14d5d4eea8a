#include "proto/support/mutex.h"

#include <algorithm>
#include <chrono>              // NOLINT(build/c++11)
#include <condition_variable>  // NOLINT(build/c++11)
#include <mutex>               // NOLINT(build/c++11)

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace paceline {
namespace {

// Longer waits are cut to this, so that an infinite timeout does not overflow the clock's integers.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

// Takes over the caller's hold of the mutex for the scope, and gives it back.
class AdoptedLock {
 public:
  explicit AdoptedLock(std::mutex& mutex) : lock_(mutex, std::adopt_lock) {}
  ~AdoptedLock() { lock_.release(); }
  std::unique_lock<std::mutex>& get() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

bool CondVar::WaitUntil(Mutex* mutex, absl::Time deadline) {
  AdoptedLock lock(mutex->mutex_);
  deadline = std::min(deadline, absl::Now() + kLongestWait);
  return condition_.wait_until(lock.get(), absl::ToChronoTime(deadline)) ==
         std::cv_status::no_timeout;
}

// On the steady clock: a timeout does not change when someone sets the time of day.
bool CondVar::WaitFor(Mutex* mutex, absl::Duration timeout) {
  AdoptedLock lock(mutex->mutex_);
  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(timeout, kLongestWait));
  return condition_.wait_until(lock.get(), deadline) == std::cv_status::no_timeout;
}

}  // namespace paceline
