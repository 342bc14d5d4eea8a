// Runs that nobody measured: results with known parameters, for tests of the analysis and for
// looking at reports. The product's own compiler and simulator make the iterations; noise is added.
//
//   SyntheticRunOptions options;
//   options.alpha_seconds = 2e-4;
//   absl::StatusOr<RunData> run = MakeSyntheticRun(options);
//   absl::Status written = WriteSyntheticRun(*run, "/tmp/run");   // A real run store.
//
// Deterministic for a given seed. Thread-safe.
#ifndef PACELINE_TESTS_TESTING_SYNTHETIC_RUN_H_
#define PACELINE_TESTS_TESTING_SYNTHETIC_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/merge/merge.h"

namespace paceline {

struct SyntheticRunOptions {
  std::string run_id = "0123456789abcdef";
  std::string host = "node-a";
  std::vector<std::string> networks = {"lenet5", "cifar_resnet20"};
  std::vector<std::string> policies = {"bsp", "wfbp"};
  std::vector<int> devices = {1, 2};
  std::vector<int> batches = {16};
  int repeats = 1;
  int warmup_iterations = 3;
  int iterations = 30;  // Measured.
  bool photographs = false;

  // The truth that a fit should find.
  double flops_per_second = 80e9;
  double forward_fixed_seconds = 2e-3;  // Of the whole network, whatever the batch.
  double backward_fixed_seconds = 3e-3;
  double contention_ratio = 1.2;  // On several devices.
  double alpha_seconds = 150e-6;  // Per message of a ring.
  double beta_seconds_per_byte = 0.4e-9;
  double update_seconds_per_byte = 0.15e-9;
  double read_seconds_per_sample = 1.5e-3;
  double copy_seconds_per_sample = 20e-6;

  double noise = 0.01;  // Relative standard deviation of an iteration.
  uint64_t seed = 1;
};

absl::StatusOr<RunData> MakeSyntheticRun(const SyntheticRunOptions& options);

// What MakeSyntheticRun charges forward of one network with this batch on one device.
absl::StatusOr<double> SyntheticForwardSeconds(const SyntheticRunOptions& options,
                                               const std::string& network, int batch);

// Turns one trial's outcome into a failure and drops its results.
void FailTrial(RunData* run, int index, v1::TrialStatus status, const std::string& cause);

// Writes `run` as a run store in the new folder `run_dir` (its id is the store's own).
absl::Status WriteSyntheticRun(const RunData& run, const std::string& run_dir);

}  // namespace paceline

#endif  // PACELINE_TESTS_TESTING_SYNTHETIC_RUN_H_
