#include "analysis/merge/merge.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

constexpr double kSecondsPerNs = 1e-9;
// Ranks whose clocks are known no better than this share of an iteration are not ordered.
constexpr double kUsableClockBound = 0.05;

double PhaseNs(const v1::IterationSample& sample, Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return sample.input_ns();
    case Phase::kInputWait:
      return sample.input_wait_ns();
    case Phase::kCopy:
      return sample.copy_ns();
    case Phase::kForward:
      return sample.forward_ns();
    case Phase::kBackward:
      return sample.backward_ns();
    case Phase::kCommunication:
      return sample.communication_ns();
    case Phase::kExposedCommunication:
      return sample.exposed_communication_ns();
    case Phase::kUpdate:
      return sample.update_ns();
  }
  return 0;
}

// Fills the series of one repeat from its ranks.
void AlignRanks(MergedRepeat* repeat) {
  if (repeat->ranks.empty()) return;
  int count = repeat->ranks[0].iterations_size();
  for (const v1::TrialResult& rank : repeat->ranks) {
    repeat->warmup_iterations = std::max(repeat->warmup_iterations, rank.warmup_iterations());
    // A rank may have one sample more, if the stop reached it an iteration later.
    count = std::min(count, rank.iterations_size());
  }
  for (int i = repeat->warmup_iterations; i < count; ++i) {
    double period = 0;
    bool complete = true;
    for (const v1::TrialResult& rank : repeat->ranks) {
      // The last iteration has no next one, so it may lack a period.
      if (rank.iterations(i).duration_ns() <= 0) complete = false;
      period += rank.iterations(i).duration_ns() * kSecondsPerNs / repeat->ranks.size();
    }
    if (!complete) continue;
    repeat->iteration_seconds.push_back(period);
    for (int p = 0; p < kPhaseCount; ++p) {
      double seconds = 0;
      for (const v1::TrialResult& rank : repeat->ranks) {
        seconds += PhaseNs(rank.iterations(i), static_cast<Phase>(p)) * kSecondsPerNs;
      }
      repeat->phase_seconds[p].push_back(seconds / repeat->ranks.size());
    }
  }
}

// "2 x cpu Intel Xeon (4 cores)": same text, comparable numbers.
std::string MachineName(const std::vector<v1::TrialResult>& ranks) {
  std::map<std::string, int> devices;
  for (const v1::TrialResult& rank : ranks) {
    const v1::MachineState& machine = rank.machine();
    const std::string device = machine.device().empty() ? machine.cpu_model() : machine.device();
    ++devices[absl::StrCat(machine.backend(), " ", device, " (", machine.logical_cores(),
                           " cores)")];
  }
  std::vector<std::string> names;
  for (const auto& device : devices) names.push_back(device.first);
  return absl::StrJoin(names, " + ");
}

double MedianComputeSeconds(const v1::TrialResult& rank) {
  std::vector<double> seconds;
  for (int i = rank.warmup_iterations(); i < rank.iterations_size(); ++i) {
    seconds.push_back((rank.iterations(i).forward_ns() + rank.iterations(i).backward_ns()) *
                      kSecondsPerNs);
  }
  return Median(seconds);
}

void AlignClocks(const MergedRepeat& repeat, MergedTrial* merged) {
  if (repeat.ranks.size() < 2) return;
  std::set<std::string> hosts;
  double bound = 0;
  for (const v1::TrialResult& rank : repeat.ranks) {
    hosts.insert(rank.machine().host());
    bound = std::max(bound, rank.clock().bound_seconds());
  }
  // Ranks of one host read one clock. Between hosts the two bounds add up.
  const bool one_host = hosts.size() == 1;
  merged->clock_bound_seconds = one_host ? 0 : 2 * bound;
  const double iteration = Median(repeat.iteration_seconds);
  const bool usable = merged->clock_bound_seconds <= kUsableClockBound * iteration;

  int count = repeat.ranks[0].iterations_size();
  for (const v1::TrialResult& rank : repeat.ranks) count = std::min(count, rank.iterations_size());
  std::vector<std::vector<double>> late(repeat.ranks.size());
  for (int i = repeat.warmup_iterations; i < count; ++i) {
    std::vector<double> begins;
    const int64_t base_ns = repeat.ranks[0].iterations(i).start_ns();
    for (const v1::TrialResult& rank : repeat.ranks) {
      const double offset = one_host ? 0 : rank.clock().offset_seconds();
      // Relative to rank 0 in integers first: nanoseconds since 1970 do not fit a double.
      begins.push_back((rank.iterations(i).start_ns() - base_ns) * kSecondsPerNs - offset);
    }
    const double first = *std::min_element(begins.begin(), begins.end());
    for (size_t r = 0; r < begins.size(); ++r) late[r].push_back(begins[r] - first);
  }
  merged->lateness.clear();
  for (size_t r = 0; r < repeat.ranks.size(); ++r) {
    RankLateness lateness;
    lateness.rank = repeat.ranks[r].rank();
    lateness.host = repeat.ranks[r].machine().host();
    if (usable) lateness.median_seconds = Median(late[r]);
    lateness.compute_seconds = MedianComputeSeconds(repeat.ranks[r]);
    merged->lateness.push_back(lateness);
  }
}

