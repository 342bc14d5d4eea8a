#include "analysis/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/explain/parts.h"
#include "analysis/fit/fit.h"
#include "analysis/report/words.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

enum CauseIndex {
  kCompute,
  kLatency,
  kBandwidth,
  kPacking,
  kStragglers,
  kInput,
  kCopies,
  kUpdate,
  kOverhead,
  kCauseCount
};
constexpr const char* kCauseNames[kCauseCount] = {"compute",
                                                  "communication, latency",
                                                  "communication, bandwidth",
                                                  "packing",
                                                  "stragglers",
                                                  "input",
                                                  "copies",
                                                  "update",
                                                  "overhead"};
// Those that exposed communication is divided into.
constexpr int kExposed[] = {kStragglers, kLatency, kBandwidth, kPacking};

bool IsMessage(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduceToOwner ||
         kind == OperationKind::kBroadcast || kind == OperationKind::kPush ||
         kind == OperationKind::kPull;
}

// Simulates the trial without some causes.
class WhatIf {
 public:
  static absl::StatusOr<WhatIf> Create(const MergedTrial& trial, const CostModel& model) {
    WhatIf what_if;
    absl::StatusOr<IterationSchedule> schedule = CompileTrial(trial.trial);
    if (!schedule.ok()) return schedule.status();
    what_if.schedule_ = *std::move(schedule);
    for (const v1::TrialResult& rank : trial.repeats[0].ranks) {
      absl::StatusOr<std::vector<double>> seconds =
          MeasuredOperationSeconds(what_if.schedule_, rank);
      if (!seconds.ok()) return seconds.status();
      what_if.ranks_.push_back(*std::move(seconds));
    }
    if (what_if.ranks_.empty()) return absl::FailedPreconditionError("no rank reported");
    const std::vector<Operation>& operations = what_if.schedule_.operations;
    for (size_t i = 0; i < operations.size(); ++i) {
      double least = what_if.ranks_[0][i];
      for (const auto& rank : what_if.ranks_) least = std::min(least, rank[i]);
      what_if.least_.push_back(least);
      double share = 0;
      if (IsMessage(operations[i].kind)) {
        std::string why;
        share = model.LatencyShare(operations[i], trial.devices, &why);
        if (!std::isfinite(share)) {
          what_if.why_ = why;
          share = 0;
        }
      }
      what_if.latency_share_.push_back(share);
    }
    return what_if;
  }

  // Mean period over the ranks. Negative if it cannot be simulated.
  double Period(const std::set<int>& without) const {
    double sum = 0;
    for (const std::vector<double>& rank : ranks_) {
      std::vector<double> seconds = rank;
      for (size_t i = 0; i < seconds.size(); ++i) {
        const OperationKind kind = schedule_.operations[i].kind;
        int cause = kBandwidth;
        if (kind == OperationKind::kForward || kind == OperationKind::kBackward) cause = kCompute;
        if (kind == OperationKind::kRead) cause = kInput;
        if (kind == OperationKind::kCopyInput) cause = kCopies;
        if (kind == OperationKind::kUpdate) cause = kUpdate;
        if (kind == OperationKind::kPack || kind == OperationKind::kUnpack) cause = kPacking;
        if (!IsMessage(kind)) {
          if (without.count(cause) > 0) seconds[i] = 0;
          continue;
        }
        // A message: its own latency and bytes, and the wait for later ranks.
        const double own = least_[i];
        double left = without.count(kStragglers) > 0 ? 0 : seconds[i] - own;
        if (without.count(kLatency) == 0) left += own * latency_share_[i];
        if (without.count(kBandwidth) == 0) left += own * (1 - latency_share_[i]);
        seconds[i] = std::max(0.0, left);
      }
      absl::StatusOr<Timeline> timeline = Simulate(schedule_, seconds);
      if (!timeline.ok()) return -1;
      sum += timeline->period_seconds;
    }
    return sum / ranks_.size();
  }

  const std::string& why() const { return why_; }

 private:
  IterationSchedule schedule_;
  std::vector<std::vector<double>> ranks_;
  std::vector<double> least_;
  std::vector<double> latency_share_;
  std::string why_;  // Latency and bandwidth cannot be told apart.
};

