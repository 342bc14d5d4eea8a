// Cost of all-reduce on one cluster with one library, fitted on measurements at one or more numbers
// of ranks: predicts sizes and numbers of ranks that were not measured, says how sure it is, and
// names the measurement that would make it surer.
//
//   absl::StatusOr<CollectiveModel> model = CollectiveModel::Fit(imported.measurements);
//   CollectivePrediction p = model->Predict(/*bytes=*/25e6, /*ranks=*/16, /*nodes=*/2);
//   printf("%g [%g, %g] by %s\n", p.seconds, p.low_seconds, p.high_seconds, p.method.c_str());
//   for (const std::string& flag : p.flags) puts(flag.c_str());
//
// At a measured number of ranks the piecewise curve of size_curve.h answers. For another number the
// nearest curve is scaled by the growth law of an algorithm (a ring repeats the same messages of
// M/n bytes, so its breaks stay at fixed M/n). The law is the one that best predicts the measured
// numbers of ranks from those below them, baselines included; with nothing to check it on it is
// assumed, and the prediction says so. Two ranks teach nothing about growth: each has one peer
// only, and all algorithms do the same.
//
// Immutable after Fit, so thread-safe. Bytes per rank, seconds, 90 % intervals.
#ifndef PACELINE_ANALYSIS_COST_COLLECTIVE_MODEL_H_
#define PACELINE_ANALYSIS_COST_COLLECTIVE_MODEL_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "analysis/cost/size_curve.h"
#include "analysis/import/collective_measurement.h"

namespace paceline {

// How time grows with the number of ranks.
enum class GrowthLaw {
  kRing,
  kHalvingDoubling,
  kRecursiveDoubling,
  kDoubleTree,
  kOneServer,     // Parameter server that does not grow with the workers: proportional to n.
  kConstantTime,  // Baseline.
  kRingFactor,    // Baseline: time times the ratio of (n-1)/n.
};
absl::string_view GrowthLawName(GrowthLaw law);

struct CollectivePrediction {
  double seconds = 0;
  double low_seconds = 0;  // 90 % interval.
  double high_seconds = 0;
  bool extrapolated = false;       // In size or in ranks.
  std::string method;              // "measured at 4 ranks", "ring from 4 ranks".
  std::vector<std::string> flags;  // Doubts, with the measurement to take next. Empty: none.
};

// A parameter of the closed form. No value unless the measurements determine it.
struct ParameterEstimate {
  std::string name;  // "alpha_seconds" ...
  absl::optional<double> value;
  absl::optional<double> low;  // 90 % bootstrap interval.
  absl::optional<double> high;
  std::string note;  // Why there is no value and what to measure.
};

// What the measurements say about alpha, beta and gamma of the large-message algorithm.
struct IdentifiabilityReport {
  std::string law;
  int parameters = 3;
  int rank = 0;
  // Of the columns that are kept, scaled to length 1. Infinite if they are dependent.
  double condition_number = 0;
  // Between estimates; unset where one of them is not determined.
  std::array<std::array<absl::optional<double>, 3>, 3> correlations;
  std::vector<ParameterEstimate> estimates;
  std::string Text() const;
};

// How the law of one range of sizes was chosen.
struct LawChoice {
  GrowthLaw law = GrowthLaw::kRing;
  // Steps from one measured number of ranks to the next that it was checked on. One step only picks
  // the law; the second one checks it.
  int steps = 0;
  double log_error = 0;  // Mean |log error| of the law over those steps.
  double log_error_p90 = 0;
  double ring_factor_error = 0;  // The same for the baselines.
  double constant_error = 0;
};

class CollectiveModel {
 public:
  // Measurements of one collective. INVALID_ARGUMENT for values that make no sense (not positive,
  // two collectives, times of one size that differ by 30 or more: mixed units); FAILED_PRECONDITION
  // for too few.
  static absl::StatusOr<CollectiveModel> Fit(absl::Span<const CollectiveMeasurement> measurements);

  // nodes: 0 if unknown or if every rank has its own.
  CollectivePrediction Predict(double bytes, int ranks, int nodes = 0) const;

  struct RankCurve {
    int ranks = 0;
    int nodes = 0;
    SizeCurve curve;
  };
  const std::vector<RankCurve>& curves() const { return curves_; }  // By ranks.
  // Chosen for messages within one host (or between hosts) below (or from) the size at which the
  // library changes its algorithm.
  const LawChoice& law(bool between_hosts, bool large_messages) const {
    return laws_[between_hosts][large_messages];
  }
  const IdentifiabilityReport& identifiability() const { return identifiability_; }
  const std::vector<std::string>& flags() const { return flags_; }  // On the data as a whole.

 private:
  void ChooseLaws();
  void Identify();

  std::vector<RankCurve> curves_;
  std::array<std::array<LawChoice, 2>, 2> laws_;  // [between hosts][large messages]
  IdentifiabilityReport identifiability_;
  std::vector<std::string> flags_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_COST_COLLECTIVE_MODEL_H_
