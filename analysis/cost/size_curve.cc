#include "analysis/cost/size_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

constexpr int kMaxPieces = 12;
constexpr int kMinPointsPerPiece = 3;
// Timings repeat to about 0.3 % at best; a criterion must not chase less.
constexpr double kNoiseFloor = 0.003;
constexpr double kHuber = 1.345;  // 95 % efficient for normal residuals.

// Sums for weighted lines through any range of points in constant time.
class LineSums {
 public:
  explicit LineSums(absl::Span<const SizePoint> points, absl::Span<const double> weights = {}) {
    sums_.resize(points.size() + 1);
    for (size_t i = 0; i < points.size(); ++i) {
      const double weight = weights.empty() ? 1 : weights[i];
      const double t = points[i].seconds;
      const double x = points[i].bytes;
      Sums s = sums_[i];
      s.n += weight;
      s.w += weight / (t * t);
      s.wx += weight * x / (t * t);
      s.wxx += weight * x * x / (t * t);
      s.wy += weight / t;
      s.wxy += weight * x / t;
      sums_[i + 1] = s;
    }
  }

  // Minimises the sum of ((a + b x - t) / t)^2 over points [begin, end) with a, b >= 0; returns it.
  double Fit(size_t begin, size_t end, double* a, double* b) const {
    const Sums& from = sums_[begin];
    const Sums& to = sums_[end];
    const double n = to.n - from.n, w = to.w - from.w, wx = to.wx - from.wx;
    const double wxx = to.wxx - from.wxx, wy = to.wy - from.wy, wxy = to.wxy - from.wxy;
    const double determinant = w * wxx - wx * wx;
    *a = wy / w;
    *b = 0;
    if (determinant > 1e-9 * w * wxx) {
      *a = (wy * wxx - wxy * wx) / determinant;
      *b = (w * wxy - wx * wy) / determinant;
      if (*b < 0) {
        *a = wy / w;
        *b = 0;
      } else if (*a < 0) {
        *a = 0;
        *b = wxy / wxx;
      }
    }
    const double sum =
        n - 2 * (*a * wy + *b * wxy) + *a * *a * w + 2 * *a * *b * wx + *b * *b * wxx;
    return std::max(0.0, sum);
  }

 private:
  struct Sums {
    double n = 0, w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  };
  std::vector<Sums> sums_;
};

std::vector<double> RelativeResiduals(absl::Span<const SizePoint> points, const CurvePiece& line) {
  std::vector<double> residuals;
  for (const SizePoint& p : points) residuals.push_back(line.At(p.bytes) / p.seconds - 1);
  return residuals;
}

std::vector<double> Absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// The line through the longest trailing range that it describes within 35 %, and its typical point
// within 8 %. At least a factor of 8 in size: over less, the step of one break passes for a slope.
CurvePiece TrailingLine(absl::Span<const SizePoint> points) {
  CurvePiece line = FitRobustLine(points);
  for (size_t first = 0; first + kMinPointsPerPiece <= points.size(); ++first) {
    if (points[first].bytes * 8 > points.back().bytes) break;
    const absl::Span<const SizePoint> range = points.subspan(first);
    line = FitRobustLine(range);
    const std::vector<double> residuals = Absolute(RelativeResiduals(range, line));
    if (*std::max_element(residuals.begin(), residuals.end()) <= 0.35 &&
        Median(residuals) <= 0.08) {
      break;
    }
  }
  return line;
}

size_t PieceAt(const std::vector<CurvePiece>& pieces, double bytes) {
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    // A break lies somewhere between two measured sizes.
    if (bytes < std::sqrt(pieces[i].last_bytes * pieces[i + 1].first_bytes)) return i;
  }
  return pieces.size() - 1;
}

}  // namespace

