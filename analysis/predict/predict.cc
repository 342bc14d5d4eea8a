#include "analysis/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/report/csv.h"
#include "analysis/report/words.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/simulate/default_costs.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

// An upper limit on the configurations one plan can describe sensibly.
constexpr int kMostDevices = 65536;
constexpr int kMostBatch = 65536;
// Measured against itself, no model is believed to be better than this.
constexpr double kLeastError = 0.01;

std::string Bounds(const Interval& interval, const std::string& low, const std::string& high) {
  return interval.has_bounds() ? absl::StrCat(low, " to ", high) : "";
}

}  // namespace

Interval PredictionInterval(const std::vector<double>& draws, double error, int error_points) {
  Interval interval;
  if (draws.empty()) return interval;
  interval.value = draws[0];
  const double deviation = std::max(kLeastError, error);
  std::mt19937_64 random(99);
  std::student_t_distribution<double> student(std::max(2, error_points));
  std::vector<double> values;
  for (size_t i = 1; i < draws.size(); ++i) {
    for (int k = 0; k < 25; ++k) values.push_back(draws[i] * std::exp(deviation * student(random)));
  }
  if (values.empty()) return interval;
  interval.low = std::min(interval.value, Quantile(values, 0.05));
  interval.high = std::max(interval.value, Quantile(values, 0.95));
  return interval;
}

absl::StatusOr<v1::Trial> RequestedTrial(const CostModel& model, const PredictionRequest& request) {
  const auto invalid = [](const std::string& text) { return absl::InvalidArgumentError(text); };
  if (request.devices < 1 || request.devices > kMostDevices) {
    return invalid(
        absl::StrCat("devices: expected 1 to ", kMostDevices, ", got ", request.devices));
  }
  if (request.hosts < 1 || request.devices % request.hosts != 0) {
    return invalid(absl::StrCat("hosts: ", request.devices, " devices do not lie evenly on ",
                                request.hosts, " hosts"));
  }
  if (request.batch < 1 || request.batch > kMostBatch) {
    return invalid(absl::StrCat("batch: expected 1 to ", kMostBatch, ", got ", request.batch));
  }
  v1::Trial trial;
  const MergedTrial* example = model.Example(request.network, request.precision);
  if (example != nullptr) {
    trial = example->trial;
  } else {
    absl::StatusOr<v1::Network> network = LoadNetwork(request.network);
    if (!network.ok()) return network.status();
    *trial.mutable_network() = *std::move(network);
    trial.mutable_input()->mutable_synthetic();
  }
  if (trial.policy().name() != model.policy()) {
    absl::StatusOr<v1::FrameworkPolicy> policy = LoadPolicy(model.policy());
    if (!policy.ok()) {
      // Measured with another network only.
      return absl::FailedPreconditionError(
          absl::StrCat("policy '", model.policy(), "' is not built in and was not measured with '",
                       request.network, "'"));
    }
    *trial.mutable_policy() = *std::move(policy);
  }
  trial.mutable_cluster()->set_hosts(request.hosts);
  trial.mutable_cluster()->set_devices_per_host(request.devices / request.hosts);
  trial.set_batch_per_device(request.batch);
  trial.set_precision(request.precision);
  if (request.synthetic_input) trial.mutable_input()->mutable_synthetic();
  return trial;
}

absl::StatusOr<Prediction> Predict(const CostModel& model, const PredictionRequest& request,
                                   const LinkAssumption& link) {
  absl::StatusOr<v1::Trial> trial = RequestedTrial(model, request);
  if (!trial.ok()) return trial.status();
  Prediction prediction;
  prediction.policy = model.policy();
  prediction.request = request;
  absl::StatusOr<std::vector<double>> periods = model.Periods(*trial, link, &prediction.flags);
  if (!periods.ok()) return periods.status();
  prediction.iteration_seconds = PredictionInterval(*periods, model.error(), model.error_points());
  const Interval& time = prediction.iteration_seconds;
  const double samples = static_cast<double>(request.devices) * request.batch;
  prediction.samples_per_second = {samples / time.value, samples / time.high, samples / time.low};
  if (model.error_points() < 2) {
    prediction.flags.insert("the model could not be checked against measured iterations of " +
                            model.policy() + ": measure it on 1 and 2 devices");
  }

  v1::Trial alone = *trial;
  alone.mutable_cluster()->set_hosts(1);
  alone.mutable_cluster()->set_devices_per_host(1);
  absl::StatusOr<std::vector<double>> one = model.Periods(alone, link, nullptr);
  if (one.ok()) {
    std::vector<double> ratios;
    for (size_t i = 0; i < periods->size(); ++i) ratios.push_back((*one)[i] / (*periods)[i]);
    prediction.efficiency = request.devices == 1
                                ? Interval{1, 1, 1}
                                : PredictionInterval(ratios, model.error(), model.error_points());
  }

  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial->network());
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*shaped, trial->policy(), trial->cluster(), request.batch);
  if (!schedule.ok()) return schedule.status();
  const double memory =
      PredictMemory(*shaped, *schedule, request.batch, request.precision).total_bytes;
  const Interval offset = model.memory_offset_bytes();
  if (offset.known()) {
    const auto clamp = [&](double bytes) { return std::max(0.5 * memory, memory + bytes); };
    prediction.memory_bytes = {clamp(offset.value),
                               std::min(clamp(offset.low), 0.95 * clamp(offset.value)),
                               std::max(clamp(offset.high), 1.05 * clamp(offset.value))};
  } else {
    prediction.memory_bytes = {memory, kUnknown, kUnknown};
  }

  if (const MergedTrial* measured = model.Measured(*trial)) {
    prediction.measured_iteration_seconds = measured->iteration_seconds.value;
  }
  return prediction;
}

