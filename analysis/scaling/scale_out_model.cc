#include "analysis/scaling/scale_out_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

using Points = absl::Span<const ScalePoint>;

// Own steps count against the prior as if it were one step itself.
constexpr double kPriorSteps = 1;
// Exposed communication below this share of the iteration: messages are still hidden, and their
// start-up shows only in part.
constexpr double kHiddenShare = 0.02;
// Share of an iteration of computing that is backward: 2 of 3 passes of the same work.
constexpr double kBackwardShare = 2.0 / 3;
constexpr int kMinStepsToJudge = 3;
constexpr size_t kMinStepsForInterval = 8;

double Ring(int n) { return (n - 1.0) / n; }
double Doublings(int from, int to) { return std::log2(static_cast<double>(to) / from); }

bool SpansHosts(const ScaleOutSetting& setting, int devices) {
  return setting.devices_per_host > 0 && devices > setting.devices_per_host;
}

ScaleOutStep StepKind(const ScaleOutSetting& setting, int from, int to) {
  if (!SpansHosts(setting, to)) return ScaleOutStep::kWithinHost;
  return SpansHosts(setting, from) ? ScaleOutStep::kMoreHosts : ScaleOutStep::kFirstHosts;
}

// What the last point takes longer than without (this kind of) communication.
double ExposedSeconds(Points points, const ScaleOutSetting& setting) {
  const ScalePoint& last = points.back();
  const ScalePoint* base = &points.front();
  if (SpansHosts(setting, last.devices)) {
    for (const ScalePoint& point : points) {
      if (!SpansHosts(setting, point.devices)) base = &point;  // The fullest host.
    }
  }
  return std::max(0.0, last.iteration_seconds - base->iteration_seconds);
}

double RingFactorSeconds(Points points, int devices) {
  const ScalePoint& last = points.back();
  if (last.devices == 1) return last.iteration_seconds;
  return last.iteration_seconds * Ring(devices) / Ring(last.devices);
}

// The first factor of the model: growth by the ring alone.
double StructureSeconds(Points points, const ScaleOutSetting& setting, int devices) {
  const ScalePoint& last = points.back();
  const bool servers_grow =
      setting.schedule == OverlapSchedule::kParameterServer && SpansHosts(setting, last.devices);
  if (last.devices == 1 || servers_grow) return last.iteration_seconds;
  return last.iteration_seconds +
         ExposedSeconds(points, setting) * (Ring(devices) / Ring(last.devices) - 1);
}

bool CountsMessages(const ScaleOutSetting& setting, ScaleOutStep step) {
  return setting.schedule == OverlapSchedule::kWaitFree && step == ScaleOutStep::kMoreHosts &&
         setting.gradient_tensors > 0;
}

// Share of the messages' start-up that backward does not hide.
double ExposedMessageShare(Points points, const ScaleOutSetting& setting) {
  return std::min(1.0,
                  ExposedSeconds(points, setting) / points.back().iteration_seconds / kHiddenShare);
}

// One step that a configuration took: points_before.back() -> to.
struct Step {
  std::vector<ScalePoint> before;
  ScalePoint to;
  ScaleOutSetting setting;
  const std::string* cluster = nullptr;

  ScaleOutStep kind() const { return StepKind(setting, before.back().devices, to.devices); }
  double doublings() const { return Doublings(before.back().devices, to.devices); }
  double structure_seconds() const { return StructureSeconds(before, setting, to.devices); }
  double log_growth() const {
    return std::log(to.iteration_seconds / structure_seconds()) / doublings();
  }
  double seconds_per_device() const {
    return (to.iteration_seconds - structure_seconds()) / (to.devices - before.back().devices);
  }
};

// From the third n on: two are needed to see any growth.
std::vector<Step> StepsOf(Points points, const ScaleOutSetting& setting,
                          const std::string* cluster) {
  std::vector<Step> steps;
  for (size_t i = 2; i < points.size(); ++i) {
    Step step;
    step.before.assign(points.begin(), points.begin() + i);
    step.to = points[i];
    step.setting = setting;
    step.cluster = cluster;
    steps.push_back(std::move(step));
  }
  return steps;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / values.size();
}

