// What operations cost, learned from runs with its uncertainty, for configurations that nobody
// measured: other devices, hosts, batch sizes, networks and policies.
//
//   absl::StatusOr<CostModel> model = CostModel::Fit(runs, "caffe_mpi");
//   absl::StatusOr<SimulatedTrial> simulated = model->SimulateTrial(trial, link, /*draw=*/0);
//
// Sources of a cost, best first: the policy's own trials of the network; other policies' trials of
// it (computing does not depend on the policy); other networks, by the ratio of measured time to
// that of models/simulate/default_costs.h. Messages: alpha and beta per kind of operation, pooled
// over networks and devices under the ring's closed form (reduce and broadcast: trees).
//
// Draw 0 is the best estimate. Every other draw is one possible truth: costs vary within their
// intervals, messages by a bootstrap over trials, and more the further n lies beyond what was
// measured (collectives at twice the ranks are right within 20 %). The same draw of two
// configurations shares its luck, so that their ratio is sharper than either. Seconds, bytes.
// Thread-safe once fitted.
#ifndef PACELINE_ANALYSIS_PREDICT_COST_MODEL_H_
#define PACELINE_ANALYSIS_PREDICT_COST_MODEL_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/fit/line_fit.h"
#include "analysis/merge/merge.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "models/simulate/simulator.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

// The network between hosts where it was not measured. 0: unknown.
struct LinkAssumption {
  double bytes_per_second = 0;
  double latency_seconds = 0;
  bool known() const { return bytes_per_second > 0 && latency_seconds > 0; }
};

struct SimulatedTrial {
  Timeline timeline;
  std::vector<double> operation_seconds;
};

class CostModel {
 public:
  static constexpr int kDraws = 80;

  // Uses the machine with the most trials of `policy`. NOT_FOUND: no such policy in the runs and
  // none of the built-in ones. FAILED_PRECONDITION: nothing was measured.
  static absl::StatusOr<CostModel> Fit(const MergedRuns& runs, const std::string& policy);

  // FAILED_PRECONDITION where a cost cannot be known from the runs; the message names the
  // measurement that would tell. Adds to `flags` what the result rests on beyond measurements.
  absl::StatusOr<SimulatedTrial> SimulateTrial(const v1::Trial& trial, const LinkAssumption& link,
                                               int draw, std::set<std::string>* flags) const;
  // Iteration seconds of draws 0 to kDraws, without the model's own error.
  absl::StatusOr<std::vector<double>> Periods(const v1::Trial& trial, const LinkAssumption& link,
                                              std::set<std::string>* flags) const;

  // Relative error of the model on what it was fitted on: root mean square of log ratios, and their
  // number.
  double error() const { return error_; }
  int error_points() const { return error_points_; }
  // How much longer messages take in training than the rank shows that waits for nobody: ranks that
  // come late, and delays that a median does not see. Chosen so that the policy's trials on several
  // devices come out right.
  double in_training_factor() const { return in_training_factor_; }
  // Measured peak memory less the predicted one: what the process holds besides.
  Interval memory_offset_bytes() const { return memory_offset_; }

  // Part of a message's time that is latency, whatever its size. Unknown if alpha and beta cannot
  // be told apart; `why` then says what to measure.
  double LatencyShare(const Operation& operation, int devices, std::string* why) const;

  const std::string& policy() const { return policy_; }
  const std::string& machine() const { return machine_; }
  int max_devices() const { return max_devices_; }
  // A measured trial of the network (and precision), the policy's own if possible; or null.
  const MergedTrial* Example(const std::string& network, v1::Precision precision) const;
  // The measurement of this very configuration, or null.
  const MergedTrial* Measured(const v1::Trial& trial) const;

 private:
  struct ComputePoint {
    int devices = 1;  // On one host.
    int batch = 1;
    bool own = false;  // Of the policy itself.
    Interval forward;
    Interval backward;
  };
  struct NetworkCosts {
    std::vector<ComputePoint> points;
    std::map<int, double> forward_share;  // By layer.
    std::map<int, double> backward_share;
    std::vector<double> update_seconds_per_byte;
  };
  struct MessageCosts {
    LineFit line;                                  // Per step; x = volume * bytes / steps.
    std::vector<std::pair<double, double>> draws;  // Alpha, beta.
    bool own = false;
  };

  absl::StatusOr<std::vector<double>> OperationSeconds(const v1::Trial& trial,
                                                       const ShapedNetwork& shaped,
                                                       const IterationSchedule& schedule,
                                                       const LinkAssumption& link, int draw,
                                                       std::set<std::string>* flags) const;
  // Forward and backward seconds of the whole network.
  absl::StatusOr<std::pair<double, double>> ComputeSeconds(const v1::Trial& trial,
                                                           const ShapedNetwork& shaped, int draw,
                                                           std::set<std::string>* flags) const;
  double PointSeconds(const NetworkCosts& costs, int devices, int batch, bool backward,
                      std::set<std::string>* flags, double* deviation) const;

  std::string policy_;
  std::string machine_;
  int max_devices_ = 1;
  int max_hosts_ = 1;
  double in_training_factor_ = 1;
  double error_ = 0.1;
  int error_points_ = 0;
  Interval memory_offset_;
  std::vector<MergedTrial> trials_;  // Of the machine, OK ones; samples dropped.
  std::map<std::pair<std::string, std::string>, NetworkCosts> networks_;
  std::map<std::string, MessageCosts> messages_;
  // Per sample, by input and devices on a host.
  std::map<std::string, std::map<int, std::vector<double>>> reads_;
  std::map<std::string, std::map<int, std::vector<double>>> copies_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_PREDICT_COST_MODEL_H_
