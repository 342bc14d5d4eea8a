#include "analysis/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/fit/nearest.h"
#include "analysis/fit/operation_costs.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

v1::Estimate MakeEstimate(const Interval& interval, bool identified, const std::string& note) {
  v1::Estimate estimate;
  estimate.set_identified(identified);
  estimate.set_note(note);
  if (!identified) return estimate;  // No point value for what is not determined.
  estimate.set_value(interval.value);
  estimate.set_low(interval.has_bounds() ? interval.low : interval.value);
  estimate.set_high(interval.has_bounds() ? interval.high : interval.value);
  return estimate;
}

Interval Scaled(const Interval& interval, double factor) {
  return {interval.value * factor, interval.low * factor, interval.high * factor};
}

// a / b of independent measurements; relative errors add in squares.
Interval Ratio(const Interval& a, const Interval& b) {
  Interval ratio;
  ratio.value = a.value / b.value;
  const double error = std::hypot(a.relative_half_width(), b.relative_half_width());
  ratio.low = ratio.value * (1 - error);
  ratio.high = ratio.value * (1 + error);
  return ratio;
}

// Value with the spread of several measurements of it: the widest of their own bounds.
Interval Pooled(const std::vector<Interval>& intervals) {
  std::vector<double> values;
  Interval pooled;
  for (const Interval& interval : intervals) {
    if (!interval.known()) continue;
    values.push_back(interval.value);
    const double low = interval.has_bounds() ? interval.low : interval.value;
    const double high = interval.has_bounds() ? interval.high : interval.value;
    if (!(pooled.low <= low)) pooled.low = low;
    if (!(pooled.high >= high)) pooled.high = high;
  }
  pooled.value = Median(values);
  return pooled;
}

Interval SumOfPhases(const MergedTrial& trial, Phase a, Phase b) {
  Runs runs;
  for (const MergedRepeat& repeat : trial.repeats) {
    runs.emplace_back();
    for (size_t i = 0; i < repeat.iteration_seconds.size(); ++i) {
      runs.back().push_back(repeat.phase_seconds[static_cast<int>(a)][i] +
                            repeat.phase_seconds[static_cast<int>(b)][i]);
    }
  }
  return MedianInterval(runs);
}

// A phase of compute against the batch size, for one network and precision.
struct PhaseOfBatch {
  LineFit line;
  std::map<int, Interval> points;  // By batch.

  // Seconds at `batch`: from the line if several batches were measured, otherwise in proportion to
  // the nearest one.
  double Evaluate(int batch) const {
    if (points.empty()) return kUnknown;
    const auto exact = points.find(batch);
    if (points.size() == 1) {
      return points.begin()->second.value * batch / points.begin()->first;
    }
    if (points.size() == 2 && exact != points.end()) return exact->second.value;
    return line.Evaluate(batch);
  }
};

struct NetworkFit {
  PhaseOfBatch forward;
  PhaseOfBatch backward;
  int base_devices = 0;  // Devices of the trials the phases come from.
  int base_threads = 0;
  std::map<int, Interval> contention;      // By devices; relative to the base.
  std::map<int, Interval> update_seconds;  // By devices; of all tensors together.
  std::map<int, double> forward_share;     // By layer; empty: by FLOPs.
  std::map<int, double> backward_share;
  std::string thread_note;
};

using NetworkKey = std::pair<std::string, std::string>;  // Name, precision.
using LineKey = std::pair<std::string, int>;             // Operation kind, devices.

struct Fit {
  std::map<NetworkKey, NetworkFit> networks;
  std::map<LineKey, LineFit> lines;
  // By source and image size, then devices.
  std::map<std::string, std::map<int, Interval>> read_per_sample;
  std::map<std::string, std::map<int, Interval>> fetch_per_sample;  // Until the pool delivers.
  std::map<std::string, std::map<int, Interval>> copy_per_sample;
  std::map<int, Interval> start_overhead;  // By devices.
};

