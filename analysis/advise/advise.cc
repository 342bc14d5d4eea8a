#include "analysis/advise/advise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/predict/cost_model.h"
#include "analysis/report/words.h"
#include "google/protobuf/util/message_differencer.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/stats/stats.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

using google::protobuf::util::MessageDifferencer;

// Predicted differences are off by about this share of themselves, beyond the costs' uncertainty.
constexpr double kDifferenceError = 0.3;

struct Candidate {
  v1::FrameworkPolicy change;
  std::string name;
};

// One list per knob that the framework really has.
std::vector<std::vector<Candidate>> Knobs(const v1::Trial& trial) {
  const v1::FrameworkPolicy& policy = trial.policy();
  const v1::Grouping& grouping = policy.communication().grouping();
  const int devices = Devices(trial);
  std::vector<std::vector<Candidate>> knobs;
  std::vector<Candidate> groups, servers, prefetch, copies;
  const auto add_group = [&](const std::string& name) -> v1::Grouping* {
    groups.push_back({{}, name});
    return groups.back().change.mutable_communication()->mutable_grouping();
  };
  const bool generic = policy.framework() == "paceline" || policy.framework() == "reference" ||
                       absl::StrContains(policy.name(), "wfbp") || policy.name() == "bsp";
  if (devices > 1) {
    if (grouping.has_by_bytes() ||
        (generic && policy.communication().overlaps_backward() &&
         policy.communication().method() == v1::CommunicationPolicy::METHOD_ALL_REDUCE)) {
      for (int64_t kib : {256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}) {
        add_group(absl::StrCat("bucket", kib, "kib"))->mutable_by_bytes()->set_bytes(kib * 1024);
        groups.back()
            .change.mutable_communication()
            ->mutable_grouping()
            ->mutable_by_bytes()
            ->set_first_bytes(std::min<int64_t>(kib * 1024, 1 << 20));
      }
    }
    if (generic && policy.communication().overlaps_backward()) {
      for (int microseconds : {100, 300, 1000, 3000}) {
        add_group(absl::StrCat("merged", microseconds, "us"))
            ->mutable_merged_gradient()
            ->set_alpha_seconds(microseconds * 1e-6);
      }
    }
    if (grouping.has_caffe_mpi_buckets()) {
      for (int buckets : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
        add_group(absl::StrCat("buckets", buckets))
            ->mutable_caffe_mpi_buckets()
            ->set_reduce_buckets(buckets);
      }
    }
    if (grouping.has_pack_small()) {
      for (int64_t kib : {4, 16, 64, 256, 1024, 4096, 16384}) {
        add_group(absl::StrCat("pack", kib, "kib"))
            ->mutable_pack_small()
            ->set_threshold_bytes(kib * 1024);
      }
    }
    if (grouping.has_repack()) {
      for (int parts : {1, 2, 4, 8, 16, 32}) {
        add_group(absl::StrCat("repack", parts))->mutable_repack()->set_parts(parts);
      }
    }
    if (policy.communication().method() == v1::CommunicationPolicy::METHOD_PARAMETER_SERVER) {
      for (int count = 1; count <= devices; count *= 2) {
        Candidate candidate{{}, absl::StrCat("servers", count)};
        candidate.change.mutable_communication()->mutable_server()->set_servers(count);
        servers.push_back(candidate);
        if (policy.framework() != "mxnet") continue;
        for (int64_t elements : {100000, 10000000}) {
          Candidate split = candidate;
          split.name = absl::StrCat(candidate.name, "_split", elements);
          split.change.mutable_communication()->mutable_server()->set_split_at_elements(elements);
          servers.push_back(split);
        }
      }
    }
  }
  for (int batches : {1, 2, 4}) {
    if (policy.input().prefetch_batches() >= batches) continue;
    prefetch.push_back({{}, absl::StrCat("prefetch", batches)});
    prefetch.back().change.mutable_input()->set_prefetch_batches(batches);
  }
  // Pinned memory and non-blocking copies are the user's choice there.
  if (!policy.input().copy_overlaps_compute() &&
      (generic || policy.framework() == "pytorch" || policy.framework() == "horovod")) {
    copies.push_back({{}, "copyoverlap"});
    copies.back().change.mutable_input()->set_copy_overlaps_compute(true);
  }
  for (auto* knob : {&groups, &servers, &prefetch, &copies}) {
    if (!knob->empty()) knobs.push_back(std::move(*knob));
  }
  return knobs;
}

