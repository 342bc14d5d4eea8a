#include "analysis/predict/cost_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/frameworks/policies.h"
#include "models/schedule/compiler.h"
#include "models/simulate/default_costs.h"
#include "models/stats/stats.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

// Log deviation of a collective's cost per doubling of ranks: 90 % within 20 %.
constexpr double kDeviationPerDoubling = 0.12;
// Of compute, per doubling of the batch beyond one measured batch; and of another number of devices
// on a host than measured.
constexpr double kBatchDeviation = 0.08;
constexpr double kDevicesDeviation = 0.10;
// In training, communication took 1.6 to 2.3 times its isolated time (performance model notes): a
// link gives between all and 1 / 2.3 of its rate.
constexpr double kLinkShareLow = 1 / 2.3;
constexpr double kLinkShareMiddle = 1 / 1.5;

// Standard normal, a function of the draw and of what it belongs to; 0 for draw 0.
double Normal(int draw, const std::string& subject) {
  if (draw == 0) return 0;
  uint64_t hash = 1469598103934665603ULL + draw;
  for (unsigned char c : subject) hash = (hash ^ c) * 1099511628211ULL;
  std::mt19937_64 random(hash);
  return std::normal_distribution<double>()(random);
}

double Uniform(int draw, const std::string& subject) {
  return 0.5 * std::erfc(-Normal(draw, subject) / std::sqrt(2.0));
}

bool IsMessage(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceToOwner:
    case OperationKind::kBroadcast:
    case OperationKind::kPush:
    case OperationKind::kPull:
      return true;
    default:
      return false;
  }
}

bool IsMessageKind(const std::string& kind) {
  return kind == "all_reduce" || kind == "reduce_to_owner" || kind == "broadcast" ||
         kind == "push" || kind == "pull" || kind == "pack" || kind == "unpack";
}

// Messages in a row, and bytes on the wire over bytes of payload, for `n` ranks.
double Steps(const std::string& kind, int n) {
  if (kind == "all_reduce") return 2.0 * (n - 1);
  if (kind == "reduce_to_owner" || kind == "broadcast") return std::ceil(std::log2(n));
  return 1;
}
double Volume(const std::string& kind, int n, int servers) {
  if (kind == "all_reduce") return 2.0 * (n - 1) / n;
  if (kind == "reduce_to_owner" || kind == "broadcast") return std::ceil(std::log2(n));
  if (kind == "push" || kind == "pull") return std::max(1.0, n / std::max(1.0, 1.0 * servers));
  return 1;
}

std::string InputSubject(const v1::Trial& trial) {
  const v1::ImageSize& size = trial.network().input();
  return absl::StrCat(InputName(trial.input()), " ", size.channels(), "x", size.height(), "x",
                      size.width());
}

double LogDeviation(const Interval& interval) {
  const double half = interval.has_bounds() ? std::log(interval.high / interval.low) / 2 / 1.96 : 0;
  return std::isfinite(half) ? std::min(0.5, std::max(0.005, half)) : 0.05;
}

using OperationKey = std::tuple<std::string, int, int>;

// One number per operation: messages as the rank that waits for nobody sees them, updates as the
// rank that does them all, the rest as the mean.
std::map<OperationKey, std::pair<double, int64_t>> OperationTimes(const MergedTrial& trial) {
  std::map<OperationKey, std::vector<double>> all;
  std::map<OperationKey, int64_t> bytes;
  for (const MergedRepeat& repeat : trial.repeats) {
    for (const v1::TrialResult& rank : repeat.ranks) {
      for (const v1::OperationStatistics& operation : rank.operations()) {
        if (operation.median_ns() < 0) continue;
        const OperationKey key(operation.kind(), operation.layer(), operation.group());
        all[key].push_back(operation.median_ns() * 1e-9);
        bytes[key] = operation.bytes();
      }
    }
  }
  std::map<OperationKey, std::pair<double, int64_t>> times;
  for (const auto& entry : all) {
    const std::string& kind = std::get<0>(entry.first);
    const std::vector<double>& values = entry.second;
    double seconds = Mean(values);
    if (kind == "update") seconds = *std::max_element(values.begin(), values.end());
    if (IsMessageKind(kind)) seconds = *std::min_element(values.begin(), values.end());
    times[entry.first] = {seconds, bytes[entry.first]};
  }
  return times;
}

