#include "tests/benchmarks/accuracy/collectives.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/cost/collective_model.h"
#include "analysis/cost/size_curve.h"
#include "analysis/import/collective_measurement.h"
#include "analysis/import/csv_table.h"

namespace paceline {
namespace {

using Measurements = std::vector<CollectiveMeasurement>;
// Measurements of one cluster and library, by its name.
using Clusters = std::map<std::string, Measurements>;

absl::StatusOr<Clusters> LoadOsu(const std::string& dir) {
  absl::StatusOr<CsvTable> table = CsvTable::Read(absl::StrCat(dir, "/bcaffe_osu_allreduce.csv"));
  if (!table.ok()) return table.status();
  Clusters clusters;
  for (const CsvRow& row : table->rows()) {
    absl::StatusOr<int64_t> nodes = row.Integer("nodes");
    if (!nodes.ok()) return nodes.status();
    absl::StatusOr<double> bytes = row.PositiveNumber("bytes");
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<double> time = row.PositiveNumber("avg_us");
    if (!time.ok()) return time.status();
    CollectiveMeasurement m;
    m.bytes = *bytes;
    m.ranks = m.nodes = static_cast<int>(*nodes);
    m.seconds = *time * 1e-6;
    m.collective = "allreduce";
    m.tool = table->source();
    m.place = row.place();
    clusters["OSU"].push_back(std::move(m));
  }
  return clusters;
}

absl::StatusOr<Clusters> LoadDeepBench(const std::string& dir) {
  absl::StatusOr<CsvTable> table = CsvTable::Read(absl::StrCat(dir, "/deepbench_allreduce.csv"));
  if (!table.ok()) return table.status();
  Clusters clusters;
  for (const CsvRow& row : table->rows()) {
    absl::StatusOr<std::string> file = row.Text("file");
    if (!file.ok()) return file.status();
    absl::StatusOr<int64_t> ranks = row.Integer("gpus");
    if (!ranks.ok()) return ranks.status();
    absl::StatusOr<int64_t> nodes = row.Integer("nodes");
    if (!nodes.ok()) return nodes.status();
    absl::StatusOr<double> bytes = row.PositiveNumber("bytes");
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<double> time = row.PositiveNumber("mean_ms");
    if (!time.ok()) return time.status();
    CollectiveMeasurement m;
    m.bytes = *bytes;
    m.ranks = static_cast<int>(*ranks);
    m.nodes = static_cast<int>(*nodes);
    m.seconds = *time * 1e-3;
    m.collective = "allreduce";
    absl::StatusOr<std::string> library = row.Text("library");
    if (!library.ok()) return library.status();
    m.library = *library;
    m.tool = table->source();
    m.place = row.place();
    clusters[absl::StrCat("DeepBench ", *file)].push_back(std::move(m));
  }
  // Each row is the best of several libraries. Where one gave most rows of a number of ranks, those
  // form one curve: the cluster "..., one library".
  Clusters with_one;
  for (const auto& cluster : clusters) {
    with_one[absl::StrCat(cluster.first, ", best library")] = cluster.second;
    std::map<int, std::map<std::string, int>> counts;
    for (const CollectiveMeasurement& m : cluster.second) ++counts[m.ranks][m.library];
    for (const CollectiveMeasurement& m : cluster.second) {
      const int count = counts[m.ranks][m.library];
      bool most = count >= 4;
      for (const auto& other : counts[m.ranks]) most = most && other.second <= count;
      if (most) with_one[absl::StrCat(cluster.first, ", one library")].push_back(m);
    }
  }
  return with_one;
}

// Published lines alpha + beta M of several clusters, as the times they stand for. Some
// coefficients are products: "1.5*3.2e-10".
absl::StatusOr<Clusters> LoadPublishedLines(const std::string& dir) {
  absl::StatusOr<CsvTable> table = CsvTable::Read(absl::StrCat(dir, "/mgwfbp_alpha_beta.csv"));
  if (!table.ok()) return table.status();
  Clusters clusters;
  for (const CsvRow& row : table->rows()) {
    absl::StatusOr<std::string> repository = row.Text("repo");
    if (!repository.ok()) return repository.status();
    absl::StatusOr<std::string> name = row.Text("table");
    if (!name.ok()) return name.status();
    absl::StatusOr<int64_t> workers = row.Integer("workers");
    if (!workers.ok()) return workers.status();
    // Its rows of 2 and 4 workers repeat those of "56Gbps": two clusters under one name.
    if (*name == "10Gbps") continue;
    double coefficients[2] = {1, 1};
    const char* columns[2] = {"alpha_s", "beta_s_per_byte"};
    for (int c = 0; c < 2; ++c) {
      absl::StatusOr<std::string> text = row.Text(columns[c]);
      if (!text.ok()) return text.status();
      for (absl::string_view factor : absl::StrSplit(*text, '*')) {
        double value;
        if (!absl::SimpleAtod(factor, &value) || value <= 0) {
          return absl::InvalidArgumentError(absl::StrCat(
              row.place(), ": ", columns[c], " is \"", *text, "\", expected a product of numbers"));
        }
        coefficients[c] *= value;
      }
    }
    for (double bytes = 1 << 14; bytes <= 1 << 27; bytes *= 2) {
      CollectiveMeasurement m;
      m.bytes = bytes;
      m.ranks = m.nodes = static_cast<int>(*workers);
      m.seconds = coefficients[0] + coefficients[1] * bytes;
      m.collective = "allreduce";
      m.place = row.place();
      clusters[absl::StrCat(*repository, " ", *name)].push_back(std::move(m));
    }
  }
  return clusters;
}

Measurements Select(const Measurements& from,
                    const std::function<bool(const CollectiveMeasurement&)>& keep) {
  Measurements selected;
  for (const CollectiveMeasurement& m : from) {
    if (keep(m)) selected.push_back(m);
  }
  return selected;
}

double LargestBytes(const Measurements& measurements) {
  double largest = 0;
  for (const CollectiveMeasurement& m : measurements) largest = std::max(largest, m.bytes);
  return largest;
}

// Points of one row, ours and by baselines.
struct Scored {
  std::vector<PredictedPoint> ours, constant, ring, line;
  int flagged = 0;