std::string Percent(double share) { return absl::StrFormat("%+.1f %%", 100 * share); }

}  // namespace

absl::StatusOr<std::vector<Advice>> Advise(const MergedRuns& runs, const AdviseOptions& options) {
  // The largest number of devices of each network, policy, batch.
  std::map<std::string, const MergedTrial*> chosen;
  std::vector<std::string> policies, networks;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok || trial.repeats.empty() || !(trial.iteration_seconds.value > 0)) continue;
    if (trial.trial.engine() != v1::ENGINE_NATIVE &&
        trial.trial.engine() != v1::ENGINE_UNSPECIFIED) {
      continue;
    }
    policies.push_back(trial.trial.policy().name());
    networks.push_back(trial.trial.network().name());
    if (!options.network.empty() && networks.back() != options.network) continue;
    if (!options.policy.empty() && policies.back() != options.policy) continue;
    if (options.devices > 0 && trial.devices != options.devices) continue;
    const MergedTrial*& slot =
        chosen[absl::StrCat(networks.back(), "|", policies.back(), "|",
                            trial.trial.batch_per_device(), "|", trial.trial.precision())];
    if (slot == nullptr || trial.devices > slot->devices) slot = &trial;
  }
  if (chosen.empty()) {
    return absl::NotFoundError(
        absl::StrCat("the runs hold no measured trial that fits",
                     options.network.empty() ? "" : DidYouMean(options.network, networks),
                     options.policy.empty() ? "" : DidYouMean(options.policy, policies)));
  }
  std::map<std::string, CostModel> models;
  std::vector<Advice> all;
  for (const auto& entry : chosen) {
    const MergedTrial& trial = *entry.second;
    const std::string& policy = trial.trial.policy().name();
    if (models.count(policy) == 0) {
      absl::StatusOr<CostModel> fitted = CostModel::Fit(runs, policy);
      if (!fitted.ok()) return fitted.status();
      models.emplace(policy, *std::move(fitted));
    }
    const CostModel& model = models.at(policy);
    Advice advice;
    advice.baseline = trial.trial;
    advice.label = TrialLabel(trial);
    advice.noise =
        trial.iteration_seconds.has_bounds() ? trial.iteration_seconds.relative_half_width() : 0.1;
    absl::StatusOr<SimulatedTrial> start =
        model.SimulateTrial(trial.trial, LinkAssumption(), 0, nullptr);
    if (!start.ok()) {
      advice.note = std::string(start.status().message());
      all.push_back(std::move(advice));
      continue;
    }
    double best = start->timeline.period_seconds;
    v1::Trial current = trial.trial;
    std::string name;
    // Knob after knob, each on top of the best of those before it.
    for (const std::vector<Candidate>& knob : Knobs(trial.trial)) {
      const Candidate* winner = nullptr;
      for (const Candidate& candidate : knob) {
        v1::Trial changed = current;
        changed.mutable_policy()->MergeFrom(candidate.change);
        if (!ValidatePolicy(changed.policy()).ok()) continue;
        absl::StatusOr<SimulatedTrial> simulated =
            model.SimulateTrial(changed, LinkAssumption(), 0, nullptr);
        if (!simulated.ok()) continue;
        ++advice.candidates;
        // Less than half a percent is no reason to turn a knob.
        if (simulated->timeline.period_seconds < 0.995 * best) {
          best = simulated->timeline.period_seconds;
          winner = &candidate;
        }
      }
      if (winner == nullptr) continue;
      current.mutable_policy()->MergeFrom(winner->change);
      advice.policy_override.MergeFrom(winner->change);
      absl::StrAppend(&name, name.empty() ? "" : "_", winner->name);
    }
    if (name.empty()) {
      advice.gain = {0, 0, 0};
      advice.note = advice.candidates == 0 ? "the policy has no knob to turn here"
                                           : "no setting is predicted to be faster";
      all.push_back(std::move(advice));
      continue;
    }
    advice.override_name = absl::StrCat("advice_", name);
    absl::StatusOr<std::vector<double>> before =
        model.Periods(trial.trial, LinkAssumption(), nullptr);
    absl::StatusOr<std::vector<double>> after = model.Periods(current, LinkAssumption(), nullptr);
    if (!before.ok()) return before.status();
    if (!after.ok()) return after.status();
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    std::vector<double> gains;
    for (size_t i = 1; i < before->size(); ++i) {
      const double log_ratio = std::log((*before)[i] / (*after)[i]);
      for (int k = 0; k < 10; ++k) {
        const double error = (kDifferenceError * std::abs(log_ratio) + 0.003) * normal(random);
        gains.push_back(std::expm1(log_ratio + error));
      }
    }
    advice.gain.value = (*before)[0] / (*after)[0] - 1;
    advice.gain.low = std::min(advice.gain.value, Quantile(gains, 0.05));
    advice.gain.high = std::max(advice.gain.value, Quantile(gains, 0.95));
    advice.worth_it =
        advice.gain.low > 0 && advice.gain.value > std::max(kPracticalDifference, advice.noise);
    if (!advice.worth_it) {
      advice.note = "the gain is below noise: not advised; measure with repeats to know more";
    }
    all.push_back(std::move(advice));
  }
  return all;
}

