#include "coordinator/main/dry_run.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "coordinator/main/trial_summary.h"

namespace paceline {
namespace {

// Starting ranks, building the network, connecting; measured on two cores, ResNet-50: 1 to 2 s.
constexpr double kSetUpSeconds = 1.5;

std::string InputName(const v1::InputSource& input) {
  if (!input.image_folder().empty()) return "image folder";
  if (!input.lmdb().empty()) return "lmdb";
  if (input.has_photographs()) return "photographs";
  return "synthetic";
}

}  // namespace

std::vector<TrialEstimate> EstimateTrials(const std::vector<v1::Trial>& trials, double cores,
                                          int workers_per_host) {
  const DeviceSpeed speed = CpuSpeed(cores / std::max(1, workers_per_host));
  std::vector<TrialEstimate> estimates;
  std::map<std::string, size_t> first_of_configuration;  // Repeats are predicted once.
  for (const v1::Trial& trial : trials) {
    const auto [known, is_new] =
        first_of_configuration.emplace(trial.configuration_id(), estimates.size());
    if (!is_new) {
      estimates.push_back(estimates[known->second]);
      continue;
    }
    TrialEstimate estimate{PredictTrial(trial, speed), 0};
    if (estimate.prediction.ok()) {
      const v1::MeasurementSettings& measurement = trial.measurement();
      const double iteration_seconds = estimate.prediction->iteration_seconds;
      // It stops between the minimum and the maximum, mostly near the minimum.
      const double measured =
          std::min(iteration_seconds * measurement.max_iterations(),
                   std::max(iteration_seconds * 1.5 * measurement.min_iterations(),
                            std::min(2.0, measurement.max_measure_seconds())));
      estimate.seconds =
          kSetUpSeconds + iteration_seconds * measurement.min_warmup_iterations() + measured;
    }
    estimates.push_back(std::move(estimate));
  }
  return estimates;
}

std::string FormatDryRun(const std::vector<v1::Trial>& trials,
                         const std::vector<TrialEstimate>& estimates, int64_t host_memory_bytes) {
  std::vector<std::vector<std::string>> rows = {{"#", "network", "policy", "devices", "batch",
                                                 "precision", "input", "iteration", "img/s",
                                                 "memory/rank", "trial", ""}};
  double total_seconds = 0;
  for (size_t i = 0; i < trials.size(); ++i) {
    const v1::Trial& trial = trials[i];
    const TrialEstimate& estimate = estimates[i];
    const int devices = trial.cluster().hosts() * trial.cluster().devices_per_host();
    std::vector<std::string> row = {
        absl::StrCat(i + 1),
        trial.network().name(),
        trial.policy().name(),
        absl::StrCat(devices),
        absl::StrCat(trial.batch_per_device()),
        std::string(absl::StripPrefix(v1::Precision_Name(trial.precision()), "PRECISION_")),
        InputName(trial.input())};
    if (estimate.prediction.ok()) {
      const TrialPrediction& prediction = *estimate.prediction;
      total_seconds += estimate.seconds;
      const bool too_large =
          host_memory_bytes > 0 &&
          prediction.memory_bytes * trial.cluster().devices_per_host() > host_memory_bytes;
      row.insert(row.end(), {absl::StrFormat("%.3g s", prediction.iteration_seconds),
                             absl::StrFormat("%.3g", prediction.samples_per_second),
                             absl::StrFormat("%.0f MB", prediction.memory_bytes / 1e6),
                             FormatDurationForPeople(estimate.seconds),
                             too_large ? "more than this machine's memory" : ""});
    } else {
      row.insert(row.end(), {"", "", "", "", std::string(estimate.prediction.status().message())});
    }
    rows.push_back(std::move(row));
  }
  return absl::StrCat(
      FormatTable(rows,
                  {true, false, false, true, true, false, false, true, true, true, true, false}),
      trials.size(), " trials, about ", FormatDurationForPeople(total_seconds),
      " in all. Predictions before any measurement are right within a factor of about two.\n");
}

}  // namespace paceline