int Threads(const MergedTrial& trial) {
  return trial.repeats[0].ranks[0].machine().compute_threads();
}

PhaseOfBatch FitPhase(const std::vector<const MergedTrial*>& trials, Phase phase) {
  std::map<int, std::vector<Interval>> by_batch;
  std::vector<LinePoint> points;
  for (const MergedTrial* trial : trials) {
    const Interval& seconds = trial->phase(phase);
    if (!(seconds.value > 0)) continue;
    by_batch[trial->trial.batch_per_device()].push_back(seconds);
    points.push_back({static_cast<double>(trial->trial.batch_per_device()), seconds.value,
                      static_cast<int>(points.size())});
  }
  PhaseOfBatch fitted;
  for (const auto& batch : by_batch) fitted.points[batch.first] = Pooled(batch.second);
  LineFitOptions options;
  options.intercept_spread = 4;  // Batches span less than message sizes do.
  fitted.line = FitLine(points, options);
  return fitted;
}

NetworkFit FitNetwork(const std::vector<const MergedTrial*>& trials) {
  NetworkFit fit;
  fit.base_devices = trials[0]->devices;
  for (const MergedTrial* trial : trials) {
    fit.base_devices = std::min(fit.base_devices, trial->devices);
  }
  std::vector<const MergedTrial*> base;
  for (const MergedTrial* trial : trials) {
    if (trial->devices == fit.base_devices) base.push_back(trial);
  }
  fit.base_threads = Threads(*base[0]);
  fit.forward = FitPhase(base, Phase::kForward);
  fit.backward = FitPhase(base, Phase::kBackward);
  for (const MergedTrial* trial : base) {
    const std::vector<OperationCost> operations = MeasuredOperationCosts(*trial);
    const double forward = SumOfKind(operations, "forward");
    const double backward = SumOfKind(operations, "backward");
    if (!(forward > 0) || !(backward > 0)) continue;
    for (const OperationCost& operation : operations) {
      if (operation.kind == "forward") {
        fit.forward_share[operation.layer] = operation.seconds / forward;
      }
      if (operation.kind == "backward") {
        fit.backward_share[operation.layer] = operation.seconds / backward;
      }
    }
    break;
  }
  std::map<int, std::vector<Interval>> contention, updates;
  for (const MergedTrial* trial : trials) {
    const std::vector<OperationCost> operations = MeasuredOperationCosts(*trial);
    Interval update = trial->phase(Phase::kUpdate);
    const double all_owners = SumOfKind(operations, "update");
    // Where owners share the update, a rank's phase is only its part of it.
    if (all_owners > 0 && update.value > 0) update = Scaled(update, all_owners / update.value);
    updates[trial->devices].push_back(update);
    if (trial->devices == fit.base_devices) continue;
    const double alone = fit.forward.Evaluate(trial->trial.batch_per_device()) +
                         fit.backward.Evaluate(trial->trial.batch_per_device());
    const auto base_point = fit.backward.points.find(trial->trial.batch_per_device());
    Interval reference{alone, alone, alone};
    if (base_point != fit.backward.points.end() && base_point->second.has_bounds()) {
      const double error = base_point->second.relative_half_width();
      reference = {alone, alone * (1 - error), alone * (1 + error)};
    }
    const Interval together = SumOfPhases(*trial, Phase::kForward, Phase::kBackward);
    if (alone > 0 && together.known()) {
      contention[trial->devices].push_back(Ratio(together, reference));
    }
    if (Threads(*trial) != fit.base_threads) {
      fit.thread_note =
          absl::StrCat("includes fewer threads per rank: ", fit.base_threads, " on ",
                       fit.base_devices, " device(s), ", Threads(*trial), " on ", trial->devices);
    }
  }
  for (const auto& entry : contention) fit.contention[entry.first] = Pooled(entry.second);
  for (const auto& entry : updates) fit.update_seconds[entry.first] = Pooled(entry.second);
  return fit;
}

