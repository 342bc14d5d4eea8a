// Cost of computing: forward and backward of whole networks as measured, per number of devices on a
// host and per batch size, shared out to layers as measured; and updates per byte.
//
//   ComputeCosts compute;
//   compute.Add(trial, shaped, MeasuredOperationCosts(trial), /*own=*/true);
//   absl::StatusOr<ComputeEstimate> estimate = compute.Estimate(other_trial, other_shaped, &flags);
//
// Sources, best first: the policy's own trials of the network; other policies' trials of it
// (computing does not depend on the policy); other networks, by the ratio of measured time to that
// of models/simulate/default_costs.h. Seconds. Thread-safe once everything is added.
#ifndef PACELINE_ANALYSIS_FIT_COMPUTE_COSTS_H_
#define PACELINE_ANALYSIS_FIT_COMPUTE_COSTS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/fit/operation_costs.h"
#include "analysis/merge/merge.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

struct ComputeEstimate {
  std::vector<double> forward_seconds;  // By layer.
  std::vector<double> backward_seconds;
  // Of the whole, standard deviation of the logarithm: of measuring, and of what was not measured.
  double log_deviation = 0;
};

class ComputeCosts {
 public:
  // `own`: measured under the policy that the model is for.
  void Add(const MergedTrial& trial, const ShapedNetwork& shaped,
           const std::vector<OperationCost>& operations, bool own);

  // FAILED_PRECONDITION names what to measure. Adds to `flags` (may be null) what the estimate
  // rests on beyond measurements.
  absl::StatusOr<ComputeEstimate> Estimate(const v1::Trial& trial, const ShapedNetwork& shaped,
                                           std::set<std::string>* flags) const;

  // Of the network, else of all. 0: never measured.
  double UpdateSecondsPerByte(const v1::Trial& trial) const;

 private:
  struct Point {
    int devices = 1;  // On one host.
    int batch = 1;
    bool own = false;
    Interval forward;
    Interval backward;
  };
  struct Network {
    std::vector<Point> points;
    ShapedNetwork shaped;
    std::map<int, double> forward_share;  // By layer.
    std::map<int, double> backward_share;
    std::vector<double> update_seconds_per_byte;
  };
  using NetworkKey = std::pair<std::string, std::string>;  // Name, precision.

  const Network* Find(const v1::Trial& trial) const;
  double PointSeconds(const Network& network, int devices, int batch, bool backward,
                      std::set<std::string>* flags, double* log_deviation) const;
  // Forward and backward of the whole network.
  struct Total {
    double forward = 0;
    double backward = 0;
    double log_deviation = 0;
  };
  absl::StatusOr<Total> EstimateFromOthers(const v1::Trial& trial, const ShapedNetwork& shaped,
                                           std::set<std::string>* flags) const;

  std::map<NetworkKey, Network> networks_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_COMPUTE_COSTS_H_