double TrimmedMean(const std::vector<double>& values) {
  const double low = Quantile(values, 0.1), high = Quantile(values, 0.9);
  double sum = 0;
  for (double value : values) sum += std::min(high, std::max(low, value));
  return sum / values.size();
}

// Growth per doubling and start-up of messages from `steps`, without those of `left_out`.
void LearnGrowth(const std::vector<Step>& steps, const std::string* left_out,
                 ScaleOutGrowth& growth) {
  std::vector<double> rates, starts;
  std::set<std::string> clusters;
  for (const Step& step : steps) {
    if (left_out != nullptr && *step.cluster == *left_out) continue;
    clusters.insert(*step.cluster);
    rates.push_back(step.log_growth());
    if (CountsMessages(step.setting, step.kind()) &&
        ExposedMessageShare(step.before, step.setting) >= 1) {
      starts.push_back(step.seconds_per_device() / (2 * step.setting.gradient_tensors));
    }
  }
  growth.steps = static_cast<int>(rates.size());
  growth.clusters = static_cast<int>(clusters.size());
  if (clusters.size() < 2) return;  // One cluster's habit is no experience.
  growth.per_doubling = TrimmedMean(rates);
  if (starts.size() >= 2) growth.message_seconds = std::max(0.0, TrimmedMean(starts));
}

struct OwnGrowth {
  int steps = 0;
  double per_doubling = 0;
  double seconds_per_device = 0;
};

// Own steps of the kind that continues from the last point, blended with the prior's growth. Later
// steps weigh twice as much as those before them: they are closer to what is asked.
OwnGrowth Blend(Points points, const ScaleOutSetting& setting, const ScaleOutGrowth& prior,
                ScaleOutStep kind) {
  OwnGrowth own;
  double rate = 0, slope = 0, weights = 0, weight = 1;
  for (const Step& step : StepsOf(points, setting, nullptr)) {
    if (step.kind() != kind) continue;
    rate += weight * step.log_growth();
    slope += weight * step.seconds_per_device();
    weights += weight;
    weight *= 2;
    ++own.steps;
  }
  const double share = own.steps / (own.steps + kPriorSteps);
  own.per_doubling = (1 - share) * prior.per_doubling;
  const double prior_slope =
      2 * setting.gradient_tensors * prior.message_seconds * ExposedMessageShare(points, setting);
  own.seconds_per_device = (1 - share) * prior_slope;
  if (own.steps > 0) {
    own.per_doubling += share * rate / weights;
    own.seconds_per_device += share * std::max(0.0, slope / weights);
  }
  return own;
}

double PredictSeconds(Points points, const ScaleOutSetting& setting, const ScaleOutGrowth& prior,
                      ScaleOutStep kind, int devices) {
  const int from = points.back().devices;
  switch (prior.structure) {
    case ScaleOutStructure::kConstant:
      return points.back().iteration_seconds;
    case ScaleOutStructure::kRingFactor:
      return RingFactorSeconds(points, devices);
    case ScaleOutStructure::kExposedRing:
      break;
  }
  const OwnGrowth own = Blend(points, setting, prior, kind);
  const double structure = StructureSeconds(points, setting, devices);
  if (CountsMessages(setting, kind)) return structure + own.seconds_per_device * (devices - from);
  return structure * std::exp(own.per_doubling * Doublings(from, devices));
}

// 0.9 quantile with the correction for few values (split conformal prediction).
double ConformalQuantile(const std::vector<double>& values) {
  const double level = 0.9 * (values.size() + 1.0) / values.size();
  return Quantile(values, std::min(1.0, level));
}

