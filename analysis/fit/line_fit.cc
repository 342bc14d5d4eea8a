#include "analysis/fit/line_fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

struct Coefficients {
  double intercept = 0;
  double slope = 0;
};

// Weighted least squares with both coefficients kept non-negative. x is scaled by the caller.
Coefficients Solve(const std::vector<LinePoint>& points, const std::vector<double>& weights) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    w += weights[i];
    wx += weights[i] * points[i].x;
    wxx += weights[i] * points[i].x * points[i].x;
    wy += weights[i] * points[i].y;
    wxy += weights[i] * points[i].x * points[i].y;
  }
  const double determinant = w * wxx - wx * wx;
  Coefficients line;
  if (determinant > 1e-12 * w * wxx) {
    line.intercept = (wxx * wy - wx * wxy) / determinant;
    line.slope = (w * wxy - wx * wy) / determinant;
  } else {
    line.slope = wxx > 0 ? wxy / wxx : 0;  // One abscissa: proportional.
    if (wxx == 0) line.intercept = wy / w;
    return line;
  }
  if (line.intercept < 0) {
    line.intercept = 0;
    line.slope = wxy / wxx;
  } else if (line.slope < 0) {
    line.slope = 0;
    line.intercept = wy / w;
  }
  return line;
}

// Iteratively reweighted: relative residuals, Huber's loss at 1.345 scaled MADs.
Coefficients RobustLine(const std::vector<LinePoint>& points) {
  std::vector<double> weights;
  for (const LinePoint& point : points) weights.push_back(1 / (point.y * point.y));
  Coefficients line = Solve(points, weights);
  for (int iteration = 0; iteration < 30; ++iteration) {
    std::vector<double> residuals;
    for (const LinePoint& point : points) {
      residuals.push_back((point.y - line.intercept - line.slope * point.x) / point.y);
    }
    std::vector<double> magnitudes;
    for (double residual : residuals) magnitudes.push_back(std::abs(residual));
    const double scale = std::max(1.4826 * Median(magnitudes), 1e-6);
    for (size_t i = 0; i < points.size(); ++i) {
      const double predicted = line.intercept + line.slope * points[i].x;
      // Dividing by the observation alone would favour points that happen to be low.
      const double size = std::sqrt(std::max(predicted, 1e-3 * points[i].y) * points[i].y);
      const double huber = std::min(1.0, 1.345 * scale / std::max(magnitudes[i], 1e-12));
      weights[i] = huber / (size * size);
    }
    const Coefficients next = Solve(points, weights);
    const double change =
        std::abs(next.slope - line.slope) / std::max(line.slope, 1e-300) +
        std::abs(next.intercept - line.intercept) / std::max(line.intercept, 1e-300);
    line = next;
    if (change < 1e-10) break;
  }
  return line;
}

double ConditionNumber(const std::vector<LinePoint>& points) {
  // Relative design: columns 1/y and x/y, each scaled to unit length.
  double aa = 0, ab = 0, bb = 0;
  for (const LinePoint& point : points) {
    aa += 1 / (point.y * point.y);
    ab += point.x / (point.y * point.y);
    bb += point.x * point.x / (point.y * point.y);
  }
  const double cosine = bb > 0 ? ab / std::sqrt(aa * bb) : 1;
  return cosine < 1 ? std::sqrt((1 + cosine) / (1 - cosine))
                    : std::numeric_limits<double>::infinity();
}

// 64-bit linear congruential generator (Knuth's constants), upper bits.
class Random {
 public:
  size_t Below(size_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<size_t>((state_ >> 33) % bound);
  }

 private:
  uint64_t state_ = 20180518;
};

Interval PercentileInterval(double value, const std::vector<double>& resampled) {
  return {value, std::min(value, Quantile(resampled, 0.025)),
          std::max(value, Quantile(resampled, 0.975))};
}

