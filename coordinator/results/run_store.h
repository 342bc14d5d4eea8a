// One run's results in one SQLite file (RUN_DIR/run.sqlite): WAL, synced per trial. Everything
// measured survives a crash; appending twice is harmless.
//
//   auto store = RunStore::Create(run_dir, plan, trials);
//   (*store)->StartAttempt(trial_id, 1);
//   (*store)->Append(result);          // One rank's report.
//   (*store)->FinishAttempt(outcome);  // The gang's outcome.
//
// The writer is thread-safe. Any number of readers may open the file meanwhile. Tables and columns
// for SQL users: docs/run_store.md.
#ifndef PACELINE_COORDINATOR_RESULTS_RUN_STORE_H_
#define PACELINE_COORDINATOR_RESULTS_RUN_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"

namespace paceline {

struct RunInfo {
  std::string run_id;  // Random, 16 hex digits.
  int64_t created_unix_ns = 0;
  std::string paceline_version;
  v1::BenchmarkPlan plan;
};

// How one trial ended (or how its latest attempt did).
struct TrialOutcome {
  std::string trial_id;
  int attempt = 0;     // 0: not started.
  bool final = false;  // OK, a failure of its own, or attempts used up.
  // UNSPECIFIED: the attempt started and has not ended (or the coordinator died meanwhile).
  v1::TrialStatus status = v1::TRIAL_STATUS_UNSPECIFIED;
  std::string cause;
};

class RunStore {
 public:
  virtual ~RunStore() = default;

  // ALREADY_EXISTS if the folder holds a run (and says how to resume); RESOURCE_EXHAUSTED on a full
  // disk, with the path and the bytes free.
  static absl::StatusOr<std::unique_ptr<RunStore>> Create(const std::string& run_dir,
                                                          const v1::BenchmarkPlan& plan,
                                                          const std::vector<v1::Trial>& trials);
  // For --resume and for analysis (read_only). Accepts the folder or the file. NOT_FOUND,
  // DATA_LOSS (not a run store, or a newer schema).
  static absl::StatusOr<std::unique_ptr<RunStore>> Open(const std::string& path, bool read_only);

  virtual const RunInfo& info() const = 0;
  // The three writes are synced to disk when they return. RESOURCE_EXHAUSTED on a full disk:
  // nothing of the failed call is kept, everything before it is. NOT_FOUND for a trial of another
  // run.

  // Notes that an attempt begins, so that its number is never given out again.
  virtual absl::Status StartAttempt(absl::string_view trial_id, int attempt) = 0;
  // Idempotent by (trial_id, attempt, rank): the first report wins.
  virtual absl::Status Append(const v1::TrialResult& result) = 0;
  // Idempotent; a final outcome is never changed.
  virtual absl::Status FinishAttempt(const TrialOutcome& outcome) = 0;

  virtual absl::StatusOr<std::vector<v1::Trial>> Trials() const = 0;       // Plan order.
  virtual absl::StatusOr<std::vector<TrialOutcome>> Outcomes() const = 0;  // Plan order.
  // Ranks in order; of one attempt, or of the latest with results if `attempt` is 0.
  virtual absl::StatusOr<std::vector<v1::TrialResult>> Results(absl::string_view trial_id,
                                                               int attempt = 0) const = 0;
};

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_RESULTS_RUN_STORE_H_