// From one host to several over a link of known speed: communication as a ring that its slowest
// link limits (within the host it is known from the step to a full host), behind what backward
// hides.
double FirstHostsSeconds(Points points, const ScaleOutSetting& setting, int devices) {
  const ScalePoint& last = points.back();
  const double alone = points.front().iteration_seconds;
  double per_ring_unit =
      2 * setting.gradient_bytes / setting.network_bytes_per_second;  // Seconds at r = 1.
  if (setting.schedule == OverlapSchedule::kBulkSynchronous && last.devices > 1) {
    per_ring_unit = std::max(per_ring_unit, ExposedSeconds(points, setting) / Ring(last.devices));
  }
  const double hidden =
      setting.schedule == OverlapSchedule::kBulkSynchronous ? 0 : kBackwardShare * alone;
  return std::max(last.iteration_seconds,
                  alone + std::max(0.0, per_ring_unit * Ring(devices) - hidden));
}

absl::StatusOr<std::vector<ScalePoint>> MedianPoints(Points points, std::vector<double>* lowest,
                                                     std::vector<double>* highest) {
  if (points.empty()) {
    return absl::InvalidArgumentError(
        "no points: give the iteration time at one number of devices at least, better at three");
  }
  std::map<int, std::vector<double>> by_devices;
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].devices < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("points[", i, "].devices is ", points[i].devices, ": must be at least 1"));
    }
    if (!std::isfinite(points[i].iteration_seconds) || points[i].iteration_seconds <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("points[", i, "].iteration_seconds (", points[i].devices, " devices) is ",
                       points[i].iteration_seconds, ": must be a positive number of seconds"));
    }
    by_devices[points[i].devices].push_back(points[i].iteration_seconds);
  }
  std::vector<ScalePoint> medians;
  for (const auto& [devices, seconds] : by_devices) {
    medians.push_back({devices, Median(seconds)});
    if (lowest != nullptr) lowest->push_back(*std::min_element(seconds.begin(), seconds.end()));
    if (highest != nullptr) highest->push_back(*std::max_element(seconds.begin(), seconds.end()));
  }
  return medians;
}

std::string StructureName(ScaleOutStructure structure) {
  switch (structure) {
    case ScaleOutStructure::kConstant:
      return "constant time";
    case ScaleOutStructure::kRingFactor:
      return "ring factor";
    case ScaleOutStructure::kExposedRing:
      return "exposed ring";
  }
  return "";
}

}  // namespace

absl::string_view OverlapScheduleName(OverlapSchedule schedule) {
  switch (schedule) {
    case OverlapSchedule::kBulkSynchronous:
      return "bulk synchronous";
    case OverlapSchedule::kWaitFree:
      return "wait-free";
    case OverlapSchedule::kBucketed:
      return "bucketed";
    case OverlapSchedule::kParameterServer:
      return "parameter server";
  }
  return "unknown";
}

ScaleOutPrior ScaleOutPrior::Uninformed() {
  ScaleOutPrior prior;
  for (auto& schedule : prior.growth_) {
    for (ScaleOutGrowth& growth : schedule) {
      growth.per_doubling = 0.015;
      growth.message_seconds = 11e-6;
      growth.error_per_doubling = 0.08;
      growth.error_per_doubling_from_one = 0.15;
    }
    // A network nobody has measured: anything up to several times slower.
    ScaleOutGrowth& first_hosts = schedule[static_cast<int>(ScaleOutStep::kFirstHosts)];
    first_hosts.error_per_doubling = 0.7;
    first_hosts.error_per_doubling_from_one = 0.7;
  }
  for (ScaleOutGrowth& growth : prior.growth_[static_cast<int>(OverlapSchedule::kWaitFree)]) {
    growth.per_doubling = 0.02;
  }
  for (ScaleOutGrowth& growth :
       prior.growth_[static_cast<int>(OverlapSchedule::kParameterServer)]) {
    growth.per_doubling = 0.005;
  }
  return prior;
}