// Statistics of an OK configuration from its repeats.
void Summarize(MergedTrial* merged) {
  Runs iterations;
  for (MergedRepeat& repeat : merged->repeats) {
    AlignRanks(&repeat);
    iterations.push_back(repeat.iteration_seconds);
    merged->measured_iterations += repeat.iteration_seconds.size();
    for (bool outlier : FlagOutliers(repeat.iteration_seconds)) {
      merged->outlier_iterations += outlier;
    }
    for (const v1::TrialResult& rank : repeat.ranks) {
      const double peak = rank.memory().peak_resident_bytes();
      if (peak > 0 && !(peak <= merged->peak_memory_bytes)) merged->peak_memory_bytes = peak;
      merged->other_load = std::max(merged->other_load, rank.machine().other_load());
    }
  }
  merged->samples_per_second = ThroughputInterval(iterations, merged->samples_per_iteration());
  merged->iteration_seconds = MedianInterval(iterations);
  for (int p = 0; p < kPhaseCount; ++p) {
    Runs phase;
    for (const MergedRepeat& repeat : merged->repeats) phase.push_back(repeat.phase_seconds[p]);
    merged->phases[p] = MedianInterval(phase);
  }
  if (merged->repeats.empty() || merged->repeats[0].ranks.empty()) return;
  AlignClocks(merged->repeats[0], merged);
  const v1::TrialResult& rank0 = merged->repeats[0].ranks[0];
  merged->stop_reason = absl::AsciiStrToLower(
      absl::StripPrefix(v1::TrialResult::StopReason_Name(rank0.stop_reason()), "STOP_REASON_"));
  if (rank0.iterations_size() > 0) {
    merged->loss_first = rank0.iterations(0).loss();
    merged->loss_last = rank0.iterations(rank0.iterations_size() - 1).loss();
  }
  if (merged->measured_iterations == 0 && merged->cause.empty()) {
    merged->cause = "no iteration after the warm-up has a period: raise measurement.min_iterations";
  }
}

struct TrialVerdict {
  bool ok = false;
  std::string status;
  std::string cause;
};

// What became of one trial, from the gang's outcome and the ranks' own reports.
TrialVerdict Judge(const v1::Trial& trial, const TrialOutcome& outcome,
                   const std::vector<v1::TrialResult>& ranks) {
  const int devices = Devices(trial);
  if (outcome.status != v1::TRIAL_STATUS_UNSPECIFIED && outcome.status != v1::TRIAL_STATUS_OK) {
    return {false, StatusName(outcome.status), outcome.cause};
  }
  if (outcome.status == v1::TRIAL_STATUS_UNSPECIFIED && outcome.attempt == 0 && ranks.empty()) {
    return {false, "NOT_RUN", "the run ended before this trial; continue it with --resume"};
  }
  for (const v1::TrialResult& rank : ranks) {
    if (rank.status() != v1::TRIAL_STATUS_OK) {
      return {false, StatusName(rank.status()),
              absl::StrCat("rank ", rank.rank(), ": ", rank.cause())};
    }
  }
  if (static_cast<int>(ranks.size()) < devices) {
    return {false, outcome.status == v1::TRIAL_STATUS_OK ? "INTERNAL" : "CANCELLED",
            absl::StrCat("only ", ranks.size(), " of ", devices, " ranks reported")};
  }
  // The report of one rank without a sum (an external framework) says nothing about the others.
  for (const v1::TrialResult& rank : ranks) {
    if (rank.weights_checksum() != ranks[0].weights_checksum() && rank.weights_checksum() != 0 &&
        ranks[0].weights_checksum() != 0) {
      return {false, "REPLICAS_DIVERGED",
              absl::StrCat("weights of rank ", rank.rank(), " differ from those of rank ",
                           ranks[0].rank(), " after the last iteration")};
    }
  }
  return {true, "OK", ""};
}

// Everything of a one-device baseline but the number of devices.
std::string BaselineKey(const MergedTrial& merged) {
  const v1::Trial& trial = merged.trial;
  return absl::StrJoin({trial.network().name(), trial.policy().name(), EngineName(trial.engine()),
                        PrecisionName(trial.precision()), absl::StrCat(trial.batch_per_device()),
                        InputName(trial.input()), merged.machine},
                       "\n");
}