template <typename Value>
const Value* NearestTo(const std::map<int, Value>& values, int wanted, int* at) {
  const Value* nearest = nullptr;
  for (const auto& entry : values) {
    if (nearest == nullptr ||
        std::abs(std::log(1.0 * entry.first / wanted)) < std::abs(std::log(1.0 * *at / wanted))) {
      nearest = &entry.second;
      *at = entry.first;
    }
  }
  return nearest;
}

int DevicesOnHost(const v1::Trial& trial) {
  return std::max(1, trial.cluster().devices_per_host());
}

}  // namespace

absl::StatusOr<CostModel> CostModel::Fit(const MergedRuns& runs, const std::string& policy) {
  CostModel model;
  model.policy_ = policy;
  std::map<std::string, int> machines;
  std::set<std::string> measured;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok || !(trial.iteration_seconds.value > 0) || trial.repeats.empty()) continue;
    if (trial.trial.engine() != v1::ENGINE_NATIVE &&
        trial.trial.engine() != v1::ENGINE_UNSPECIFIED) {
      continue;
    }
    measured.insert(trial.trial.policy().name());
    machines[trial.repeats[0].ranks[0].machine().device() + "|" +
             trial.repeats[0].ranks[0].machine().cpu_model()] +=
        1 + 1000 * (trial.trial.policy().name() == policy);
  }
  if (measured.empty()) {
    return absl::FailedPreconditionError(
        "the runs hold no measured trial of the native engine: nothing to learn from");
  }
  if (measured.count(policy) == 0 && !LoadPolicy(policy).ok()) {
    return absl::NotFoundError(absl::StrCat(
        "policy '", policy, "' was not measured and is not built in",
        DidYouMean(policy, KnownPolicies()), "; measured: ", absl::StrJoin(measured, ", ")));
  }
  std::string machine;
  for (const auto& entry : machines) {
    if (machine.empty() || entry.second > machines[machine]) machine = entry.first;
  }

  std::map<std::string, std::vector<LinePoint>> own_points, all_points;
  std::map<std::string, std::set<int>> own_clusters;
  std::vector<double> memory_offsets;
  int cluster = 0;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok || !(trial.iteration_seconds.value > 0) || trial.repeats.empty()) continue;
    if (trial.trial.engine() != v1::ENGINE_NATIVE &&
        trial.trial.engine() != v1::ENGINE_UNSPECIFIED) {
      continue;
    }
    const v1::MachineState& state = trial.repeats[0].ranks[0].machine();
    if (state.device() + "|" + state.cpu_model() != machine) continue;
    const bool own = trial.trial.policy().name() == policy;
    if (own || model.machine_.empty()) model.machine_ = trial.machine;
    absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.trial.network());
    if (!shaped.ok()) continue;
    absl::StatusOr<IterationSchedule> schedule = CompileSchedule(
        *shaped, trial.trial.policy(), trial.trial.cluster(), trial.trial.batch_per_device());
    if (!schedule.ok()) continue;
    const int on_host = DevicesOnHost(trial.trial);
    const int batch = trial.trial.batch_per_device();
    NetworkCosts& network =
        model.networks_[{trial.trial.network().name(), PrecisionName(trial.trial.precision())}];
    if (trial.phase(Phase::kForward).value > 0 && trial.phase(Phase::kBackward).value > 0) {
      network.points.push_back(
          {on_host, batch, own, trial.phase(Phase::kForward), trial.phase(Phase::kBackward)});
    }
    const auto times = OperationTimes(trial);
    double forward = 0, backward = 0, update = 0, read = 0;
    for (const auto& entry : times) {
      const std::string& kind = std::get<0>(entry.first);
      if (kind == "forward") forward += entry.second.first;
      if (kind == "backward") backward += entry.second.first;
      if (kind == "update") update += entry.second.first;
      if (kind == "read") read += entry.second.first;
    }
    if (update > 0 && shaped->gradient_bytes > 0) {
      network.update_seconds_per_byte.push_back(update / shaped->gradient_bytes);
    }
    const bool want_shares = network.forward_share.empty() || (own && trial.devices == 1);
    ++cluster;
    for (const auto& entry : times) {
      const std::string& kind = std::get<0>(entry.first);
      const int layer = std::get<1>(entry.first);
      const double seconds = entry.second.first;
      if (want_shares && kind == "forward" && forward > 0) {
        network.forward_share[layer] = seconds / forward;
      }
      if (want_shares && kind == "backward" && backward > 0) {
        network.backward_share[layer] = seconds / backward;
      }
      if (!IsMessageKind(kind) || entry.second.second <= 0 || !(seconds > 0)) continue;
      const double steps = Steps(kind, trial.devices);
      const double volume = Volume(kind, trial.devices, schedule->servers);
      const LinePoint point{volume * entry.second.second / steps, seconds / steps, cluster};
      all_points[kind].push_back(point);
      if (own) own_points[kind].push_back(point);
    }
    const std::string input = InputSubject(trial.trial);
    model.reads_[input][on_host].push_back(
        (times.empty() ? trial.phase(Phase::kInput).value : read) / batch);
    model.copies_[input][on_host].push_back(trial.phase(Phase::kCopy).value / batch);
    if (trial.peak_memory_bytes > 0) {
      memory_offsets.push_back(
          trial.peak_memory_bytes -
          PredictMemory(*shaped, *schedule, batch, trial.trial.precision()).total_bytes);
    }
    if (own || measured.count(policy) == 0) {
      model.max_devices_ = std::max(model.max_devices_, trial.devices);
      model.max_hosts_ = std::max(model.max_hosts_, trial.trial.cluster().hosts());
    }
    model.trials_.push_back(trial);
    for (MergedRepeat& repeat : model.trials_.back().repeats) repeat.ranks.resize(1);
  }
  for (const auto& kind : all_points) {
    MessageCosts& costs = model.messages_[kind.first];
    costs.own = own_points.count(kind.first) > 0;
    const std::vector<LinePoint>& points = costs.own ? own_points[kind.first] : kind.second;
    costs.line = FitLine(points);
    std::map<int, std::vector<LinePoint>> clusters;
    for (const LinePoint& point : points) clusters[point.cluster].push_back(point);
    std::vector<const std::vector<LinePoint>*> list;
    for (const auto& entry : clusters) list.push_back(&entry.second);
    LineFitOptions options;
    options.resamples = 0;
    std::mt19937_64 random(7);
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<LinePoint> resampled;
      for (size_t i = 0; i < list.size(); ++i) {
        const std::vector<LinePoint>& picked = *list[random() % list.size()];
        resampled.insert(resampled.end(), picked.begin(), picked.end());
      }
      const LineFit line = FitLine(resampled, options);
      const double zero = line.Evaluate(0), one = line.Evaluate(1e9);
      costs.draws.emplace_back(std::max(0.0, zero), std::max(0.0, (one - zero) / 1e9));
    }
  }
  if (!memory_offsets.empty()) {
    model.memory_offset_ = {Median(memory_offsets), Quantile(memory_offsets, 0.05),
                            Quantile(memory_offsets, 0.95)};
  }

  // How well the model explains what it was fitted on.
  const auto root_mean_square = [&](bool several_devices_only, int* points) {
    double squares = 0;
    *points = 0;
    for (const MergedTrial& trial : model.trials_) {
      if (trial.trial.policy().name() != policy && measured.count(policy) > 0) continue;
      if (several_devices_only && trial.devices == 1) continue;
      absl::StatusOr<SimulatedTrial> simulated =
          model.SimulateTrial(trial.trial, LinkAssumption(), 0, nullptr);
      if (!simulated.ok()) continue;
      const double error =
          std::log(simulated->timeline.period_seconds / trial.iteration_seconds.value);
      if (!std::isfinite(error)) continue;
      squares += error * error;
      ++*points;
    }
    return *points > 0 ? std::sqrt(squares / *points) : kUnknown;
  };
  int points = 0;
  const double uncorrected = root_mean_square(true, &points);
  if (points > 0) {
    double best = 1, least = uncorrected;
    for (double factor = 0.8; factor < 5; factor *= 1.1) {
      model.in_training_factor_ = factor;
      const double error = root_mean_square(true, &points);
      if (error < least) least = error, best = factor;
    }
    // Only what the data clearly ask for.
    model.in_training_factor_ = least < 0.9 * uncorrected && uncorrected > 0.01 ? best : 1;
  }
  const double error = root_mean_square(false, &model.error_points_);
  if (model.error_points_ > 0) model.error_ = error;
  return model;
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