CurvePiece FitRobustLine(absl::Span<const SizePoint> points) {
  CurvePiece line;
  std::vector<double> weights(points.size(), 1);
  for (int iteration = 0; iteration < 10; ++iteration) {
    LineSums(points, weights)
        .Fit(0, points.size(), &line.intercept_seconds, &line.slope_seconds_per_byte);
    const std::vector<double> residuals = Absolute(RelativeResiduals(points, line));
    const double scale = std::max(kNoiseFloor, 1.4826 * Median(residuals));
    for (size_t i = 0; i < points.size(); ++i) {
      weights[i] = std::min(1.0, kHuber * scale / std::max(1e-12, residuals[i]));
    }
  }
  line.first_bytes = points.front().bytes;
  line.last_bytes = points.back().bytes;
  line.points = static_cast<int>(points.size());
  return line;
}

absl::StatusOr<SizeCurve> SizeCurve::Fit(absl::Span<const SizePoint> points) {
  SizeCurve curve;
  std::vector<SizePoint> sorted(points.begin(), points.end());
  for (const SizePoint& p : sorted) {
    if (!(p.bytes > 0) || !(p.seconds > 0) || !std::isfinite(p.bytes) ||
        !std::isfinite(p.seconds)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%g bytes take %g s: expected finite values above 0", p.bytes, p.seconds));
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const SizePoint& a, const SizePoint& b) { return a.bytes < b.bytes; });
  for (size_t i = 0; i < sorted.size();) {
    std::vector<double> same;
    const double bytes = sorted[i].bytes;
    for (; i < sorted.size() && sorted[i].bytes == bytes; ++i) same.push_back(sorted[i].seconds);
    curve.points_.push_back({bytes, Median(same)});
  }
  if (curve.points_.size() < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat(curve.points_.size(),
                     " size measured: latency and bandwidth cannot be told apart; measure "
                     "at least 2 sizes, better two decades of them"));
  }
  curve.pieces_ = FitPieces(curve.points_);
  curve.FindRegimes();
  std::vector<double> residuals;
  for (const SizePoint& p : curve.points_) {
    const CurvePiece& piece = curve.pieces_[PieceAt(curve.pieces_, p.bytes)];
    residuals.push_back(std::abs(piece.At(p.bytes) / p.seconds - 1));
  }
  curve.median_absolute_residual_ = Median(residuals);
  curve.CrossValidate();
  curve.RehearseExtrapolation();
  return curve;
}

