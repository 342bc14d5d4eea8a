// A RendezvousStore for ranks that are threads of one process.
//
//   MemoryRendezvous store;
//   store.Put("rank0/address", "127.0.0.1:4000").IgnoreError();
//
// Thread-safe.
#ifndef PACELINE_WORKER_BACKEND_MEMORY_RENDEZVOUS_H_
#define PACELINE_WORKER_BACKEND_MEMORY_RENDEZVOUS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"

namespace paceline {

class MemoryRendezvous : public RendezvousStore {
 public:
  absl::Status Put(absl::string_view key, absl::string_view value) override {
    MutexLock lock(&mu_);
    values_[std::string(key)] = std::string(value);
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    MutexLock lock(&mu_);
    while (true) {
      if (!end_.ok()) return end_;
      auto found = values_.find(std::string(key));
      if (found != values_.end()) return found->second;
      if (!changed_.WaitUntil(&mu_, deadline) && absl::Now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("nobody put '", key, "' in time"));
      }
    }
  }

  // Ends the attempt: all waiting and later Gets return `cause`.
  void End(const absl::Status& cause) {
    MutexLock lock(&mu_);
    end_ = cause;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
  absl::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_MEMORY_RENDEZVOUS_H_