double CostModel::PointSeconds(const NetworkCosts& costs, int devices, int batch, bool backward,
                               std::set<std::string>* flags, double* deviation) const {
  bool any_own = false;
  std::set<int> measured_devices;
  for (const ComputePoint& point : costs.points) any_own |= point.own;
  std::map<int, std::map<int, std::vector<Interval>>> by_devices;  // Then batch.
  for (const ComputePoint& point : costs.points) {
    if (any_own && !point.own) continue;
    by_devices[point.devices][point.batch].push_back(backward ? point.backward : point.forward);
    measured_devices.insert(point.devices);
  }
  int at = 0;
  const std::map<int, std::vector<Interval>>* batches = NearestTo(by_devices, devices, &at);
  if (batches == nullptr) return kUnknown;
  double scale = 1;
  if (at != devices) {
    // What sharing a host costs, from other networks.
    std::vector<double> ratios;
    for (const auto& other : networks_) {
      for (const ComputePoint& x : other.second.points) {
        for (const ComputePoint& y : other.second.points) {
          if (x.devices == devices && y.devices == at && x.batch == y.batch && x.own == y.own) {
            ratios.push_back(backward ? x.backward.value / y.backward.value
                                      : x.forward.value / y.forward.value);
          }
        }
      }
    }
    if (!ratios.empty()) scale = Median(ratios);
    *deviation += kDevicesDeviation;
    if (flags != nullptr) {
      flags->insert(absl::StrCat("computing with ", devices,
                                 " devices on a host was not measured (", at,
                                 " was): measure devices: ", devices));
    }
  }
  std::map<int, double> seconds;  // By batch.
  for (const auto& entry : *batches) {
    std::vector<double> values;
    for (const Interval& interval : entry.second) {
      values.push_back(interval.value);
      *deviation = std::max(*deviation, LogDeviation(interval));
    }
    seconds[entry.first] = Median(values);
  }
  const auto exact = seconds.find(batch);
  if (exact != seconds.end()) return scale * exact->second;
  const int low = seconds.begin()->first, high = seconds.rbegin()->first;
  if (low == high) {
    *deviation += kBatchDeviation * std::abs(std::log2(1.0 * batch / low));
    if (flags != nullptr) {
      flags->insert(absl::StrCat("batch ", batch, " is scaled in proportion from batch ", low,
                                 ": measure another batch size to know the fixed part"));
    }
    return scale * seconds.begin()->second * batch / low;
  }
  // Straight line through the neighbours, or the two outermost on that side.
  auto right = seconds.upper_bound(batch);
  if (right == seconds.end()) --right;
  if (right == seconds.begin()) ++right;
  const auto left = std::prev(right);
  const double slope = (right->second - left->second) / (right->first - left->first);
  const double intercept = left->second - slope * left->first;
  if (batch > 2 * high || 2 * batch < low) {
    *deviation += kBatchDeviation / 2 *
                  std::abs(std::log2(batch > high ? 1.0 * batch / high : 1.0 * low / batch));
    if (flags != nullptr) {
      flags->insert(absl::StrCat("batch ", batch, " lies beyond the measured ", low, " to ", high,
                                 ": measure batch_per_device: ", batch));
    }
  }
  if (!(slope > 0) || intercept < 0) {
    const auto& near = batch > high ? *seconds.rbegin() : *left;
    return scale * near.second * batch / near.first;
  }
  return scale * (intercept + slope * batch);
}

