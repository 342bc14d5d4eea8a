#include "tests/benchmarks/accuracy/scaling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/optional.h"
#include "analysis/import/csv_table.h"
#include "analysis/scaling/new_network.h"
#include "analysis/scaling/scale_out_model.h"
#include "analysis/scaling/trace_replay.h"
#include "tests/benchmarks/accuracy/scaling_tables.h"

namespace paceline {
namespace {

// A prediction beside what the baselines say.
struct Scored {
  PredictedPoint point;
  double constant = 0;
  double ring = 0;
  bool identified = true;
};

PredictedPoint Point(std::string label, double predicted, double low, double high,
                     double measured) {
  PredictedPoint point;
  point.label = std::move(label);
  point.predicted = predicted;
  point.measured = measured;
  point.low = low;
  point.high = high;
  return point;
}

double MeanError(const std::vector<Scored>& scored, double Scored::*baseline) {
  double sum = 0;
  for (const Scored& one : scored) {
    sum += std::abs(one.*baseline - one.point.measured) / one.point.measured;
  }
  return sum / scored.size();
}

std::vector<PredictedPoint> PointsOf(const std::vector<Scored>& scored) {
  std::vector<PredictedPoint> points;
  for (const Scored& one : scored) points.push_back(one.point);
  return points;
}

std::string WorstPoint(const std::vector<PredictedPoint>& points) {
  const PredictedPoint* worst = nullptr;
  double largest = -1;
  for (const PredictedPoint& point : points) {
    const double error = std::abs(point.predicted / point.measured - 1);
    if (error > largest) largest = error, worst = &point;
  }
  return worst == nullptr ? "" : absl::StrCat("worst: ", worst->label);
}

AccuracyRow Row(int target, std::string task, std::string split,
                const std::vector<Scored>& scored) {
  AccuracyRow row;
  row.target = target;
  row.task = std::move(task);
  row.split = std::move(split);
  const std::vector<PredictedPoint> points = PointsOf(scored);
  row.ours = SummarizeErrors(points);
  if (!scored.empty()) {
    row.baseline_constant = MeanError(scored, &Scored::constant);
    row.baseline_ring = MeanError(scored, &Scored::ring);
  }
  row.note = WorstPoint(points);
  return row;
}

ScaleOutConfiguration ToConfiguration(const ScalingCurve& curve) {
  ScaleOutConfiguration configuration;
  configuration.cluster = curve.cluster;
  configuration.setting = curve.setting;
  for (const auto& [devices, seconds] : curve.seconds) {
    configuration.points.push_back({devices, seconds});
  }
  return configuration;
}

// Learned from `curves` without those of `left_out`; all of them if that is empty.
absl::StatusOr<ScaleOutPrior> LearnWithout(const std::vector<ScalingCurve>& curves,
                                           const std::string& left_out) {
  std::vector<ScaleOutConfiguration> known;
  for (const ScalingCurve& curve : curves) {
    if (left_out.empty() || curve.cluster != left_out) known.push_back(ToConfiguration(curve));
  }
  return ScaleOutPrior::Learn(known);
}

absl::StatusOr<Scored> PredictPoint(const ScalingCurve& known, int largest, int devices,
                                    double measured, const ScaleOutPrior& prior) {
  std::vector<ScalePoint> points;
  for (const auto& [n, seconds] : known.seconds) {
    if (n <= largest) points.push_back({n, seconds});
  }
  absl::StatusOr<ScaleOutModel> model = ScaleOutModel::Fit(points, known.setting, prior);
  if (!model.ok()) return model.status();
  absl::StatusOr<ScaleOutPrediction> prediction = model->Predict(devices);
  if (!prediction.ok()) return prediction.status();
  Scored scored;
  scored.point =
      Point(absl::StrCat(known.key, ", ", devices, " devices"), prediction->iteration_seconds,
            prediction->low_seconds, prediction->high_seconds, measured);
  scored.constant = prediction->constant_seconds;
  scored.ring = prediction->ring_seconds;
  scored.identified = prediction->identified;
  return scored;
}

// One prediction of the scale-out model with what it needs to be ranked against others.
struct ScaleOutCase {
  Scored scored;
  const ScalingCurve* curve = nullptr;
  int devices = 0;
  double factor = 0;  // devices over the largest n fitted.
};

// Within the data: each (n, factor n) of each curve, fitted on n and below, prior of the other
// clusters only.
absl::Status CasesWithin(const std::vector<ScalingCurve>& curves,
                         std::vector<ScaleOutCase>& cases) {
  std::map<std::string, ScaleOutPrior> priors;
  for (const ScalingCurve& curve : curves) {
    if (priors.count(curve.cluster) == 0) {
      absl::StatusOr<ScaleOutPrior> prior = LearnWithout(curves, curve.cluster);
      if (!prior.ok()) return prior.status();
      priors.emplace(curve.cluster, *prior);
    }
    for (const auto& [devices, measured] : curve.seconds) {
      for (int factor : {2, 4}) {
        if (devices % factor != 0 || curve.seconds.count(devices / factor) == 0) continue;
        absl::StatusOr<Scored> scored =
            PredictPoint(curve, devices / factor, devices, measured, priors.at(curve.cluster));
        if (!scored.ok()) return scored.status();
        cases.push_back({*std::move(scored), &curve, devices, static_cast<double>(factor)});
      }
    }
  }
  return absl::OkStatus();
}

// Rows of the second folder, fitted on the whole curve of the first. Rows that the first has too
// are not scored.
absl::Status CasesHeldOut(const std::vector<ScalingCurve>& curves,
                          const std::vector<ScalingCurve>& held_out,
                          std::vector<ScaleOutCase>& cases, AccuracyReport& report) {
  absl::StatusOr<ScaleOutPrior> prior = LearnWithout(curves, "");
  if (!prior.ok()) return prior.status();
  for (const ScalingCurve& curve : held_out) {
    const auto known = std::find_if(curves.begin(), curves.end(),
                                    [&](const ScalingCurve& c) { return c.key == curve.key; });
    if (known == curves.end()) {
      if (std::none_of(curves.begin(), curves.end(),
                       [&](const ScalingCurve& c) { return c.group == curve.group; })) {
        report.Skip(absl::StrCat(curve.key, ": nothing of this cluster and method to fit, its ",
                                 curve.seconds.size(), " held-out rows are not scored"));
      }
      continue;  // Otherwise a new network: target 6.
    }
    const int largest = known->seconds.rbegin()->first;
    for (const auto& [devices, measured] : curve.seconds) {
      if (known->seconds.count(devices) > 0) continue;
      absl::StatusOr<Scored> scored = PredictPoint(*known, largest, devices, measured, *prior);
      if (!scored.ok()) return scored.status();
      cases.push_back(
          {*std::move(scored), &curve, devices, static_cast<double>(devices) / largest});
    }
  }
  return absl::OkStatus();
}

// The fit's own residuals: as CasesWithin, with a prior that has seen the point.
absl::Status InSample(const std::vector<ScalingCurve>& curves, std::vector<Scored>& scored) {
  absl::StatusOr<ScaleOutPrior> prior = LearnWithout(curves, "");
  if (!prior.ok()) return prior.status();
  for (const ScalingCurve& curve : curves) {
    for (const auto& [devices, measured] : curve.seconds) {
      if (devices % 2 != 0 || curve.seconds.count(devices / 2) == 0) continue;
      absl::StatusOr<Scored> one = PredictPoint(curve, devices / 2, devices, measured, *prior);
      if (!one.ok()) return one.status();
      if (one->identified) scored.push_back(*std::move(one));
    }
  }
  return absl::OkStatus();
}

struct Goals {
  OverlapSchedule schedule;
  double twice;
  double four_times;
};
constexpr Goals kGoals[] = {
    {OverlapSchedule::kBulkSynchronous, 0.03, 0.04},
    {OverlapSchedule::kParameterServer, 0.04, 0.05},
    {OverlapSchedule::kBucketed, 0.05, 0.07},
    {OverlapSchedule::kWaitFree, 0.05, 0.09},
};
constexpr double kInSampleGoal = 0.04;
constexpr double kLargestError = 0.20;

void AddScaleOutRows(const std::vector<ScaleOutCase>& cases, const std::string& split,
                     AccuracyReport& report) {
  const auto select = [&](double above, double up_to, bool identified,
                          const OverlapSchedule* schedule) {
    std::vector<Scored> scored;
    for (const ScaleOutCase& one : cases) {
      if (one.factor <= above || one.factor > up_to) continue;
      if (one.scored.identified != identified) continue;
      if (schedule != nullptr && one.curve->setting.schedule != *schedule) continue;
      scored.push_back(one.scored);
    }
    return scored;
  };
  for (int target : {4, 5}) {
    for (const Goals& goals : kGoals) {
      const std::vector<Scored> scored =
          target == 4 ? select(1, 2, true, &goals.schedule) : select(2, 4, true, &goals.schedule);
      AccuracyRow row = Row(target,
                            absl::StrCat("scale-out n to ", target == 4 ? "2n, " : "4n, ",
                                         OverlapScheduleName(goals.schedule)),
                            split, scored);
      if (scored.empty()) {
        row.note = "no configuration was measured so";
      } else {
        row.goal_mean = target == 4 ? goals.twice : goals.four_times;
        if (target == 5) row.goal_max = kLargestError;
      }
      report.Add(std::move(row));
    }
  }
  const std::vector<Scored> between = select(0, 1, true, nullptr);
  if (!between.empty()) report.Add(Row(0, "scale-out, between measured n", split, between));
  for (double factor : {2.0, 4.0}) {
    const std::vector<Scored> flagged = select(factor / 2, factor, false, nullptr);
    if (flagged.empty()) continue;
    AccuracyRow row = Row(0, absl::StrCat("scale-out n to ", factor, "n, flagged not identified"),
                          split, flagged);
    report.Add(std::move(row));
  }
  const std::vector<Scored> far = select(4, 1e9, false, nullptr);
  if (!far.empty()) report.Add(Row(0, "scale-out beyond 4n, flagged", split, far));
}

// Target 6. Each network of a group from the others of the group at the same n; the network's own
// time on one device is given. `held_out` null: leave one network out.
absl::Status NewNetworkCases(const std::vector<ScalingCurve>& curves,
                             const std::vector<ScalingCurve>* held_out,
                             std::vector<Scored>& cases) {
  for (const ScalingCurve& curve : held_out == nullptr ? curves : *held_out) {
    if (held_out != nullptr &&
        std::any_of(curves.begin(), curves.end(), [&](const ScalingCurve& known) {
          return known.group == curve.group && known.network == curve.network;
        })) {
      continue;  // Not new.
    }
    const auto alone = curve.seconds.find(1);
    if (alone == curve.seconds.end() || curve.setting.gradient_bytes <= 0) continue;
    for (const auto& [devices, measured] : curve.seconds) {
      if (devices == 1) continue;
      std::vector<NetworkTimes> known;
      for (const ScalingCurve& other : curves) {
        if (other.group != curve.group || other.network == curve.network) continue;
        if (other.seconds.count(1) == 0 || other.seconds.count(devices) == 0) continue;
        if (other.setting.gradient_bytes <= 0) continue;
        known.push_back({other.network, other.setting.gradient_bytes, other.seconds.at(1),
                         other.seconds.at(devices)});
      }
      absl::StatusOr<NewNetworkModel> model = NewNetworkModel::Fit(known, curve.setting.schedule);
      if (absl::IsFailedPrecondition(model.status())) continue;  // Fewer than two others.
      if (!model.ok()) return model.status();
      absl::StatusOr<NewNetworkPrediction> prediction =
          model->Predict(curve.setting.gradient_bytes, alone->second);
      if (!prediction.ok()) return prediction.status();
      Scored scored;
      scored.point =
          Point(absl::StrCat(curve.key, ", ", devices, " devices"), prediction->iteration_seconds,
                prediction->low_seconds, prediction->high_seconds, measured);
      scored.constant = alone->second;
      // One device has no ring factor: the mean slow-down of the other networks instead.
      double ratio = 0;
      for (const NetworkTimes& other : known) {
        ratio += other.iteration_seconds / other.one_device_seconds / known.size();
      }
      scored.ring = alone->second * ratio;
      cases.push_back(std::move(scored));
    }
  }
  return absl::OkStatus();
}

// Target 11: pairs of configurations of one network on as many devices, per sample.
void AddRankingRows(const std::vector<ScaleOutCase>& cases, const std::string& split,
                    AccuracyReport& report) {
  constexpr double kGap = 0.03;
  int pairs = 0, wrong = 0, constant_wrong = 0;
  std::vector<double> regrets;
  for (size_t i = 0; i < cases.size(); ++i) {
    for (size_t k = i + 1; k < cases.size(); ++k) {
      const ScaleOutCase& a = cases[i];
      const ScaleOutCase& b = cases[k];
      if (a.curve->network != b.curve->network || a.devices != b.devices) continue;
      if (a.factor != b.factor || a.factor <= 1 || a.factor > 2) continue;
      if (!a.scored.identified || !b.scored.identified) continue;
      if (a.curve->batch <= 0 || b.curve->batch <= 0) continue;
      const double a_measured = a.scored.point.measured / a.curve->batch;
      const double b_measured = b.scored.point.measured / b.curve->batch;
      const double faster = std::min(a_measured, b_measured);
      if (std::max(a_measured, b_measured) / faster - 1 <= kGap) continue;
      const bool a_chosen =
          a.scored.point.predicted / a.curve->batch < b.scored.point.predicted / b.curve->batch;
      const bool a_constant =
          a.scored.constant / a.curve->batch < b.scored.constant / b.curve->batch;
      ++pairs;
      wrong += a_chosen != (a_measured < b_measured);
      constant_wrong += a_constant != (a_measured < b_measured);
      regrets.push_back((a_chosen ? a_measured : b_measured) / faster - 1);
    }
  }
  AccuracyRow row;
  row.target = 11;
  row.task = "which of two is faster (gap > 3 %): share wrong";
  row.split = split;
  row.ours.points = pairs;
  if (pairs > 0) {
    row.ours.mean = static_cast<double>(wrong) / pairs;
    row.baseline_constant = static_cast<double>(constant_wrong) / pairs;
    row.goal_mean = 0.05;
    row.note = absl::StrFormat("right in %.1f %% of pairs", 100 * (1 - row.ours.mean));
  }
  report.Add(row);
  row.task = "which of two is faster: regret";
  row.baseline_constant.reset();
  row.note.clear();
  if (pairs > 0) {
    std::vector<PredictedPoint> points;
    for (double regret : regrets) {
      PredictedPoint point;
      point.measured = 1;
      point.predicted = 1 + regret;
      points.push_back(point);
    }
    row.ours = SummarizeErrors(points);
    row.goal_mean = 0.01;
  }
  report.Add(row);
}

// Target 3. ----------------------------------------------------------------------------------

struct TracedRun {
  std::string label;
  int nodes = 0;
  bool merged = false;  // Executed MG-WFBP; otherwise WFBP.
  IterationTrace trace;
};

constexpr char kTraceFile[] = "bcaffe_googlenet_layers.csv";
constexpr char kSpeedFile[] = "bcaffe_measured_speed.csv";
constexpr char kTracedNetwork[] = "GoogLeNet";

// Dumps that hold times; those printed before the first iteration are all zero.
absl::StatusOr<std::vector<TracedRun>> ReadTraces(const std::string& folder) {
  absl::StatusOr<CsvTable> table = CsvTable::Read(absl::StrCat(folder, "/", kTraceFile));
  if (!table.ok()) return table.status();
  std::vector<TracedRun> runs;
  std::map<std::string, size_t> index;
  std::map<std::string, double> layer_seconds;
  for (const CsvRow& row : table->rows()) {
    absl::StatusOr<std::string> log = row.Text("log"), tag = row.Text("tag"),
                                dump = row.Text("dump");
    absl::StatusOr<absl::optional<double>> nodes = row.OptionalNumber("nodes"),
                                           elements = row.OptionalNumber("n_params"),
                                           backward = row.OptionalNumber("backward_us"),
                                           communication = row.OptionalNumber("comm_us");
    for (const absl::Status& status :
         {log.status(), tag.status(), dump.status(), nodes.status(), elements.status(),
          backward.status(), communication.status()}) {
      if (!status.ok()) return status;
    }
    if (!nodes->has_value() || !backward->has_value() || !communication->has_value()) continue;
    if (*tag != "comm" && *tag != "ocomm") continue;
    const std::string key = absl::StrCat(*log, " dump ", *dump);
    const auto [found, is_new] = index.try_emplace(key, runs.size());
    if (is_new) {
      runs.push_back({key, static_cast<int>(**nodes), *tag == "ocomm", {}});
      layer_seconds[key] = -1;
    }
    std::vector<TracedTensor>& tensors = runs[found->second].trace.tensors;
    TracedTensor tensor;
    // A layer's time is repeated for each of its tensors.
    const double seconds = **backward * 1e-6;
    const bool same_layer = !tensors.empty() && seconds == layer_seconds[key];
    tensor.layer = tensors.empty() ? 0 : tensors.back().layer + (same_layer ? 0 : 1);
    tensor.backward_seconds = same_layer ? 0 : seconds;
    tensor.communication_seconds = **communication * 1e-6;
    tensor.elements = static_cast<int64_t>(elements->value_or(0));
    layer_seconds[key] = seconds;
    tensors.push_back(tensor);
  }
  std::vector<TracedRun> timed;
  for (TracedRun& run : runs) {
    double sum = 0;
    for (const TracedTensor& tensor : run.trace.tensors) sum += tensor.backward_seconds;
    if (sum > 0) timed.push_back(std::move(run));
  }
  return timed;
}

// Iteration seconds by (method, nodes).
using MeasuredTimes = std::map<std::pair<std::string, int>, double>;

MeasuredTimes TracedNetworkTimes(const std::vector<ScalingCurve>& curves) {
  MeasuredTimes times;
  for (const ScalingCurve& curve : curves) {
    if (curve.cluster != "b-caffe" || curve.network != kTracedNetwork) continue;
    const std::string method = curve.group.substr(curve.cluster.size() + 1);
    for (const auto& [nodes, seconds] : curve.seconds) times[{method, nodes}] = seconds;
  }
  return times;
}

absl::Status AddReplayRows(const AccuracyData& data, const std::vector<ScalingCurve>& curves,
                           const std::vector<ScalingCurve>& held_out, AccuracyReport& report) {
  absl::StatusOr<std::vector<TracedRun>> runs = ReadTraces(data.data_dir);
  if (absl::IsNotFound(runs.status())) {
    report.Skip(absl::StrCat(kTraceFile, ": not in ", data.data_dir, ", its rows are skipped"));
    return absl::OkStatus();
  }
  if (!runs.ok()) return runs.status();
  const MeasuredTimes measured = TracedNetworkTimes(curves);
  const auto alone = measured.find({"WFBP", 1});
  if (alone == measured.end()) {
    report.Skip(absl::StrCat(kSpeedFile, ": lacks WFBP on one node, replay is skipped"));
    return absl::OkStatus();
  }
  const auto complete = [&](TracedRun& run) {
    run.trace.other_seconds = alone->second;
    for (const TracedTensor& tensor : run.trace.tensors) {
      run.trace.other_seconds -= tensor.backward_seconds;
    }
  };
  // A merged run's trace already holds its messages: the others' times are 0.
  std::vector<double> replayed, truth;
  std::vector<Scored> in_sample;
  for (TracedRun& run : *runs) {
    complete(run);
    const auto found = measured.find({run.merged ? "MG-WFBP" : "WFBP", run.nodes});
    if (found == measured.end()) continue;
    absl::StatusOr<double> seconds = ReplaySeconds(run.trace, OneMessagePerTensor(run.trace));
    if (!seconds.ok()) return seconds.status();
    replayed.push_back(*seconds);
    truth.push_back(found->second);
    Scored scored;
    scored.point.label = run.label;
    scored.point.measured = found->second;
    scored.constant = alone->second;
    scored.ring = *seconds;  // Without the fitted constant.
    in_sample.push_back(std::move(scored));
  }
  if (replayed.empty()) return absl::OkStatus();
  absl::StatusOr<double> fixed = FitFixedSeconds(replayed, truth);
  if (!fixed.ok()) return fixed.status();
  for (size_t i = 0; i < in_sample.size(); ++i) {
    in_sample[i].point.predicted = replayed[i] + *fixed;
  }
  AccuracyRow row =
      Row(3, "iteration replay from an in-situ trace (GoogLeNet)", "in-sample", in_sample);
  row.baseline_ring.reset();
  row.baseline_other = MeanError(in_sample, &Scored::ring);
  row.goal_mean = 0.03;
  row.note =
      absl::StrFormat("other: without the fitted %.1f ms an iteration; %s", 1e3 * *fixed, row.note);
  report.Add(std::move(row));

  // Other schedules from the trace of WFBP at the same number of nodes; in the held-out folder also
  // WFBP itself at other numbers.
  const auto predict_others = [&](const std::vector<TracedRun>& traces, const MeasuredTimes& times,
                                  bool own_schedule, std::vector<Scored>& scored) -> absl::Status {
    for (const TracedRun& run : traces) {
      if (run.merged) continue;
      for (const char* method : {"WFBP", "MG-WFBP", "SyncEASGD"}) {
        const bool own = method == std::string("WFBP");
        if (own && !own_schedule) continue;
        const auto found = times.find({method, run.nodes});
        if (found == times.end()) continue;
        absl::StatusOr<double> seconds =
            ReplaySeconds(run.trace, own ? OneMessagePerTensor(run.trace)
                                     : method == std::string("MG-WFBP") ? MergedMessages(run.trace)
                                                                        : OneMessage(run.trace));
        if (!seconds.ok()) return seconds.status();
        Scored one;
        one.point.label = absl::StrCat(method, " on ", run.nodes, " nodes from ", run.label);
        one.point.predicted = *seconds + *fixed;
        one.point.measured = found->second;
        const auto wait_free = times.find({"WFBP", run.nodes});
        // The traced schedule's own time.
        one.constant = wait_free != times.end() ? wait_free->second : alone->second;
        scored.push_back(std::move(one));
      }
    }
    return absl::OkStatus();
  };
  const auto add_row = [&](const std::vector<Scored>& scored, const std::string& split) {
    if (scored.empty()) return;
    AccuracyRow other = Row(3, "another schedule from the same trace", split, scored);
    other.baseline_ring.reset();
    other.goal_mean = 0.08;
    report.Add(std::move(other));
  };
  std::vector<Scored> others;
  absl::Status status = predict_others(*runs, measured, false, others);
  if (!status.ok()) return status;
  add_row(others, "held out");
  if (data.heldout_dir.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<TracedRun>> more = ReadTraces(data.heldout_dir);
  if (absl::IsNotFound(more.status())) return absl::OkStatus();
  if (!more.ok()) return more.status();
  for (TracedRun& run : *more) complete(run);
  std::vector<Scored> folder;
  status = predict_others(*more, TracedNetworkTimes(held_out), true, folder);
  if (!status.ok()) return status;
  add_row(folder, "folder");
  return absl::OkStatus();
}

}  // namespace

absl::Status EvaluateScaling(const AccuracyData& data, AccuracyReport& report) {
  const auto skip_in = [&](const std::string& folder) {
    return [&report, folder](const std::string& file) {
      report.Skip(absl::StrCat(file, ": not in ", folder, ", its rows are skipped"));
    };
  };
  absl::StatusOr<std::vector<ScalingCurve>> curves =
      ReadScalingCurves(data.data_dir, skip_in(data.data_dir));
  if (!curves.ok()) return curves.status();
  std::vector<ScalingCurve> held_out;
  if (!data.heldout_dir.empty()) {
    absl::StatusOr<std::vector<ScalingCurve>> more =
        ReadScalingCurves(data.heldout_dir, skip_in(data.heldout_dir));
    if (!more.ok()) return more.status();
    held_out = *std::move(more);
  }

  absl::Status status = AddReplayRows(data, *curves, held_out, report);
  if (!status.ok()) return status;

  std::vector<Scored> in_sample;
  status = InSample(*curves, in_sample);
  if (!status.ok()) return status;
  AccuracyRow fit = Row(4, "scale-out n to 2n, all schedules", "in-sample", in_sample);
  fit.goal_mean = kInSampleGoal;
  report.Add(std::move(fit));

  for (const bool folder : {false, true}) {
    if (folder && data.heldout_dir.empty()) continue;
    const std::string split = folder ? "folder" : "held out";
    std::vector<ScaleOutCase> cases;
    status = folder ? CasesHeldOut(*curves, held_out, cases, report) : CasesWithin(*curves, cases);
    if (!status.ok()) return status;
    std::vector<Scored> networks;
    status = NewNetworkCases(*curves, folder ? &held_out : nullptr, networks);
    if (!status.ok()) return status;
    if (folder && cases.empty() && networks.empty()) continue;

    AddScaleOutRows(cases, split, report);
    AccuracyRow row = Row(6, "new network, known cluster, T(1) given", split, networks);
    if (!networks.empty()) {
      row.goal_mean = 0.12;
      row.goal_max = kLargestError;
    }
    row.baseline_other = row.baseline_ring;
    row.baseline_ring.reset();
    row.note = absl::StrCat("other: the others' mean slow-down; ", row.note);
    report.Add(std::move(row));

    std::vector<PredictedPoint> all = PointsOf(networks);
    for (const ScaleOutCase& one : cases) {
      if (one.factor > 1) all.push_back(one.scored.point);
    }
    AccuracyRow intervals;
    intervals.target = 10;
    intervals.task = "90 % intervals, scale-out and new networks";
    intervals.split = split;
    intervals.ours = SummarizeErrors(all);
    intervals.goal_coverage = std::make_pair(0.85, 0.97);
    report.Add(std::move(intervals));
    AddRankingRows(cases, split, report);
  }
  return absl::OkStatus();
}

}  // namespace paceline
