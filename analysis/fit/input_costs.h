// Cost of input: seconds per sample until the schedule's read has its batch, and of copying it to
// the device, by source, image size and devices on a host (which share its disks and cores).
//
//   InputCosts inputs;
//   inputs.Add(trial, MeasuredOperationCosts(trial));
//   InputEstimate estimate = inputs.Estimate(other_trial, &flags);
//
// Seconds. Thread-safe once everything is added.
#ifndef PACELINE_ANALYSIS_FIT_INPUT_COSTS_H_
#define PACELINE_ANALYSIS_FIT_INPUT_COSTS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/fit/operation_costs.h"
#include "analysis/merge/merge.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

struct InputEstimate {
  double read_seconds = 0;  // Of one batch.
  double copy_seconds = 0;
};

class InputCosts {
 public:
  void Add(const MergedTrial& trial, const std::vector<OperationCost>& operations);

  // An input that was not measured counts as free, with a flag. `flags` may be null.
  InputEstimate Estimate(const v1::Trial& trial, std::set<std::string>* flags) const;

 private:
  struct PerSample {
    std::vector<double> read_seconds;
    std::vector<double> copy_seconds;
  };
  // By subject, then devices on a host.
  std::map<std::string, std::map<int, PerSample>> inputs_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_INPUT_COSTS_H_