absl::StatusOr<std::pair<double, double>> CostModel::ComputeSeconds(
    const v1::Trial& trial, const ShapedNetwork& shaped, int draw,
    std::set<std::string>* flags) const {
  const int devices = DevicesOnHost(trial), batch = trial.batch_per_device();
  const std::string precision = PrecisionName(trial.precision());
  const auto found = networks_.find({trial.network().name(), precision});
  if (found != networks_.end() && !found->second.points.empty()) {
    double deviation = 0.005;
    const double forward = PointSeconds(found->second, devices, batch, false, flags, &deviation);
    const double backward = PointSeconds(found->second, devices, batch, true, flags, &deviation);
    const double factor = std::exp(deviation * Normal(draw, "compute " + trial.network().name()));
    return std::make_pair(forward * factor, backward * factor);
  }
  // Measured over expected for the other networks of this precision.
  const DeviceSpeed speed = CpuSpeed(1);
  const auto expected = [&](const ShapedNetwork& network, int b, bool backward) {
    double sum = 0;
    for (size_t layer = 0; layer < network.layers.size(); ++layer) {
      sum += backward ? PredictBackwardSeconds(network, layer, b, trial.precision(), speed)
                      : PredictForwardSeconds(network, layer, b, trial.precision(), speed);
    }
    return sum;
  };
  std::vector<double> forward_logs, backward_logs;
  for (const auto& other : networks_) {
    if (other.first.second != precision || other.second.points.empty()) continue;
    const MergedTrial* example = Example(other.first.first, trial.precision());
    if (example == nullptr) continue;
    absl::StatusOr<ShapedNetwork> other_shaped = InferShapes(example->trial.network());
    if (!other_shaped.ok()) continue;
    const int b = example->trial.batch_per_device();
    double ignored = 0;
    const double forward = PointSeconds(other.second, devices, b, false, nullptr, &ignored);
    const double backward = PointSeconds(other.second, devices, b, true, nullptr, &ignored);
    forward_logs.push_back(std::log(forward / expected(*other_shaped, b, false)));
    backward_logs.push_back(std::log(backward / expected(*other_shaped, b, true)));
  }
  if (forward_logs.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no network was measured in ", precision, " on this machine: measure '",
                     trial.network().name(),
                     "' with devices: 1, precisions: ", v1::Precision_Name(trial.precision())));
  }
  if (flags != nullptr) {
    flags->insert(absl::StrCat(
        "'", trial.network().name(), "' was not measured: its compute time is estimated from ",
        forward_logs.size(), " other network(s): measure it with devices: 1"));
  }
  const double spread =
      forward_logs.size() < 3 ? 0.3 : std::max(0.1, ScaledMad(backward_logs)) * 1.2;
  const double factor = std::exp(spread * Normal(draw, "compute " + trial.network().name()));
  return std::make_pair(factor * std::exp(Median(forward_logs)) * expected(shaped, batch, false),
                        factor * std::exp(Median(backward_logs)) * expected(shaped, batch, true));
}

