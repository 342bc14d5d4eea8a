#include "analysis/predict/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/fit/operation_costs.h"
#include "models/frameworks/policies.h"
#include "models/schedule/compiler.h"
#include "models/simulate/default_costs.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

// Log deviation of a collective's cost per doubling of ranks: 90 % within 20 %.
constexpr double kDeviationPerDoubling = 0.12;
// Of updates, reading and copying.
constexpr double kUpdateDeviation = 0.1;
constexpr double kInputDeviation = 0.05;
// In training, communication took 1.6 to 2.3 times its isolated time (performance model notes): a
// link gives between all and 1 / 2.3 of its rate.
constexpr double kLinkShareLow = 1 / 2.3;
constexpr double kLinkShareMiddle = 1 / 1.5;

// Whether a model can be learned from it.
bool IsUsable(const MergedTrial& trial) {
  return trial.ok && trial.iteration_seconds.value > 0 && !trial.repeats.empty() &&
         !trial.repeats[0].ranks.empty() &&
         (trial.trial.engine() == v1::ENGINE_NATIVE ||
          trial.trial.engine() == v1::ENGINE_UNSPECIFIED);
}

std::string HardwareOf(const MergedTrial& trial) {
  const v1::MachineState& machine = trial.repeats[0].ranks[0].machine();
  return absl::StrCat(machine.device(), "|", machine.cpu_model());
}

// The hardware with the most trials of `policy`, else of any.
std::string CommonHardware(const std::vector<const MergedTrial*>& trials,
                           const std::string& policy) {
  std::map<std::string, int> votes;
  for (const MergedTrial* trial : trials) {
    votes[HardwareOf(*trial)] += trial->trial.policy().name() == policy ? 1001 : 1;
  }
  std::string common;
  for (const auto& entry : votes) {
    if (common.empty() || entry.second > votes[common]) common = entry.first;
  }
  return common;
}

// Ranks differ only where an owner works for all: the one that owns most sets the pace.
int BusiestOwner(const IterationSchedule& schedule) {
  std::map<int, int64_t> owned;
  for (const Group& group : schedule.groups) owned[group.owner] += group.bytes;
  int busiest = 0;
  for (const auto& owner : owned) {
    if (owner.second > owned[busiest]) busiest = owner.first;
  }
  return busiest;
}

void Flag(std::set<std::string>* flags, const std::string& text) {
  if (flags != nullptr) flags->insert(text);
}

}  // namespace

absl::StatusOr<CostModel> CostModel::Fit(const MergedRuns& runs, const std::string& policy) {
  CostModel model;
  model.policy_ = policy;
  std::vector<const MergedTrial*> usable;
  std::set<std::string> measured;
  for (const MergedTrial& trial : runs.trials) {
    if (!IsUsable(trial)) continue;
    usable.push_back(&trial);
    measured.insert(trial.trial.policy().name());
  }
  if (measured.empty()) {
    return absl::FailedPreconditionError(
        "the runs hold no measured trial of the native engine: nothing to learn from");
  }
  model.measured_ = measured.count(policy) > 0;
  if (!model.measured_ && !LoadPolicy(policy).ok()) {
    return absl::NotFoundError(absl::StrCat(
        "policy '", policy, "' was not measured and is not built in",
        DidYouMean(policy, KnownPolicies()), "; measured: ", absl::StrJoin(measured, ", ")));
  }
  const std::string hardware = CommonHardware(usable, policy);
  for (const MergedTrial* trial : usable) {
    if (HardwareOf(*trial) != hardware) continue;
    const bool own = trial->trial.policy().name() == policy;
    if (own || model.machine_.empty()) model.machine_ = trial->machine;
    absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial->trial.network());
    if (!shaped.ok()) continue;
    absl::StatusOr<IterationSchedule> schedule = CompileSchedule(
        *shaped, trial->trial.policy(), trial->trial.cluster(), trial->trial.batch_per_device());
    if (!schedule.ok()) continue;
    const std::vector<OperationCost> operations = MeasuredOperationCosts(*trial);
    model.compute_.Add(*trial, *shaped, operations, own);
    model.messages_.Add(operations, trial->devices, schedule->servers, own);
    model.inputs_.Add(*trial, operations);
    model.memory_.Add(*trial, *shaped, *schedule);
    if (own || !model.measured_) {
      model.max_devices_ = std::max(model.max_devices_, trial->devices);
      model.max_hosts_ = std::max(model.max_hosts_, trial->trial.cluster().hosts());
    }
    model.trials_.push_back(*trial);
    for (MergedRepeat& repeat : model.trials_.back().repeats) repeat.ranks.resize(1);
  }
  model.messages_.Fit();
  model.FitInTrainingFactor();
  const double error = model.RootMeanSquareError(false, &model.error_points_);
  if (model.error_points_ > 0) model.error_ = error;
  return model;
}

