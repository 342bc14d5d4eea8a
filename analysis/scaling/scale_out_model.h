// How the iteration time of one configuration grows with the number of devices: fitted on a few
// small clusters, predicted for larger ones.
//
//   ScaleOutSetting setting;
//   setting.schedule = OverlapSchedule::kWaitFree;
//   setting.devices_per_host = 4;
//   setting.gradient_tensors = 161;
//   absl::StatusOr<ScaleOutModel> model =
//       ScaleOutModel::Fit({{4, 0.252}, {8, 0.285}, {16, 0.325}}, setting);
//   absl::StatusOr<ScaleOutPrediction> at_32 = model->Predict(32);
//   at_32->iteration_seconds;  // Weak scaling: the batch of a device stays the same.
//
// The model, for n devices beyond the largest measured m:
//   T(n) = (T(m) + x(m) (r(n) / r(m) - 1)) 2^(d log2(n / m)),   r(n) = (n - 1) / n
// x(m) is the exposed communication: what the iteration takes longer than on one device (within a
// host) or on one full host (across hosts). Only that part follows the ring factor r. With
// parameter servers, which grow with the workers, nothing does once they span hosts. d is the
// relative growth per doubling that the ring does not explain (stragglers, contention): learned
// from the steps of the same kind that other configurations took (ScaleOutPrior), and shrunk
// towards it from the configuration's own steps. Wait-free backpropagation across hosts pays the
// start-up of each message instead: + s (n - m), s = 2 alpha per gradient tensor.
//
// What the data cannot tell: one n determines no growth; devices of one host say nothing about the
// network between hosts. Such predictions have `identified` false and a note that names the
// measurement to take. The two baselines (constant time; times the ring factor) stand beside every
// prediction, and where the prior's cross-validation says that one of them is better, it is used
// and `structure` says so.
//
// Seconds, bytes, bytes per second. Intervals are 90 % intervals. Immutable after creation, so
// thread-safe.
#ifndef PACELINE_ANALYSIS_SCALING_SCALE_OUT_MODEL_H_
#define PACELINE_ANALYSIS_SCALING_SCALE_OUT_MODEL_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace paceline {

// How communication overlaps with backpropagation.
enum class OverlapSchedule {
  kBulkSynchronous,  // All of it after backward.
  kWaitFree,         // A message per gradient tensor, as soon as it is ready.
  kBucketed,         // Merged messages: DDP's buckets, MG-WFBP, Horovod's fusion.
  kParameterServer,
};

absl::string_view OverlapScheduleName(OverlapSchedule schedule);  // "wait-free", ...

struct ScalePoint {
  int devices = 0;
  double iteration_seconds = 0;
};

struct ScaleOutSetting {
  OverlapSchedule schedule = OverlapSchedule::kBulkSynchronous;
  int devices_per_host = 0;  // 0: all devices are in one host.
  // What is known about the network trained and the link of one host; 0: not known.
  int gradient_tensors = 0;
  double gradient_bytes = 0;
  double network_bytes_per_second = 0;
};

// One configuration measured at several n, to learn a prior from.
struct ScaleOutConfiguration {
  std::string cluster;  // Hosts and network. Configurations of one cluster are not independent.
  ScaleOutSetting setting;
  std::vector<ScalePoint> points;
};

enum class ScaleOutStructure { kConstant, kRingFactor, kExposedRing };

// A step from n devices to more: within the first host, from one host to several, or from several
// hosts to more.
enum class ScaleOutStep { kWithinHost, kFirstHosts, kMoreHosts };

// What steps of one kind look like.
struct ScaleOutGrowth {
  ScaleOutStructure structure = ScaleOutStructure::kExposedRing;
  double per_doubling = 0;     // Natural logarithm of the growth beyond the structure.
  double message_seconds = 0;  // alpha: start-up of one message on one of the ring's hops.
  // 90 % of predictions err by less, per doubling (natural logarithm); and those from one n alone.
  double error_per_doubling = 0;
  double error_per_doubling_from_one = 0;
  int steps = 0;     // Seen.
  int clusters = 0;  // That took them.
  // Mean absolute errors of predicting each later n of the same kind from the first ones, each
  // cluster with the growth of the others. 0: none seen.
  double own_error = 0;
  double constant_error = 0;
  double ring_error = 0;
};

// Extrapolation experience: how iteration times grew on other clusters.
class ScaleOutPrior {
 public:
  // Rounded values learned from public throughput tables of 2017 to 2022 (TensorFlow, MXNet,
  // PyTorch, Horovod, MG-WFBP, ByteScheduler on 1 to 32 GPUs).
  static ScaleOutPrior Default();
  // What to believe before any cluster was seen: growth of a percent or two, wide intervals.
  static ScaleOutPrior Uninformed();
  // Learns every kind of step that at least two clusters took; the others stay Uninformed().
  // Configurations with bad points (see ScaleOutModel::Fit) are an error that names the cluster.
  static absl::StatusOr<ScaleOutPrior> Learn(absl::Span<const ScaleOutConfiguration> known);

  const ScaleOutGrowth& growth(OverlapSchedule schedule, ScaleOutStep step) const {
    return growth_[static_cast<int>(schedule)][static_cast<int>(step)];
  }

 private:
  ScaleOutPrior() = default;
  std::array<std::array<ScaleOutGrowth, 3>, 4> growth_;
};

struct ScaleOutPrediction {
  double iteration_seconds = 0;
  double low_seconds = 0;
  double high_seconds = 0;
  double constant_seconds = 0;  // Baselines.
  double ring_seconds = 0;
  bool identified = true;  // False: a guess. `note` says why and what to measure.
  std::string structure;   // "measured", "interpolated", "exposed ring", "constant time", ...
  std::string note;
};

class ScaleOutModel {
 public:
  // INVALID_ARGUMENT names the point that has no positive time, or fewer than one device, and says
  // when there are no points at all. Several points of one n count with their median.
  static absl::StatusOr<ScaleOutModel> Fit(absl::Span<const ScalePoint> points,
                                           const ScaleOutSetting& setting,
                                           const ScaleOutPrior& prior = ScaleOutPrior::Default());

  // INVALID_ARGUMENT for n < 1.
  absl::StatusOr<ScaleOutPrediction> Predict(int devices) const;

  // The distinct n, ascending, with their median times.
  const std::vector<ScalePoint>& points() const { return points_; }
  // Own steps that the growth was estimated from; 0: the growth is the prior's.
  int own_steps() const { return own_steps_; }

 private:
  ScaleOutModel() = default;

  std::vector<ScalePoint> points_;
  std::vector<double> lowest_seconds_, highest_seconds_;  // Of the repeats at each n.
  ScaleOutSetting setting_;
  ScaleOutPrior prior_ = ScaleOutPrior::Default();
  int own_steps_ = 0;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_SCALING_SCALE_OUT_MODEL_H_