std::string PredictionsText(const std::vector<Prediction>& predictions) {
  std::string text = absl::StrFormat("%-22s %-20s %7s %5s %5s  %-29s %-27s %-20s %s\n", "network",
                                     "policy", "devices", "hosts", "batch", "iteration (90 %)",
                                     "samples/s", "efficiency", "memory");
  std::vector<std::string> notes;
  for (const Prediction& p : predictions) {
    std::string marks;
    for (const std::string& flag : p.flags) {
      auto at = std::find(notes.begin(), notes.end(), flag);
      if (at == notes.end()) at = notes.insert(notes.end(), flag);
      absl::StrAppend(&marks, marks.empty() ? " [" : ",", at - notes.begin() + 1);
    }
    if (!marks.empty()) marks += "]";
    const Interval& t = p.iteration_seconds;
    const Interval& s = p.samples_per_second;
    const Interval& e = p.efficiency;
    absl::StrAppendFormat(
        &text, "%-22s %-20s %7d %5d %5d  %-29s %-27s %-20s %s%s\n", p.request.network, p.policy,
        p.request.devices, p.request.hosts, p.request.batch,
        absl::StrCat(HumanSeconds(t.value), " (",
                     Bounds(t, HumanSeconds(t.low), HumanSeconds(t.high)), ")"),
        absl::StrCat(HumanNumber(s.value), " (", Bounds(s, HumanNumber(s.low), HumanNumber(s.high)),
                     ")"),
        e.known() ? absl::StrFormat("%.2f (%.2f to %.2f)", e.value, e.low, e.high) : "-",
        HumanBytes(p.memory_bytes.value), marks);
    if (std::isfinite(p.measured_iteration_seconds)) {
      absl::StrAppend(&text, "    measured: ", HumanSeconds(p.measured_iteration_seconds),
                      ", predicted ",
                      HumanSignedPercent(t.value / p.measured_iteration_seconds - 1), "\n");
    }
  }
  for (size_t i = 0; i < notes.size(); ++i) {
    absl::StrAppend(&text, "[", i + 1, "] ", notes[i], ".\n");
  }
  return text;
}

std::string PredictionsCsv(const std::vector<Prediction>& predictions) {
  CsvWriter csv({"network",
                 "policy",
                 "devices",
                 "hosts",
                 "batch_per_device",
                 "precision",
                 "iteration_seconds",
                 "iteration_seconds_low",
                 "iteration_seconds_high",
                 "samples_per_second",
                 "samples_per_second_low",
                 "samples_per_second_high",
                 "efficiency",
                 "efficiency_low",
                 "efficiency_high",
                 "memory_bytes",
                 "memory_bytes_low",
                 "memory_bytes_high",
                 "measured_iteration_seconds",
                 "flags"});
  for (const Prediction& p : predictions) {
    csv.Add(p.request.network);
    csv.Add(p.policy);
    csv.Add(p.request.devices);
    csv.Add(p.request.hosts);
    csv.Add(p.request.batch);
    csv.Add(PrecisionName(p.request.precision));
    for (const Interval* interval :
         {&p.iteration_seconds, &p.samples_per_second, &p.efficiency, &p.memory_bytes}) {
      csv.Add(interval->value);
      csv.Add(interval->low);
      csv.Add(interval->high);
    }
    csv.Add(p.measured_iteration_seconds);
    csv.Add(absl::StrJoin(p.flags, "; "));
    csv.EndRow();
  }
  return csv.text();
}

}  // namespace paceline
