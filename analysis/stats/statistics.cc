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

// Resamples runs, then circular blocks within each.
class Resampler {
 public:
  Resampler(Runs runs, uint64_t seed) : runs_(std::move(runs)), random_(seed) {
    for (const std::vector<double>& run : runs_) {
      // AutocorrelationTime is 0.5 for independent values; blocks of twice the full correlation.
      const double length = std::ceil(4 * AutocorrelationTime(run));
      // At least two blocks, or every resample would be the run itself.
      const size_t longest = std::max<size_t>(1, run.size() / 2);
      block_lengths_.push_back(std::min(longest, static_cast<size_t>(std::max(1.0, length))));
      independent_blocks_ += static_cast<double>(run.size()) / block_lengths_.back();
    }
  }

  // All values of one resample.
  void Next(std::vector<double>* values) {
    values->clear();
    for (size_t i = 0; i < runs_.size(); ++i) {
      const size_t pick = random_.Below(runs_.size());
      const std::vector<double>& run = runs_[pick];
      for (size_t taken = 0; taken < run.size();) {
        size_t at = random_.Below(run.size());
        for (size_t k = 0; k < block_lengths_[pick] && taken < run.size(); ++k, ++taken) {
          values->push_back(run[at]);
          at = at + 1 == run.size() ? 0 : at + 1;
        }
      }
    }
  }

  std::vector<double> All() const {
    std::vector<double> all;
    for (const std::vector<double>& run : runs_) all.insert(all.end(), run.begin(), run.end());
    return all;
  }
  bool empty() const { return runs_.empty(); }
  double independent_blocks() const { return independent_blocks_; }

 private:
  Runs runs_;
  std::vector<size_t> block_lengths_;
  double independent_blocks_ = 0;
  Random random_;
};

Interval FromResamples(double value, std::vector<double> resampled, double independent_blocks,
                       double confidence) {
  Interval interval;
  interval.value = value;
  if (independent_blocks < 2) return interval;
  const double low = Quantile(resampled, (1 - confidence) / 2);
  const double high = Quantile(resampled, (1 + confidence) / 2);
  const int blocks = static_cast<int>(independent_blocks);
  // A percentile interval of k blocks is short by sqrt((k-1)/k) and ignores that the spread itself
  // is estimated from k blocks.
  const double widen =
      StudentT975(blocks - 1) / 1.959964 * std::sqrt(blocks / std::max(1.0, blocks - 1.0));
  interval.low = value - widen * std::max(0.0, value - low);
  interval.high = value + widen * std::max(0.0, high - value);
  if (value > 0) interval.low = std::max(interval.low, 0.0);
  return interval;
}

Interval Bootstrap(const Runs& runs, const BootstrapOptions& options,
                   const std::function<double(absl::Span<const double>)>& statistic) {
  Resampler resampler(Cleaned(runs), options.seed);
  if (resampler.empty()) return {};
  std::vector<double> resampled(options.resamples);
  std::vector<double> values;
  for (double& result : resampled) {
    resampler.Next(&values);
    result = statistic(values);
  }
  return FromResamples(statistic(resampler.All()), std::move(resampled),
                       resampler.independent_blocks(), options.confidence);
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
  return Bootstrap(runs, options, [](absl::Span<const double> values) { return Median(values); });
}

Interval ThroughputInterval(const Runs& runs, double samples_per_iteration,
                            const BootstrapOptions& options) {
  return Bootstrap(runs, options, [samples_per_iteration](absl::Span<const double> seconds) {
    return Rate(seconds, samples_per_iteration);
  });
}

Interval SpeedRatioInterval(const Runs& a, double a_samples, const Runs& b, double b_samples,
                            const BootstrapOptions& options) {
  Resampler resample_a(Cleaned(a), options.seed);
  Resampler resample_b(Cleaned(b), options.seed ^ 0x5bf03635ULL);
  if (resample_a.empty() || resample_b.empty()) return {};
  std::vector<double> resampled(options.resamples);
  std::vector<double> values_a, values_b;
  for (double& ratio : resampled) {
    resample_a.Next(&values_a);
    resample_b.Next(&values_b);
    ratio = Rate(values_a, a_samples) / Rate(values_b, b_samples);
  }
  return FromResamples(Rate(resample_a.All(), a_samples) / Rate(resample_b.All(), b_samples),
                       std::move(resampled),
                       std::min(resample_a.independent_blocks(), resample_b.independent_blocks()),
                       options.confidence);
}

double StudentT975(int degrees_of_freedom) {
  static constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                      2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
  if (degrees_of_freedom < 1) return kUnknown;
  if (degrees_of_freedom <= 15) return kTable[degrees_of_freedom - 1];
  // Cornish-Fisher; off by less than 0.001 here.
  const double z = 1.959964;
  const double nu = degrees_of_freedom;
  return z + (z * z * z + z) / (4 * nu) +
         (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * nu * nu);
}

}  // namespace paceline
