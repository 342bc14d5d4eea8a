// What a run gave, in one line per trial: for the terminal. The report (analysis) says much more.
//
//   std::vector<TrialSummary> summaries = SummarizeRun(*store);
//   std::cout << FormatSummaries(summaries);
//
// Pure functions of the store; thread-safe.
#ifndef PACELINE_COORDINATOR_MAIN_TRIAL_SUMMARY_H_
#define PACELINE_COORDINATOR_MAIN_TRIAL_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "coordinator/results/run_store.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"

namespace paceline {

struct TrialSummary {
  v1::Trial trial;
  TrialOutcome outcome;
  // Of all ranks together, from the median iteration after warm-up; 0 if nothing was measured.
  double samples_per_second = 0;
  double half_width = 0;  // 95 % confidence, samples per second; not finite: too few iterations.
  int iterations = 0;     // Measured ones.
  // Throughput over devices times the throughput of the same configuration on one device.
  absl::optional<double> scaling_efficiency;
};

// Throughput of one attempt; `results` are its ranks.
TrialSummary SummarizeTrial(const v1::Trial& trial, const TrialOutcome& outcome,
                            const std::vector<v1::TrialResult>& results);

absl::StatusOr<std::vector<TrialSummary>> SummarizeRun(const RunStore& store);

// A table for people; failures with their cause below their row.
std::string FormatSummaries(const std::vector<TrialSummary>& summaries);

// "12.3 img/s ± 0.1"; "12.3 img/s" if the interval is unknown.
std::string FormatThroughput(const TrialSummary& summary);

// "12346", "12.34": so many significant digits, without exponents.
std::string FormatRate(double value, int digits);

// "OK", "OUT_OF_MEMORY"; "not run" for an attempt that has not ended.
std::string FormatStatus(const TrialOutcome& outcome);

// "38 s", "4 min 10 s", "2 h 5 min".
std::string FormatDurationForPeople(double seconds);

// Columns padded to their widest cell, two spaces apart; `right` says which are right-aligned.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<bool>& right);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_MAIN_TRIAL_SUMMARY_H_
