// Statistics of iteration times that measuring and analysing share. Pure functions on samples in
// measurement order; empty input gives NaN unless said otherwise.
//
// Iterations are correlated, so intervals use the effective number of independent samples
// n / (2 tau), tau being the integrated autocorrelation time (performance_model: statistics;
// Kalibera and Jones, ISMM'13).
#ifndef PACELINE_MODELS_STATS_STATS_H_
#define PACELINE_MODELS_STATS_STATS_H_

#include <cstddef>

#include "absl/types/span.h"

namespace paceline {

// Linear interpolation between order statistics; q in [0, 1].
double Quantile(absl::Span<const double> samples, double q);
double Median(absl::Span<const double> samples);

// Integrated autocorrelation time in iterations, at least 0.5 (independent samples). Sums the
// autocorrelation up to the first lag beyond 5 tau (Sokal's window). 0.5 for fewer than 8 samples.
double AutocorrelationTime(absl::Span<const double> samples);

// Half width of the 95 % confidence interval of the median, from order statistics (no assumption on
// the distribution) at the effective sample size. Infinite for fewer than 6 effective samples,
// where even the full range covers less than 95 %.
double MedianHalfWidth(absl::Span<const double> samples);

// Number of leading samples to discard as warm-up by MSER-5 (White 1997): batches of 5, the
// truncation that minimises the standard error of what remains, searched over the first half.
// 0 for fewer than 20 samples.
size_t WarmupLength(absl::Span<const double> samples);

}  // namespace paceline

#endif  // PACELINE_MODELS_STATS_STATS_H_
