#include "analysis/fit/input_costs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/fit/nearest.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

int DevicesOnHost(const v1::Trial& trial) {
  return std::max(1, trial.cluster().devices_per_host());
}

double FiniteMedian(const std::vector<double>& values) {
  const double median = Median(values);
  return std::isfinite(median) ? median : 0;
}

}  // namespace

void InputCosts::Add(const MergedTrial& trial, const std::vector<OperationCost>& operations) {
  const double batch = std::max(1, trial.trial.batch_per_device());
  PerSample& costs = inputs_[InputSubject(trial.trial)][DevicesOnHost(trial.trial)];
  // The phase is busy time of the decoding threads; the operation is how long the schedule waits
  // for a batch of theirs.
  costs.read_seconds.push_back(
      (operations.empty() ? trial.phase(Phase::kInput).value : SumOfKind(operations, "read")) /
      batch);
  costs.copy_seconds.push_back(trial.phase(Phase::kCopy).value / batch);
}

InputEstimate InputCosts::Estimate(const v1::Trial& trial, std::set<std::string>* flags) const {
  InputEstimate estimate;
  const std::string subject = InputSubject(trial);
  const auto found = inputs_.find(subject);
  if (found == inputs_.end()) {
    if (flags != nullptr && !trial.input().has_synthetic()) {
      flags->insert(
          absl::StrCat("input '", subject, "' was not measured and counts as free: measure it"));
    }
    return estimate;
  }
  const PerSample* costs = NearestByRatio(found->second, DevicesOnHost(trial), nullptr);
  estimate.read_seconds = FiniteMedian(costs->read_seconds) * trial.batch_per_device();
  estimate.copy_seconds = FiniteMedian(costs->copy_seconds) * trial.batch_per_device();
  return estimate;
}

}  // namespace paceline