v1::BenchmarkPlan AdvicePlan(const std::vector<Advice>& advice) {
  v1::BenchmarkPlan plan;
  plan.set_name("advice");
  std::string description = "Advised settings beside their baselines. Promised:\n";
  std::set<std::string> networks, policies;
  for (const Advice& one : advice) {
    if (!one.worth_it) continue;
    const v1::Trial& trial = one.baseline;
    // A policy that was itself overridden, or is not built in, travels inline.
    v1::FrameworkPolicy policy = trial.policy();
    absl::StatusOr<v1::FrameworkPolicy> known = LoadPolicy(policy.name());
    if (!known.ok() || !MessageDifferencer::Equals(*known, policy)) {
      std::string name = policy.name();
      std::replace(name.begin(), name.end(), '/', '_');
      if (known.ok()) name += "_measured";
      policy.set_name(name);
      if (policies.insert(name).second) *plan.add_policies() = policy;
    }
    const std::string& network = trial.network().name();
    absl::StatusOr<v1::Network> known_network = LoadNetwork(network);
    if (!known_network.ok() && networks.insert(network).second) {
      *plan.add_networks() = trial.network();
    }
    v1::Sweep sweep;
    sweep.add_networks(network);
    sweep.add_policies(policy.name());
    sweep.add_devices(Devices(trial));
    if (!trial.cluster().free_placement()) {
      sweep.set_devices_per_host(trial.cluster().devices_per_host());
    }
    sweep.add_batch_per_device(trial.batch_per_device());
    sweep.add_precisions(trial.precision());
    *sweep.add_inputs() = trial.input();
    *plan.add_sweeps() = sweep;
    *sweep.mutable_policy_override() = one.policy_override;
    sweep.set_override_name(one.override_name);
    *plan.add_sweeps() = sweep;
    absl::StrAppendFormat(&description,
                          "promise network=%s policy=%s override=%s devices=%d batch=%d "
                          "gain=%.4f low=%.4f high=%.4f\n",
                          network, policy.name(), one.override_name, Devices(trial),
                          trial.batch_per_device(), one.gain.value, one.gain.low, one.gain.high);
  }
  plan.set_description(description);
  plan.mutable_measurement()->set_repeats(3);
  return plan;
}