ScaleOutPrior ScaleOutPrior::Default() {
  // Learn() of the public tables, rounded. Steps that fewer than two clusters took stay uninformed.
  struct Learned {
    OverlapSchedule schedule;
    ScaleOutStep step;
    ScaleOutStructure structure;
    double per_doubling, message_seconds, error_per_doubling, error_per_doubling_from_one;
  };
  constexpr ScaleOutStructure kExposed = ScaleOutStructure::kExposedRing;
  static constexpr Learned kLearned[] = {
      {OverlapSchedule::kBulkSynchronous, ScaleOutStep::kMoreHosts, kExposed, 0.014, 0, 0.07, 0.19},
      {OverlapSchedule::kWaitFree, ScaleOutStep::kWithinHost, kExposed, 0.04, 0, 0.19, 0.35},
      {OverlapSchedule::kWaitFree, ScaleOutStep::kMoreHosts, kExposed, 0.057, 10e-6, 0.11, 0.19},
      {OverlapSchedule::kBucketed, ScaleOutStep::kWithinHost, kExposed, 0.003, 0, 0.04, 0.7},
      {OverlapSchedule::kBucketed, ScaleOutStep::kMoreHosts, kExposed, 0.032, 0, 0.09, 0.19},
      {OverlapSchedule::kParameterServer, ScaleOutStep::kWithinHost, kExposed, 0.008, 0, 0.07,
       0.13},
      {OverlapSchedule::kParameterServer, ScaleOutStep::kMoreHosts, ScaleOutStructure::kConstant, 0,
       0, 0.12, 0.19},
  };
  ScaleOutPrior prior = Uninformed();
  for (const Learned& learned : kLearned) {
    ScaleOutGrowth& growth =
        prior.growth_[static_cast<int>(learned.schedule)][static_cast<int>(learned.step)];
    growth.structure = learned.structure;
    growth.per_doubling = learned.per_doubling;
    growth.message_seconds = learned.message_seconds;
    growth.error_per_doubling = learned.error_per_doubling;
    growth.error_per_doubling_from_one = learned.error_per_doubling_from_one;
  }
  return prior;
}