Fit FitAll(const std::vector<const MergedTrial*>& trials, int resamples) {
  Fit fit;
  std::map<NetworkKey, std::vector<const MergedTrial*>> by_network;
  std::map<LineKey, std::vector<LinePoint>> messages;
  std::map<std::string, std::map<int, std::vector<Interval>>> reads, fetches, copies;
  std::map<int, std::vector<Interval>> overheads;
  int cluster = 0;
  for (const MergedTrial* trial : trials) {
    by_network[{trial->trial.network().name(), PrecisionName(trial->trial.precision())}].push_back(
        trial);
    const std::vector<OperationCost> operations = MeasuredOperationCosts(*trial);
    ++cluster;
    for (const OperationCost& operation : operations) {
      if (!IsMessage(operation.kind) || operation.bytes <= 0) continue;
      messages[{operation.kind, trial->devices}].push_back(
          {static_cast<double>(operation.bytes), operation.seconds, cluster});
    }
    const absl::StatusOr<IterationSchedule> schedule = CompileTrial(trial->trial);
    for (const MergedRepeat& repeat : trial->repeats) {
      for (const v1::TrialResult& rank : repeat.ranks) {
        if (!schedule.ok() || rank.trace().empty()) continue;
        const double overhead = StartOverheadSeconds(*schedule, rank, StreamKind::kCompute);
        overheads[trial->devices].push_back({overhead, kUnknown, kUnknown});
      }
    }
    const double batch = trial->trial.batch_per_device();
    // The phase is busy time of the decoding threads; the operation is how long the schedule waits
    // for a batch of theirs.
    reads[InputSubject(trial->trial)][trial->devices].push_back(
        Scaled(trial->phase(Phase::kInput), 1 / batch));
    const double waited =
        operations.empty() ? trial->phase(Phase::kInput).value : SumOfKind(operations, "read");
    fetches[InputSubject(trial->trial)][trial->devices].push_back(
        {waited / batch, kUnknown, kUnknown});
    copies[InputSubject(trial->trial)][trial->devices].push_back(
        Scaled(trial->phase(Phase::kCopy), 1 / batch));
  }
  for (const auto& network : by_network) fit.networks[network.first] = FitNetwork(network.second);
  LineFitOptions options;
  options.resamples = resamples;
  for (const auto& kind : messages) fit.lines[kind.first] = FitLine(kind.second, options);
  for (const auto& at : overheads) fit.start_overhead[at.first] = Pooled(at.second);
  for (const auto& input : reads) {
    for (const auto& at : input.second) {
      fit.read_per_sample[input.first][at.first] = Pooled(at.second);
    }
  }
  for (const auto& input : fetches) {
    for (const auto& at : input.second) {
      fit.fetch_per_sample[input.first][at.first] = Pooled(at.second);
    }
  }
  for (const auto& input : copies) {
    for (const auto& at : input.second) {
      fit.copy_per_sample[input.first][at.first] = Pooled(at.second);
    }
  }
  return fit;
}

// The value at `devices`, or at the nearest measured number of devices.
template <typename Value>
const Value* Nearest(const std::map<int, Value>& values, int devices) {
  return NearestByRatio(values, devices, nullptr);
}