double CostModel::LatencyShare(const Operation& operation, int devices, std::string* why) const {
  const std::string kind(OperationKindName(operation.kind));
  const auto found = messages_.find(kind);
  if (found == messages_.end() || !found->second.line.known()) {
    *why = absl::StrCat("'", kind, "' was not timed");
    return kUnknown;
  }
  const LineFit& line = found->second.line;
  if (!line.intercept_identified && !line.slope_identified) {
    *why = absl::StrCat("'", kind, "': ", line.note.empty() ? "too few message sizes" : line.note);
    return kUnknown;
  }
  const double x = Volume(kind, devices, devices) * operation.bytes / Steps(kind, devices);
  const double total = line.Evaluate(x);
  return total > 0 ? std::min(1.0, std::max(0.0, line.Evaluate(0) / total)) : 0;
}

absl::StatusOr<std::vector<double>> CostModel::OperationSeconds(
    const v1::Trial& trial, const ShapedNetwork& shaped, const IterationSchedule& schedule,
    const LinkAssumption& link, int draw, std::set<std::string>* flags) const {
  const int n = schedule.ranks, batch = trial.batch_per_device(), on_host = DevicesOnHost(trial);
  const auto flag = [&](const std::string& text) {
    if (flags != nullptr) flags->insert(text);
  };
  absl::StatusOr<std::pair<double, double>> compute = ComputeSeconds(trial, shaped, draw, flags);
  if (!compute.ok()) return compute.status();
  const auto found = networks_.find({trial.network().name(), PrecisionName(trial.precision())});
  const NetworkCosts* network = found == networks_.end() ? nullptr : &found->second;
  const DeviceSpeed speed = CpuSpeed(1);
  double expected_forward = 0, expected_backward = 0;
  for (size_t layer = 0; layer < shaped.layers.size(); ++layer) {
    expected_forward += PredictForwardSeconds(shaped, layer, batch, trial.precision(), speed);
    expected_backward += PredictBackwardSeconds(shaped, layer, batch, trial.precision(), speed);
  }

  std::vector<double> updates;
  if (network != nullptr) updates = network->update_seconds_per_byte;
  if (updates.empty()) {
    for (const auto& other : networks_) {
      updates.insert(updates.end(), other.second.update_seconds_per_byte.begin(),
                     other.second.update_seconds_per_byte.end());
    }
  }
  const double update_per_byte =
      updates.empty() ? 0 : Median(updates) * std::exp(0.1 * Normal(draw, "update"));

  const std::string input = InputSubject(trial);
  const auto per_sample = [&](const std::map<std::string, std::map<int, std::vector<double>>>& all,
                              const char* what) {
    const auto at = all.find(input);
    int devices = 0;
    const std::vector<double>* values =
        at == all.end() ? nullptr : NearestTo(at->second, on_host, &devices);
    if (values == nullptr) {
      if (!trial.input().has_synthetic()) {
        flag(absl::StrCat("input '", input, "' was not measured and counts as free: measure it"));
      }
      return 0.0;
    }
    const double value = Median(*values);
    return std::isfinite(value) ? value * std::exp(0.05 * Normal(draw, what)) : 0.0;
  };
  const double read_per_sample = per_sample(reads_, "read");
  const double copy_per_sample = per_sample(copies_, "copy");

  // Messages.
  const int hosts = std::max(1, schedule.hosts);
  const bool assumes_link = hosts > 1 && link.known();
  if (hosts > max_hosts_ && !link.known()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no run spans ", hosts,
                     " hosts, so the network between them is unknown: give "
                     "--network_gbps and --latency_us, or measure with hosts that many"));
  }
  if (assumes_link) {
    flag("the network between hosts is your assumption, not measured: run the plan on two hosts");
  }
  double scale = 1;
  if (n > max_devices_ && n > 1) {
    const double doublings = std::log2(1.0 * n / std::max(2, max_devices_));
    scale = std::exp(kDeviationPerDoubling * std::max(1.0, doublings) * Normal(draw, "scale"));
    flag(absl::StrCat(n, " devices lie beyond the ", max_devices_,
                      " measured: measure devices: ", std::min(n, 2 * max_devices_), " next"));
  }
  const double share =
      draw == 0 ? kLinkShareMiddle : std::exp(std::log(kLinkShareLow) * Uniform(draw, "link"));

  // Ranks differ only where an owner works for all: the one that owns most sets the pace.
  std::map<int, int64_t> owned;
  for (const Group& group : schedule.groups) owned[group.owner] += group.bytes;
  int busiest = 0;
  for (const auto& owner : owned) {
    if (owner.second > owned[busiest]) busiest = owner.first;
  }

  std::vector<double> seconds;
  for (const Operation& operation : schedule.operations) {
    double cost = 0;
    const std::string kind(OperationKindName(operation.kind));
    switch (operation.kind) {
      case OperationKind::kForward: {
        const bool known = network != nullptr && network->forward_share.count(operation.layer) > 0;
        cost = compute->first * (known ? network->forward_share.at(operation.layer)
                                       : PredictForwardSeconds(shaped, operation.layer, batch,
                                                               trial.precision(), speed) /
                                             expected_forward);
        break;
      }
      case OperationKind::kBackward: {
        const bool known = network != nullptr && network->backward_share.count(operation.layer) > 0;
        cost = compute->second * (known ? network->backward_share.at(operation.layer)
                                        : PredictBackwardSeconds(shaped, operation.layer, batch,
                                                                 trial.precision(), speed) /
                                              expected_backward);
        break;
      }
      case OperationKind::kRead:
        cost = read_per_sample * batch;
        break;
      case OperationKind::kCopyInput:
        cost = copy_per_sample * batch;
        break;
      case OperationKind::kUpdate: {
        const bool works =
            !operation.at_owner_only || schedule.groups[operation.group].owner == busiest;
        cost = !works ? 0
                      : update_per_byte * (operation.group < 0
                                               ? shaped.gradient_bytes
                                               : schedule.groups[operation.group].bytes);
        break;
      }
      default: {
        const auto message = messages_.find(kind);
        if (message == messages_.end()) {
          if (kind == "pack" || kind == "unpack") {
            // Like a read and a write of memory.
            cost = 2.0 * operation.bytes / speed.memory_bytes_per_second;
            flag("packing was not measured; memory is taken to move 10 GB/s");
            break;
          }
          return absl::FailedPreconditionError(
              absl::StrCat("'", kind, "' was never timed, so communication of ", policy_,
                           " is unknown: measure ", policy_, " with devices: 2"));
        }
        if (!message->second.own && IsMessage(operation.kind)) {
          flag(absl::StrCat("'", kind, "' is known from other policies only: measure ", policy_,
                            " with devices: 2"));
        }
        const double steps = Steps(kind, n), volume = Volume(kind, n, schedule.servers);
        const double x = volume * operation.bytes / steps;
        if (draw == 0) {
          cost = steps * message->second.line.Evaluate(x);
        } else {
          const auto& line = message->second.draws[(draw - 1) % message->second.draws.size()];
          cost = steps * (line.first + line.second * x);
        }
        if (IsMessage(operation.kind)) {
          if (assumes_link) {
            // A ring crosses each host's link once; other methods send each device's own copy.
            const double crossing = kind == "all_reduce" ? 1 : on_host;
            const double wire =
                volume * operation.bytes * crossing / (link.bytes_per_second * share);
            cost = std::max(cost, wire) + steps * link.latency_seconds;
          }
          cost *= scale * in_training_factor_;
        }
        break;
      }
    }
    seconds.push_back(std::isfinite(cost) ? std::max(0.0, cost) : 0);
  }
  return seconds;
}