int ComputeThreads(const MergedTrial& merged) {
  if (merged.repeats.empty() || merged.repeats[0].ranks.empty()) return 0;
  return merged.repeats[0].ranks[0].machine().compute_threads();
}

void AddScalingEfficiency(std::vector<MergedTrial>* trials) {
  std::map<std::string, const MergedTrial*> baselines;
  for (const MergedTrial& trial : *trials) {
    if (trial.ok && trial.devices == 1) baselines.emplace(BaselineKey(trial), &trial);
  }
  for (MergedTrial& trial : *trials) {
    if (!trial.ok || !trial.samples_per_second.known()) continue;
    if (trial.devices == 1) {
      trial.scaling_efficiency = {1, 1, 1};
      continue;
    }
    const auto baseline = baselines.find(BaselineKey(trial));
    if (baseline == baselines.end()) {
      trial.scaling_note = "not measured on one device";
      continue;
    }
    const MergedTrial& one = *baseline->second;
    trial.scaling_efficiency =
        SpeedRatioInterval(trial.IterationRuns(), one.samples_per_iteration(), one.IterationRuns(),
                           one.samples_per_iteration());
    if (ComputeThreads(one) != ComputeThreads(trial)) {
      trial.scaling_note =
          absl::StrCat("one device computed with ", ComputeThreads(one), " threads, each of ",
                       trial.devices, " with ", ComputeThreads(trial));
    }
  }
}

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return "input";
    case Phase::kInputWait:
      return "input_wait";
    case Phase::kCopy:
      return "copy";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kCommunication:
      return "communication";
    case Phase::kExposedCommunication:
      return "exposed_communication";
    case Phase::kUpdate:
      return "update";
  }
  return "";
}

Runs MergedTrial::IterationRuns() const {
  Runs runs;
  for (const MergedRepeat& repeat : repeats) runs.push_back(repeat.iteration_seconds);
  return runs;
}

double MergedTrial::samples_per_iteration() const {
  return static_cast<double>(devices) * trial.batch_per_device();
}

std::string EngineName(v1::Engine engine) {
  if (engine == v1::ENGINE_UNSPECIFIED) return "native";
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Engine_Name(engine), "ENGINE_"));
}

std::string PrecisionName(v1::Precision precision) {
  if (precision == v1::PRECISION_UNSPECIFIED) return "fp32";
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Precision_Name(precision), "PRECISION_"));
}

std::string InputName(const v1::InputSource& input) {
  switch (input.source_case()) {
    case v1::InputSource::kImageFolder:
      return absl::StrCat("image_folder:", input.image_folder());
    case v1::InputSource::kLmdb:
      return absl::StrCat("lmdb:", input.lmdb());
    case v1::InputSource::kPhotographs:
      return input.photographs().as_lmdb() ? "photographs_lmdb" : "photographs";
    case v1::InputSource::kSynthetic:
    case v1::InputSource::SOURCE_NOT_SET:
      return "synthetic";
  }
  return "";
}

std::string StatusName(v1::TrialStatus status) {
  return std::string(absl::StripPrefix(v1::TrialStatus_Name(status), "TRIAL_STATUS_"));
}

std::string BackendName(const MergedTrial& trial) {
  if (trial.repeats.empty() || trial.repeats[0].ranks.empty()) return "";
  return trial.repeats[0].ranks[0].machine().backend();
}

int Devices(const v1::Trial& trial) {
  return std::max(1, trial.cluster().hosts()) * std::max(1, trial.cluster().devices_per_host());
}

absl::StatusOr<RunData> LoadRun(const std::string& path) {
  absl::StatusOr<std::unique_ptr<RunStore>> store = RunStore::Open(path, /*read_only=*/true);
  if (!store.ok()) return store.status();
  RunData run;
  run.path = path;
  run.info = (*store)->info();
  absl::StatusOr<std::vector<v1::Trial>> trials = (*store)->Trials();
  if (!trials.ok()) return trials.status();
  run.trials = *std::move(trials);
  absl::StatusOr<std::vector<TrialOutcome>> outcomes = (*store)->Outcomes();
  if (!outcomes.ok()) return outcomes.status();
  run.outcomes = *std::move(outcomes);
  absl::flat_hash_map<std::string, const TrialOutcome*> by_id;
  for (const TrialOutcome& outcome : run.outcomes) by_id[outcome.trial_id] = &outcome;
  for (const v1::Trial& trial : run.trials) {
    const auto outcome = by_id.find(trial.trial_id());
    // The finished attempt, even if a later, broken one left reports.
    const int attempt = outcome != by_id.end() && outcome->second->status == v1::TRIAL_STATUS_OK
                            ? outcome->second->attempt
                            : 0;
    absl::StatusOr<std::vector<v1::TrialResult>> results =
        (*store)->Results(trial.trial_id(), attempt);
    if (!results.ok()) {
      if (results.status().code() == absl::StatusCode::kNotFound) continue;
      return results.status();
    }
    if (!results->empty()) run.results[trial.trial_id()] = *std::move(results);
  }
  return run;
}

