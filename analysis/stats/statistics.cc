#include "analysis/stats/statistics.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

#include "models/stats/stats.h"

namespace paceline {
namespace {

std::vector<double> Finite(absl::Span<const double> values) {
  std::vector<double> finite;
  finite.reserve(values.size());
  for (double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
  }
  return finite;
}

// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every platform, unlike the
// distributions of <random>.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t Below(size_t bound) { return static_cast<size_t>(Next() % bound); }

 private:
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// Runs with only finite values, without the empty ones.
Runs Cleaned(const Runs& runs) {
  Runs cleaned;
  for (const std::vector<double>& run : runs) {
    std::vector<double> finite = Finite(run);
    if (!finite.empty()) cleaned.push_back(std::move(finite));
  }
  return cleaned;
}

using Statistic = std::function<double(absl::Span<const double>)>;

// Uncertainty of the logarithm of a statistic; no degrees of freedom: unknown.
struct LogError {
  double variance = 0;
  double degrees_of_freedom = 0;
};

// Twice tau is the full correlation time (1 for independent values). A short series underestimates
// it, because its own mean is taken off: to first order by (1 + 2 tau) / count (Marriott and Pope
// 1954).
double CorrelationTime(absl::Span<const double> run) {
  const double measured = 2 * AutocorrelationTime(run);
  double corrected = measured;
  for (int i = 0; i < 3; ++i) {
    corrected = std::min(measured * (1 + 2 * (corrected + 1) / run.size()), run.size() / 2.0);
  }
  return std::max(1.0, corrected);
}

// Block bootstrap within one run.
LogError ErrorWithin(const std::vector<double>& run, const Statistic& statistic, int resamples,
                     Random* random) {
  const size_t count = run.size();
  if (count < 2) return {};
  const double wanted = 4 * CorrelationTime(run);
  const double least = std::min<double>(wanted, count / 5.0);
  const size_t length = static_cast<size_t>(std::max(1.0, std::ceil(least)));
  const double blocks = static_cast<double>(count) / length;
  std::vector<double> values(count);
  double sum = 0, squares = 0;
  int used = 0;
  for (int r = 0; r < resamples; ++r) {
    for (size_t taken = 0; taken < count;) {
      size_t at = random->Below(count);
      for (size_t k = 0; k < length && taken < count; ++k) {
        values[taken++] = run[at];
        at = at + 1 == count ? 0 : at + 1;
      }
    }
    const double value = std::log(statistic(values));
    if (!std::isfinite(value)) continue;
    sum += value;
    squares += value * value;
    ++used;
  }
  if (used < 2 || blocks < 2) return {};
  LogError error;
  error.variance = std::max(0.0, squares / used - sum / used * (sum / used));
  // Resampling k blocks is short by (k-1)/k. Blocks shorter than wanted still depend on each other.
  error.variance *= blocks / (blocks - 1) * std::sqrt(std::max(1.0, wanted / length));
  // Overlapping blocks tell half as much again as separate ones (Meketon and Schmeiser 1984).
  error.degrees_of_freedom = std::max(1.0, 1.5 * blocks - 1);
  return error;
}

LogError ErrorOf(const Runs& runs, const Statistic& statistic, const BootstrapOptions& options) {
  if (runs.empty()) return {};
  Random random(options.seed);
  std::vector<double> logs;
  for (const std::vector<double>& run : runs) {
    const double value = std::log(statistic(run));
    if (std::isfinite(value)) logs.push_back(value);
  }
  const double count = static_cast<double>(logs.size());
  if (logs.size() != runs.size()) return {};
  double between = 0;  // Variance of a run's statistic, as the runs show it.
  const double mean = Mean(logs);
  for (double value : logs) between += (value - mean) * (value - mean) / std::max(1.0, count - 1);
  if (runs.size() >= 3) return {between / count, count - 1};
  std::vector<LogError> within;
  for (const std::vector<double>& run : runs) {
    within.push_back(ErrorWithin(run, statistic, options.resamples, &random));
  }
  if (runs.size() == 1) return within[0];
  const bool both_known = within[0].degrees_of_freedom > 0 && within[1].degrees_of_freedom > 0;
  if (!both_known) return {between / 2, 1};
  const double inside = (within[0].variance + within[1].variance) / 2;
  const double inside_freedom = within[0].degrees_of_freedom + within[1].degrees_of_freedom;
  LogError error;
  error.variance = (between + inside) / 2;
  const double total = between + inside;
  error.degrees_of_freedom =
      total > 0
          ? std::max(1.0, total * total / (between * between + inside * inside / inside_freedom))
          : inside_freedom;
  return error;
}

Interval FromLogError(double value, const LogError& error, double confidence) {
  Interval interval;
  interval.value = value;
  if (!std::isfinite(value) || error.degrees_of_freedom < 1) return interval;
  const double quantile = confidence == 0.95
                              ? StudentT975(error.degrees_of_freedom)
                              : StudentTQuantile(error.degrees_of_freedom, 1 - confidence);
  const double half = quantile * std::sqrt(error.variance);
  interval.low = value * std::exp(-half);
  interval.high = value * std::exp(half);
  return interval;
}

std::vector<double> AllOf(const Runs& runs) {
  std::vector<double> all;
  for (const std::vector<double>& run : runs) all.insert(all.end(), run.begin(), run.end());
  return all;
}

Interval IntervalOf(const Runs& runs, const BootstrapOptions& options, const Statistic& statistic) {
  const Runs cleaned = Cleaned(runs);
  if (cleaned.empty()) return {};
  return FromLogError(statistic(AllOf(cleaned)), ErrorOf(cleaned, statistic, options),
                      options.confidence);
}

// Of the quotient of two independent statistics (Welch).
LogError RatioError(const LogError& a, const LogError& b) {
  // Two runs of the same thing must be called different in less than 5 % of comparisons, also where
  // runs are further from normal than most: intervals 8 % wider, about 96 % for normal runs.
  constexpr double kAgainstFalseAlarms = 1.08;
  LogError error;
  error.variance = a.variance + b.variance;
  if (a.degrees_of_freedom >= 1 && b.degrees_of_freedom >= 1) {
    const double squares = a.variance * a.variance / a.degrees_of_freedom +
                           b.variance * b.variance / b.degrees_of_freedom;
    error.degrees_of_freedom = squares > 0 ? error.variance * error.variance / squares
                                           : a.degrees_of_freedom + b.degrees_of_freedom;
  }
  error.variance *= kAgainstFalseAlarms * kAgainstFalseAlarms;
  return error;
}

double Rate(absl::Span<const double> seconds, double samples_per_iteration) {
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return total > 0 ? samples_per_iteration * seconds.size() / total : kUnknown;
}

}  // namespace

double Mean(absl::Span<const double> values) {
  if (values.empty()) return kUnknown;
  return std::accumulate(values.begin(), values.end(), 0.0) / values.size();
}

double ScaledMad(absl::Span<const double> values) {
  const double median = Median(values);
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (double value : values) deviations.push_back(std::abs(value - median));
  return 1.4826 * Median(deviations);
}

std::vector<bool> FlagOutliers(absl::Span<const double> values, double threshold) {
  const double median = Median(values);
  const double mad = ScaledMad(values);
  std::vector<bool> flags(values.size(), false);
  if (!(mad > 0)) return flags;
  for (size_t i = 0; i < values.size(); ++i) {
    flags[i] = std::abs(values[i] - median) > threshold * mad;
  }
  return flags;
}

Interval MedianInterval(const Runs& runs, const BootstrapOptions& options) {
  Interval interval =
      IntervalOf(runs, options, [](absl::Span<const double> values) { return Median(values); });
  const Runs cleaned = Cleaned(runs);
  const size_t count = cleaned.size();
  if (count < 4 || !interval.has_bounds()) return interval;
  // Where iterations take one of two times, the median of all jumps between them although the
  // medians of the runs agree. Resampled runs show that.
  Random random(options.seed);
  std::vector<double> medians;
  std::vector<double> values;
  for (int r = 0; r < options.resamples; ++r) {
    values.clear();
    for (size_t i = 0; i < count; ++i) {
      const std::vector<double>& run = cleaned[random.Below(count)];
      values.insert(values.end(), run.begin(), run.end());
    }
    medians.push_back(Median(values));
  }
  const double widen = StudentT975(count - 1) / StudentT975(1e9) * std::sqrt(count / (count - 1.0));
  const double low = interval.value - widen * (interval.value - Quantile(medians, 0.025));
  const double high = interval.value + widen * (Quantile(medians, 0.975) - interval.value);
  if (low > 0) interval.low = std::min(interval.low, low);
  interval.high = std::max(interval.high, high);
  return interval;
}

Interval ThroughputInterval(const Runs& runs, double samples_per_iteration,
                            const BootstrapOptions& options) {
  return IntervalOf(runs, options, [samples_per_iteration](absl::Span<const double> seconds) {
    return Rate(seconds, samples_per_iteration);
  });
}

Interval SpeedRatioInterval(const Runs& a, double a_samples, const Runs& b, double b_samples,
                            const BootstrapOptions& options) {
  const Runs cleaned_a = Cleaned(a);
  const Runs cleaned_b = Cleaned(b);
  if (cleaned_a.empty() || cleaned_b.empty()) return {};
  const auto rate = [](absl::Span<const double> seconds) { return Rate(seconds, 1); };
  return FromLogError(
      Rate(AllOf(cleaned_a), a_samples) / Rate(AllOf(cleaned_b), b_samples),
      RatioError(ErrorOf(cleaned_a, rate, options), ErrorOf(cleaned_b, rate, options)),
      options.confidence);
}

Interval MedianRatioInterval(const Runs& a, const Runs& b, const BootstrapOptions& options) {
  const Runs cleaned_a = Cleaned(a);
  const Runs cleaned_b = Cleaned(b);
  if (cleaned_a.empty() || cleaned_b.empty()) return {};
  const auto median = [](absl::Span<const double> values) { return Median(values); };
  return FromLogError(
      Median(AllOf(cleaned_a)) / Median(AllOf(cleaned_b)),
      RatioError(ErrorOf(cleaned_a, median, options), ErrorOf(cleaned_b, median, options)),
      options.confidence);
}

double StudentT975(double degrees_of_freedom) {
  static constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                      2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
  if (!(degrees_of_freedom >= 1)) return kUnknown;
  if (degrees_of_freedom < 15) {
    // Linear in the reciprocal of the degrees of freedom between whole ones.
    const int below = static_cast<int>(degrees_of_freedom);
    const double share =
        (1.0 / below - 1.0 / degrees_of_freedom) / (1.0 / below - 1.0 / (below + 1));
    return (1 - share) * kTable[below - 1] + share * kTable[below];
  }
  // Cornish-Fisher; off by less than 0.001 here.
  const double z = 1.959964;
  const double nu = degrees_of_freedom;
  return z + (z * z * z + z) / (4 * nu) +
         (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * nu * nu);
}

// Hill, "Algorithm 396: Student's t-quantiles", CACM 13 (1970).
double StudentTQuantile(double degrees_of_freedom, double tail) {
  const double n = degrees_of_freedom;
  if (!(n >= 1) || !(tail > 0) || !(tail < 1)) return kUnknown;
  constexpr double kPi = 3.14159265358979323846;
  if (n < 1.001) return 1 / std::tan(tail * kPi / 2);
  if (std::abs(n - 2) < 1e-9) return std::sqrt(2 / (tail * (2 - tail)) - 2);
  const double a = 1 / (n - 0.5);
  const double b = 48 / (a * a);
  double c = ((20700 * a / b - 98) * a - 16) * a + 96.36;
  const double d = ((94.5 / (b + c) - 3) / b + 1) * std::sqrt(a * kPi / 2) * n;
  double y = std::pow(d * tail, 2 / n);
  if (y > 0.05 + a) {
    // Abramowitz and Stegun 26.2.23: the normal quantile.
    const double t = std::sqrt(-2 * std::log(tail / 2));
    const double x = -(t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                               (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t));
    y = x * x;
    if (n < 5) c += 0.3 * (n - 4.5) * (x + 0.6);
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c;
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x;
    y = a * y * y;
    y = y > 0.002 ? std::expm1(y) : 0.5 * y * y + y;
  } else {
    y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) *
            (n + 1) / (n + 2) +
        1 / y;
  }
  return std::sqrt(n * y);
}

}  // namespace paceline
