// Mutex, MutexLock and CondVar: std::mutex and std::condition_variable with clang's thread-safety
// annotations and Abseil's time types.
//
//   class Queue {
//    public:
//     bool Pop(absl::Duration timeout, Item* item) {
//       MutexLock lock(&mu_);
//       const absl::Time deadline = absl::Now() + timeout;
//       while (items_.empty()) {
//         if (!not_empty_.WaitUntil(&mu_, deadline)) return false;
//       }
//       ...
//     }
//    private:
//     Mutex mu_;
//     CondVar not_empty_;
//     std::deque<Item> items_ ABSL_GUARDED_BY(mu_);
//   };
//
// Why not absl::Mutex: Debian's Abseil is not built for ThreadSanitizer, which then reports false
// races under it; the std types are pthread calls, which it understands. `bazel build --config=tsa`
// checks the annotations. All classes are thread-safe; none can be copied or moved.
#ifndef PACELINE_PROTO_SUPPORT_MUTEX_H_
#define PACELINE_PROTO_SUPPORT_MUTEX_H_

#include <algorithm>
#include <chrono>              // NOLINT(build/c++11)
#include <condition_variable>  // NOLINT(build/c++11)
#include <mutex>               // NOLINT(build/c++11)

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace paceline {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

  // Tells the analysis, which does not look into callers of a lambda, that the mutex is held:
  // the first statement of a predicate that reads guarded members.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex for its scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Every wait has a deadline. A wake-up may be spurious, so wait in a loop, or give a predicate.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases the mutex, waits, and takes it again. Returns false if `deadline` passed first.
  bool WaitUntil(Mutex* mutex, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool WaitFor(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Waits until `predicate()`, called with the mutex held, is true; returns its last value.
  template <typename Predicate>
  bool WaitUntil(Mutex* mutex, absl::Time deadline, Predicate predicate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  template <typename Predicate>
  bool WaitFor(Mutex* mutex, absl::Duration timeout, Predicate predicate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

template <typename Predicate>
bool CondVar::WaitUntil(Mutex* mutex, absl::Time deadline, Predicate predicate) {
  while (!predicate()) {
    if (!WaitUntil(mutex, deadline)) return predicate();
  }
  return true;
}

template <typename Predicate>
bool CondVar::WaitFor(Mutex* mutex, absl::Duration timeout, Predicate predicate) {
  const auto deadline = std::chrono::steady_clock::now() +
                        absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)));
  while (!predicate()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (!WaitFor(mutex, absl::FromChrono(left))) return predicate();
  }
  return true;
}

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_MUTEX_H_
