#include "tests/benchmarks/accuracy/intervals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/import/csv_table.h"
#include "analysis/stats/statistics.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

using Random = std::mt19937_64;
// A whole log, or a long synthetic series: the population that short runs are cut from.
using Series = std::vector<double>;

constexpr int kIterations = 100;  // Of a run.
constexpr int kTrials = 400;      // Per number of runs and kind of series.

// Series whose mean over infinite time is the truth of a trial.
struct Process {
  const char* name;
  Series (*draw)(int count, Random* random);
};

double Normal(Random* random) { return std::normal_distribution<double>()(*random); }

// Log-normal with a spread of 5 % and correlation `phi` from one iteration to the next.
Series Autoregressive(int count, double phi, Random* random) {
  Series series;
  double state = Normal(random);
  for (int i = 0; i < count; ++i) {
    series.push_back(std::exp(0.05 * state));
    state = phi * state + std::sqrt(1 - phi * phi) * Normal(random);
  }
  return series;
}

Series Independent(int count, Random* random) { return Autoregressive(count, 0, random); }
// Integrated correlation times of 4 and 59: median and 90 % quantile of 380 public logs.
Series Correlated(int count, Random* random) { return Autoregressive(count, 0.6, random); }
Series StronglyCorrelated(int count, Random* random) {
  return Autoregressive(count, 0.967, random);
}

// Runs differ by 3 % (placement, clocks), iterations within by 2 %.
Series RunLevels(int count, Random* random) {
  const double level = std::exp(0.03 * Normal(random));
  Series series;
  for (int i = 0; i < count; ++i) series.push_back(level * std::exp(0.02 * Normal(random)));
  return series;
}

// Another job comes and goes: 25 % slower for stretches of 20 iterations, a third of the time.
Series Interrupted(int count, Random* random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  bool slow = uniform(*random) < 1.0 / 3;
  Series series;
  for (int i = 0; i < count; ++i) {
    if (uniform(*random) < (slow ? 1.0 / 20 : 1.0 / 40)) slow = !slow;
    series.push_back((slow ? 1.25 : 1.0) * std::exp(0.02 * Normal(random)));
  }
  return series;
}

constexpr Process kProcesses[] = {{"independent", &Independent},
                                  {"correlated", &Correlated},
                                  {"strongly correlated", &StronglyCorrelated},
                                  {"levels by run", &RunLevels},
                                  {"interrupted", &Interrupted}};

double MeanOf(const Series& series) {
  double sum = 0;
  for (double value : series) sum += value;
  return sum / series.size();
}

PredictedPoint Covered(const Interval& interval, double truth) {
  PredictedPoint point;
  point.predicted = interval.value;
  point.measured = truth;
  // Without bounds nothing is claimed, and nothing is covered.
  point.low = interval.has_bounds() ? interval.low : interval.value;
  point.high = interval.has_bounds() ? interval.high : interval.value;
  return point;
}

AccuracyRow CoverageRow(std::string task, const std::vector<PredictedPoint>& points, bool goal) {
  AccuracyRow row;
  row.task = std::move(task);
  row.split = "held out";
  row.ours = SummarizeErrors(points);
  if (goal) row.goal_coverage = {0.93, 0.97};
  double width = 0;
  for (const PredictedPoint& p : points)
    width += (*p.high - *p.low) / 2 / p.predicted / points.size();
  row.note = absl::StrFormat("half width %.1f %% on average%s", 100 * width,
                             goal ? "; 93 to 97 % must be covered" : "");
  return row;
}

void EvaluateSynthetic(AccuracyReport& report) {
  Random random(20171122);
  std::map<std::string, double> truths;
  for (const Process& process : kProcesses) {
    double sum = 0;
    constexpr int kLong = 2000;
    for (int i = 0; i < kLong; ++i) sum += MeanOf(process.draw(500, &random)) / kLong;
    truths[process.name] = sum;
  }
  for (int runs : {1, 2, 3, 5, 10}) {
    std::vector<PredictedPoint> points;
    for (const Process& process : kProcesses) {
      // One run cannot tell what changes between runs.
      if (runs == 1 && process.draw == &RunLevels) continue;
      for (int trial = 0; trial < kTrials; ++trial) {
        Runs drawn;
        for (int r = 0; r < runs; ++r) {
          // The same number of iterations in one run needs to hold several correlation times.
          drawn.push_back(process.draw(runs == 1 ? 20 * kIterations : kIterations, &random));
        }
        points.push_back(Covered(ThroughputInterval(drawn, 1), 1 / truths[process.name]));
      }
    }
    report.Add(CoverageRow(
        absl::StrFormat("95 %% intervals, known truth, %d run%s of %d", runs, runs == 1 ? "" : "s",
                        runs == 1 ? 20 * kIterations : kIterations),
        points, true));
  }
}

