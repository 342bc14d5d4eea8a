#include "tests/benchmarks/accuracy/contention.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/cost/contention_model.h"
#include "analysis/import/csv_table.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

// Points of one way of averaging (a table of the source), by its name.
using Tables = std::map<std::string, std::vector<ContentionPoint>>;

absl::StatusOr<Tables> LoadTables(const std::string& dir) {
  absl::StatusOr<CsvTable> csv = CsvTable::Read(absl::StrCat(dir, "/dl_scheduling_contention.csv"));
  if (!csv.ok()) return csv.status();
  Tables tables;
  for (const CsvRow& row : csv->rows()) {
    absl::StatusOr<std::string> table = row.Text("table");
    if (!table.ok()) return table.status();
    absl::StatusOr<int64_t> jobs = row.Integer("jobs");
    if (!jobs.ok()) return jobs.status();
    absl::StatusOr<double> bytes = row.PositiveNumber("bytes");
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<double> time = row.PositiveNumber("avg_latency_us");
    if (!time.ok()) return time.status();
    tables[*table].push_back({static_cast<int>(*jobs), *bytes, *time * 1e-6});
  }
  return tables;
}

// One table: the mean of what each of the concurrent jobs measured.
absl::StatusOr<Tables> LoadLogs(const std::string& dir) {
  absl::StatusOr<CsvTable> csv =
      CsvTable::Read(absl::StrCat(dir, "/osu_allreduce_iterations_summary.csv"));
  if (!csv.ok()) return csv.status();
  std::map<std::pair<int, double>, std::vector<double>> times;
  for (const CsvRow& row : csv->rows()) {
    absl::StatusOr<int64_t> jobs = row.Integer("jobs");
    if (!jobs.ok()) return jobs.status();
    absl::StatusOr<double> bytes = row.PositiveNumber("bytes");
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<double> time = row.PositiveNumber("median_us");
    if (!time.ok()) return time.status();
    times[{static_cast<int>(*jobs), *bytes}].push_back(*time * 1e-6);
  }
  Tables tables;
  for (const auto& entry : times) {
    // Below this, nothing is shared but the processor.
    if (entry.first.second < 16384) continue;
    tables["iteration logs"].push_back(
        {entry.first.first, entry.first.second, Median(entry.second)});
  }
  return tables;
}

struct Scored {
  std::vector<PredictedPoint> ours, constant, fair;
};

// `constant`: the time at the most jobs that were fitted; `fair`: that times the ratio of jobs.
absl::Status Score(const std::vector<ContentionPoint>& fit,
                   const std::vector<ContentionPoint>& score, Scored* scored) {
  if (fit.empty() || score.empty()) return absl::OkStatus();
  absl::StatusOr<ContentionModel> model = ContentionModel::Fit(fit);
  if (!model.ok()) return model.status();
  for (const ContentionPoint& p : score) {
    const ContentionPrediction prediction = model->Predict(p.jobs, p.bytes);
    PredictedPoint point;
    point.label = absl::StrFormat("%d jobs %.0f bytes", p.jobs, p.bytes);
    point.predicted = prediction.seconds;
    point.measured = p.seconds;
    point.low = prediction.low_seconds;
    point.high = prediction.high_seconds;
    scored->ours.push_back(point);
    const ContentionPoint* last = nullptr;
    for (const ContentionPoint& other : fit) {
      if (other.bytes == p.bytes && (last == nullptr || other.jobs > last->jobs)) last = &other;
    }
    if (last == nullptr) continue;
    PredictedPoint baseline;
    baseline.measured = p.seconds;
    baseline.predicted = last->seconds;
    scored->constant.push_back(baseline);
    baseline.predicted *= 1.0 * p.jobs / last->jobs;
    scored->fair.push_back(baseline);
  }
  return absl::OkStatus();
}

