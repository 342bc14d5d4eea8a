#include "analysis/cost/contention_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

// Interval of what nothing was checked on: half as long to twice as long, nearly.
constexpr double kUncheckedLogError = 0.5;

constexpr double kSharpnesses[] = {2, 1, 4};

// Fits alone and share to the measured jobs.
ContentionCurve FitCurve(double bytes, std::map<int, double> measured, double sharpness) {
  ContentionCurve curve;
  curve.sharpness = sharpness;
  curve.bytes = bytes;
  curve.measured_seconds = std::move(measured);
  const std::map<int, double>& times = curve.measured_seconds;
  const auto one = times.find(1);
  bool sharing_costs = false;
  if (one != times.end()) {
    for (const auto& entry : times) {
      sharing_costs = sharing_costs || entry.second > entry.first * one->second;
    }
  }
  if (sharing_costs) curve.one_job_seconds = one->second;
  // Powers are linear in alone^p and share^p; their relative residuals are p times those of t.
  // Least absolute residuals by reweighting: single runs of shared networks stray far.
  std::map<int, double> weights;
  double alone = 0, share = 0;
  for (int iteration = 0; iteration < 20; ++iteration) {
    double s11 = 0, s12 = 0, s22 = 0, r1 = 0, r2 = 0;
    int used = 0;
    for (const auto& entry : times) {
      if (sharing_costs && entry.first == 1) continue;
      const double x1 = std::pow(entry.second, -sharpness);
      const double x2 = std::pow(entry.first / entry.second, sharpness);
      const double weight = iteration == 0 ? 1 : weights[entry.first];
      s11 += weight * x1 * x1;
      s12 += weight * x1 * x2;
      s22 += weight * x2 * x2;
      r1 += weight * x1;
      r2 += weight * x2;
      ++used;
    }
    const double only_alone = r1 / s11, only_share = r2 / s22;
    alone = 0;
    share = only_share;
    if (used > 1) {
      const double determinant = s11 * s22 - s12 * s12;
      alone = (r1 * s22 - r2 * s12) / determinant;
      share = (r2 * s11 - r1 * s12) / determinant;
      if (share <= 0) {
        share = 0;
        alone = only_alone;
      } else if (alone < 0) {
        alone = 0;
        share = only_share;
      }
    } else if (!sharing_costs && times.begin()->first == 1) {
      alone = only_alone;
      share = 0;
    }
    for (const auto& entry : times) {
      const double power = alone + std::pow(entry.first, sharpness) * share;
      const double residual = std::abs(power * std::pow(entry.second, -sharpness) - 1);
      weights[entry.first] = 1 / std::max(0.02, residual);
    }
  }
  curve.alone_seconds = std::pow(alone, 1 / sharpness);
  curve.share_seconds = std::pow(share, 1 / sharpness);
  return curve;
}

using MeasuredSizes = std::map<double, std::map<int, double>>;

// |log error| of predicting each number of jobs from at most half as many, two of them at least.
std::vector<double> Rehearse(const MeasuredSizes& sizes, double sharpness) {
  std::vector<double> errors;
  for (const auto& size : sizes) {
    for (const auto& entry : size.second) {
      std::map<int, double> fewer;
      for (const auto& other : size.second) {
        if (2 * other.first <= entry.first) fewer.insert(other);
      }
      if (fewer.size() < 2) continue;
      const ContentionCurve curve = FitCurve(size.first, std::move(fewer), sharpness);
      errors.push_back(std::abs(std::log(curve.At(entry.first) / entry.second)));
    }
  }
  return errors;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

}  // namespace

double ContentionCurve::At(int jobs) const {
  if (jobs == 1 && one_job_seconds > 0) return one_job_seconds;
  return std::pow(std::pow(alone_seconds, sharpness) + std::pow(jobs * share_seconds, sharpness),
                  1 / sharpness);
}

