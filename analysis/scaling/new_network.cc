#include "analysis/scaling/new_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

constexpr double kOverlapShows = 0.3;  // Of T(1) exposed.
constexpr double kMostHidden = 0.7;    // Backward is about two thirds of T(1).
constexpr double kInside = 0.10;       // Half widths (natural logarithm) of the 90 % interval:
constexpr double kOutside = 0.20;      // bytes within and beyond those of the known networks.
constexpr double kBytesMargin = 1.5;

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

double OverlappedSeconds(double seconds_per_byte, double hidden, double bytes, double alone) {
  return alone + std::max(0.0, seconds_per_byte * bytes - hidden * alone);
}

}  // namespace

absl::StatusOr<NewNetworkModel> NewNetworkModel::Fit(absl::Span<const NetworkTimes> known,
                                                     OverlapSchedule schedule) {
  std::set<std::string> networks;
  std::vector<double> exposed;
  NewNetworkModel model;
  model.smallest_bytes_ = std::numeric_limits<double>::infinity();
  for (const NetworkTimes& times : known) {
    if (!IsPositive(times.gradient_bytes) || !IsPositive(times.one_device_seconds) ||
        !IsPositive(times.iteration_seconds)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network '", times.network, "': gradient_bytes (", times.gradient_bytes,
          "), one_device_seconds (", times.one_device_seconds, ") and iteration_seconds (",
          times.iteration_seconds, ") must all be positive"));
    }
    networks.insert(times.network);
    exposed.push_back(times.iteration_seconds / times.one_device_seconds - 1);
    model.smallest_bytes_ = std::min(model.smallest_bytes_, times.gradient_bytes);
    model.largest_bytes_ = std::max(model.largest_bytes_, times.gradient_bytes);
  }
  if (networks.size() < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("times of ", networks.size(),
                     " network(s): at least two that differ in gradient bytes are needed on this "
                     "cluster"));
  }
  // Of two networks the one that shows it must do.
  const double shown =
      networks.size() < 3 ? *std::max_element(exposed.begin(), exposed.end()) : Median(exposed);
  const bool may_overlap = schedule != OverlapSchedule::kBulkSynchronous && shown > kOverlapShows;
  if (may_overlap && (networks.size() < 3 || OverlappedPredictsBetter(known, networks))) {
    model.FitOverlapped(known);
  } else {
    model.FitAdded(known);
  }
  for (const NetworkTimes& times : known) {
    const double seconds = model.Seconds(times.gradient_bytes, times.one_device_seconds);
    model.residual_ =
        std::max(model.residual_, std::abs(std::log(seconds / times.iteration_seconds)));
  }
  return model;
}

bool NewNetworkModel::OverlappedPredictsBetter(absl::Span<const NetworkTimes> known,
                                               const std::set<std::string>& networks) {
  double overlapped_error = 0, added_error = 0;
  for (const std::string& left_out : networks) {
    std::vector<NetworkTimes> others;
    for (const NetworkTimes& times : known) {
      if (times.network != left_out) others.push_back(times);
    }
    NewNetworkModel overlapped, added;
    overlapped.FitOverlapped(others);
    added.FitAdded(others);
    for (const NetworkTimes& times : known) {
      if (times.network != left_out) continue;
      const auto error = [&](const NewNetworkModel& fitted) {
        return std::abs(std::log(fitted.Seconds(times.gradient_bytes, times.one_device_seconds) /
                                 times.iteration_seconds));
      };
      overlapped_error += error(overlapped);
      added_error += error(added);
    }
  }
  return overlapped_error < added_error;
}

void NewNetworkModel::FitOverlapped(absl::Span<const NetworkTimes> known) {
  overlapped_ = true;
  // Least absolute log residuals; the best slope for a given h passes through a point.
  double best = std::numeric_limits<double>::infinity();
  for (double hidden = 0; hidden <= kMostHidden + 1e-9; hidden += 0.05) {
    std::vector<double> slopes = {0};
    for (const NetworkTimes& times : known) {
      const double alone = times.one_device_seconds;
      slopes.push_back(
          std::max(0.0, (times.iteration_seconds - alone + hidden * alone) / times.gradient_bytes));
    }
    for (double slope : slopes) {
      double sum = 0;
      for (const NetworkTimes& times : known) {
        sum += std::abs(std::log(
            OverlappedSeconds(slope, hidden, times.gradient_bytes, times.one_device_seconds) /
            times.iteration_seconds));
      }
      if (sum < best - 1e-12) {
        best = sum;
        seconds_per_byte_ = slope;
        compute_share_ = hidden;
      }
    }
  }
}

void NewNetworkModel::FitAdded(absl::Span<const NetworkTimes> known) {
  overlapped_ = false;
  // Least squares of relative residuals, both parameters at least 0.
  double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
  for (const NetworkTimes& times : known) {
    const double a = times.one_device_seconds / times.iteration_seconds;
    const double b = times.gradient_bytes / times.iteration_seconds;
    const double y = 1 - a;
    aa += a * a, ab += a * b, bb += b * b, ay += a * y, by += b * y;
  }
  const double determinant = aa * bb - ab * ab;
  double share = -1, slope = -1;
  if (determinant > 1e-9 * aa * bb) {
    share = (bb * ay - ab * by) / determinant;
    slope = (aa * by - ab * ay) / determinant;
  }
  if (share < 0 || slope < 0) {
    // On the border: whichever alone explains more.
    const double share_alone = std::max(0.0, ay / aa), slope_alone = std::max(0.0, by / bb);
    const bool use_share = share_alone * ay >= slope_alone * by;
    share = use_share ? share_alone : 0;
    slope = use_share ? 0 : slope_alone;
  }
  compute_share_ = share;
  seconds_per_byte_ = slope;
}

double NewNetworkModel::Seconds(double gradient_bytes, double one_device_seconds) const {
  if (overlapped_) {
    return OverlappedSeconds(seconds_per_byte_, compute_share_, gradient_bytes, one_device_seconds);
  }
  return one_device_seconds * (1 + compute_share_) + seconds_per_byte_ * gradient_bytes;
}

absl::StatusOr<NewNetworkPrediction> NewNetworkModel::Predict(double gradient_bytes,
                                                              double one_device_seconds) const {
  if (!IsPositive(gradient_bytes) || !IsPositive(one_device_seconds)) {
    return absl::InvalidArgumentError(absl::StrCat("gradient_bytes (", gradient_bytes,
                                                   ") and one_device_seconds (", one_device_seconds,
                                                   ") must be positive"));
  }
  NewNetworkPrediction prediction;
  prediction.iteration_seconds = Seconds(gradient_bytes, one_device_seconds);
  double half_width = kInside;
  if (gradient_bytes > kBytesMargin * largest_bytes_ ||
      gradient_bytes * kBytesMargin < smallest_bytes_) {
    half_width = kOutside;
    prediction.note = "gradient bytes beyond those of the networks known on this cluster";
  }
  half_width = std::max(half_width, residual_);
  prediction.low_seconds = prediction.iteration_seconds * std::exp(-half_width);
  prediction.high_seconds = prediction.iteration_seconds * std::exp(half_width);
  return prediction;
}

}  // namespace paceline
