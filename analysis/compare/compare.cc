#include "analysis/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/report/words.h"
#include "google/protobuf/util/message_differencer.h"
#include "models/stats/stats.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

using google::protobuf::util::MessageDifferencer;

// Two runs of one program on one machine differ by about this much at least, relative.
constexpr double kLeastRunToRunDeviation = 0.01;

// What must be equal for two measurements to answer the same question.
std::string ConfigurationKey(const MergedTrial& merged, bool with_policy) {
  const v1::Trial& trial = merged.trial;
  return absl::StrJoin({trial.network().name(), with_policy ? trial.policy().name() : "",
                        EngineName(trial.engine()), PrecisionName(trial.precision()),
                        absl::StrCat(trial.batch_per_device()), InputName(trial.input()),
                        absl::StrCat(merged.devices), absl::StrCat(trial.cluster().hosts())},
                       "\n");
}

// The row to compare where several kinds of machine measured one configuration: OK ones first.
using Rows = std::map<std::string, std::vector<const MergedTrial*>>;

absl::StatusOr<Rows> RowsOf(const MergedRuns& runs, const std::string& policy, const char* side) {
  Rows rows;
  std::vector<std::string> policies;
  for (const MergedTrial& trial : runs.trials) {
    policies.push_back(trial.trial.policy().name());
    if (!policy.empty() && trial.trial.policy().name() != policy) continue;
    if (trial.status == "NOT_RUN" || trial.status == "CANCELLED") continue;
    rows[ConfigurationKey(trial, policy.empty())].push_back(&trial);
  }
  if (rows.empty() && !policy.empty()) {
    return absl::NotFoundError(
        absl::StrCat(side, " holds no policy '", policy, "'", DidYouMean(policy, policies)));
  }
  for (auto& row : rows) {
    std::stable_sort(row.second.begin(), row.second.end(),
                     [](const MergedTrial* x, const MergedTrial* y) { return x->ok > y->ok; });
  }
  return rows;
}

// One name must mean one network.
absl::Status CheckNetworks(const MergedRuns& a, const MergedRuns& b) {
  std::map<std::string, const v1::Network*> networks;
  for (const MergedRuns* runs : {&a, &b}) {
    for (const MergedTrial& trial : runs->trials) {
      const v1::Network& network = trial.trial.network();
      const auto inserted = networks.emplace(network.name(), &network);
      if (inserted.second || MessageDifferencer::Equals(*inserted.first->second, network)) continue;
      MessageDifferencer differencer;
      std::string difference;
      differencer.ReportDifferencesToString(&difference);
      differencer.Compare(*inserted.first->second, network);
      return absl::InvalidArgumentError(
          absl::StrCat("network '", network.name(),
                       "' is not the same in all runs, so its times cannot be "
                       "compared; give one of them another name. First difference: ",
                       difference.substr(0, difference.find('\n'))));
    }
  }
  return absl::OkStatus();
}

std::string Signed(double seconds) {
  return absl::StrCat(seconds < 0 ? "-" : "+", HumanSeconds(std::abs(seconds)));
}

}  // namespace

const char* ChangeName(Change change) {
  switch (change) {
    case Change::kNone:
      return "same";
    case Change::kFaster:
      return "faster";
    case Change::kSlower:
      return "SLOWER";
    case Change::kFailed:
      return "FAILED";
    case Change::kRecovered:
      return "recovered";
  }
  return "";
}