bool Narrow(const Interval& interval, double limit) {
  return interval.value > 0 && interval.relative_half_width() <= limit;
}

}  // namespace

double LineFit::Evaluate(double x) const { return intercept.value + slope.value * x; }

LineFit FitLine(absl::Span<const LinePoint> input, const LineFitOptions& options) {
  LineFit fit;
  std::vector<LinePoint> points;
  double scale = 0;
  for (const LinePoint& point : input) {
    if (!(point.y > 0) || !std::isfinite(point.y) || !(point.x >= 0)) continue;
    points.push_back(point);
    scale = std::max(scale, point.x);
  }
  if (points.empty()) {
    fit.note = "nothing measured";
    return fit;
  }
  if (scale == 0) scale = 1;
  std::set<double> distinct;
  std::vector<std::vector<LinePoint>> clusters;
  std::set<int> cluster_ids;
  for (const LinePoint& point : points) cluster_ids.insert(point.cluster);
  const bool by_cluster = cluster_ids.size() >= 4;
  fit.points = points.size();
  fit.min_x = std::numeric_limits<double>::infinity();
  for (LinePoint& point : points) {
    fit.min_x = std::min(fit.min_x, point.x);
    fit.max_x = std::max(fit.max_x, point.x);
    distinct.insert(point.x);
    point.x /= scale;  // Keeps the normal equations well scaled.
  }
  if (by_cluster) {
    for (int id : cluster_ids) {
      clusters.emplace_back();
      for (const LinePoint& point : points) {
        if (point.cluster == id) clusters.back().push_back(point);
      }
    }
  } else {
    // Too few trials to resample whole: points, which gives narrower intervals.
    for (const LinePoint& point : points) clusters.push_back({point});
  }

  const Coefficients line = RobustLine(points);
  std::vector<double> intercepts, slopes, residuals;
  Random random;
  for (int i = 0; i < options.resamples; ++i) {
    std::vector<LinePoint> resample;
    for (size_t k = 0; k < clusters.size(); ++k) {
      const std::vector<LinePoint>& cluster = clusters[random.Below(clusters.size())];
      resample.insert(resample.end(), cluster.begin(), cluster.end());
    }
    const Coefficients one = RobustLine(resample);
    intercepts.push_back(one.intercept);
    slopes.push_back(one.slope / scale);
  }
  for (const LinePoint& point : points) {
    residuals.push_back(std::abs(line.intercept + line.slope * point.x - point.y) / point.y);
  }
  fit.intercept = PercentileInterval(line.intercept, intercepts);
  fit.slope = PercentileInterval(line.slope / scale, slopes);
  fit.condition_number = ConditionNumber(points);
  fit.median_absolute_residual = Median(residuals);

  const double spread =
      fit.min_x > 0 ? fit.max_x / fit.min_x : std::numeric_limits<double>::infinity();
  if (distinct.size() < 2) {
    fit.note = absl::StrFormat("one size only (%g): measure others", fit.max_x);
    return fit;
  }
  if (points.size() < 3) {
    // Two points fit exactly; a resample of them says nothing.
    fit.intercept.low = fit.intercept.high = kUnknown;
    fit.slope.low = fit.slope.high = kUnknown;
    fit.note = "two points: the line passes through both, its error is unknown";
    return fit;
  }
  fit.slope_identified =
      spread >= options.slope_spread && Narrow(fit.slope, options.max_relative_half_width);
  fit.intercept_identified = spread >= options.intercept_spread && distinct.size() >= 4 &&
                             Narrow(fit.intercept, options.max_relative_half_width);
  if (!fit.intercept_identified || !fit.slope_identified) {
    fit.note = absl::StrFormat("sizes spread by a factor of %.3g over %d points, condition %.3g",
                               spread, fit.points, fit.condition_number);
    if (spread < options.intercept_spread) {
      absl::StrAppend(&fit.note, "; measure sizes two decades apart");
    }
  }
  return fit;
}

}  // namespace paceline
