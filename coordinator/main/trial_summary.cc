#include "coordinator/main/trial_summary.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "coordinator/plan/plan.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

int Devices(const v1::Trial& trial) {
  return trial.cluster().hosts() * trial.cluster().devices_per_host();
}

// Cells are UTF-8, of which only ± occurs: count characters, not bytes.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// Trials that differ in the number of devices only have equal keys.
std::string ScalingKey(v1::Trial trial) {
  trial.clear_cluster();
  trial.mutable_measurement()->clear_repeats();
  return absl::StrCat(ConfigurationId(trial));
}

}  // namespace

TrialSummary SummarizeTrial(const v1::Trial& trial, const TrialOutcome& outcome,
                            const std::vector<v1::TrialResult>& results) {
  TrialSummary summary;
  summary.trial = trial;
  summary.outcome = outcome;
  if (results.empty()) return summary;
  // The ranks run in step; their mean evens out where each one's iteration is cut.
  size_t length = results[0].iterations_size();
  int warmup = 0;
  for (const v1::TrialResult& result : results) {
    length = std::min<size_t>(length, result.iterations_size());
    warmup = std::max(warmup, result.warmup_iterations());
  }
  std::vector<double> seconds;
  for (size_t i = warmup; i < length; ++i) {
    double sum = 0;
    for (const v1::TrialResult& result : results) sum += result.iterations(i).duration_ns() * 1e-9;
    seconds.push_back(sum / static_cast<double>(results.size()));
  }
  summary.iterations = static_cast<int>(seconds.size());
  if (seconds.empty()) return summary;
  const double median = Median(seconds);
  if (!(median > 0)) return summary;
  summary.samples_per_second =
      static_cast<double>(trial.batch_per_device()) * Devices(trial) / median;
  summary.half_width = summary.samples_per_second * MedianHalfWidth(seconds) / median;
  return summary;
}

absl::StatusOr<std::vector<TrialSummary>> SummarizeRun(const RunStore& store) {
  absl::StatusOr<std::vector<v1::Trial>> trials = store.Trials();
  if (!trials.ok()) return trials.status();
  absl::StatusOr<std::vector<TrialOutcome>> outcomes = store.Outcomes();
  if (!outcomes.ok()) return outcomes.status();
  std::vector<TrialSummary> summaries;
  std::map<std::string, std::vector<double>> one_device;
  for (size_t i = 0; i < trials->size(); ++i) {
    std::vector<v1::TrialResult> results;
    if ((*outcomes)[i].status == v1::TRIAL_STATUS_OK) {
      absl::StatusOr<std::vector<v1::TrialResult>> stored =
          store.Results((*trials)[i].trial_id(), (*outcomes)[i].attempt);
      if (!stored.ok()) return stored.status();
      results = *std::move(stored);
    }
    summaries.push_back(SummarizeTrial((*trials)[i], (*outcomes)[i], results));
    const TrialSummary& summary = summaries.back();
    if (Devices(summary.trial) == 1 && summary.samples_per_second > 0) {
      one_device[ScalingKey(summary.trial)].push_back(summary.samples_per_second);
    }
  }
  for (TrialSummary& summary : summaries) {
    const auto single = one_device.find(ScalingKey(summary.trial));
    if (summary.samples_per_second == 0 || single == one_device.end()) continue;
    if (Devices(summary.trial) == 1) continue;
    summary.scaling_efficiency =
        summary.samples_per_second / (Devices(summary.trial) * Median(single->second));
  }
  return summaries;
}

std::string FormatStatus(const TrialOutcome& outcome) {
  if (outcome.status == v1::TRIAL_STATUS_UNSPECIFIED) return "not run";
  return std::string(absl::StripPrefix(v1::TrialStatus_Name(outcome.status), "TRIAL_STATUS_"));
}

std::string FormatRate(double value, int digits) {
  return value >= std::pow(10, digits) ? absl::StrFormat("%.0f", value)
                                       : absl::StrFormat("%.*g", digits, value);
}

std::string FormatThroughput(const TrialSummary& summary) {
  if (summary.samples_per_second == 0) return "";
  std::string text = absl::StrCat(FormatRate(summary.samples_per_second, 4), " img/s");
  if (std::isfinite(summary.half_width)) {
    absl::StrAppend(&text, " ± ", FormatRate(summary.half_width, 2));
  }
  return text;
}

std::string FormatDurationForPeople(double seconds) {
  const int64_t total = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (total < 60) return absl::StrCat(total, " s");
  if (total < 3600) return absl::StrCat(total / 60, " min ", total % 60, " s");
  return absl::StrCat(total / 3600, " h ", total % 3600 / 60, " min");
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<bool>& right) {
  std::vector<size_t> widths(right.size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", right[i] ? padding : "", row[i],
                      right[i] ? "" : padding);
    }
    absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return out;
}

std::string FormatSummaries(const std::vector<TrialSummary>& summaries) {
  std::vector<std::vector<std::string>> rows = {
      {"#", "network", "policy", "devices", "batch", "img/s", "±", "efficiency", "status"}};
  for (const TrialSummary& summary : summaries) {
    const v1::Trial& trial = summary.trial;
    const bool measured = summary.samples_per_second > 0;
    std::string policy = trial.policy().name();
    if (trial.precision() != v1::PRECISION_FP32) {
      absl::StrAppend(&policy, " ",
                      absl::StripPrefix(v1::Precision_Name(trial.precision()), "PRECISION_"));
    }
    rows.push_back(
        {absl::StrCat(trial.index() + 1), trial.network().name(), policy,
         absl::StrCat(Devices(trial)), absl::StrCat(trial.batch_per_device()),
         measured ? FormatRate(summary.samples_per_second, 4) : "",
         measured && std::isfinite(summary.half_width) ? FormatRate(summary.half_width, 2) : "",
         summary.scaling_efficiency.has_value()
             ? absl::StrFormat("%.0f %%", 100 * *summary.scaling_efficiency)
             : "",
         FormatStatus(summary.outcome)});
  }
  std::string out = FormatTable(rows, {true, false, false, true, true, true, true, true, false});
  for (const TrialSummary& summary : summaries) {
    if (summary.outcome.cause.empty()) continue;
    absl::StrAppend(&out, "trial ", summary.trial.index() + 1, ": ", FormatStatus(summary.outcome),
                    ": ", summary.outcome.cause, "\n");
  }
  return out;
}

}  // namespace paceline
