#include "analysis/fit/compute_costs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/fit/nearest.h"
#include "analysis/stats/statistics.h"
#include "models/simulate/default_costs.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

// Log deviation per doubling of the batch beyond one measured batch, and of another number of
// devices on a host than measured.
constexpr double kBatchDeviation = 0.08;
constexpr double kDevicesDeviation = 0.10;
// Least deviation of any measurement.
constexpr double kLeastDeviation = 0.005;

double LogDeviation(const Interval& interval) {
  const double half = interval.has_bounds() ? std::log(interval.high / interval.low) / 2 / 1.96 : 0;
  return std::isfinite(half) ? std::min(0.5, std::max(kLeastDeviation, half)) : 0.05;
}

void Flag(std::set<std::string>* flags, const std::string& text) {
  if (flags != nullptr) flags->insert(text);
}

int DevicesOnHost(const v1::Trial& trial) {
  return std::max(1, trial.cluster().devices_per_host());
}

// Seconds by layer before anything is measured.
std::vector<double> ExpectedSeconds(const ShapedNetwork& shaped, int batch, v1::Precision precision,
                                    bool backward) {
  const DeviceSpeed speed = CpuSpeed(1);
  std::vector<double> seconds;
  for (size_t layer = 0; layer < shaped.layers.size(); ++layer) {
    seconds.push_back(backward ? PredictBackwardSeconds(shaped, layer, batch, precision, speed)
                               : PredictForwardSeconds(shaped, layer, batch, precision, speed));
  }
  return seconds;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

// `total` over the layers, in the measured shares; a layer that was not timed gets its expected
// share.
std::vector<double> ShareOut(double total, const std::map<int, double>* shares,
                             const std::vector<double>& expected) {
  const double expected_total = Sum(expected);
  std::vector<double> seconds;
  for (size_t layer = 0; layer < expected.size(); ++layer) {
    double share = expected_total > 0 ? expected[layer] / expected_total : 0;
    if (shares != nullptr) {
      const auto measured = shares->find(layer);
      if (measured != shares->end()) share = measured->second;
    }
    seconds.push_back(total * share);
  }
  return seconds;
}

}  // namespace

void ComputeCosts::Add(const MergedTrial& trial, const ShapedNetwork& shaped,
                       const std::vector<OperationCost>& operations, bool own) {
  Network& network =
      networks_[{trial.trial.network().name(), PrecisionName(trial.trial.precision())}];
  if (network.shaped.layers.empty()) network.shaped = shaped;
  if (trial.phase(Phase::kForward).value > 0 && trial.phase(Phase::kBackward).value > 0) {
    network.points.push_back({DevicesOnHost(trial.trial), trial.trial.batch_per_device(), own,
                              trial.phase(Phase::kForward), trial.phase(Phase::kBackward)});
  }
  const double update = SumOfKind(operations, "update");
  if (update > 0 && shaped.gradient_bytes > 0) {
    network.update_seconds_per_byte.push_back(update / shaped.gradient_bytes);
  }
  // Alone, layers are not disturbed by communication.
  if (!network.forward_share.empty() && !(own && trial.devices == 1)) return;
  const double forward = SumOfKind(operations, "forward");
  const double backward = SumOfKind(operations, "backward");
  for (const OperationCost& operation : operations) {
    if (operation.kind == "forward" && forward > 0) {
      network.forward_share[operation.layer] = operation.seconds / forward;
    }
    if (operation.kind == "backward" && backward > 0) {
      network.backward_share[operation.layer] = operation.seconds / backward;
    }
  }
}

const ComputeCosts::Network* ComputeCosts::Find(const v1::Trial& trial) const {
  const auto found = networks_.find({trial.network().name(), PrecisionName(trial.precision())});
  return found == networks_.end() ? nullptr : &found->second;
}

absl::StatusOr<ComputeEstimate> ComputeCosts::Estimate(const v1::Trial& trial,
                                                       const ShapedNetwork& shaped,
                                                       std::set<std::string>* flags) const {
  const Network* network = Find(trial);
  const int batch = trial.batch_per_device();
  Total total;
  if (network != nullptr && !network->points.empty()) {
    total.log_deviation = kLeastDeviation;
    const int devices = DevicesOnHost(trial);
    total.forward = PointSeconds(*network, devices, batch, false, flags, &total.log_deviation);
    total.backward = PointSeconds(*network, devices, batch, true, flags, &total.log_deviation);
  } else {
    absl::StatusOr<Total> from_others = EstimateFromOthers(trial, shaped, flags);
    if (!from_others.ok()) return from_others.status();
    total = *from_others;
  }
  ComputeEstimate estimate;
  estimate.log_deviation = total.log_deviation;
  estimate.forward_seconds =
      ShareOut(total.forward, network == nullptr ? nullptr : &network->forward_share,
               ExpectedSeconds(shaped, batch, trial.precision(), false));
  estimate.backward_seconds =
      ShareOut(total.backward, network == nullptr ? nullptr : &network->backward_share,
               ExpectedSeconds(shaped, batch, trial.precision(), true));
  return estimate;
}