absl::StatusOr<Comparison> CompareRuns(const MergedRuns& a, const MergedRuns& b,
                                       const CompareOptions& options) {
  if (options.policy_a.empty() != options.policy_b.empty()) {
    return absl::InvalidArgumentError("name both policies or none");
  }
  const absl::Status networks = CheckNetworks(a, b);
  if (!networks.ok()) return networks;
  absl::StatusOr<Rows> rows_a = RowsOf(a, options.policy_a, "A");
  if (!rows_a.ok()) return rows_a.status();
  absl::StatusOr<Rows> rows_b = RowsOf(b, options.policy_b, "B");
  if (!rows_b.ok()) return rows_b.status();

  size_t shared = 0;
  for (const auto& row : *rows_a) shared += rows_b->count(row.first);
  BootstrapOptions family;  // Intervals that hold together.
  const double tail = 0.05 / std::max<size_t>(1, shared);
  family.confidence = 1 - tail;

  Comparison comparison;
  comparison.threshold = options.threshold;
  std::vector<double> single_logs;  // Ratios of configurations with one run on a side.
  std::vector<bool> single;
  for (const auto& row : *rows_a) {
    const auto other = rows_b->find(row.first);
    if (other == rows_b->end()) {
      comparison.only_in_a.push_back(TrialLabel(*row.second[0]));
      continue;
    }
    const MergedTrial* before = row.second[0];
    const MergedTrial* after = other->second[0];
    for (const MergedTrial* x : row.second) {  // The same machine, if both have one.
      for (const MergedTrial* y : other->second) {
        if (x->ok && y->ok && x->machine == y->machine &&
            (before->machine != after->machine || !before->ok || !after->ok)) {
          before = x, after = y;
        }
      }
    }
    if (!before->ok && !after->ok) continue;
    ConfigurationChange change;
    change.label = TrialLabel(*before);
    if (!options.policy_a.empty()) {
      change.label = absl::StrCat(change.label, " -> ", options.policy_b);
    }
    change.before = MeasuredParts(*before);
    change.after = MeasuredParts(*after);
    bool is_single = false;
    if (!before->ok || !after->ok) {
      change.change = after->ok ? Change::kRecovered : Change::kFailed;
      const MergedTrial& failed = after->ok ? *before : *after;
      change.note = absl::StrCat(failed.status, failed.cause.empty() ? "" : ": ", failed.cause);
    } else {
      change.ratio = MedianRatioInterval(after->IterationRuns(), before->IterationRuns(), family);
      is_single = before->repeats.size() < 2 || after->repeats.size() < 2;
      if (is_single && change.ratio.value > 0) single_logs.push_back(std::log(change.ratio.value));
      if (before->machine != after->machine) {
        change.note = absl::StrCat("other machine: ", before->machine, " -> ", after->machine);
      } else if (options.policy_a.empty() &&
                 !MessageDifferencer::Equals(before->trial.policy(), after->trial.policy())) {
        change.note = "the policy of this name was changed between the runs";
      }
      if (!change.ratio.has_bounds()) {
        absl::StrAppend(&change.note, change.note.empty() ? "" : "; ",
                        "too few iterations for an interval: no verdict");
      }
    }
    single.push_back(is_single);
    comparison.changes.push_back(std::move(change));
  }
  for (const auto& row : *rows_b) {
    if (rows_a->count(row.first) == 0) {
      comparison.only_in_b.push_back(TrialLabel(*row.second[0]));
    }
  }
  if (comparison.changes.empty()) {
    return absl::FailedPreconditionError(
        "no configuration was measured in both A and B (network, policy, devices, batch, "
        "precision, "
        "input and engine must be equal): run the same plan for both");
  }
  // Scatter of ratios around their middle: a change common to all is not scatter.
  double between = 0;
  if (!single_logs.empty()) {
    between = kLeastRunToRunDeviation;
    double quantile = 2;
    if (single_logs.size() >= 4) {
      between = std::max(between, ScaledMad(single_logs));
      quantile = StudentTQuantile(single_logs.size() - 1.0, tail);
    }
    between *= quantile;
    comparison.notes.push_back(
        "A side was measured once, so what differs from run to run is judged from the scatter of "
        "all ratios. Measure with repeats: 3 in the plan for sharper intervals.");
  }
  for (size_t i = 0; i < comparison.changes.size(); ++i) {
    ConfigurationChange& change = comparison.changes[i];
    Interval& ratio = change.ratio;
    if (ratio.has_bounds()) {
      double half = std::log(ratio.high / ratio.low) / 2;
      if (single[i]) half = std::hypot(half, between);
      ratio.low = ratio.value * std::exp(-half);
      ratio.high = ratio.value * std::exp(half);
      if (ratio.low > 1 && ratio.value > 1 + options.threshold) change.change = Change::kSlower;
      if (ratio.high < 1 && ratio.value < 1 / (1 + options.threshold)) {
        change.change = Change::kFaster;
      }
    }
    comparison.regressions += change.change == Change::kSlower || change.change == Change::kFailed;
    comparison.improvements +=
        change.change == Change::kFaster || change.change == Change::kRecovered;
  }
  std::stable_sort(
      comparison.changes.begin(), comparison.changes.end(),
      [](const ConfigurationChange& x, const ConfigurationChange& y) {
        const auto rank = [](Change c) {
          return c == Change::kFailed || c == Change::kSlower ? 0 : c == Change::kNone ? 2 : 1;
        };
        return rank(x.change) < rank(y.change);
      });
  return comparison;
}

std::string ComparisonText(const Comparison& comparison) {
  std::string text = absl::StrFormat("%-10s %10s %10s %7s %-16s  %s\n", "", "A", "B", "B/A",
                                     "95 % interval", "configuration");
  for (const ConfigurationChange& change : comparison.changes) {
    const auto seconds = [](const IterationParts& parts) {
      return parts.known() ? HumanSeconds(parts.iteration_seconds) : std::string("-");
    };
    const std::string interval =
        change.ratio.has_bounds()
            ? absl::StrFormat("[%.3f, %.3f]", change.ratio.low, change.ratio.high)
            : "-";
    absl::StrAppendFormat(&text, "%-10s %10s %10s %7s %-16s  %s%s\n", ChangeName(change.change),
                          seconds(change.before), seconds(change.after),
                          change.ratio.known() ? absl::StrFormat("%.3f", change.ratio.value) : "-",
                          interval, change.label,
                          change.note.empty() ? "" : absl::StrCat(" (", change.note, ")"));
    if (change.change != Change::kSlower && change.change != Change::kFaster) continue;
    const auto before = change.before.List();
    const auto after = change.after.List();
    std::vector<std::pair<double, std::string>> parts;
    for (size_t i = 0; i < before.size(); ++i) {
      const double difference = after[i].second - before[i].second;
      if (std::abs(difference) < 0.0005 * change.before.iteration_seconds) continue;
      parts.emplace_back(std::abs(difference),
                         absl::StrCat(before[i].first, " ", Signed(difference)));
    }
    std::sort(parts.rbegin(), parts.rend());
    std::vector<std::string> words;
    for (const auto& part : parts) words.push_back(part.second);
    absl::StrAppend(&text, "             ",
                    Signed(change.after.iteration_seconds - change.before.iteration_seconds),
                    " an iteration: ", absl::StrJoin(words, ", "), "\n");
  }
  const auto list = [&](const char* what, const std::vector<std::string>& labels) {
    if (!labels.empty()) absl::StrAppend(&text, what, absl::StrJoin(labels, "; "), "\n");
  };
  list("Only in A: ", comparison.only_in_a);
  list("Only in B: ", comparison.only_in_b);
  for (const std::string& note : comparison.notes) absl::StrAppend(&text, note, "\n");
  absl::StrAppend(&text, comparison.changes.size(), " compared: ", comparison.regressions,
                  " slower or failed, ", comparison.improvements,
                  " faster or recovered (changes below ", HumanPercent(comparison.threshold),
                  " or within noise do not count).\n");
  return text;
}

}  // namespace paceline
