// What operations cost, learned from runs with its uncertainty, for configurations that nobody
// measured: other devices, hosts, batch sizes, networks and policies.
//
//   absl::StatusOr<CostModel> model = CostModel::Fit(runs, "caffe_mpi");
//   absl::StatusOr<SimulatedTrial> simulated = model->SimulateTrial(trial, link, /*draw=*/0);
//
// Puts together analysis/fit's compute_costs.h, message_costs.h, input_costs.h and memory_offset.h,
// which say where each cost comes from, and simulates schedules with them.
//
// Draw 0 is the best estimate. Every other draw is one possible truth: costs vary within their
// intervals, messages by a bootstrap over trials, and more the further n lies beyond what was
// measured (collectives at twice the ranks are right within 20 %). The same draw of two
// configurations shares its luck, so that their ratio is sharper than either. Seconds, bytes.
// Thread-safe once fitted.
#ifndef PACELINE_ANALYSIS_PREDICT_COST_MODEL_H_
#define PACELINE_ANALYSIS_PREDICT_COST_MODEL_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/fit/compute_costs.h"
#include "analysis/fit/draws.h"
#include "analysis/fit/input_costs.h"
#include "analysis/fit/memory_offset.h"
#include "analysis/fit/message_costs.h"
#include "analysis/merge/merge.h"
#include "analysis/stats/statistics.h"
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
  static constexpr int kDraws = kDrawCount;

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
  Interval memory_offset_bytes() const { return memory_.bytes(); }

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
  // One operation's cost before the draws: what it is made of.
  struct OperationBasis {
    enum class Part { kFixed, kCompute, kRead, kCopy, kUpdate, kPacking, kMessage };
    Part part = Part::kFixed;
    double seconds = 0;                 // Best estimate; messages: unused.
    const MessageLine* line = nullptr;  // kPacking, kMessage.
    MessageShape shape;
    double assumed_wire_seconds = 0;  // kMessage over an assumed link at its full rate.
    double assumed_latency_seconds = 0;
  };
  struct TrialBasis {
    std::string network;
    IterationSchedule schedule;
    std::vector<OperationBasis> operations;
    double compute_log_deviation = 0;
    double scale_log_deviation = 0;  // Of messages over more ranks than were measured.
  };

  absl::StatusOr<TrialBasis> MakeBasis(const v1::Trial& trial, const LinkAssumption& link,
                                       std::set<std::string>* flags) const;
  std::vector<double> OperationSeconds(const TrialBasis& basis, int draw) const;
  // Root mean square of log(simulated / measured) over the trials the model answers for.
  double RootMeanSquareError(bool several_devices_only, int* points) const;
  void FitInTrainingFactor();

  std::string policy_;
  std::string machine_;
  bool measured_ = false;  // The policy itself, not only others.
  int max_devices_ = 1;
  int max_hosts_ = 1;
  double in_training_factor_ = 1;
  double error_ = 0.1;
  int error_points_ = 0;
  std::vector<MergedTrial> trials_;  // Of the machine, OK ones; samples dropped.
  ComputeCosts compute_;
  MessageCosts messages_;
  InputCosts inputs_;
  MemoryOffset memory_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_PREDICT_COST_MODEL_H_
