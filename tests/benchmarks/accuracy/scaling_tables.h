// The public throughput tables as scaling curves: iteration time against the number of devices,
// one curve a configuration.
//
//   absl::StatusOr<std::vector<ScalingCurve>> curves = ReadScalingCurves("../shared/data", skip);
#ifndef PACELINE_TESTS_BENCHMARKS_ACCURACY_SCALING_TABLES_H_
#define PACELINE_TESTS_BENCHMARKS_ACCURACY_SCALING_TABLES_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/scaling/scale_out_model.h"

namespace paceline {

struct ScalingCurve {
  std::string key;      // Names the configuration; the same in the fitted and the held-out folder.
  std::string cluster;  // Hosts and network.
  std::string network;
  std::string group;  // Curves whose communication costs the same per byte: cluster and method.
  ScaleOutSetting setting;
  // Samples per device and iteration. 0: not said; times are then relative to each other only.
  double batch = 0;
  std::map<int, double> seconds;  // By devices.
};

// `skip` is told each file that is not there. Rows without a value are left out.
absl::StatusOr<std::vector<ScalingCurve>> ReadScalingCurves(
    const std::string& folder, const std::function<void(const std::string&)>& skip);

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_ACCURACY_SCALING_TABLES_H_