std::vector<CurvePiece> SizeCurve::FitPieces(absl::Span<const SizePoint> points) {
  const size_t count = points.size();
  const LineSums sums(points);
  const double infinity = std::numeric_limits<double>::infinity();
  const int most =
      std::max<int>(1, std::min<int>(kMaxPieces, static_cast<int>(count) / kMinPointsPerPiece));
  const size_t least = std::min<size_t>(count, kMinPointsPerPiece);
  // best[k][j]: smallest sum of squares of the first j points in k + 1 pieces; O(most * count^2).
  std::vector<std::vector<double>> best(most, std::vector<double>(count + 1, infinity));
  std::vector<std::vector<size_t>> from(most, std::vector<size_t>(count + 1, 0));
  double a, b;
  for (size_t j = least; j <= count; ++j) {
    best[0][j] = sums.Fit(0, j, &a, &b);
    for (size_t i = least; i + least <= j; ++i) {
      const double tail = sums.Fit(i, j, &a, &b);
      for (int k = 1; k < most; ++k) {
        if (best[k - 1][i] + tail < best[k][j]) {
          best[k][j] = best[k - 1][i] + tail;
          from[k][j] = i;
        }
      }
    }
  }
  int chosen = 0;
  double lowest = infinity;
  for (int k = 0; k < most; ++k) {
    const double parameters = 3 * (k + 1) - 1;  // Two per piece and the breaks.
    const double left = count - parameters - 1;
    if (!std::isfinite(best[k][count]) || (k > 0 && left <= 0)) continue;
    double criterion = count * std::log(best[k][count] / count + kNoiseFloor * kNoiseFloor) +
                       parameters * std::log(static_cast<double>(count));
    if (left > 0) criterion += 2 * parameters * (parameters + 1) / left;
    if (criterion < lowest) {
      lowest = criterion;
      chosen = k;
    }
  }
  std::vector<CurvePiece> pieces;
  size_t end = count;
  for (int k = chosen; k >= 0; --k) {
    const size_t begin = k > 0 ? from[k][end] : 0;
    pieces.push_back(FitRobustLine(points.subspan(begin, end - begin)));
    end = begin;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

void SizeCurve::FindRegimes() {
  regimes_ = {{0, 0}};
  for (size_t i = 1; i < pieces_.size(); ++i) {
    const CurvePiece& before = pieces_[i - 1];
    const CurvePiece& after = pieces_[i];
    const double jump = after.At(after.first_bytes) / before.At(before.last_bytes);
    if (jump >= 1.6 && jump > after.first_bytes / before.last_bytes) regimes_.push_back({i, i});
    regimes_.back().last_piece = i;
  }
}

void SizeCurve::CrossValidate() {
  const size_t count = points_.size();
  validated_log_errors_.assign(count, 0);
  if (count < 4) {
    // Nothing can be left out: a guess that is not narrow.
    half_width_log_ = 0.3;
    validated_log_errors_.assign(count, half_width_log_);
    return;
  }
  const size_t folds = std::min<size_t>(count, 10);
  std::vector<double> inner;
  for (size_t fold = 0; fold < folds; ++fold) {
    std::vector<SizePoint> kept;
    for (size_t i = 0; i < count; ++i) {
      if (i % folds != fold) kept.push_back(points_[i]);
    }
    const std::vector<CurvePiece> pieces = FitPieces(kept);
    for (size_t i = 0; i < count; ++i) {
      if (i % folds != fold) continue;
      const double x = points_[i].bytes;
      const double error = std::log(pieces[PieceAt(pieces, x)].At(x) / points_[i].seconds);
      validated_log_errors_[i] = std::abs(error);
      if (i > 0 && i + 1 < count) inner.push_back(std::abs(error));
    }
  }
  // The ends were predicted from outside, which is harder than what they stand for.
  validated_log_errors_.front() = validated_log_errors_[1];
  validated_log_errors_.back() = validated_log_errors_[count - 2];
  const double with_small_sample = std::min(1.0, 0.9 * (inner.size() + 1) / inner.size());
  // Errors of a handful of points say little about the next.
  half_width_log_ =
      std::max(kNoiseFloor, Quantile(inner, with_small_sample) * (1 + 3.0 / inner.size()));
}

void SizeCurve::RehearseExtrapolation() {
  trailing_line_ = TrailingLine(points_);
  std::vector<double> line_errors, constant_errors;
  // Pretend that nothing above a cut was measured and predict what lies 2 to 4 times above it.
  for (double cut = points_.back().bytes / 4; cut > points_.back().bytes / 40; cut /= 2) {
    std::vector<SizePoint> below;
    for (const SizePoint& p : points_) {
      if (p.bytes <= cut) below.push_back(p);
    }
    if (below.size() < 2 * kMinPointsPerPiece) break;
    const CurvePiece line = TrailingLine(below);
    for (const SizePoint& p : points_) {
      if (p.bytes <= 2 * cut || p.bytes > 4 * cut) continue;
      line_errors.push_back(std::abs(std::log(line.At(p.bytes) / p.seconds)));
      constant_errors.push_back(
          std::abs(std::log(below.back().seconds / below.back().bytes * p.bytes / p.seconds)));
    }
  }
  extrapolation_ = "line";
  if (line_errors.empty()) {
    extrapolation_log_error_ = 0.3;
    return;
  }
  constant_bandwidth_ = Median(constant_errors) < Median(line_errors);
  if (constant_bandwidth_) extrapolation_ = "constant bandwidth";
  extrapolation_log_error_ =
      std::max(0.1, Quantile(constant_bandwidth_ ? constant_errors : line_errors, 0.9));
}

size_t SizeCurve::RegimeAt(double bytes) const {
  const size_t piece = PieceAt(pieces_, bytes);
  for (size_t r = 0; r < regimes_.size(); ++r) {
    if (piece <= regimes_[r].last_piece) return r;
  }
  return regimes_.size() - 1;
}

double SizeCurve::EvaluateRegime(size_t regime, double bytes) const {
  const CurveRegime& r = regimes_[regime];
  if (regime + 1 == regimes_.size() && bytes > points_.back().bytes) return Predict(bytes).seconds;
  const size_t piece = std::min(std::max(PieceAt(pieces_, bytes), r.first_piece), r.last_piece);
  return pieces_[piece].At(bytes);
}

CurvePrediction SizeCurve::Predict(double bytes) const {
  CurvePrediction prediction;
  double half = half_width_log_;
  const double smallest = points_.front().bytes;
  const double largest = points_.back().bytes;
  if (bytes > largest) {
    const SizePoint& last = points_.back();
    prediction.seconds =
        constant_bandwidth_ ? last.seconds / last.bytes * bytes : trailing_line_.At(bytes);
    prediction.seconds = std::max(prediction.seconds, 1e-12);
    const double decades4 = std::log(bytes / largest) / std::log(4.0);
    half = std::max(half, half + extrapolation_log_error_ * std::min(3.0, decades4));
    prediction.extrapolated = bytes > 1.05 * largest;
    if (prediction.extrapolated) {
      prediction.note = absl::StrFormat(
          "%.3g bytes are beyond the largest size measured (%.3g): measure %.3g bytes", bytes,
          largest, bytes);
    }
  } else {
    const size_t at = PieceAt(pieces_, bytes);
    prediction.seconds = pieces_[at].At(bytes);
    // Errors of the nearest points in size: noise differs between small and large messages.
    const size_t nearest =
        std::lower_bound(points_.begin(), points_.end(), bytes,
                         [](const SizePoint& p, double b) { return p.bytes < b; }) -
        points_.begin();
    constexpr size_t kNeighbours = 40;
    if (points_.size() >= kNeighbours) {
      const size_t first = std::min(points_.size() - kNeighbours,
                                    nearest > kNeighbours / 2 ? nearest - kNeighbours / 2 : 0);
      const auto begin = validated_log_errors_.begin() + first;
      half = std::max(kNoiseFloor, Quantile(std::vector<double>(begin, begin + kNeighbours), 0.91));
    }
    if (bytes < smallest) {
      half += extrapolation_log_error_ * std::min(3.0, std::log(smallest / bytes) / std::log(4.0));
      prediction.extrapolated = bytes < smallest / 1.05;
      if (prediction.extrapolated) {
        prediction.note = absl::StrFormat(
            "%.3g bytes are below the smallest size measured (%.3g): measure %.3g bytes", bytes,
            smallest, bytes);
      }
    }
    // In the gap of a break either line may hold.
    for (size_t i = 0; i + 1 < pieces_.size(); ++i) {
      if (bytes <= pieces_[i].last_bytes || bytes >= pieces_[i + 1].first_bytes) continue;
      const double one = pieces_[i].At(bytes), other = pieces_[i + 1].At(bytes);
      half = std::max(half, std::abs(std::log(one / other)) + half_width_log_);
      if (std::max(one, other) > 1.2 * std::min(one, other)) {
        prediction.note = absl::StrFormat(
            "time jumps between %.0f and %.0f bytes: measure %.0f bytes to know where",
            pieces_[i].last_bytes, pieces_[i + 1].first_bytes, bytes);
      }
    }
  }
  prediction.low_seconds = prediction.seconds * std::exp(-half);
  prediction.high_seconds = prediction.seconds * std::exp(half);
  return prediction;
}

}  // namespace paceline
