// A network that was never run on a known cluster: its iteration time on n devices from the time of
// one device, its gradient bytes, and other networks' times on the same n devices.
//
//   absl::StatusOr<NewNetworkModel> model = NewNetworkModel::Fit(
//       {{"bert_base", 440e6, 0.30, 0.99}, {"bert_large", 1344e6, 0.16, 2.21}},
//       OverlapSchedule::kBulkSynchronous);
//   absl::StatusOr<NewNetworkPrediction> resnet50 = model->Predict(102e6, 0.253);
//
// Two forms, both with two parameters per cluster, schedule and n:
//   added up    T(n) = T(1) (1 + c) + K bytes
//   overlapped  T(n) = T(1) + max(0, K bytes - h T(1)),  h: the share of T(1) that hides it
// The second is considered where the schedule overlaps and most networks show that communication
// matters (a third of T(1) exposed): a single slow one may wait for its input instead. Among three
// networks or more, the form that predicts each from the others better is taken.
//
// Seconds and bytes. Immutable after creation, so thread-safe.
#ifndef PACELINE_ANALYSIS_SCALING_NEW_NETWORK_H_
#define PACELINE_ANALYSIS_SCALING_NEW_NETWORK_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/scaling/scale_out_model.h"

namespace paceline {

struct NetworkTimes {
  std::string network;
  double gradient_bytes = 0;
  double one_device_seconds = 0;
  double iteration_seconds = 0;  // On the n devices asked for, same batch per device.
};

struct NewNetworkPrediction {
  double iteration_seconds = 0;
  double low_seconds = 0;  // 90 % interval.
  double high_seconds = 0;
  std::string note;  // Empty, or why the interval is wide.
};

class NewNetworkModel {
 public:
  // INVALID_ARGUMENT for times or bytes that are not positive; FAILED_PRECONDITION with fewer than
  // two different networks: one cannot tell bytes from computing.
  static absl::StatusOr<NewNetworkModel> Fit(absl::Span<const NetworkTimes> known,
                                             OverlapSchedule schedule);

  absl::StatusOr<NewNetworkPrediction> Predict(double gradient_bytes,
                                               double one_device_seconds) const;

  bool overlapped() const { return overlapped_; }
  double seconds_per_byte() const { return seconds_per_byte_; }
  double compute_share() const { return compute_share_; }  // c, or h.

 private:
  NewNetworkModel() = default;
  // Each of `networks` (three or more) from the others.
  static bool OverlappedPredictsBetter(absl::Span<const NetworkTimes> known,
                                       const std::set<std::string>& networks);
  void FitOverlapped(absl::Span<const NetworkTimes> known);
  void FitAdded(absl::Span<const NetworkTimes> known);
  double Seconds(double gradient_bytes, double one_device_seconds) const;

  bool overlapped_ = false;
  double seconds_per_byte_ = 0;
  double compute_share_ = 0;
  double smallest_bytes_ = 0;
  double largest_bytes_ = 0;
  double residual_ = 0;  // Largest log residual of the fit.
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_SCALING_NEW_NETWORK_H_
