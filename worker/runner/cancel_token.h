// Tells a running trial to stop, from any thread, and runs the callbacks that break off its waits.
//
//   CancelToken token;
//   CancelToken::Registration r = token.OnCancel([&](const absl::Status& s) { pipeline.Cancel();
//   }); token.Cancel(absl::CancelledError("the coordinator asked for it"));   // Runs the callback.
//
// Thread-safe. A callback registered after Cancel runs at once. Destroying the registration waits
// for a running callback, so that what it captures can be destroyed afterwards.
#ifndef PACELINE_WORKER_RUNNER_CANCEL_TOKEN_H_
#define PACELINE_WORKER_RUNNER_CANCEL_TOKEN_H_

#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/support/mutex.h"

namespace paceline {

class CancelToken {
 public:
  using Callback = std::function<void(const absl::Status&)>;

  class Registration {
   public:
    Registration() = default;
    Registration(CancelToken* token, int id) : token_(token), id_(id) {}
    Registration(Registration&& other) noexcept { *this = std::move(other); }
    Registration& operator=(Registration&& other) noexcept {
      Reset();
      token_ = std::exchange(other.token_, nullptr);
      id_ = other.id_;
      return *this;
    }
    ~Registration() { Reset(); }

   private:
    void Reset() {
      if (token_ != nullptr) token_->Unregister(id_);
      token_ = nullptr;
    }
    CancelToken* token_ = nullptr;
    int id_ = 0;
  };

  // `cause` must not be OK. Only the first call counts.
  void Cancel(absl::Status cause) {
    MutexLock lock(&mutex_);
    if (!cause_.ok()) return;
    cause_ = std::move(cause);
    for (auto& entry : callbacks_) entry.second(cause_);
  }

  // OK, or the cause of the cancellation.
  absl::Status cause() const {
    MutexLock lock(&mutex_);
    return cause_;
  }

  Registration OnCancel(Callback callback) {
    MutexLock lock(&mutex_);
    if (!cause_.ok()) callback(cause_);
    callbacks_[next_id_] = std::move(callback);
    return Registration(this, next_id_++);
  }

 private:
  void Unregister(int id) {
    MutexLock lock(&mutex_);
    callbacks_.erase(id);
  }

  // Held while callbacks run: they must not call back into the token.
  mutable Mutex mutex_;
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Callback> callbacks_ ABSL_GUARDED_BY(mutex_);
  int next_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_CANCEL_TOKEN_H_