absl::StatusOr<double> ModelledSeconds(const Fit& fit, const v1::Trial& trial) {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.network());
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*shaped, trial.policy(), trial.cluster(), trial.batch_per_device());
  if (!schedule.ok()) return schedule.status();
  const int devices = Devices(trial);
  const int batch = trial.batch_per_device();
  const NetworkFit& network =
      fit.networks.at({trial.network().name(), PrecisionName(trial.precision())});
  double contention = 1;
  if (devices != network.base_devices) {
    const Interval* ratio = Nearest(network.contention, devices);
    if (ratio != nullptr && ratio->known()) {
      contention = ratio->value;
    } else {
      // Not measured for this network: what the others show.
      std::vector<double> ratios;
      for (const auto& other : fit.networks) {
        const auto at = other.second.contention.find(devices);
        if (at != other.second.contention.end()) ratios.push_back(at->second.value);
      }
      if (!ratios.empty()) contention = Median(ratios);
    }
  }
  const double forward = network.forward.Evaluate(batch) * contention;
  const double backward = network.backward.Evaluate(batch) * contention;
  if (!(forward > 0) || !(backward > 0)) {
    return absl::FailedPreconditionError("forward and backward were not timed");
  }
  const Interval* update = Nearest(network.update_seconds, devices);
  const Interval* overhead = Nearest(fit.start_overhead, devices);
  const Interval* fetch = nullptr;
  const Interval* copy = nullptr;
  const auto fetches = fit.fetch_per_sample.find(InputSubject(trial));
  if (fetches != fit.fetch_per_sample.end()) fetch = Nearest(fetches->second, devices);
  const auto copies = fit.copy_per_sample.find(InputSubject(trial));
  if (copies != fit.copy_per_sample.end()) copy = Nearest(copies->second, devices);

  // Ranks differ only where an owner works for all; the slowest one sets the pace.
  bool owners = false;
  for (const Operation& operation : schedule->operations) owners |= operation.at_owner_only;
  double slowest = 0;
  for (int rank = 0; rank < (owners ? devices : 1); ++rank) {
    std::vector<double> seconds;
    for (const Operation& operation : schedule->operations) {
      double cost = 0;
      if (operation.kind == OperationKind::kForward) {
        const auto share = network.forward_share.find(operation.layer);
        cost = forward * (share != network.forward_share.end()
                              ? share->second
                              : static_cast<double>(shaped->layers[operation.layer].forward_flops) /
                                    std::max<int64_t>(1, shaped->forward_flops));
      } else if (operation.kind == OperationKind::kBackward) {
        const auto share = network.backward_share.find(operation.layer);
        cost =
            backward * (share != network.backward_share.end()
                            ? share->second
                            : static_cast<double>(shaped->layers[operation.layer].backward_flops) /
                                  std::max<int64_t>(1, shaped->backward_flops));
      } else if (operation.kind == OperationKind::kRead) {
        if (fetch != nullptr) cost = fetch->value * batch;
      } else if (operation.kind == OperationKind::kCopyInput) {
        if (copy != nullptr) cost = copy->value * batch;
      } else if (operation.kind == OperationKind::kUpdate) {
        const double share = operation.group < 0
                                 ? 1.0
                                 : static_cast<double>(schedule->groups[operation.group].bytes) /
                                       std::max<int64_t>(1, shaped->gradient_bytes);
        const bool works =
            !operation.at_owner_only || schedule->groups[operation.group].owner == rank;
        if (update != nullptr && works) cost = update->value * share;
      } else if (IsCommunication(operation.kind)) {
        const std::string kind(OperationKindName(operation.kind));
        const auto line = fit.lines.find({kind, devices});
        if (line == fit.lines.end() || !line->second.known()) {
          return absl::FailedPreconditionError(
              absl::StrCat("'", kind, "' on ", devices, " devices was not timed"));
        }
        cost = line->second.Evaluate(operation.bytes);
      }
      const bool on_compute = schedule->streams[operation.stream].kind == StreamKind::kCompute;
      if (on_compute && overhead != nullptr && overhead->known()) cost += overhead->value;
      seconds.push_back(std::isfinite(cost) ? std::max(0.0, cost) : 0);
    }
    absl::StatusOr<Timeline> timeline = Simulate(*schedule, seconds);
    if (!timeline.ok()) return timeline.status();
    slowest = std::max(slowest, timeline->period_seconds);
  }
  return slowest;
}

// "12.3 ms at batch 16".
std::string PointsNote(const PhaseOfBatch& phase, int devices) {
  std::string note;
  for (const auto& point : phase.points) {
    absl::StrAppendFormat(&note, "%s%.4g ms at batch %d", note.empty() ? "" : ", ",
                          point.second.value * 1e3, point.first);
  }
  absl::StrAppend(&note, " on ", devices, devices == 1 ? " device" : " devices");
  return note;
}

