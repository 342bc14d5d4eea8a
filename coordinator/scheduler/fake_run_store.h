// A run store in memory, which can be told to be full. For tests. Thread-safe.
#ifndef PACELINE_COORDINATOR_SCHEDULER_FAKE_RUN_STORE_H_
#define PACELINE_COORDINATOR_SCHEDULER_FAKE_RUN_STORE_H_

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/results/run_store.h"
#include "proto/support/mutex.h"

namespace paceline {

class FakeRunStore : public RunStore {
 public:
  using ResultKey = std::tuple<std::string, int, int>;  // Trial, attempt, rank.

  const RunInfo& info() const override { return info_; }
  absl::Status StartAttempt(absl::string_view trial_id, int attempt) override {
    MutexLock lock(&mu_);
    if (!error_.ok()) return error_;
    starts_.emplace_back(std::string(trial_id), attempt);
    return absl::OkStatus();
  }
  absl::Status Append(const v1::TrialResult& result) override {
    MutexLock lock(&mu_);
    if (!error_.ok()) return error_;
    results_.emplace(ResultKey(result.trial().trial_id(), result.attempt(), result.rank()), result);
    return absl::OkStatus();
  }
  absl::Status FinishAttempt(const TrialOutcome& outcome) override {
    MutexLock lock(&mu_);
    if (!error_.ok()) return error_;
    finishes_.push_back(outcome);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<v1::Trial>> Trials() const override {
    return absl::UnimplementedError("fake");
  }
  absl::StatusOr<std::vector<TrialOutcome>> Outcomes() const override {
    return absl::UnimplementedError("fake");
  }
  absl::StatusOr<std::vector<v1::TrialResult>> Results(absl::string_view, int) const override {
    return absl::UnimplementedError("fake");
  }

  void set_error(absl::Status error) {
    MutexLock lock(&mu_);
    error_ = std::move(error);
  }
  std::vector<std::pair<std::string, int>> starts() const {
    MutexLock lock(&mu_);
    return starts_;
  }
  std::map<ResultKey, v1::TrialResult> results() const {
    MutexLock lock(&mu_);
    return results_;
  }
  std::vector<TrialOutcome> finishes() const {  // In order of the calls.
    MutexLock lock(&mu_);
    return finishes_;
  }

 private:
  RunInfo info_;
  mutable Mutex mu_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, int>> starts_ ABSL_GUARDED_BY(mu_);
  std::map<ResultKey, v1::TrialResult> results_ ABSL_GUARDED_BY(mu_);
  std::vector<TrialOutcome> finishes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_SCHEDULER_FAKE_RUN_STORE_H_
