// Statistics of iteration series: bootstrap intervals of medians, rates and ratios; outliers.
//
//   Interval median = MedianInterval({run1_seconds, run2_seconds});
//   Interval rate = ThroughputInterval({run1_seconds, run2_seconds}, /*samples=*/32);
//   printf("%g [%g, %g]", rate.value, rate.low, rate.high);
//
// Iterations are correlated and runs differ from each other, so intervals are hierarchical
// (Kalibera and Jones, ISMM'13), on the logarithm of the statistic:
// - three or more runs: Student's t on the runs' own statistics. Their spread already holds all
// that
//   happens within a run; resampling blocks as well would count that twice.
// - one run: circular block bootstrap (Politis and Romano 1992) with blocks of four times the full
//   correlation time, widened by Student's t for the number of independent blocks. It cannot see
//   what changes between runs.
// - two runs: the sum of both variances, degrees of freedom after Satterthwaite (1946).
// Coverage is measured by //tests/benchmarks:prediction_accuracy (rows "95 % intervals").
//
// Every function is deterministic (fixed seed) and thread-safe. NaN means "unknown": no value could
// be computed. Intervals ignore non-finite values of their series. Units are those of the input.
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

// NaN for an empty series. Quantiles, medians, the warm-up length and the autocorrelation time are
// in models/stats/stats.h: measuring uses them too.
double Mean(absl::Span<const double> values);
// Median absolute deviation times 1.4826: estimates the standard deviation of normal data.
double ScaledMad(absl::Span<const double> values);
// True where a value lies more than `threshold` scaled MADs from the median. Kept in all
// statistics; only shown. With a MAD of 0 nothing is flagged.
std::vector<bool> FlagOutliers(absl::Span<const double> values, double threshold = 3.5);

struct BootstrapOptions {
  int resamples = 400;
  uint64_t seed = 20171122;
  double confidence = 0.95;  // Of the interval.
};

// Median of all values of all runs. From four runs on, the interval also holds what a bootstrap
// over runs gives: where iterations take one of two times, the median of all jumps between them.
Interval MedianInterval(const Runs& runs, const BootstrapOptions& options = {});
// samples_per_iteration * iterations / total time: never a mean of rates (Hoefler and Belli,
// SC'15).
Interval ThroughputInterval(const Runs& runs, double samples_per_iteration,
                            const BootstrapOptions& options = {});
// Throughput of `a` over throughput of `b`: above 1, a is faster. Welch's degrees of freedom,
// and a little wider than 95 %, so that A/A comparisons raise less than 5 % false alarms.
Interval SpeedRatioInterval(const Runs& a, double a_samples, const Runs& b, double b_samples,
                            const BootstrapOptions& options = {});

// Median of `a` over median of `b`, for times: above 1, a is slower. As wide as for speeds.
Interval MedianRatioInterval(const Runs& a, const Runs& b, const BootstrapOptions& options = {});

// Two-sided 97.5 % quantile of Student's t; NaN below one degree of freedom.
double StudentT975(double degrees_of_freedom);
// Two-sided: |t| exceeds it with probability `tail` (0.05: as above). Hill's approximation.
double StudentTQuantile(double degrees_of_freedom, double tail);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_STATS_STATISTICS_H_