absl::StatusOr<ContentionModel> ContentionModel::Fit(absl::Span<const ContentionPoint> points) {
  std::map<double, std::map<int, std::vector<double>>> by_size;
  ContentionModel model;
  for (const ContentionPoint& p : points) {
    if (p.jobs < 1 || !(p.bytes > 0) || !(p.seconds > 0) || !std::isfinite(p.seconds)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%d jobs with %g bytes take %g s: expected at least 1 job and values above 0", p.jobs,
          p.bytes, p.seconds));
    }
    by_size[p.bytes][p.jobs].push_back(p.seconds);
    model.most_jobs_ = std::max(model.most_jobs_, p.jobs);
  }
  if (by_size.empty()) return absl::FailedPreconditionError("no measurement to fit");
  MeasuredSizes sizes;
  for (const auto& size : by_size) {
    for (const auto& jobs : size.second) sizes[size.first][jobs.first] = Median(jobs.second);
  }
  double sharpness = kSharpnesses[0];
  std::vector<double> rehearsed = Rehearse(sizes, sharpness);
  for (double candidate : kSharpnesses) {
    std::vector<double> errors = Rehearse(sizes, candidate);
    if (Sum(errors) < Sum(rehearsed)) {
      sharpness = candidate;
      rehearsed = std::move(errors);
    }
  }
  for (const auto& size : sizes) {
    model.curves_.push_back(FitCurve(size.first, size.second, sharpness));
  }
  if (model.most_jobs_ == 1) {
    model.flags_.push_back("only one job measured: nothing shows how jobs share; run 2 at once");
  }

  // What a number of jobs adds at every size. It must predict sizes left out better than nothing
  // does.
  const auto residuals_by_jobs = [&model] {
    std::map<int, std::vector<double>> residuals;
    for (const ContentionCurve& curve : model.curves_) {
      for (const auto& entry : curve.measured_seconds) {
        residuals[entry.first].push_back(std::log(entry.second / curve.At(entry.first)));
      }
    }
    return residuals;
  };
  std::map<int, std::vector<double>> residuals = residuals_by_jobs();
  if (model.curves_.size() >= 3 && residuals.size() >= 3) {
    double with = 0, without = 0;
    for (const auto& entry : residuals) {
      for (size_t i = 0; i < entry.second.size(); ++i) {
        std::vector<double> others = entry.second;
        others.erase(others.begin() + i);
        with += std::abs(entry.second[i] - (others.empty() ? 0 : Median(others)));
        without += std::abs(entry.second[i]);
      }
    }
    // Factors and curves in turn: each is fitted to what the other leaves.
    for (int round = 0; round < 3 && with < without; ++round) {
      for (const auto& entry : residuals) {
        model.jobs_factors_[entry.first] = std::exp(Median(entry.second));
      }
      for (ContentionCurve& curve : model.curves_) {
        std::map<int, double> rest = sizes[curve.bytes];
        for (auto& entry : rest) entry.second /= model.jobs_factors_[entry.first];
        curve = FitCurve(curve.bytes, std::move(rest), sharpness);
        curve.measured_seconds = sizes[curve.bytes];
      }
      residuals = residuals_by_jobs();
    }
  }
  std::vector<double> errors;
  for (const ContentionCurve& curve : model.curves_) {
    for (const auto& entry : curve.measured_seconds) {
      const auto factor = model.jobs_factors_.find(entry.first);
      const double f = factor == model.jobs_factors_.end() ? 1 : factor->second;
      errors.push_back(std::abs(std::log(f * curve.At(entry.first) / entry.second)));
    }
  }
  model.in_sample_log_error_ = std::max(0.02, Quantile(errors, 0.9));

  model.rehearsed_ = !rehearsed.empty();
  model.rehearsed_log_error_ = model.rehearsed_ ? 1.2 * Quantile(rehearsed, 0.9) : 0.2;
  return model;
}

ContentionPrediction ContentionModel::Predict(int jobs, double bytes) const {
  ContentionPrediction prediction;
  if (jobs < 1 || !(bytes > 0)) {
    prediction.seconds = prediction.low_seconds = prediction.high_seconds =
        std::numeric_limits<double>::quiet_NaN();
    prediction.flags.push_back(absl::StrFormat(
        "%d jobs with %g bytes: expected at least 1 job and more than 0 bytes", jobs, bytes));
    return prediction;
  }
  const auto above =
      std::lower_bound(curves_.begin(), curves_.end(), bytes,
                       [](const ContentionCurve& c, double b) { return c.bytes < b; });
  double half = in_sample_log_error_;
  if (above != curves_.end() && above->bytes == bytes) {
    prediction.seconds = above->At(jobs);
  } else if (above == curves_.end() || above == curves_.begin()) {
    const ContentionCurve& nearest = above == curves_.end() ? curves_.back() : curves_.front();
    // Larger messages are bandwidth, smaller ones at least latency.
    prediction.seconds = nearest.At(jobs) * (bytes > nearest.bytes ? bytes / nearest.bytes : 1);
    prediction.extrapolated = true;
    half += 0.2 * std::abs(std::log2(bytes / nearest.bytes));
    prediction.flags.push_back(absl::StrFormat(
        "%.3g bytes lie outside the sizes measured: measure them with 1 and 2 jobs", bytes));
  } else {
    const ContentionCurve& below = *(above - 1);
    const double weight = std::log(bytes / below.bytes) / std::log(above->bytes / below.bytes);
    prediction.seconds =
        std::exp((1 - weight) * std::log(below.At(jobs)) + weight * std::log(above->At(jobs)));
  }
  const auto factor = jobs_factors_.find(jobs);
  if (factor != jobs_factors_.end()) prediction.seconds *= factor->second;
  if (most_jobs_ == 1 && jobs > 1) {
    // Anything from no effect to sharing fairly, or worse.
    prediction.seconds *= std::sqrt(static_cast<double>(jobs));
    prediction.extrapolated = true;
    half = std::log(static_cast<double>(jobs)) / 2 + kUncheckedLogError;
    prediction.flags.push_back("only one job was measured: run 2 jobs at once");
  } else if (jobs > most_jobs_) {
    prediction.extrapolated = true;
    half =
        std::hypot(half, rehearsed_log_error_) * std::max(1.0, std::log2(1.0 * jobs / most_jobs_));
    if (!rehearsed_ || jobs > 2 * most_jobs_) {
      prediction.flags.push_back(absl::StrFormat("%d jobs, measured up to %d: run %d jobs at once",
                                                 jobs, most_jobs_, std::min(jobs, 2 * most_jobs_)));
    }
  }
  prediction.low_seconds = prediction.seconds * std::exp(-half);
  prediction.high_seconds = prediction.seconds * std::exp(half);
  return prediction;
}

}  // namespace paceline
