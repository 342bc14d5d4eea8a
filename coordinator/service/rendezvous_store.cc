#include "coordinator/service/rendezvous_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace paceline {
namespace {

// How often a waiting call looks whether its client is still there.
constexpr absl::Duration kCancelCheck = absl::Milliseconds(250);

absl::Status Ended(absl::string_view prefix) {
  return absl::AbortedError(absl::StrCat("attempt ", prefix, " has ended: stop the trial"));
}

}  // namespace

constexpr size_t RendezvousStore::kMaxValueBytes;
constexpr size_t RendezvousStore::kMaxKeysPerAttempt;
constexpr absl::Duration RendezvousStore::kMaxWait;

void RendezvousStore::AttemptStarted(absl::string_view prefix) {
  MutexLock lock(&mu_);
  if (!closed_) attempts_[std::string(prefix)];
}

void RendezvousStore::AttemptEnded(absl::string_view prefix) {
  MutexLock lock(&mu_);
  auto attempt = attempts_.find(prefix);
  if (attempt != attempts_.end()) attempts_.erase(attempt);
  changed_.NotifyAll();
}

void RendezvousStore::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  attempts_.clear();
  changed_.NotifyAll();
}

absl::Status RendezvousStore::Put(absl::string_view prefix, absl::string_view key,
                                  absl::string_view value) {
  if (key.empty()) return absl::InvalidArgumentError("key: required");
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("value of key ", key, ": ", value.size(), " bytes, at most ", kMaxValueBytes));
  }
  MutexLock lock(&mu_);
  auto attempt = attempts_.find(prefix);
  if (attempt == attempts_.end()) return Ended(prefix);
  if (attempt->second.size() >= kMaxKeysPerAttempt && attempt->second.count(key) == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("attempt ", prefix, " has ", kMaxKeysPerAttempt, " keys already"));
  }
  attempt->second[std::string(key)] = std::string(value);
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> RendezvousStore::Get(
    absl::string_view prefix, const std::vector<std::string>& keys, absl::Duration timeout,
    const std::function<bool()>& cancelled) {
  MutexLock lock(&mu_);
  const absl::Time deadline =
      absl::Now() + std::min(std::max(timeout, absl::ZeroDuration()), kMaxWait);
  while (true) {
    auto attempt = attempts_.find(prefix);
    if (attempt == attempts_.end()) return Ended(prefix);
    std::vector<std::string> values;
    const std::string* missing = nullptr;
    for (const std::string& key : keys) {
      auto value = attempt->second.find(key);
      if (value == attempt->second.end()) {
        missing = &key;
        break;
      }
      values.push_back(value->second);
    }
    if (missing == nullptr) return values;
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("attempt ", prefix, ": key ", *missing, " did not appear within ",
                       absl::FormatDuration(std::min(timeout, kMaxWait))));
    }
    if (cancelled != nullptr && cancelled()) return absl::CancelledError("the caller has gone");
    changed_.WaitUntil(&mu_, std::min(deadline, absl::Now() + kCancelCheck));
  }
}

}  // namespace paceline
