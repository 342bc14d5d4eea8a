// Which gradient tensors travel together, and in which order: the Grouping rules of policy.proto.
//
//   std::vector<TensorGroup> groups = GroupTensors(network, grouping, costs);
//   groups[0].tensors;   // Of the last layers: groups come in the order their gradients appear.
//
// Pure functions, thread-safe. Sizes in bytes of fp32 gradients.
#ifndef PACELINE_MODELS_SCHEDULE_GROUPING_H_
#define PACELINE_MODELS_SCHEDULE_GROUPING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {

struct TensorGroup {
  std::vector<int> tensors;  // Into ShapedNetwork::parameters, ascending.
  int64_t bytes = 0;
  // The group is bytes [offset_bytes, offset_bytes + bytes) of the concatenation of all tensors.
  bool partial = false;
  int64_t offset_bytes = 0;
  // Layer whose backward completes the group: the smallest of its tensors' layers.
  int ready_layer = 0;
};

// In backward order: by descending ready_layer, ties as the rule lists them. INVALID_ARGUMENT names
// the field of `grouping` that is missing or senseless.
absl::StatusOr<std::vector<TensorGroup>> GroupTensors(const ShapedNetwork& network,
                                                      const v1::Grouping& grouping,
                                                      const ScheduleCosts& costs);

// Seconds of backward per layer: as given, or from FLOPs at costs.flops_per_second and `batch`.
// INVALID_ARGUMENT if given for another number of layers.
absl::StatusOr<std::vector<double>> BackwardSeconds(const ShapedNetwork& network, int batch,
                                                    const ScheduleCosts& costs);

}  // namespace paceline

#endif  // PACELINE_MODELS_SCHEDULE_GROUPING_H_
