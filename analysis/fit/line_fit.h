// Robust straight lines y = intercept + slope x with non-negative coefficients, for times against
// bytes or batch sizes.
//
//   LineFit fit = FitLine({{1e3, 110e-6}, {1e6, 1.1e-3}, {1e8, 0.1}});
//   fit.Evaluate(4e6);
//
// Residuals are relative (a 1 ms and a 1 s point weigh the same), with Huber's loss. Intervals come
// from a bootstrap over clusters of points: points of one trial share its disturbances.
// Stateless and thread-safe.
#ifndef PACELINE_ANALYSIS_FIT_LINE_FIT_H_
#define PACELINE_ANALYSIS_FIT_LINE_FIT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace paceline {

struct LinePoint {
  double x = 0;
  double y = 0;     // Positive, or the point is ignored.
  int cluster = 0;  // Points measured together.
};

struct LineFit {
  Interval intercept;
  Interval slope;
  // Whether the points determine each of them. `note` says why not and what would tell.
  bool intercept_identified = false;
  bool slope_identified = false;
  std::string note;
  int points = 0;
  double min_x = 0;
  double max_x = 0;
  double condition_number = 0;                 // Of the scaled normal equations.
  double median_absolute_residual = kUnknown;  // Relative.

  bool known() const { return points > 0; }
  // Best prediction, whether or not the two coefficients can be told apart.
  double Evaluate(double x) const;
};

struct LineFitOptions {
  // An intercept is claimed only if max_x / min_x reaches this: two decades for alpha and beta.
  double intercept_spread = 100;
  double slope_spread = 2;
  // And only if its interval's half width is below this share of it.
  double max_relative_half_width = 0.5;
  int resamples = 400;
};

LineFit FitLine(absl::Span<const LinePoint> points, const LineFitOptions& options = {});

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_LINE_FIT_H_
