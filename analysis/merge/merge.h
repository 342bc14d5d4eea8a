// Merges any number of run stores into one row per configuration: ranks aligned, repeats pooled,
// failures kept.
//
//   absl::StatusOr<MergedRuns> merged = LoadAndMerge({"runs/a", "runs/b/run.sqlite"});
//   for (const MergedTrial& trial : merged->trials) { ... trial.samples_per_second.value ... }
//
// How ranks become one number: the period of an iteration is the mean over ranks (the periods of a
// rank add up to its total time, so the mean keeps the total; a maximum per iteration would count
// every jitter twice); phases are means over ranks as well. The warm-up is the longest of any rank.
//
// All times in seconds. Plain data, no shared state: thread-safe.
#ifndef PACELINE_ANALYSIS_MERGE_MERGE_H_
#define PACELINE_ANALYSIS_MERGE_MERGE_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "analysis/stats/statistics.h"
#include "coordinator/results/run_store.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"

namespace paceline {

// What one run store holds, read whole.
struct RunData {
  std::string path;
  RunInfo info;
  std::vector<v1::Trial> trials;       // Plan order.
  std::vector<TrialOutcome> outcomes;  // Plan order.
  // By trial_id: the ranks' reports of the attempt that counts.
  absl::flat_hash_map<std::string, std::vector<v1::TrialResult>> results;
};

// The phases the paper's model names. `communication` is busy time, hidden or not.
enum class Phase {
  kInput,
  kInputWait,
  kCopy,
  kForward,
  kBackward,
  kCommunication,
  kExposedCommunication,
  kUpdate,
};
constexpr int kPhaseCount = 8;
const char* PhaseName(Phase phase);  // "input", "input_wait", ..., as in trials.csv.

// One repeat of one configuration in one run.
struct MergedRepeat {
  std::string run_id;
  std::string trial_id;
  int repeat = 0;
  int attempt = 0;
  int warmup_iterations = 0;
  std::vector<double> iteration_seconds;           // Measured iterations only.
  std::vector<double> phase_seconds[kPhaseCount];  // One value per measured iteration.
  std::vector<v1::TrialResult> ranks;              // In rank order, all samples included.
};

// How late a rank comes to the iteration's start, after the first one. Host clocks aligned.
struct RankLateness {
  int rank = 0;
  std::string host;
  double median_seconds = kUnknown;   // NaN where the clock bound exceeds what is to be told.
  double compute_seconds = kUnknown;  // Median forward + backward.
};

struct MergedTrial {
  v1::Trial trial;  // Of the first repeat; what all repeats share.
  // Of the plan; with "-2hosts" appended where the plan left the placement open and the gang got
  // several hosts.
  std::string configuration_id;
  std::string machine;  // What numbers may be compared and pooled: "2 x cpu Intel Xeon ...".
  int devices = 1;

  bool ok = false;
  std::string status;  // "OK", "OUT_OF_MEMORY", ..., "NOT_RUN".
  std::string cause;
  int failed_repeats = 0;              // With this status (0 if OK).
  int attempts = 0;                    // Of all repeats together.
  std::vector<std::string> trial_ids;  // Of the repeats in this row.

  // Of OK trials; the rest stays unknown.
  std::vector<MergedRepeat> repeats;
  int measured_iterations = 0;
  int outlier_iterations = 0;  // Beyond 3.5 MAD; kept in every statistic.
  Interval samples_per_second;
  Interval iteration_seconds;
  Interval phases[kPhaseCount];
  // T(1) / T(n) against the same configuration on one device. Unknown without that measurement.
  Interval scaling_efficiency;
  std::string scaling_note;             // Why there is none, or what to beware of.
  double peak_memory_bytes = kUnknown;  // Largest of any rank.
  double clock_bound_seconds = 0;       // Between ranks; 0 on one host.
  std::vector<RankLateness> lateness;
  std::string stop_reason;
  double loss_first = kUnknown;
  double loss_last = kUnknown;
  double other_load = 0;  // Worst of any rank.

  const Interval& phase(Phase p) const { return phases[static_cast<int>(p)]; }
  Runs IterationRuns() const;
  double samples_per_iteration() const;
};

struct MergedRuns {
  std::vector<RunInfo> runs;
  std::vector<MergedTrial>
      trials;  // By network, precision, devices, policy; failures last in each.
  std::vector<v1::MachineState> machines;  // Distinct hosts.
  std::vector<std::string> notes;          // What a reader must know: duplicates, odd rows.
};

// Reads one run store (folder or file). Errors name the path and what to do.
absl::StatusOr<RunData> LoadRun(const std::string& path);

// A run given twice counts once. INVALID_ARGUMENT if nothing is given.
absl::StatusOr<MergedRuns> MergeRuns(std::vector<RunData> runs);
absl::StatusOr<MergedRuns> LoadAndMerge(const std::vector<std::string>& paths);

// Names as they appear in reports.
std::string EngineName(v1::Engine engine);            // "native", "tensorflow".
std::string PrecisionName(v1::Precision precision);   // "fp32".
std::string InputName(const v1::InputSource& input);  // "synthetic", "photographs", "lmdb:PATH".
std::string StatusName(v1::TrialStatus status);       // "OK", "RANK_LOST".
std::string BackendName(const MergedTrial& trial);    // "cpu"; empty if no rank reported.
int Devices(const v1::Trial& trial);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_MERGE_MERGE_H_