void AddPhase(const PhaseOfBatch& phase, int devices, v1::Estimate* fixed,
              v1::Estimate* per_sample) {
  const std::string points = PointsNote(phase, devices);
  if (phase.points.size() < 2) {
    const std::string note =
        phase.points.empty() ? "not measured" : points + "; measure another batch size to split it";
    *fixed = MakeEstimate({}, false, note);
    *per_sample = MakeEstimate({}, false, note);
    return;
  }
  if (phase.points.size() == 2) {
    // Exact line through two measured points; the error follows from theirs.
    const auto a = phase.points.begin(), b = std::next(a);
    const double span = b->first - a->first;
    const auto half = [](const Interval& i) { return i.has_bounds() ? (i.high - i.low) / 2 : 0; };
    const double ha = half(a->second), hb = half(b->second);
    const double slope = (b->second.value - a->second.value) / span;
    const double slope_error = std::hypot(ha, hb) / span;
    const double intercept = a->second.value - slope * a->first;
    const double intercept_error = std::hypot(ha * b->first, hb * a->first) / span;
    const bool known = a->second.has_bounds() && b->second.has_bounds();
    *per_sample = MakeEstimate({slope, slope - slope_error, slope + slope_error},
                               known && slope > 0 && slope_error < slope / 2, points);
    *fixed = MakeEstimate({intercept, intercept - intercept_error, intercept + intercept_error},
                          known && intercept > 0 && intercept_error < intercept / 2,
                          points + "; two batches, no degree of freedom left");
    return;
  }
  *fixed = MakeEstimate(phase.line.intercept, phase.line.intercept_identified,
                        phase.line.note.empty() ? points : points + "; " + phase.line.note);
  *per_sample = MakeEstimate(phase.line.slope, phase.line.slope_identified,
                             phase.line.note.empty() ? points : points + "; " + phase.line.note);
}

void AddRow(FrameworkFit* out, const std::string& parameter, const std::string& subject,
            const std::string& precision, int devices, const std::string& unit,
            const v1::Estimate& estimate) {
  out->rows.push_back({parameter, subject, precision, devices, unit, estimate});
}

void DescribeNetwork(const NetworkKey& key, const NetworkFit& network, FrameworkFit* out) {
  v1::ComputeModel* compute = out->model.add_compute();
  compute->set_network(key.first);
  compute->set_precision(key.second);
  AddPhase(network.forward, network.base_devices, compute->mutable_forward_fixed_seconds(),
           compute->mutable_forward_seconds_per_sample());
  AddPhase(network.backward, network.base_devices, compute->mutable_backward_fixed_seconds(),
           compute->mutable_backward_seconds_per_sample());
  const Interval* update = Nearest(network.update_seconds, network.base_devices);
  *compute->mutable_update_seconds() =
      MakeEstimate(update != nullptr ? *update : Interval{}, update != nullptr && update->known(),
                   absl::StrCat("all tensors, on ", network.base_devices, " device(s)"));
  if (network.base_devices != 1) {
    *compute->mutable_contention_ratio() =
        MakeEstimate({}, false, "no measurement on one device: add devices: 1");
  } else if (network.contention.empty()) {
    *compute->mutable_contention_ratio() =
        MakeEstimate({}, false, "no measurement on several devices");
  } else {
    std::vector<Interval> ratios;
    for (const auto& entry : network.contention) ratios.push_back(entry.second);
    *compute->mutable_contention_ratio() = MakeEstimate(
        Pooled(ratios), true,
        network.thread_note.empty() ? "forward + backward on several devices over on one"
                                    : network.thread_note);
  }
  const int base = network.base_devices;
  const std::pair<const char*, const PhaseOfBatch*> phases[] = {
      {"forward_seconds", &network.forward}, {"backward_seconds", &network.backward}};
  for (const auto& phase : phases) {
    for (const auto& point : phase.second->points) {
      AddRow(out, phase.first, absl::StrCat(key.first, " batch ", point.first), key.second, base,
             "s", MakeEstimate(point.second, true, "as measured"));
    }
  }
  AddRow(out, "forward_fixed_seconds", key.first, key.second, base, "s",
         compute->forward_fixed_seconds());
  AddRow(out, "forward_seconds_per_sample", key.first, key.second, base, "s",
         compute->forward_seconds_per_sample());
  AddRow(out, "backward_fixed_seconds", key.first, key.second, base, "s",
         compute->backward_fixed_seconds());
  AddRow(out, "backward_seconds_per_sample", key.first, key.second, base, "s",
         compute->backward_seconds_per_sample());
  AddRow(out, "update_seconds", key.first, key.second, base, "s", compute->update_seconds());
  AddRow(out, "contention_ratio", key.first, key.second, 0, "1", compute->contention_ratio());
}

