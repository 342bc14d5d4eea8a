#include "models/stats/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace paceline {
namespace {

double QuantileOfSorted(const std::vector<double>& sorted, double q) {
  const double position = q * (sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - below) * (sorted[above] - sorted[below]);
}

std::vector<double> Sorted(absl::Span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

double Quantile(absl::Span<const double> samples, double q) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  return QuantileOfSorted(Sorted(samples), q);
}

double Median(absl::Span<const double> samples) { return Quantile(samples, 0.5); }

double AutocorrelationTime(absl::Span<const double> samples) {
  const size_t n = samples.size();
  if (n < 8) return 0.5;
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double variance = 0;
  for (double x : samples) variance += (x - mean) * (x - mean);
  if (variance <= 0) return 0.5;
  double tau = 0.5;
  for (size_t lag = 1; lag < n / 2; ++lag) {
    double covariance = 0;
    for (size_t i = lag; i < n; ++i) covariance += (samples[i] - mean) * (samples[i - lag] - mean);
    tau += covariance / variance;
    if (lag >= 5 * tau) break;
  }
  return std::max(0.5, tau);
}

double MedianHalfWidth(absl::Span<const double> samples) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (samples.empty()) return infinity;
  const double effective = samples.size() / (2 * AutocorrelationTime(samples));
  if (effective < 6) return infinity;  // 2 * 0.5^6 = 3 %: the first n whose range covers 95 %.
  // Ranks n/2 +- 1.96 sqrt(n)/2 of the effective sample, as quantiles of the real one.
  const double spread = 0.98 / std::sqrt(effective);
  const std::vector<double> sorted = Sorted(samples);
  const double low = QuantileOfSorted(sorted, std::max(0.0, 0.5 - spread));
  const double high = QuantileOfSorted(sorted, std::min(1.0, 0.5 + spread));
  return (high - low) / 2;
}

size_t WarmupLength(absl::Span<const double> samples) {
  constexpr size_t kBatch = 5;
  if (samples.size() < 4 * kBatch) return 0;
  std::vector<double> batches;
  for (size_t i = 0; i + kBatch <= samples.size(); i += kBatch) {
    batches.push_back(std::accumulate(samples.begin() + i, samples.begin() + i + kBatch, 0.0) /
                      kBatch);
  }
  size_t best = 0;
  double best_error = std::numeric_limits<double>::infinity();
  for (size_t first = 0; first <= batches.size() / 2; ++first) {
    const size_t n = batches.size() - first;
    const double mean = std::accumulate(batches.begin() + first, batches.end(), 0.0) / n;
    double squares = 0;
    for (size_t i = first; i < batches.size(); ++i) {
      squares += (batches[i] - mean) * (batches[i] - mean);
    }
    const double error = squares / (static_cast<double>(n) * n);
    if (error < best_error) {
      best_error = error;
      best = first;
    }
  }
  return best * kBatch;
}

}  // namespace paceline