absl::StatusOr<SimulatedTrial> CostModel::SimulateTrial(const v1::Trial& trial,
                                                        const LinkAssumption& link, int draw,
                                                        std::set<std::string>* flags) const {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.network());
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*shaped, trial.policy(), trial.cluster(), trial.batch_per_device());
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<std::vector<double>> seconds =
      OperationSeconds(trial, *shaped, *schedule, link, draw, flags);
  if (!seconds.ok()) return seconds.status();
  absl::StatusOr<Timeline> timeline = Simulate(*schedule, *seconds);
  if (!timeline.ok()) return timeline.status();
  return SimulatedTrial{*std::move(timeline), *std::move(seconds)};
}

absl::StatusOr<std::vector<double>> CostModel::Periods(const v1::Trial& trial,
                                                       const LinkAssumption& link,
                                                       std::set<std::string>* flags) const {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.network());
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*shaped, trial.policy(), trial.cluster(), trial.batch_per_device());
  if (!schedule.ok()) return schedule.status();
  std::vector<double> periods;
  SimulateOptions options;
  options.steady_tolerance = 1e-6;
  for (int draw = 0; draw <= kDraws; ++draw) {
    absl::StatusOr<std::vector<double>> seconds =
        OperationSeconds(trial, *shaped, *schedule, link, draw, draw == 0 ? flags : nullptr);
    if (!seconds.ok()) return seconds.status();
    absl::StatusOr<Timeline> timeline = Simulate(*schedule, *seconds, options);
    if (!timeline.ok()) return timeline.status();
    periods.push_back(timeline->period_seconds);
  }
  return periods;
}

}  // namespace paceline
