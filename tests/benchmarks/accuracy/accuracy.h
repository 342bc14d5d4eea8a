// One row per target of the performance models: how well a model predicts, beside what simple
// baselines give on the same points. `//tests/benchmarks:prediction_accuracy` prints them all.
//
//   ErrorSummary errors = SummarizeErrors(predictions);      // {predicted, measured} pairs
//
// A file per area (collectives.cc, compute.cc, scaling.cc ...) adds rows through
//   absl::Status EvaluateCollectives(const AccuracyData& data, AccuracyReport& report);
#ifndef PACELINE_TESTS_BENCHMARKS_ACCURACY_ACCURACY_H_
#define PACELINE_TESTS_BENCHMARKS_ACCURACY_ACCURACY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace paceline {

struct PredictedPoint {
  std::string label;  // What was predicted: "ResNet-50 10GbE WFBP 16 GPUs".
  double predicted = 0;
  double measured = 0;
  // 90 % interval of the prediction; unset if the model gives none.
  absl::optional<double> low;
  absl::optional<double> high;
};

// Relative errors |predicted - measured| / measured, as fractions.
struct ErrorSummary {
  int points = 0;
  double mean = 0;  // MAPE.
  double median = 0;
  double p90 = 0;
  double max = 0;
  double bias = 0;                  // Signed mean of (predicted - measured) / measured.
  absl::optional<double> coverage;  // Share of points inside their 90 % interval.
};

ErrorSummary SummarizeErrors(absl::Span<const PredictedPoint> points);

struct AccuracyRow {
  int target = 0;     // Number in the table of targets; 0: beside it.
  std::string task;   // "collective, same n, new sizes (OSU, n = 2)".
  std::string split;  // "in-sample" or "held out".
  ErrorSummary ours;
  // MAPE of the baselines on the same points; unset where one makes no sense.
  absl::optional<double> baseline_constant;  // Constant time at the largest measured n.
  absl::optional<double> baseline_ring;      // That times the ring factor.
  absl::optional<double> baseline_other;     // Named in `note`.
  // Largest mean error allowed (and for any single point, if set).
  absl::optional<double> goal_mean;
  absl::optional<double> goal_max;
  // Share of points that the intervals must hold: {0.85, 0.97} for 90 % intervals of predictions.
  absl::optional<std::pair<double, double>> goal_coverage;
  std::string note;
  bool met() const;
};

// Where the measurements are. A file that is missing is named and its rows are skipped.
struct AccuracyData {
  std::string data_dir;     // Fitted on (and, without heldout_dir, held out within).
  std::string heldout_dir;  // Only ever scored; empty: none.
};

class AccuracyReport {
 public:
  void Add(AccuracyRow row) { rows_.push_back(std::move(row)); }
  // Named in the output: "bcaffe_osu_allreduce.csv: not in DIR, its rows are skipped".
  void Skip(std::string what) { skipped_.push_back(std::move(what)); }
  const std::vector<AccuracyRow>& rows() const { return rows_; }
  const std::vector<std::string>& skipped() const { return skipped_; }
  std::string Table() const;

 private:
  std::vector<AccuracyRow> rows_;
  std::vector<std::string> skipped_;
};

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_ACCURACY_ACCURACY_H_
