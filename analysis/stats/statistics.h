// Statistics of iteration series: robust location, warm-up, autocorrelation, bootstrap intervals.
//
//   Interval median = MedianInterval({run1_seconds, run2_seconds});
//   Interval rate = ThroughputInterval({run1_seconds, run2_seconds}, /*samples=*/32);
//   printf("%g [%g, %g]", rate.value, rate.low, rate.high);
//
// Iterations are correlated, so intervals come from a hierarchical bootstrap: whole runs first, then
// circular blocks of at least twice the integrated autocorrelation time (Kalibera and Jones, ISMM'13;
// Politis and Romano 1992). Few blocks make percentile intervals too narrow; they are widened by
// Student's t over the normal quantile for the number of independent blocks.
//
// Every function is deterministic (fixed seed) and thread-safe. NaN means "unknown": no value could
// be computed. Unless a name says otherwise, units are those of the input.
#ifndef PACELINE_ANALYSIS_STATS_STATISTICS_H_
#define PACELINE_ANALYSIS_STATS_STATISTICS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"

namespace paceline {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A value with its 95 % interval. All NaN: unknown. Only low and high NaN: a single observation.
struct Interval {
  double value = kUnknown;
  double low = kUnknown;
  double high = kUnknown;

  bool known() const { return std::isfinite(value); }
  bool has_bounds() const { return std::isfinite(low) && std::isfinite(high); }
  // Half of (high - low) / value; NaN if either is unknown.
  double relative_half_width() const { return (high - low) / 2 / value; }
};

// Series of one repeat each.
using Runs = std::vector<std::vector<double>>;

// Non-finite values are ignored by all of these; empty input gives NaN.
double Mean(absl::Span<const double> values);
double Median(absl::Span<const double> values);
// Linear interpolation between order statistics (type 7 of Hyndman and Fan). 0 <= q <= 1.
double Quantile(absl::Span<const double> values, double q);
// Median absolute deviation times 1.4826: estimates the standard deviation of normal data.
double ScaledMad(absl::Span<const double> values);
// True where a value lies more than `threshold` scaled MADs from the median. Kept in all statistics;
// only shown. With a MAD of 0 nothing is flagged.
std::vector<bool> FlagOutliers(absl::Span<const double> values, double threshold = 3.5);

// MSER-5 (White 1997): leading observations to discard so that the mean of the rest is known best,
// in batches of five. -1: no steady state (the best cut is not in the first half).
int Mser5(absl::Span<const double> values);

// Integrated autocorrelation time with Sokal's automatic window (c = 5). 1 for independent values;
// at most a third of the length.
double AutocorrelationTime(absl::Span<const double> values);

struct BootstrapOptions {
  int resamples = 1000;
  double confidence = 0.95;
  uint64_t seed = 20171122;
};

// Median of all values of all runs.
Interval MedianInterval(const Runs& runs, const BootstrapOptions& options = {});
// samples_per_iteration * iterations / total time: never a mean of rates (Hoefler and Belli, SC'15).
Interval ThroughputInterval(const Runs& runs, double samples_per_iteration,
                            const BootstrapOptions& options = {});
// Throughput of `a` over throughput of `b`, both resampled: above 1, a is faster.
Interval SpeedRatioInterval(const Runs& a, double a_samples, const Runs& b, double b_samples,
                            const BootstrapOptions& options = {});

// Two-sided 97.5 % quantile of Student's t.
double StudentT975(int degrees_of_freedom);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_STATS_STATISTICS_H_