std::string PairKey(const MergedTrial& trial) {
  return absl::StrCat(trial.trial.network().name(), "|", PrecisionName(trial.trial.precision()),
                      "|", trial.trial.batch_per_device(), "|", InputName(trial.trial.input()), "|",
                      trial.devices, "|", trial.trial.cluster().hosts(), "|", trial.machine);
}

std::string Signed(double seconds) {
  return absl::StrCat(seconds < 0 ? "-" : "+", HumanSeconds(std::abs(seconds)));
}

}  // namespace

absl::StatusOr<Explanation> Explain(const MergedTrial& trial, const CostModel& model) {
  const IterationParts parts = MeasuredParts(trial);
  if (!parts.known()) return absl::FailedPreconditionError("not measured");
  Explanation explanation;
  explanation.label = TrialLabel(trial);
  explanation.policy = trial.trial.policy().name();
  explanation.iteration_seconds = parts.iteration_seconds;
  for (const char* name : kCauseNames) explanation.causes.push_back({name, 0, kUnknown});
  const auto cause = [&](int index) -> Cause& { return explanation.causes[index]; };
  cause(kCompute).seconds = parts.forward_seconds + parts.backward_seconds;
  cause(kInput).seconds = parts.input_wait_seconds;
  cause(kCopies).seconds = parts.copy_seconds;
  cause(kUpdate).seconds = parts.update_seconds;
  cause(kOverhead).seconds = parts.other_seconds;
  cause(kOverhead).limit_seconds = parts.iteration_seconds - std::max(0.0, parts.other_seconds);
  const double exposed = parts.exposed_communication_seconds;

  absl::StatusOr<WhatIf> what_if = WhatIf::Create(trial, model);
  if (!what_if.ok()) {
    cause(kBandwidth).seconds = exposed;
    explanation.notes.push_back(
        absl::StrCat("Communication is not divided, no limits: ", what_if.status().message()));
    return explanation;
  }
  explanation.splits_communication = what_if->why().empty();
  if (exposed > 0 && !what_if->why().empty()) {
    explanation.notes.push_back(
        absl::StrCat("latency and bandwidth cannot be told apart: ", what_if->why()));
  }
  const double full = what_if->Period({});
  double shares[kCauseCount] = {};
  double total = 0;
  for (const bool backwards : {false, true}) {
    std::vector<int> order(std::begin(kExposed), std::end(kExposed));
    if (backwards) std::reverse(order.begin(), order.end());
    std::set<int> without;
    double before = full;
    for (int index : order) {
      without.insert(index);
      const double after = what_if->Period(without);
      shares[index] += (before - after) / 2;
      total += (before - after) / 2;
      before = after;
    }
  }
  if (total > 1e-3 * exposed && full > 0) {
    for (int index : kExposed) cause(index).seconds = shares[index] * exposed / total;
  } else {
    cause(kBandwidth).seconds = exposed;
    if (exposed > 0.01 * parts.iteration_seconds) {
      explanation.notes.push_back(
          "the simulated schedule hides all communication; what was "
          "exposed is booked as bandwidth");
    }
  }
  for (int index = 0; index < kOverhead; ++index) {
    const double period = what_if->Period({index});
    if (full > 0 && period >= 0) {
      cause(index).limit_seconds = parts.iteration_seconds * std::min(1.0, period / full);
    }
  }
  return explanation;
}

std::vector<Cause> ExplainGap(const Explanation& a, const Explanation& b) {
  std::vector<Cause> gap;
  for (size_t i = 0; i < a.causes.size(); ++i) {
    gap.push_back({a.causes[i].name, b.causes[i].seconds - a.causes[i].seconds, kUnknown});
  }
  if (!a.splits_communication || !b.splits_communication) {
    gap[kBandwidth].name = "communication";
    gap[kBandwidth].seconds += gap[kLatency].seconds;
    gap.erase(gap.begin() + kLatency);
  }
  return gap;
}