AccuracyRow MakeRow(const Scored& scored, std::string task, std::string split) {
  AccuracyRow row;
  row.target = 9;
  row.task = std::move(task);
  row.split = std::move(split);
  row.ours = SummarizeErrors(scored.ours);
  if (!scored.constant.empty()) {
    row.baseline_constant = SummarizeErrors(scored.constant).mean;
    row.baseline_other = SummarizeErrors(scored.fair).mean;
  }
  row.note = "other: time shared fairly";
  return row;
}

}  // namespace

absl::Status EvaluateContention(const AccuracyData& data, AccuracyReport& report) {
  const struct {
    const char* file;
    const char* name;
    absl::StatusOr<Tables> (*load)(const std::string& dir);
  } sets[] = {{"dl_scheduling_contention.csv", "tables", &LoadTables},
              {"osu_allreduce_iterations_summary.csv", "logs", &LoadLogs}};
  std::vector<PredictedPoint> heldout_points;
  for (const auto& set : sets) {
    absl::StatusOr<Tables> tables = set.load(data.data_dir);
    if (absl::IsNotFound(tables.status())) {
      report.Skip(absl::StrCat(set.file, ": not in ", data.data_dir, ", its rows are skipped"));
      continue;
    }
    if (!tables.ok()) return tables.status();
    Tables other;
    if (!data.heldout_dir.empty()) {
      absl::StatusOr<Tables> loaded = set.load(data.heldout_dir);
      if (absl::IsNotFound(loaded.status())) {
        report.Skip(absl::StrCat(set.file, ": not in ", data.heldout_dir));
      } else if (!loaded.ok()) {
        return loaded.status();
      } else {
        other = *std::move(loaded);
      }
    }
    for (const auto& table : other) {
      if (tables->count(table.first) > 0) continue;
      report.Skip(absl::StrCat(set.file, ": ", table.first, " is only in ", data.heldout_dir,
                               ": nothing to predict it from"));
    }
    Scored in_sample, doubled, outside;
    for (const auto& table : *tables) {
      const std::vector<ContentionPoint>& all = table.second;
      int most = 0;
      for (const ContentionPoint& p : all) most = std::max(most, p.jobs);
      if (most > 1) {
        absl::Status status = Score(all, all, &in_sample);
        if (!status.ok()) return status;
      }
      for (int k = 2; 2 * k <= most; k *= 2) {
        std::vector<ContentionPoint> fewer, twice;
        for (const ContentionPoint& p : all) {
          if (p.jobs <= k) fewer.push_back(p);
          if (p.jobs == 2 * k) twice.push_back(p);
        }
        absl::Status status = Score(fewer, twice, &doubled);
        if (!status.ok()) return status;
      }
      absl::Status status = Score(all, other[table.first], &outside);
      if (!status.ok()) return status;
    }
    AccuracyRow row = MakeRow(in_sample, absl::StrCat("contention (", set.name, ")"), "in-sample");
    row.goal_mean = 0.03;
    if (row.ours.points > 0) report.Add(row);
    row = MakeRow(doubled, absl::StrCat("contention, k to 2k jobs (", set.name, ")"), "held out");
    row.goal_mean = 0.12;
    if (row.ours.points > 0) report.Add(row);
    heldout_points.insert(heldout_points.end(), doubled.ours.begin(), doubled.ours.end());
    if (!outside.ours.empty()) {
      row = MakeRow(outside, absl::StrCat("contention, other folder (", set.name, ")"), "held out");
      row.goal_mean = 0.12;
      report.Add(row);
      heldout_points.insert(heldout_points.end(), outside.ours.begin(), outside.ours.end());
    }
  }
  if (!heldout_points.empty()) {
    AccuracyRow row;
    row.target = 10;
    row.task = "90 % intervals under contention";
    row.split = "held out";
    row.ours = SummarizeErrors(heldout_points);
    row.goal_coverage = {0.85, 0.97};
    row.note = "85 to 97 % must be covered";
    report.Add(row);
  }
  return absl::OkStatus();
}

}  // namespace paceline
