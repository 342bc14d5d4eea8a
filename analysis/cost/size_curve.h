// Time of one collective against its size, at one number of ranks: piecewise straight lines whose
// breaks (eager limits, segment sizes, changes of algorithm) are found in the data.
//
//   absl::StatusOr<SizeCurve> curve = SizeCurve::Fit(points);
//   CurvePrediction p = curve->Predict(25e6);
//   printf("%g [%g, %g]%s", p.seconds, p.low_seconds, p.high_seconds, p.extrapolated ? " !" : "");
//
// Residuals are relative, coefficients non-negative. Breaks come from dynamic programming over all
// splits; their number minimises BIC with AICc's small-sample term. Each piece is then refitted
// with Huber's loss. Intervals (90 %) come from cross-validation. Beyond the largest size measured,
// the local slope misleads (steps recur at every break): the line through the longest trailing
// range that it fits, or constant bandwidth, whichever did better on a rehearsal within the data,
// is used.
//
// Immutable after Fit, so thread-safe. Bytes and seconds.
#ifndef PACELINE_ANALYSIS_COST_SIZE_CURVE_H_
#define PACELINE_ANALYSIS_COST_SIZE_CURVE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

struct SizePoint {
  double bytes = 0;
  double seconds = 0;
};

// seconds = intercept + slope * bytes from first_bytes to last_bytes (both measured).
struct CurvePiece {
  double first_bytes = 0;
  double last_bytes = 0;
  double intercept_seconds = 0;
  double slope_seconds_per_byte = 0;
  int points = 0;

  double At(double bytes) const { return intercept_seconds + slope_seconds_per_byte * bytes; }
};

// A range of sizes that one algorithm serves: consecutive pieces of the curve.
struct CurveRegime {
  size_t first_piece = 0;
  size_t last_piece = 0;  // Inclusive.
};

struct CurvePrediction {
  double seconds = 0;
  double low_seconds = 0;  // 90 % interval.
  double high_seconds = 0;
  bool extrapolated = false;
  std::string note;  // Why it is doubtful and what to measure; empty: nothing to say.
};

class SizeCurve {
 public:
  // At least 2 sizes; repeated sizes count as one (median). Error for fewer, or for values that are
  // not positive.
  static absl::StatusOr<SizeCurve> Fit(absl::Span<const SizePoint> points);

  CurvePrediction Predict(double bytes) const;
  // Value of the line that holds at `bytes` among the pieces of `regime`, extended past its ends.
  double EvaluateRegime(size_t regime, double bytes) const;
  size_t RegimeAt(double bytes) const;

  const std::vector<CurvePiece>& pieces() const { return pieces_; }
  // At least one. A new one starts where time jumps by 1.6 or more and by more than the size does.
  const std::vector<CurveRegime>& regimes() const { return regimes_; }
  const std::vector<SizePoint>& points() const { return points_; }  // Sorted, one per size.
  double median_absolute_residual() const { return median_absolute_residual_; }  // Relative.
  // Quantiles of cross-validated |log error| that hold 90 % of points.
  double half_width_log() const { return half_width_log_; }
  // "line" or "constant bandwidth": how sizes beyond the largest are predicted.
  const std::string& extrapolation() const { return extrapolation_; }

 private:
  static std::vector<CurvePiece> FitPieces(absl::Span<const SizePoint> points);
  void FindRegimes();
  void CrossValidate();
  void RehearseExtrapolation();

  std::vector<SizePoint> points_;
  std::vector<CurvePiece> pieces_;
  std::vector<CurveRegime> regimes_;
  std::vector<double> validated_log_errors_;  // One per point.
  double median_absolute_residual_ = 0;
  double half_width_log_ = 0;
  CurvePiece trailing_line_;
  bool constant_bandwidth_ = false;
  double extrapolation_log_error_ = 0;  // Per factor of 4.
  std::string extrapolation_;
};

// Relative least squares y = a + b x with a, b >= 0 and Huber's loss: for callers with own points.
CurvePiece FitRobustLine(absl::Span<const SizePoint> points);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_COST_SIZE_CURVE_H_