void DescribeLine(const LineKey& key, const LineFit& line, FrameworkFit* out) {
  const double steps = MessageSteps(key.first, key.second);
  const double volume = MessageVolume(key.first, key.second, /*servers=*/key.second);
  std::string note = line.note;
  if (key.first == "all_reduce") {
    absl::StrAppend(&note, note.empty() ? "" : "; ", "counted as a ring");
  }
  v1::CollectiveModel* collective = out->model.add_collectives();
  collective->set_algorithm(key.first);
  collective->set_devices(key.second);
  *collective->mutable_alpha_seconds() =
      MakeEstimate(Scaled(line.intercept, 1 / steps), line.intercept_identified, note);
  *collective->mutable_beta_seconds_per_byte() =
      MakeEstimate(Scaled(line.slope, 1 / volume), line.slope_identified, note);
  AddRow(out, "alpha_seconds", key.first, "", key.second, "s", collective->alpha_seconds());
  AddRow(out, "beta_seconds_per_byte", key.first, "", key.second, "s/B",
         collective->beta_seconds_per_byte());
}

void DescribeInputs(const Fit& fit, FrameworkFit* out) {
  std::map<std::string, std::pair<std::vector<Interval>, std::vector<Interval>>> inputs;
  for (const auto& input : fit.read_per_sample) {
    for (const auto& at : input.second) inputs[input.first].first.push_back(at.second);
  }
  for (const auto& input : fit.copy_per_sample) {
    for (const auto& at : input.second) inputs[input.first].second.push_back(at.second);
  }
  for (const auto& input : inputs) {
    v1::InputModel* model = out->model.add_inputs();
    model->set_input(input.first);
    const Interval read = Pooled(input.second.first);
    const Interval copy = Pooled(input.second.second);
    const bool synthetic = input.first.rfind("synthetic", 0) == 0;
    *model->mutable_io_seconds_per_sample() =
        MakeEstimate(read, !synthetic && read.value > 0,
                     synthetic ? "synthetic tensors: nothing is read or decoded"
                               : "busy time of the decoding threads");
    *model->mutable_copy_seconds_per_sample() =
        MakeEstimate(copy, copy.value > 0, copy.value > 0 ? "" : "no copy was timed");
    AddRow(out, "io_seconds_per_sample", input.first, "", 0, "s", model->io_seconds_per_sample());
    AddRow(out, "copy_seconds_per_sample", input.first, "", 0, "s",
           model->copy_seconds_per_sample());
  }
}

// Predicts `trial`, on several devices, from trials of other networks and from its own on one
// device.
double HeldOutSeconds(const std::vector<const MergedTrial*>& trials, const MergedTrial& trial) {
  std::vector<const MergedTrial*> others;
  bool other_networks = false, own_baseline = false;
  for (const MergedTrial* other : trials) {
    const bool same = other->trial.network().name() == trial.trial.network().name();
    if (same && other->devices > 1) continue;
    other_networks |= !same && other->devices == trial.devices;
    own_baseline |= same && other->trial.precision() == trial.trial.precision();
    others.push_back(other);
  }
  if (!other_networks || !own_baseline) return kUnknown;
  absl::StatusOr<double> predicted = ModelledSeconds(FitAll(others, /*resamples=*/0), trial.trial);
  return predicted.ok() ? *predicted : kUnknown;
}

}  // namespace