absl::StatusOr<ScaleOutPrior> ScaleOutPrior::Learn(absl::Span<const ScaleOutConfiguration> known) {
  ScaleOutPrior prior = Uninformed();
  std::vector<std::vector<ScalePoint>> curves;
  std::map<std::pair<int, int>, std::vector<Step>> cells;
  for (const ScaleOutConfiguration& configuration : known) {
    absl::StatusOr<std::vector<ScalePoint>> points =
        MedianPoints(configuration.points, nullptr, nullptr);
    if (!points.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cluster '", configuration.cluster, "': ", points.status().message()));
    }
    for (Step& step : StepsOf(*points, configuration.setting, &configuration.cluster)) {
      cells[{static_cast<int>(configuration.setting.schedule), static_cast<int>(step.kind())}]
          .push_back(std::move(step));
    }
    curves.push_back(*std::move(points));
  }

  // How well each configuration is predicted with the growth of the other clusters: every later n
  // from the first ones.
  struct Errors {
    std::vector<double> own, constant, ring;     // Relative.
    std::vector<double> per_doubling, from_one;  // Logarithmic.
  };
  std::map<std::pair<int, int>, Errors> errors_by_cell;
  std::array<Errors, 3> errors_by_kind;
  std::map<std::tuple<int, int, std::string>, ScaleOutGrowth> without_cluster;
  for (size_t i = 0; i < known.size(); ++i) {
    const ScaleOutSetting& setting = known[i].setting;
    for (size_t first = 1; first < curves[i].size(); ++first) {
      const Points before = absl::MakeConstSpan(curves[i]).first(first);
      for (size_t to = first; to < curves[i].size(); ++to) {
        const ScaleOutStep kind = StepKind(setting, before.back().devices, curves[i][to].devices);
        const std::pair<int, int> cell(static_cast<int>(setting.schedule), static_cast<int>(kind));
        const auto [growth, is_new] =
            without_cluster.try_emplace(std::make_tuple(cell.first, cell.second, known[i].cluster),
                                        prior.growth_[cell.first][cell.second]);
        if (is_new && kind != ScaleOutStep::kFirstHosts) {
          LearnGrowth(cells[cell], &known[i].cluster, growth->second);
        }
        const int devices = curves[i][to].devices;
        const double measured = curves[i][to].iteration_seconds;
        const double seconds = PredictSeconds(before, setting, growth->second, kind, devices);
        const double log_error =
            std::abs(std::log(seconds / measured)) / Doublings(before.back().devices, devices);
        for (Errors* errors : {&errors_by_cell[cell], &errors_by_kind[cell.second]}) {
          if (first == 1) {
            errors->from_one.push_back(log_error);
            continue;
          }
          errors->per_doubling.push_back(log_error);
          errors->own.push_back(std::abs(seconds / measured - 1));
          errors->constant.push_back(std::abs(before.back().iteration_seconds / measured - 1));
          errors->ring.push_back(std::abs(RingFactorSeconds(before, devices) / measured - 1));
        }
      }
    }
  }
  for (const auto& [cell, errors] : errors_by_cell) {
    ScaleOutGrowth& growth = prior.growth_[cell.first][cell.second];
    // The first step to several hosts shows the link between them, which no other cluster knows:
    // only how far predictions err is learned.
    const bool first_hosts = cell.second == static_cast<int>(ScaleOutStep::kFirstHosts);
    if (!first_hosts) LearnGrowth(cells[cell], nullptr, growth);
    const Errors& pooled = errors_by_kind[cell.second];
    // Few steps of its own: those of all schedules.
    const auto quantile = [](const std::vector<double>& own, const std::vector<double>& all,
                             double otherwise) {
      if (own.size() >= kMinStepsForInterval) return ConformalQuantile(own);
      if (all.size() >= kMinStepsForInterval) return ConformalQuantile(all);
      return otherwise;
    };
    // Steps of one cluster resemble each other: few clusters show less than their steps count.
    const double widening = 1 + 1.0 / std::max(2, growth.clusters);
    growth.error_per_doubling =
        widening * quantile(errors.per_doubling, pooled.per_doubling, growth.error_per_doubling);
    growth.error_per_doubling_from_one =
        widening * quantile(errors.from_one, pooled.from_one, growth.error_per_doubling_from_one);
    if (errors.own.empty()) continue;
    growth.own_error = Mean(errors.own);
    growth.constant_error = Mean(errors.constant);
    growth.ring_error = Mean(errors.ring);
    if (growth.clusters >= 2 && growth.steps >= kMinStepsToJudge &&
        growth.own_error > std::min(growth.constant_error, growth.ring_error)) {
      growth.structure = growth.constant_error <= growth.ring_error
                             ? ScaleOutStructure::kConstant
                             : ScaleOutStructure::kRingFactor;
    }
  }
  return prior;
}

absl::StatusOr<ScaleOutModel> ScaleOutModel::Fit(absl::Span<const ScalePoint> points,
                                                 const ScaleOutSetting& setting,
                                                 const ScaleOutPrior& prior) {
  ScaleOutModel model;
  absl::StatusOr<std::vector<ScalePoint>> medians =
      MedianPoints(points, &model.lowest_seconds_, &model.highest_seconds_);
  if (!medians.ok()) return medians.status();
  model.points_ = *std::move(medians);
  model.setting_ = setting;
  model.prior_ = prior;
  const int last = model.points_.back().devices;
  const ScaleOutStep kind = StepKind(setting, last, last);
  model.own_steps_ =
      Blend(model.points_, setting, prior.growth(setting.schedule, kind), kind).steps;
  return model;
}

