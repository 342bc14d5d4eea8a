// The key/value store in which the ranks of an attempt meet, in memory. One name space per attempt,
// dropped when the attempt ends; who waits is woken then.
//
//   store.AttemptStarted("3f2a-r0/1");
//   store.Put("3f2a-r0/1", "rank0", address);
//   absl::StatusOr<std::vector<std::string>> values =
//       store.Get("3f2a-r0/1", {"rank0", "rank1"}, absl::Seconds(30), cancelled);
//
// Thread-safe.
#ifndef PACELINE_COORDINATOR_SERVICE_RENDEZVOUS_STORE_H_
#define PACELINE_COORDINATOR_SERVICE_RENDEZVOUS_STORE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/scheduler/trial_scheduler.h"
#include "proto/support/mutex.h"

namespace paceline {

class RendezvousStore : public AttemptListener {
 public:
  static constexpr size_t kMaxValueBytes = 1 << 20;
  static constexpr size_t kMaxKeysPerAttempt = 100000;
  static constexpr absl::Duration kMaxWait = absl::Seconds(60);

  void AttemptStarted(absl::string_view prefix) override ABSL_LOCKS_EXCLUDED(mu_);
  // Everyone who waits under this prefix gets ABORTED.
  void AttemptEnded(absl::string_view prefix) override ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all attempts, present and future.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  // ABORTED: the attempt has ended. INVALID_ARGUMENT: no key, or a value above kMaxValueBytes.
  // RESOURCE_EXHAUSTED: too many keys. A key put twice has its last value.
  absl::Status Put(absl::string_view prefix, absl::string_view key, absl::string_view value)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all keys exist, at most `timeout` and kMaxWait, or until `cancelled` is true (asked
  // a few times a second; may be null). Values in the order of `keys`. ABORTED: the attempt has
  // ended. DEADLINE_EXCEEDED names the first missing key. CANCELLED.
  absl::StatusOr<std::vector<std::string>> Get(absl::string_view prefix,
                                               const std::vector<std::string>& keys,
                                               absl::Duration timeout,
                                               const std::function<bool()>& cancelled = nullptr)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Keys = std::map<std::string, std::string, std::less<>>;

  Mutex mu_;
  CondVar changed_;
  std::map<std::string, Keys, std::less<>> attempts_ ABSL_GUARDED_BY(mu_);  // By prefix.
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_SERVICE_RENDEZVOUS_STORE_H_
