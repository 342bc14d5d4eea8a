// What --dry_run prints: the trials of a plan with their predicted time and memory.
//
//   std::cout << FormatDryRun(trials, EstimateTrials(trials, cores));
//
// Pure functions; thread-safe.
#ifndef PACELINE_COORDINATOR_MAIN_DRY_RUN_H_
#define PACELINE_COORDINATOR_MAIN_DRY_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/simulate/default_costs.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

struct TrialEstimate {
  absl::StatusOr<TrialPrediction> prediction;
  double seconds = 0;  // Of the whole trial, set-up and warm-up included.
};

// `cores` of each host, shared evenly by the `workers_per_host` that run there (also while a trial
// uses only one of them).
std::vector<TrialEstimate> EstimateTrials(const std::vector<v1::Trial>& trials, double cores,
                                          int workers_per_host);

// `host_memory_bytes`: trials that are predicted to need more are marked; 0: unknown.
std::string FormatDryRun(const std::vector<v1::Trial>& trials,
                         const std::vector<TrialEstimate>& estimates, int64_t host_memory_bytes);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_MAIN_DRY_RUN_H_