FitResult FitFrameworks(const MergedRuns& runs) {
  FitResult result;
  result.trials.resize(runs.trials.size());
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<size_t>> frameworks;
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    const MergedTrial& trial = runs.trials[i];
    if (!trial.ok || !trial.iteration_seconds.known()) {
      result.trials[i].note = trial.ok ? trial.cause : "not measured";
      continue;
    }
    frameworks[std::make_tuple(trial.trial.policy().name(), EngineName(trial.trial.engine()),
                               trial.machine)]
        .push_back(i);
    absl::StatusOr<double> replayed = ReplayIterationSeconds(trial.repeats[0]);
    if (replayed.ok()) {
      result.trials[i].replayed_iteration_seconds = *replayed;
    } else {
      result.trials[i].note = absl::StrCat("replay: ", replayed.status().message());
    }
  }
  for (const auto& framework : frameworks) {
    std::vector<const MergedTrial*> trials;
    for (size_t i : framework.second) trials.push_back(&runs.trials[i]);
    const Fit fit = FitAll(trials, LineFitOptions().resamples);

    FrameworkFit out;
    out.model.set_policy(std::get<0>(framework.first));
    out.model.set_engine(std::get<1>(framework.first));
    out.model.set_cluster(std::get<2>(framework.first));
    for (const auto& network : fit.networks) DescribeNetwork(network.first, network.second, &out);
    for (const auto& line : fit.lines) DescribeLine(line.first, line.second, &out);
    DescribeInputs(fit, &out);
    for (const auto& at : fit.start_overhead) {
      AddRow(
          &out, "start_overhead_seconds", "operation", "", at.first, "s",
          MakeEstimate(at.second, at.second.known(),
                       "mean wait of a ready operation on the compute stream; range over trials"));
    }

    std::set<std::string> run_ids;
    std::vector<double> errors, signed_errors, noise, held_out_errors;
    for (size_t i : framework.second) {
      const MergedTrial& trial = runs.trials[i];
      for (const MergedRepeat& repeat : trial.repeats) run_ids.insert(repeat.run_id);
      if (trial.iteration_seconds.has_bounds()) {
        noise.push_back(trial.iteration_seconds.relative_half_width());
      }
      if (trial.devices > 1) {
        const double held_out = HeldOutSeconds(trials, trial);
        result.trials[i].held_out_iteration_seconds = held_out;
        if (std::isfinite(held_out)) {
          held_out_errors.push_back(std::abs(held_out / trial.iteration_seconds.value - 1));
        }
      }
      absl::StatusOr<double> modelled = ModelledSeconds(fit, trial.trial);
      if (!modelled.ok()) {
        absl::StrAppend(&result.trials[i].note, result.trials[i].note.empty() ? "" : "; ",
                        "model: ", modelled.status().message());
        continue;
      }
      result.trials[i].modelled_iteration_seconds = *modelled;
      const double error = *modelled / trial.iteration_seconds.value - 1;
      signed_errors.push_back(error);
      errors.push_back(std::abs(error));
    }
    v1::FitQuality* quality = out.model.mutable_quality();
    quality->set_configurations(errors.size());
    if (!errors.empty()) {
      quality->set_median_absolute_error(Median(errors));
      quality->set_max_absolute_error(*std::max_element(errors.begin(), errors.end()));
      quality->set_bias(Mean(signed_errors));
    }
    out.held_out_median_error = Median(held_out_errors);
    out.held_out_predictions = held_out_errors.size();
    if (!noise.empty()) quality->set_noise(Median(noise));
    for (const std::string& id : run_ids) out.model.add_run_ids(id);
    result.frameworks.push_back(std::move(out));
  }
  return result;
}

}  // namespace paceline