absl::StatusOr<ScaleOutPrediction> ScaleOutModel::Predict(int devices) const {
  if (devices < 1) {
    return absl::InvalidArgumentError(absl::StrCat("devices is ", devices, ": must be at least 1"));
  }
  const ScalePoint& first = points_.front();
  const ScalePoint& last = points_.back();
  ScaleOutPrediction prediction;
  prediction.constant_seconds = last.iteration_seconds;
  prediction.ring_seconds = RingFactorSeconds(points_, devices);

  for (size_t i = 0; i < points_.size(); ++i) {
    if (points_[i].devices != devices) continue;
    prediction.iteration_seconds = points_[i].iteration_seconds;
    prediction.low_seconds = lowest_seconds_[i];
    prediction.high_seconds = highest_seconds_[i];
    prediction.structure = "measured";
    return prediction;
  }
  if (devices < last.devices) {
    const ScalePoint* below = &first;
    const ScalePoint* above = &last;
    for (const ScalePoint& point : points_) {
      if (point.devices < devices) below = &point;
    }
    for (auto point = points_.rbegin(); point != points_.rend(); ++point) {
      if (point->devices > devices) above = &*point;
    }
    if (devices < first.devices) {
      prediction.iteration_seconds = first.iteration_seconds;
      prediction.low_seconds = 0;
      prediction.high_seconds = first.iteration_seconds;
      prediction.identified = false;
      prediction.structure = "constant time";
      prediction.note = absl::StrCat("below the smallest measured n (", first.devices,
                                     "): only an upper bound; measure ", devices, " devices");
      return prediction;
    }
    const double share =
        Doublings(below->devices, devices) / Doublings(below->devices, above->devices);
    prediction.iteration_seconds = std::exp((1 - share) * std::log(below->iteration_seconds) +
                                            share * std::log(above->iteration_seconds));
    // Half a step's error beyond the neighbours.
    const double beyond =
        prior_.growth(setting_.schedule, StepKind(setting_, below->devices, above->devices))
            .error_per_doubling /
        2;
    prediction.low_seconds =
        std::min(below->iteration_seconds, above->iteration_seconds) * std::exp(-beyond);
    prediction.high_seconds =
        std::max(below->iteration_seconds, above->iteration_seconds) * std::exp(beyond);
    prediction.structure = "interpolated";
    return prediction;
  }

  const ScaleOutStep kind = StepKind(setting_, last.devices, devices);
  const ScaleOutGrowth& growth = prior_.growth(setting_.schedule, kind);
  const bool link_known = setting_.gradient_bytes > 0 && setting_.network_bytes_per_second > 0;
  prediction.structure = StructureName(growth.structure);
  prediction.iteration_seconds = PredictSeconds(points_, setting_, growth, kind, devices);
  if (growth.structure != ScaleOutStructure::kExposedRing) {
    prediction.note =
        growth.steps == 0
            ? "fell back to the baseline: on the public tables it errs less than the model"
            : absl::StrFormat(
                  "fell back to the baseline: on %d steps of %d clusters it erred by %.1f %%, the "
                  "model by "
                  "%.1f %%",
                  growth.steps, growth.clusters,
                  100 * std::min(growth.constant_error, growth.ring_error), 100 * growth.own_error);
  }
  const double half_width =
      Doublings(last.devices, devices) *
      (points_.size() < 2 ? std::max(growth.error_per_doubling, growth.error_per_doubling_from_one)
                          : growth.error_per_doubling);
  if (kind == ScaleOutStep::kFirstHosts) {
    if (link_known) {
      prediction.iteration_seconds = FirstHostsSeconds(points_, setting_, devices);
      prediction.structure = "ring over the link between hosts";
    }
    prediction.identified = false;
    prediction.note = absl::StrCat(
        "nothing was measured on more than one host (", setting_.devices_per_host, " devices): ",
        link_known ? "the link's nominal speed stands in for it" : "the network is unknown",
        "; measure ", 2 * setting_.devices_per_host, " devices on two hosts");
  } else if (points_.size() < 2) {
    prediction.identified = false;
    prediction.note =
        absl::StrCat("one n alone (", last.devices,
                     ") shows no growth: the growth is that of other clusters; measure ",
                     std::max(1, last.devices / 2), " or ", 2 * last.devices, " devices too");
  } else if (devices > 4 * last.devices) {
    prediction.identified = false;
    prediction.note = absl::StrCat("more than 4 times the largest measured n (", last.devices,
                                   "): the form of the growth is not determined; measure ",
                                   devices / 2, " devices");
  }
  prediction.low_seconds = prediction.iteration_seconds * std::exp(-half_width);
  prediction.high_seconds = prediction.iteration_seconds * std::exp(half_width);
  return prediction;
}

}  // namespace paceline