absl::StatusOr<std::vector<Delivered>> CheckAdvice(const MergedRuns& runs) {
  std::vector<Delivered> all;
  for (const RunInfo& run : runs.runs) {
    for (const absl::string_view line : absl::StrSplit(run.plan.description(), '\n')) {
      if (!absl::StartsWith(line, "promise ")) continue;
      std::map<std::string, std::string> fields;
      for (const absl::string_view word : absl::StrSplit(line, ' ')) {
        const std::pair<std::string, std::string> field =
            absl::StrSplit(word, absl::MaxSplits('=', 1));
        fields[field.first] = field.second;
      }
      Delivered delivered;
      int devices = 0, batch = 0;
      if (!absl::SimpleAtoi(fields["devices"], &devices) ||
          !absl::SimpleAtoi(fields["batch"], &batch) ||
          !absl::SimpleAtod(fields["gain"], &delivered.promised.value) ||
          !absl::SimpleAtod(fields["low"], &delivered.promised.low) ||
          !absl::SimpleAtod(fields["high"], &delivered.promised.high)) {
        return absl::DataLossError(
            absl::StrCat("run ", run.run_id, ": this promise cannot be read: ", line));
      }
      delivered.label = absl::StrCat(fields["network"], ", ", fields["policy"], "/",
                                     fields["override"], ", ", devices, " devices, batch ", batch);
      const MergedTrial* before = nullptr;
      const MergedTrial* after = nullptr;
      for (const MergedTrial& trial : runs.trials) {
        if (!trial.ok || trial.trial.network().name() != fields["network"] ||
            trial.devices != devices || trial.trial.batch_per_device() != batch) {
          continue;
        }
        const std::string& policy = trial.trial.policy().name();
        if (policy == fields["policy"]) before = &trial;
        if (policy == absl::StrCat(fields["policy"], "/", fields["override"])) after = &trial;
      }
      if (before == nullptr || after == nullptr) {
        delivered.verdict = "not measured";
        all.push_back(std::move(delivered));
        continue;
      }
      const Interval ratio = MedianRatioInterval(before->IterationRuns(), after->IterationRuns());
      delivered.delivered = {ratio.value - 1, ratio.low - 1, ratio.high - 1};
      if (!ratio.has_bounds()) {
        delivered.verdict = "too few iterations to tell";
      } else if (delivered.delivered.high < delivered.promised.low) {
        delivered.verdict = ratio.high < 1 ? "BROKEN: slower" : "less than promised";
      } else if (delivered.delivered.low > delivered.promised.high) {
        delivered.verdict = "more than promised";
      } else {
        delivered.verdict = ratio.low > 1 ? "kept" : "not refuted, but within noise";
      }
      all.push_back(std::move(delivered));
    }
  }
  if (all.empty()) {
    return absl::NotFoundError(
        "no run holds a promise: run the plan that 'analysis advise RUN --plan=FILE' writes");
  }
  return all;
}

std::string AdviceText(const std::vector<Advice>& advice) {
  std::string text;
  for (const Advice& one : advice) {
    absl::StrAppend(&text, one.label, "\n");
    if (!one.override_name.empty()) {
      absl::StrAppend(&text, "  ", one.worth_it ? "Advice: " : "Best found: ", one.override_name,
                      ", ", Percent(one.gain.value), " samples/s (90 %: ", Percent(one.gain.low),
                      " to ", Percent(one.gain.high), "), noise of the baseline ",
                      HumanPercent(one.noise), "\n    ", one.policy_override.ShortDebugString(),
                      "\n");
    }
    if (!one.note.empty()) absl::StrAppend(&text, "  No change: ", one.note, "\n");
  }
  return text;
}

std::string DeliveredText(const std::vector<Delivered>& delivered) {
  std::string text = absl::StrFormat("%-28s %-28s %-30s %s\n", "promised (90 %)",
                                     "delivered (95 %)", "verdict", "advice");
  const auto range = [](const Interval& interval) {
    if (!interval.known()) return std::string("-");
    return absl::StrCat(Percent(interval.value), " (", Percent(interval.low), ", ",
                        Percent(interval.high), ")");
  };
  for (const Delivered& one : delivered) {
    absl::StrAppendFormat(&text, "%-28s %-28s %-30s %s\n", range(one.promised),
                          range(one.delivered), one.verdict, one.label);
  }
  return text;
}

}  // namespace paceline
