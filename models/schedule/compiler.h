// Compiles network + policy + cluster shape into the iteration schedule.
//
//   absl::StatusOr<IterationSchedule> schedule =
//       CompileSchedule(shaped, policy, {.hosts = 1, .devices_per_host = 2});
#ifndef PACELINE_MODELS_SCHEDULE_COMPILER_H_
#define PACELINE_MODELS_SCHEDULE_COMPILER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {

// What MG-WFBP needs to decide its merges (and Horovod to know what becomes ready within a cycle):
// seconds of backward per layer (network order), and the cost of one message. Where it is empty the
// compiler estimates from FLOPs at the given rate. All ranks must compile with the same costs.
struct ScheduleCosts {
  std::vector<double> backward_seconds;  // Per layer; empty: from FLOPs.
  double flops_per_second = 100e9;
  double alpha_seconds = 100e-6;
  double beta_seconds_per_byte = 1e-9;
};

// INVALID_ARGUMENT names the policy's field that cannot be compiled. With one rank there is no
// communication: the schedule is input, copy, forward, backward, update.
absl::StatusOr<IterationSchedule> CompileSchedule(const ShapedNetwork& network,
                                                  const v1::FrameworkPolicy& policy,
                                                  const v1::ClusterShape& cluster,
                                                  int batch_per_device,
                                                  const ScheduleCosts& costs = {});

}  // namespace paceline

#endif  // PACELINE_MODELS_SCHEDULE_COMPILER_H_
