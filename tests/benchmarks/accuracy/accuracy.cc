#include "tests/benchmarks/accuracy/accuracy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

std::string Percent(const absl::optional<double>& fraction) {
  return fraction.has_value() ? absl::StrFormat("%.1f", 100 * *fraction) : "-";
}

}  // namespace

ErrorSummary SummarizeErrors(absl::Span<const PredictedPoint> points) {
  ErrorSummary summary;
  std::vector<double> errors;
  int with_interval = 0;
  int covered = 0;
  for (const PredictedPoint& point : points) {
    const double error = (point.predicted - point.measured) / point.measured;
    errors.push_back(std::abs(error));
    summary.bias += error;
    if (point.low.has_value() && point.high.has_value()) {
      ++with_interval;
      if (*point.low <= point.measured && point.measured <= *point.high) ++covered;
    }
  }
  summary.points = static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  for (double error : errors) summary.mean += error;
  summary.mean /= errors.size();
  summary.bias /= errors.size();
  summary.median = Median(errors);
  summary.p90 = Quantile(errors, 0.9);
  summary.max = *std::max_element(errors.begin(), errors.end());
  if (with_interval > 0) summary.coverage = static_cast<double>(covered) / with_interval;
  return summary;
}

bool AccuracyRow::met() const {
  if (ours.points == 0) return false;
  if (goal_mean.has_value() && !(ours.mean <= *goal_mean)) return false;
  if (goal_max.has_value() && !(ours.max <= *goal_max)) return false;
  if (goal_coverage.has_value() && !(ours.coverage.value_or(-1) >= goal_coverage->first &&
                                     *ours.coverage <= goal_coverage->second)) {
    return false;
  }
  return true;
}

std::string AccuracyReport::Table() const {
  std::string table =
      absl::StrFormat("%-2s %-52s %-9s %6s | %6s %6s %6s %6s %6s %6s | %8s %6s %6s | %6s %s\n", "#",
                      "task", "split", "points", "mean%", "med%", "p90%", "max%", "bias%", "cover%",
                      "constant", "ring", "other", "goal%", "met");
  for (const AccuracyRow& row : rows_) {
    absl::StrAppendFormat(
        &table,
        "%-2s %-52s %-9s %6d | %6.1f %6.1f %6.1f %6.1f %+6.1f %6s | %8s %6s %6s | "
        "%6s %s%s\n",
        row.target > 0 ? absl::StrCat(row.target) : "", row.task, row.split, row.ours.points,
        100 * row.ours.mean, 100 * row.ours.median, 100 * row.ours.p90, 100 * row.ours.max,
        100 * row.ours.bias, Percent(row.ours.coverage), Percent(row.baseline_constant),
        Percent(row.baseline_ring), Percent(row.baseline_other), Percent(row.goal_mean),
        row.goal_mean.has_value() || row.goal_max.has_value() || row.goal_coverage.has_value()
            ? (row.met() ? "yes" : "NO")
            : "-",
        row.note.empty() ? "" : absl::StrCat("  ", row.note));
  }
  for (const std::string& what : skipped_) absl::StrAppend(&table, what, "\n");
  return table;
}

}  // namespace paceline