absl::StatusOr<std::string> ExplainText(const MergedRuns& runs, const ExplainOptions& options) {
  if (options.policy_a.empty() != options.policy_b.empty()) {
    return absl::InvalidArgumentError("name both policies (--a and --b) or none");
  }
  std::map<std::string, CostModel> models;
  std::map<std::string, std::map<std::string, Explanation>> pairs;  // By configuration, policy.
  std::set<std::string> policies, networks;
  std::string text;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok) continue;
    const std::string& policy = trial.trial.policy().name();
    policies.insert(policy);
    networks.insert(trial.trial.network().name());
    if (!options.network.empty() && trial.trial.network().name() != options.network) continue;
    if (!options.policy_a.empty() && policy != options.policy_a && policy != options.policy_b) {
      continue;
    }
    if (models.count(policy) == 0) {
      absl::StatusOr<CostModel> model = CostModel::Fit(runs, policy);
      if (!model.ok()) return model.status();
      models.emplace(policy, *std::move(model));
    }
    absl::StatusOr<Explanation> explanation = Explain(trial, models.at(policy));
    if (!explanation.ok()) continue;
    absl::StrAppend(&text, explanation->label, ": ", HumanSeconds(explanation->iteration_seconds),
                    " an iteration\n");
    for (const Cause& cause : explanation->causes) {
      std::string name = cause.name;
      if (!explanation->splits_communication) {
        if (name == kCauseNames[kLatency]) continue;
        if (name == kCauseNames[kBandwidth]) name = "communication";
      }
      if (std::abs(cause.seconds) < 5e-4 * explanation->iteration_seconds) continue;
      absl::StrAppendFormat(
          &text, "  %-26s %10s %6.1f %%   %s\n", name,
          cause.seconds < 0 ? Signed(cause.seconds) : HumanSeconds(cause.seconds),
          100 * cause.seconds / explanation->iteration_seconds,
          std::isfinite(cause.limit_seconds)
              ? absl::StrFormat("without it %s, %.2f x as fast", HumanSeconds(cause.limit_seconds),
                                explanation->iteration_seconds / cause.limit_seconds)
              : "");
    }
    for (const std::string& note : explanation->notes) absl::StrAppend(&text, "  (", note, ")\n");
    pairs[PairKey(trial)].emplace(policy, *std::move(explanation));
  }
  const std::vector<std::string> known_policies(policies.begin(), policies.end());
  const std::vector<std::string> known_networks(networks.begin(), networks.end());
  for (const std::string& policy : {options.policy_a, options.policy_b}) {
    if (!policy.empty() && policies.count(policy) == 0) {
      return absl::NotFoundError(absl::StrCat("the runs hold no measured policy '", policy, "'",
                                              DidYouMean(policy, known_policies)));
    }
  }
  if (text.empty()) {
    return absl::NotFoundError(
        absl::StrCat("the runs hold no measured trial",
                     options.network.empty() ? "" : absl::StrCat(" of '", options.network, "'"),
                     DidYouMean(options.network, known_networks)));
  }
  if (options.policy_a.empty()) return text;
  int gaps = 0;
  for (const auto& pair : pairs) {
    const auto a = pair.second.find(options.policy_a), b = pair.second.find(options.policy_b);
    if (a == pair.second.end() || b == pair.second.end() || a == b) continue;
    ++gaps;
    const double difference = b->second.iteration_seconds - a->second.iteration_seconds;
    absl::StrAppend(&text, "\nFrom ", a->second.label, " to ", options.policy_b, ": ",
                    HumanSeconds(a->second.iteration_seconds), " -> ",
                    HumanSeconds(b->second.iteration_seconds), " (", Signed(difference), ")\n");
    for (const Cause& cause : ExplainGap(a->second, b->second)) {
      if (std::abs(cause.seconds) < 5e-4 * a->second.iteration_seconds) continue;
      absl::StrAppendFormat(&text, "  %-26s %10s\n", cause.name, Signed(cause.seconds));
    }
  }
  if (gaps == 0) {
    absl::StrAppend(&text, "\nNo configuration was measured with both policies.\n");
  }
  return text;
}

}  // namespace paceline