  AccuracyRow Row(int target, std::string task, std::string split) const {
    AccuracyRow row;
    row.target = target;
    row.task = std::move(task);
    row.split = std::move(split);
    row.ours = SummarizeErrors(ours);
    if (!constant.empty()) row.baseline_constant = SummarizeErrors(constant).mean;
    if (!ring.empty()) row.baseline_ring = SummarizeErrors(ring).mean;
    if (!line.empty()) row.baseline_other = SummarizeErrors(line).mean;
    return row;
  }
};

PredictedPoint Point(const CollectivePrediction& p, const CollectiveMeasurement& m) {
  PredictedPoint point;
  point.label = absl::StrFormat("%d ranks %.0f bytes", m.ranks, m.bytes);
  point.predicted = p.seconds;
  point.measured = m.seconds;
  point.low = p.low_seconds;
  point.high = p.high_seconds;
  return point;
}

// Fits one number of ranks and scores other sizes at it, beside one robust alpha-beta line.
absl::Status ScoreSizes(const Measurements& fit, const Measurements& score, Scored* scored) {
  if (fit.size() < 3 || score.empty()) return absl::OkStatus();
  absl::StatusOr<CollectiveModel> model = CollectiveModel::Fit(fit);
  if (!model.ok()) return model.status();
  std::vector<SizePoint> points;
  for (const CollectiveMeasurement& m : fit) points.push_back({m.bytes, m.seconds});
  const CurvePiece line = FitRobustLine(points);
  for (const CollectiveMeasurement& m : score) {
    const CollectivePrediction p = model->Predict(m.bytes, m.ranks, m.nodes);
    scored->ours.push_back(Point(p, m));
    scored->flagged += !p.flags.empty();
    PredictedPoint baseline;
    baseline.measured = m.seconds;
    baseline.predicted = line.At(m.bytes);
    scored->line.push_back(baseline);
  }
  return absl::OkStatus();
}

// Fits the numbers of ranks in `fit` and scores another; baselines from the largest of them.
absl::Status ScoreRanks(const Measurements& fit, const Measurements& score, Scored* plain,
                        Scored* flagged) {
  absl::StatusOr<CollectiveModel> model = CollectiveModel::Fit(fit);
  if (!model.ok()) return model.status();
  const CollectiveModel::RankCurve& largest = model->curves().back();
  for (const CollectiveMeasurement& m : score) {
    const CollectivePrediction p = model->Predict(m.bytes, m.ranks, m.nodes);
    Scored* scored = p.flags.empty() ? plain : flagged;
    scored->ours.push_back(Point(p, m));
    PredictedPoint baseline;
    baseline.measured = m.seconds;
    baseline.predicted = largest.curve.Predict(m.bytes).seconds;
    scored->constant.push_back(baseline);
    baseline.predicted *= (m.ranks - 1.0) / m.ranks / ((largest.ranks - 1.0) / largest.ranks);
    scored->ring.push_back(baseline);
  }
  return absl::OkStatus();
}

void Append(const std::vector<PredictedPoint>& from, std::vector<PredictedPoint>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

absl::Status EvaluateCluster(const std::string& name, const Measurements& all,
                             const Measurements& heldout, AccuracyReport& report,
                             std::vector<PredictedPoint>* all_heldout) {
  std::set<int> ranks;
  for (const CollectiveMeasurement& m : all) ranks.insert(m.ranks);
  Scored in_sample, new_sizes, larger, outside_sizes, outside_larger;
  for (int n : ranks) {
    const Measurements at =
        Select(all, [n](const CollectiveMeasurement& m) { return m.ranks == n; });
    absl::Status status = ScoreSizes(at, at, &in_sample);
    if (!status.ok()) return status;
    // Every fifth size in turn; with few sizes, each but the ends (those are extrapolations).
    const int folds = at.size() < 10 ? static_cast<int>(at.size()) : 5;
    for (int fold = 0; fold < folds; ++fold) {
      Measurements kept, left_out;
      for (size_t i = 0; i < at.size(); ++i) {
        const bool out = static_cast<int>(i % folds) == fold && i > 0 && i + 1 < at.size();
        (out ? left_out : kept).push_back(at[i]);
      }
      status = ScoreSizes(kept, left_out, &new_sizes);
      if (!status.ok()) return status;
    }
    // Nothing above a quarter of the largest size; scored at 3 to 4 times the largest kept.
    const double cut = LargestBytes(at) / 3.8;
    const Measurements small =
        Select(at, [cut](const CollectiveMeasurement& m) { return m.bytes <= cut; });
    const double kept_largest = LargestBytes(small);
    status = ScoreSizes(small,
                        Select(at,
                               [kept_largest](const CollectiveMeasurement& m) {
                                 return m.bytes > 3 * kept_largest && m.bytes <= 4.2 * kept_largest;
                               }),
                        &larger);
    if (!status.ok()) return status;
    if (heldout.empty()) continue;
    const double largest = LargestBytes(at);
    const Measurements there =
        Select(heldout, [n](const CollectiveMeasurement& m) { return m.ranks == n; });
    status = ScoreSizes(
        at, Select(there, [&](const CollectiveMeasurement& m) { return m.bytes <= largest; }),
        &outside_sizes);
    if (!status.ok()) return status;
    status = ScoreSizes(
        at, Select(there, [&](const CollectiveMeasurement& m) { return m.bytes > largest; }),
        &outside_larger);
    if (!status.ok()) return status;
  }
  AccuracyRow row =
      in_sample.Row(1, absl::StrCat("collective, same n, all sizes (", name, ")"), "in-sample");
  // A mixture of libraries is no curve: shown, without a goal.
  const bool mixture = absl::EndsWith(name, "best library");
  if (!mixture) row.goal_mean = 0.03;
  row.note = "other: one alpha-beta line";
  report.Add(row);
  row = new_sizes.Row(1, absl::StrCat("collective, same n, new sizes (", name, ")"), "held out");
  if (!mixture) row.goal_mean = 0.05;
  row.note = "other: one alpha-beta line";
  report.Add(row);
  row = larger.Row(1, absl::StrCat("collective, same n, 4x larger size (", name, ")"), "held out");
  if (!mixture) row.goal_mean = 0.15;
  row.note = absl::StrCat(larger.flagged, " flagged as extrapolated");
  if (row.ours.points > 0) report.Add(row);
  Append(new_sizes.ours, all_heldout);
  Append(larger.ours, all_heldout);
  if (!outside_sizes.ours.empty()) {
    row = outside_sizes.Row(
        1, absl::StrCat("collective, same n, new sizes, other folder (", name, ")"), "held out");
    row.goal_mean = 0.05;
    report.Add(row);
    Append(outside_sizes.ours, all_heldout);
  }
  if (!outside_larger.ours.empty()) {
    row = outside_larger.Row(
        1, absl::StrCat("collective, same n, larger, other folder (", name, ")"), "held out");
    row.goal_mean = 0.15;
    report.Add(row);
    Append(outside_larger.ours, all_heldout);
  }

  Scored plain, flagged, outside_plain, outside_flagged;
  for (int n : ranks) {
    const Measurements fit =
        Select(all, [n](const CollectiveMeasurement& m) { return m.ranks <= n; });
    const Measurements score =
        Select(all, [n](const CollectiveMeasurement& m) { return m.ranks == 2 * n; });
    absl::Status status = ScoreRanks(fit, score, &plain, &flagged);
    if (!status.ok()) return status;
  }
  const Measurements new_ranks = Select(
      heldout, [&ranks](const CollectiveMeasurement& m) { return ranks.count(m.ranks) == 0; });
  if (!new_ranks.empty()) {
    absl::Status status = ScoreRanks(all, new_ranks, &outside_plain, &outside_flagged);
    if (!status.ok()) return status;
  }
  const auto add_ranks = [&](const Scored& scored, absl::string_view what, bool goal) {
    if (scored.ours.empty()) return;
    AccuracyRow r =
        scored.Row(2, absl::StrCat("collective, n to 2n, ", what, " (", name, ")"), "held out");
    if (goal) r.goal_mean = 0.20;
    if (!goal) r.note = "flagged, with the measurement to take";
    report.Add(r);
    Append(scored.ours, all_heldout);
  };
  add_ranks(plain, "growth checked", true);
  add_ranks(flagged, "growth unknown", false);
  add_ranks(outside_plain, "other folder", true);
  add_ranks(outside_flagged, "unknown, other folder", false);
  return absl::OkStatus();
}

}  // namespace

absl::Status EvaluateCollectives(const AccuracyData& data, AccuracyReport& report) {
  std::vector<PredictedPoint> heldout_points;
  const struct {
    const char* file;
    absl::StatusOr<Clusters> (*load)(const std::string& dir);
  } sets[] = {{"bcaffe_osu_allreduce.csv", &LoadOsu}, {"deepbench_allreduce.csv", &LoadDeepBench}};
  for (const auto& set : sets) {
    absl::StatusOr<Clusters> clusters = set.load(data.data_dir);
    if (absl::IsNotFound(clusters.status())) {
      report.Skip(absl::StrCat(set.file, ": not in ", data.data_dir, ", its rows are skipped"));
      continue;
    }
    if (!clusters.ok()) return clusters.status();
    Clusters heldout;
    if (!data.heldout_dir.empty()) {
      absl::StatusOr<Clusters> other = set.load(data.heldout_dir);
      if (absl::IsNotFound(other.status())) {
        report.Skip(absl::StrCat(set.file, ": not in ", data.heldout_dir));
      } else if (!other.ok()) {
        return other.status();
      } else {
        heldout = *std::move(other);
      }
    }
    for (const auto& cluster : heldout) {
      if (clusters->count(cluster.first) > 0) continue;
      report.Skip(absl::StrCat(set.file, ": ", cluster.first, " is only in ", data.heldout_dir,
                               ": nothing to predict it from"));
    }
    for (const auto& cluster : *clusters) {
      absl::Status status = EvaluateCluster(cluster.first, cluster.second, heldout[cluster.first],
                                            report, &heldout_points);
      if (!status.ok()) return status;
    }
  }
  absl::StatusOr<Clusters> lines = LoadPublishedLines(data.data_dir);
  if (absl::IsNotFound(lines.status())) {
    report.Skip(absl::StrCat("mgwfbp_alpha_beta.csv: not in ", data.data_dir));
  } else if (!lines.ok()) {
    return lines.status();
  } else {
    Scored plain, flagged;
    for (const auto& cluster : *lines) {
      for (int n = 2; n <= 64; n *= 2) {
        const Measurements fit =
            Select(cluster.second, [n](const CollectiveMeasurement& m) { return m.ranks <= n; });
        const Measurements score = Select(
            cluster.second, [n](const CollectiveMeasurement& m) { return m.ranks == 2 * n; });
        if (fit.empty() || score.empty()) continue;
        absl::Status status = ScoreRanks(fit, score, &plain, &flagged);
        if (!status.ok()) return status;
      }
    }
    AccuracyRow row = plain.Row(2, "collective, n to 2n, no flag (published lines)", "held out");
    row.goal_mean = 0.20;
    if (row.ours.points > 0) report.Add(row);
    row = flagged.Row(2, "collective, n to 2n, flagged (published lines)", "held out");
    row.note = "flagged, with the measurement to take";
    report.Add(row);
    heldout_points.insert(heldout_points.end(), plain.ours.begin(), plain.ours.end());
    heldout_points.insert(heldout_points.end(), flagged.ours.begin(), flagged.ours.end());
  }
  if (!heldout_points.empty()) {
    AccuracyRow row;
    row.target = 10;
    row.task = "90 % intervals of collectives";
    row.split = "held out";
    row.ours = SummarizeErrors(heldout_points);
    row.goal_coverage = {0.85, 0.97};
    row.note = "85 to 97 % must be covered";
    report.Add(row);
  }
  return absl::OkStatus();
}

}  // namespace paceline