double CostModel::RootMeanSquareError(bool several_devices_only, int* points) const {
  double squares = 0;
  *points = 0;
  for (const MergedTrial& trial : trials_) {
    if (measured_ && trial.trial.policy().name() != policy_) continue;
    if (several_devices_only && trial.devices == 1) continue;
    absl::StatusOr<SimulatedTrial> simulated =
        SimulateTrial(trial.trial, LinkAssumption(), 0, nullptr);
    if (!simulated.ok()) continue;
    const double error =
        std::log(simulated->timeline.period_seconds / trial.iteration_seconds.value);
    if (!std::isfinite(error)) continue;
    squares += error * error;
    ++*points;
  }
  return *points > 0 ? std::sqrt(squares / *points) : kUnknown;
}

void CostModel::FitInTrainingFactor() {
  int points = 0;
  const double uncorrected = RootMeanSquareError(true, &points);
  if (points == 0) return;
  double best = 1, least = uncorrected;
  for (double factor = 0.8; factor < 5; factor *= 1.1) {
    in_training_factor_ = factor;
    const double error = RootMeanSquareError(true, &points);
    if (error < least) least = error, best = factor;
  }
  // Only what the data clearly ask for.
  in_training_factor_ = least < 0.9 * uncorrected && uncorrected > 0.01 ? best : 1;
}

const MergedTrial* CostModel::Example(const std::string& network, v1::Precision precision) const {
  const MergedTrial* example = nullptr;
  for (const MergedTrial& trial : trials_) {
    if (trial.trial.network().name() != network) continue;
    const auto score = [&](const MergedTrial& t) {
      return 2 * (PrecisionName(t.trial.precision()) == PrecisionName(precision)) +
             (t.trial.policy().name() == policy_);
    };
    if (example == nullptr || score(trial) > score(*example)) example = &trial;
  }
  return example;
}

const MergedTrial* CostModel::Measured(const v1::Trial& trial) const {
  for (const MergedTrial& measured : trials_) {
    const v1::Trial& other = measured.trial;
    if (other.network().name() == trial.network().name() &&
        other.policy().name() == trial.policy().name() &&
        PrecisionName(other.precision()) == PrecisionName(trial.precision()) &&
        other.batch_per_device() == trial.batch_per_device() &&
        other.cluster().hosts() == trial.cluster().hosts() &&
        other.cluster().devices_per_host() == trial.cluster().devices_per_host() &&
        InputName(other.input()) == InputName(trial.input())) {
      return &measured;
    }
  }
  return nullptr;
}

double CostModel::LatencyShare(const Operation& operation, int devices, std::string* why) const {
  return messages_.LatencyShare(OperationKindName(operation.kind), operation.bytes, devices, why);
}

absl::StatusOr<CostModel::TrialBasis> CostModel::MakeBasis(const v1::Trial& trial,
                                                           const LinkAssumption& link,
                                                           std::set<std::string>* flags) const {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.network());
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*shaped, trial.policy(), trial.cluster(), trial.batch_per_device());
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<ComputeEstimate> compute = compute_.Estimate(trial, *shaped, flags);
  if (!compute.ok()) return compute.status();
  const InputEstimate input = inputs_.Estimate(trial, flags);
  const double update_per_byte = compute_.UpdateSecondsPerByte(trial);

  TrialBasis basis;
  basis.network = trial.network().name();
  basis.compute_log_deviation = compute->log_deviation;
  const int ranks = schedule->ranks, hosts = std::max(1, schedule->hosts);
  const int on_host = std::max(1, trial.cluster().devices_per_host());
  const bool assumes_link = hosts > 1 && link.known();
  if (hosts > max_hosts_ && !link.known()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no run spans ", hosts,
                     " hosts, so the network between them is unknown: give "
                     "--network_gbps and --latency_us, or measure with hosts that many"));
  }
  if (assumes_link) {
    Flag(flags,
         "the network between hosts is your assumption, not measured: run the plan on two hosts");
  }
  if (ranks > max_devices_ && ranks > 1) {
    const double doublings = std::log2(1.0 * ranks / std::max(2, max_devices_));
    basis.scale_log_deviation = kDeviationPerDoubling * std::max(1.0, doublings);
    Flag(flags,
         absl::StrCat(ranks, " devices lie beyond the ", max_devices_,
                      " measured: measure devices: ", std::min(ranks, 2 * max_devices_), " next"));
  }

  using Part = OperationBasis::Part;
  const int busiest = BusiestOwner(*schedule);
  for (const Operation& operation : schedule->operations) {
    OperationBasis one;
    switch (operation.kind) {
      case OperationKind::kForward:
        one.part = Part::kCompute;
        one.seconds = compute->forward_seconds[operation.layer];
        break;
      case OperationKind::kBackward:
        one.part = Part::kCompute;
        one.seconds = compute->backward_seconds[operation.layer];
        break;
      case OperationKind::kRead:
        one.part = Part::kRead;
        one.seconds = input.read_seconds;
        break;
      case OperationKind::kCopyInput:
        one.part = Part::kCopy;
        one.seconds = input.copy_seconds;
        break;
      case OperationKind::kUpdate: {
        one.part = Part::kUpdate;
        const bool works =
            !operation.at_owner_only || schedule->groups[operation.group].owner == busiest;
        const int64_t bytes =
            operation.group < 0 ? shaped->gradient_bytes : schedule->groups[operation.group].bytes;
        one.seconds = works ? update_per_byte * bytes : 0;
        break;
      }
      default: {
        const absl::string_view kind = OperationKindName(operation.kind);
        const bool packs =
            operation.kind == OperationKind::kPack || operation.kind == OperationKind::kUnpack;
        one.line = messages_.Find(kind);
        if (one.line == nullptr) {
          if (packs) {
            // Like a read and a write of memory.
            one.seconds = 2.0 * operation.bytes / CpuSpeed(1).memory_bytes_per_second;
            Flag(flags, "packing was not measured; memory is taken to move 10 GB/s");
            break;
          }
          return absl::FailedPreconditionError(
              absl::StrCat("'", kind, "' was never timed, so communication of ", policy_,
                           " is unknown: measure ", policy_, " with devices: 2"));
        }
        one.shape = ShapeOf(kind, operation.bytes, ranks, schedule->servers);
        one.part = packs ? Part::kPacking : Part::kMessage;
        if (packs) break;
        if (!one.line->own) {
          Flag(flags, absl::StrCat("'", kind, "' is known from other policies only: measure ",
                                   policy_, " with devices: 2"));
        }
        if (assumes_link) {
          // A ring crosses each host's link once; other methods send each device's own copy.
          const double crossing = operation.kind == OperationKind::kAllReduce ? 1 : on_host;
          one.assumed_wire_seconds = one.shape.wire_bytes() * crossing / link.bytes_per_second;
          one.assumed_latency_seconds = one.shape.steps * link.latency_seconds;
        }
        break;
      }
    }
    basis.operations.push_back(one);
  }
  basis.schedule = *std::move(schedule);
  return basis;
}