double ComputeCosts::UpdateSecondsPerByte(const v1::Trial& trial) const {
  const Network* network = Find(trial);
  if (network != nullptr && !network->update_seconds_per_byte.empty()) {
    return Median(network->update_seconds_per_byte);
  }
  std::vector<double> all;
  for (const auto& entry : networks_) {
    const std::vector<double>& some = entry.second.update_seconds_per_byte;
    all.insert(all.end(), some.begin(), some.end());
  }
  return all.empty() ? 0 : Median(all);
}

double ComputeCosts::PointSeconds(const Network& network, int devices, int batch, bool backward,
                                  std::set<std::string>* flags, double* log_deviation) const {
  bool any_own = false;
  for (const Point& point : network.points) any_own |= point.own;
  std::map<int, std::map<int, std::vector<Interval>>> by_devices;  // Then batch.
  for (const Point& point : network.points) {
    if (any_own && !point.own) continue;
    by_devices[point.devices][point.batch].push_back(backward ? point.backward : point.forward);
  }
  int at = 0;
  const auto* batches = NearestByRatio(by_devices, devices, &at);
  if (batches == nullptr) return kUnknown;
  double scale = 1;
  if (at != devices) {
    // What sharing a host costs, from other networks.
    std::vector<double> ratios;
    for (const auto& other : networks_) {
      for (const Point& x : other.second.points) {
        for (const Point& y : other.second.points) {
          if (x.devices == devices && y.devices == at && x.batch == y.batch && x.own == y.own) {
            ratios.push_back(backward ? x.backward.value / y.backward.value
                                      : x.forward.value / y.forward.value);
          }
        }
      }
    }
    if (!ratios.empty()) scale = Median(ratios);
    *log_deviation += kDevicesDeviation;
    Flag(flags, absl::StrCat("computing with ", devices, " devices on a host was not measured (",
                             at, " was): measure devices: ", devices));
  }
  std::map<int, double> seconds;  // By batch.
  for (const auto& entry : *batches) {
    std::vector<double> values;
    for (const Interval& interval : entry.second) {
      values.push_back(interval.value);
      *log_deviation = std::max(*log_deviation, LogDeviation(interval));
    }
    seconds[entry.first] = Median(values);
  }
  const auto exact = seconds.find(batch);
  if (exact != seconds.end()) return scale * exact->second;
  const int low = seconds.begin()->first, high = seconds.rbegin()->first;
  if (low == high) {
    *log_deviation += kBatchDeviation * std::abs(std::log2(1.0 * batch / low));
    Flag(flags, absl::StrCat("batch ", batch, " is scaled in proportion from batch ", low,
                             ": measure another batch size to know the fixed part"));
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
    *log_deviation += kBatchDeviation / 2 *
                      std::abs(std::log2(batch > high ? 1.0 * batch / high : 1.0 * low / batch));
    Flag(flags, absl::StrCat("batch ", batch, " lies beyond the measured ", low, " to ", high,
                             ": measure batch_per_device: ", batch));
  }
  if (!(slope > 0) || intercept < 0) {
    const auto& near = batch > high ? *seconds.rbegin() : *left;
    return scale * near.second * batch / near.first;
  }
  return scale * (intercept + slope * batch);
}

absl::StatusOr<ComputeCosts::Total> ComputeCosts::EstimateFromOthers(
    const v1::Trial& trial, const ShapedNetwork& shaped, std::set<std::string>* flags) const {
  // Measured over expected for the other networks of this precision.
  const std::string precision = PrecisionName(trial.precision());
  std::vector<double> forward_logs, backward_logs;
  for (const auto& entry : networks_) {
    const Network& other = entry.second;
    if (entry.first.second != precision || other.points.empty()) continue;
    const Point* example = &other.points[0];
    for (const Point& point : other.points) {
      if (point.own && !example->own) example = &point;
    }
    double ignored = 0;
    const auto log_ratio = [&](bool backward) {
      const double measured =
          PointSeconds(other, DevicesOnHost(trial), example->batch, backward, nullptr, &ignored);
      return std::log(measured / Sum(ExpectedSeconds(other.shaped, example->batch,
                                                     trial.precision(), backward)));
    };
    forward_logs.push_back(log_ratio(false));
    backward_logs.push_back(log_ratio(true));
  }
  const std::string& name = trial.network().name();
  if (forward_logs.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no network was measured in ", precision, " on this machine: measure '", name,
                     "' with devices: 1, precisions: ", v1::Precision_Name(trial.precision())));
  }
  Flag(flags, absl::StrCat("'", name, "' was not measured: its compute time is estimated from ",
                           forward_logs.size(), " other network(s): measure it with devices: 1"));
  const int batch = trial.batch_per_device();
  Total total;
  total.log_deviation =
      forward_logs.size() < 3 ? 0.3 : std::max(0.1, ScaledMad(backward_logs)) * 1.2;
  total.forward = std::exp(Median(forward_logs)) *
                  Sum(ExpectedSeconds(shaped, batch, trial.precision(), false));
  total.backward = std::exp(Median(backward_logs)) *
                   Sum(ExpectedSeconds(shaped, batch, trial.precision(), true));
  return total;
}

}  // namespace paceline