namespace {

// Puts the hosts that really trained in place of a placement the plan left open, and returns the
// configuration's id: two devices of one host and one device of each of two hosts are not the same
// configuration, though the plan gave them one id.
std::string ResolvePlacement(const std::vector<v1::TrialResult>& ranks, v1::Trial* trial) {
  std::string id =
      trial->configuration_id().empty() ? trial->trial_id() : trial->configuration_id();
  if (!trial->cluster().free_placement() || ranks.empty()) return id;
  const v1::ClusterShape& placed = ranks[0].trial().cluster();
  if (placed.hosts() <= 1) return id;
  trial->mutable_cluster()->set_hosts(placed.hosts());
  trial->mutable_cluster()->set_devices_per_host(placed.devices_per_host());
  return absl::StrCat(id, "-", placed.hosts(), "hosts");
}

}  // namespace

absl::StatusOr<MergedRuns> MergeRuns(std::vector<RunData> runs) {
  if (runs.empty()) return absl::InvalidArgumentError("no run to merge");
  MergedRuns merged;
  std::set<std::string> seen_runs;
  std::map<std::string, v1::MachineState> machines;
  // One row per configuration, machine and verdict.
  std::map<std::tuple<std::string, std::string, std::string>, MergedTrial> rows;
  for (RunData& run : runs) {
    if (!seen_runs.insert(run.info.run_id).second) {
      merged.notes.push_back(absl::StrCat("Run ", run.info.run_id, " was given more than once (",
                                          run.path, "); it counts once."));
      continue;
    }
    absl::flat_hash_map<std::string, TrialOutcome> outcomes;
    for (const TrialOutcome& outcome : run.outcomes) outcomes[outcome.trial_id] = outcome;
    for (v1::Trial trial : run.trials) {
      const TrialOutcome& outcome = outcomes[trial.trial_id()];
      std::vector<v1::TrialResult>& ranks = run.results[trial.trial_id()];
      std::sort(ranks.begin(), ranks.end(),
                [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
      const std::string configuration = ResolvePlacement(ranks, &trial);
      for (const v1::TrialResult& rank : ranks) {
        machines.emplace(rank.machine().host(), rank.machine());
      }
      const TrialVerdict verdict = Judge(trial, outcome, ranks);
      const std::string machine = MachineName(ranks);
      MergedTrial& row = rows[std::make_tuple(configuration, machine, verdict.status)];
      if (row.trial_ids.empty()) {
        row.trial = trial;
        row.configuration_id = configuration;
        row.machine = machine;
        row.devices = Devices(trial);
        row.ok = verdict.ok;
        row.status = verdict.status;
        row.cause = verdict.cause;
      }
      row.trial_ids.push_back(trial.trial_id());
      row.attempts += std::max(outcome.attempt, ranks.empty() ? 0 : 1);
      if (!verdict.ok) {
        ++row.failed_repeats;
        continue;
      }
      MergedRepeat repeat;
      repeat.run_id = run.info.run_id;
      repeat.trial_id = trial.trial_id();
      repeat.repeat = trial.repeat();
      repeat.attempt = outcome.attempt;
      repeat.ranks = std::move(ranks);
      row.repeats.push_back(std::move(repeat));
    }
    merged.runs.push_back(run.info);
  }
  for (auto& row : rows) merged.trials.push_back(std::move(row.second));
  for (MergedTrial& trial : merged.trials) {
    if (trial.ok) Summarize(&trial);
  }
  for (auto& machine : machines) merged.machines.push_back(std::move(machine.second));
  const auto key = [](const MergedTrial& m) {
    return std::make_tuple(m.trial.network().name(), static_cast<int>(m.trial.precision()),
                           m.trial.batch_per_device(), InputName(m.trial.input()),
                           static_cast<int>(m.trial.engine()), m.devices, m.trial.policy().name(),
                           !m.ok, m.machine, m.status);
  };
  std::stable_sort(merged.trials.begin(), merged.trials.end(),
                   [&](const MergedTrial& a, const MergedTrial& b) { return key(a) < key(b); });
  AddScalingEfficiency(&merged.trials);
  return merged;
}

absl::StatusOr<MergedRuns> LoadAndMerge(const std::vector<std::string>& paths) {
  std::vector<RunData> runs;
  for (const std::string& path : paths) {
    absl::StatusOr<RunData> run = LoadRun(path);
    if (!run.ok()) return run.status();
    runs.push_back(*std::move(run));
  }
  return MergeRuns(std::move(runs));
}

}  // namespace paceline