std::vector<double> CostModel::OperationSeconds(const TrialBasis& basis, int draw) const {
  const auto luck = [draw](double deviation, const std::string& subject) {
    return std::exp(deviation * NormalOfDraw(draw, subject));
  };
  const double compute = luck(basis.compute_log_deviation, "compute " + basis.network);
  const double read = luck(kInputDeviation, "read");
  const double copy = luck(kInputDeviation, "copy");
  const double update = luck(kUpdateDeviation, "update");
  const double message = luck(basis.scale_log_deviation, "scale") * in_training_factor_;
  const double link_share = draw == 0
                                ? kLinkShareMiddle
                                : std::exp(std::log(kLinkShareLow) * UniformOfDraw(draw, "link"));
  using Part = OperationBasis::Part;
  std::vector<double> all;
  for (const OperationBasis& operation : basis.operations) {
    double seconds = operation.seconds;
    switch (operation.part) {
      case Part::kFixed:
        break;
      case Part::kCompute:
        seconds *= compute;
        break;
      case Part::kRead:
        seconds *= read;
        break;
      case Part::kCopy:
        seconds *= copy;
        break;
      case Part::kUpdate:
        seconds *= update;
        break;
      case Part::kPacking:
        seconds = operation.line->Seconds(operation.shape, draw);
        break;
      case Part::kMessage:
        seconds = std::max(operation.line->Seconds(operation.shape, draw),
                           operation.assumed_wire_seconds / link_share);
        seconds = (seconds + operation.assumed_latency_seconds) * message;
        break;
    }
    all.push_back(std::isfinite(seconds) ? std::max(0.0, seconds) : 0);
  }
  return all;
}

absl::StatusOr<SimulatedTrial> CostModel::SimulateTrial(const v1::Trial& trial,
                                                        const LinkAssumption& link, int draw,
                                                        std::set<std::string>* flags) const {
  absl::StatusOr<TrialBasis> basis = MakeBasis(trial, link, flags);
  if (!basis.ok()) return basis.status();
  std::vector<double> seconds = OperationSeconds(*basis, draw);
  absl::StatusOr<Timeline> timeline = Simulate(basis->schedule, seconds);
  if (!timeline.ok()) return timeline.status();
  return SimulatedTrial{*std::move(timeline), std::move(seconds)};
}

absl::StatusOr<std::vector<double>> CostModel::Periods(const v1::Trial& trial,
                                                       const LinkAssumption& link,
                                                       std::set<std::string>* flags) const {
  absl::StatusOr<TrialBasis> basis = MakeBasis(trial, link, flags);
  if (!basis.ok()) return basis.status();
  std::vector<double> periods;
  SimulateOptions options;
  options.steady_tolerance = 1e-6;
  for (int draw = 0; draw <= kDraws; ++draw) {
    absl::StatusOr<Timeline> timeline =
        Simulate(basis->schedule, OperationSeconds(*basis, draw), options);
    if (!timeline.ok()) return timeline.status();
    periods.push_back(timeline->period_seconds);
  }
  return periods;
}

}  // namespace paceline