absl::StatusOr<std::vector<Series>> LoadLogs(const std::string& dir) {
  absl::StatusOr<CsvTable> table =
      CsvTable::Read(absl::StrCat(dir, "/osu_allreduce_iterations_raw.csv"));
  if (!table.ok()) return table.status();
  std::map<std::tuple<std::string, std::string, std::string>, Series> logs;
  for (const CsvRow& row : table->rows()) {
    absl::StatusOr<double> time = row.PositiveNumber("latency_us");
    if (!time.ok()) return time.status();
    absl::StatusOr<std::string> jobs = row.Text("jobs");
    if (!jobs.ok()) return jobs.status();
    absl::StatusOr<std::string> bytes = row.Text("bytes");
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<std::string> job = row.Text("job");
    if (!job.ok()) return job.status();
    logs[{*jobs, *bytes, *job}].push_back(*time);
  }
  std::vector<Series> series;
  for (auto& log : logs) {
    if (log.second.size() >= 10 * kIterations) series.push_back(std::move(log.second));
  }
  return series;
}

// A run: a window of the log at random.
std::vector<double> Window(const Series& log, int count, Random* random) {
  const size_t start = std::uniform_int_distribution<size_t>(0, log.size() - count)(*random);
  return std::vector<double>(log.begin() + start, log.begin() + start + count);
}

// What windows of `count` have on average: iterations near the ends are in fewer of them.
double WindowMean(const Series& log, int count) {
  double window = 0, sum = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    window += log[i];
    if (i >= static_cast<size_t>(count)) window -= log[i - count];
    if (i + 1 >= static_cast<size_t>(count)) sum += window / count;
  }
  return sum / (log.size() - count + 1);
}

void EvaluateLogs(const std::vector<Series>& logs, const std::string& name,
                  AccuracyReport& report) {
  Random random(7);
  std::vector<PredictedPoint> naive;
  for (int runs : {1, 3, 5, 10}) {
    const int count = runs == 1 ? 5 * kIterations : kIterations;
    std::vector<PredictedPoint> points;
    for (const Series& log : logs) {
      const double truth = 1 / WindowMean(log, count);
      for (int trial = 0; trial < kTrials; ++trial) {
        Runs drawn;
        for (int r = 0; r < runs; ++r) drawn.push_back(Window(log, count, &random));
        points.push_back(Covered(ThroughputInterval(drawn, 1), truth));
        if (runs != 5) continue;
        // Plain: all iterations independent.
        Series all;
        for (const Series& run : drawn) all.insert(all.end(), run.begin(), run.end());
        double squares = 0;
        const double mean = MeanOf(all);
        for (double value : all) squares += (value - mean) * (value - mean);
        const double half = 1.96 * std::sqrt(squares / (all.size() - 1.0) / all.size()) / mean;
        naive.push_back(Covered({1 / mean, (1 - half) / mean, (1 + half) / mean}, truth));
      }
    }
    report.Add(CoverageRow(absl::StrFormat("95 %% intervals, public logs%s, %d run%s of %d", name,
                                           runs, runs == 1 ? "" : "s", count),
                           points, runs > 1));
  }
  report.Add(CoverageRow(
      absl::StrCat("for comparison: iterations as independent", name, ", 5 runs"), naive, false));

  std::vector<PredictedPoint> medians;
  for (const Series& log : logs) {
    const double truth = Median(log);
    for (int trial = 0; trial < kTrials; ++trial) {
      Runs drawn;
      for (int r = 0; r < 5; ++r) drawn.push_back(Window(log, kIterations, &random));
      medians.push_back(Covered(MedianInterval(drawn), truth));
    }
  }
  report.Add(CoverageRow(absl::StrCat("95 % intervals of medians, public logs", name, ", 5 runs"),
                         medians, true));

  // The same log against itself, interleaved as a comparison should be.
  std::vector<PredictedPoint> alarms;
  for (const Series& log : logs) {
    for (int trial = 0; trial < kTrials; ++trial) {
      Runs a, b;
      for (int r = 0; r < 5; ++r) {
        a.push_back(Window(log, kIterations, &random));
        b.push_back(Window(log, kIterations, &random));
      }
      alarms.push_back(Covered(SpeedRatioInterval(a, 1, b, 1), 1));
    }
  }
  AccuracyRow row =
      CoverageRow(absl::StrCat("A/A, public logs", name, ", 5 runs each"), alarms, false);
  row.goal_coverage = {0.95, 1.0};
  absl::StrAppendFormat(&row.note, "; %.1f %% false alarms, less than 5 %% allowed",
                        100 * (1 - row.ours.coverage.value_or(0)));
  report.Add(row);
}

}  // namespace

absl::Status EvaluateIntervals(const AccuracyData& data, AccuracyReport& report) {
  EvaluateSynthetic(report);
  for (const std::string& dir : {data.data_dir, data.heldout_dir}) {
    if (dir.empty()) continue;
    absl::StatusOr<std::vector<Series>> logs = LoadLogs(dir);
    if (absl::IsNotFound(logs.status())) {
      report.Skip(
          absl::StrCat("osu_allreduce_iterations_raw.csv: not in ", dir, ", its rows are skipped"));
      continue;
    }
    if (!logs.ok()) return logs.status();
    if (logs->empty()) continue;
    EvaluateLogs(*logs, dir == data.data_dir ? "" : " (other folder)", report);
  }
  return absl::OkStatus();
}

}  // namespace paceline
