#include "models/schedule/grouping.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

using Sets = std::vector<std::vector<int>>;

int64_t Bytes(const ShapedNetwork& network, int tensor) {
  return network.parameters[tensor].gradient_bytes();
}

// Tensors by layer, last layer first: the order in which backward produces gradients.
Sets LayersInBackwardOrder(const ShapedNetwork& network) {
  Sets layers;
  for (int layer = static_cast<int>(network.layers.size()) - 1; layer >= 0; --layer) {
    std::vector<int> tensors = network.layers[layer].parameters;
    std::sort(tensors.begin(), tensors.end());
    if (!tensors.empty()) layers.push_back(tensors);
  }
  return layers;
}

// Reverse registration order: the last layer's bias, its weight, and so on.
std::vector<int> ReverseTensors(const ShapedNetwork& network) {
  std::vector<int> tensors(network.parameters.size());
  std::iota(tensors.rbegin(), tensors.rend(), 0);
  return tensors;
}

Sets PerTensor(const ShapedNetwork& network) {
  Sets groups;
  for (const int tensor : ReverseTensors(network)) groups.push_back({tensor});
  return groups;
}

// PyTorch's compute_bucket_assignment_by_size (reducer.cpp): a bucket takes tensors until it holds
// at least its limit. With never_exceed (Horovod's fusion buffer) it closes before it would pass
// the limit instead; a tensor above the limit travels alone.
Sets ByBytes(const ShapedNetwork& network, const v1::ByBytes& rule) {
  Sets groups;
  std::vector<int> current;
  int64_t current_bytes = 0;
  int64_t limit = rule.first_bytes() > 0 ? rule.first_bytes() : rule.bytes();
  const auto close = [&] {
    groups.push_back(current);
    current.clear();
    current_bytes = 0;
    limit = rule.bytes();
  };
  for (const int tensor : ReverseTensors(network)) {
    if (rule.never_exceed() && !current.empty() && current_bytes + Bytes(network, tensor) > limit) {
      close();
    }
    current.push_back(tensor);
    current_bytes += Bytes(network, tensor);
    if (!rule.never_exceed() && current_bytes >= limit) close();
  }
  if (!current.empty()) close();
  return groups;
}

// Horovod's background thread wakes once a cycle and fuses what is ready by then, up to the fusion
// buffer (RunLoopOnce, FuseResponses in horovod/common/controller.cc). When a tensor is ready
// depends on time, so the groups follow from estimated backward times.
Sets ByCycle(const ShapedNetwork& network, const v1::ByBytes& rule,
             const std::vector<double>& backward_seconds) {
  Sets groups;
  std::vector<int> current;
  int64_t current_bytes = 0;
  double current_cycle = -1;
  double now_seconds = 0;
  const int layer_count = static_cast<int>(network.layers.size());
  for (int layer = layer_count - 1; layer >= 0; --layer) {
    now_seconds += backward_seconds[layer];
    std::vector<int> tensors = network.layers[layer].parameters;
    std::sort(tensors.rbegin(), tensors.rend());
    for (const int tensor : tensors) {
      const double cycle = std::floor(now_seconds / rule.cycle_seconds());
      if (!current.empty() &&
          (cycle != current_cycle || current_bytes + Bytes(network, tensor) > rule.bytes())) {
        groups.push_back(current);
        current.clear();
        current_bytes = 0;
      }
      current.push_back(tensor);
      current_bytes += Bytes(network, tensor);
      current_cycle = cycle;
    }
  }
  if (!current.empty()) groups.push_back(current);
  return groups;
}

// Caffe-MPI 2.0, Net::ReduceAndUpdate (net.cpp): ids arrive layer by layer in backward order,
// within a layer in ascending order (weight, then bias). A bucket is flushed when it reaches the
// target size or when the next id does not adjoin its ids. After the weight and the bias of layer
// l, ids 2l and 2l+1, comes 2l-2, which adjoins neither: the bucket is flushed at almost every
// layer, whatever reduce_buckets says.
Sets CaffeMpiBuckets(const ShapedNetwork& network, int reduce_buckets) {
  const int64_t count = static_cast<int64_t>(network.parameters.size());
  const int64_t target_bytes =
      network.gradient_bytes / count * ((count + 1) / reduce_buckets);  // Integer, as there.
  Sets groups;
  std::vector<int> current;
  int64_t current_bytes = 0;
  const auto flush = [&] {
    groups.push_back(current);
    current.clear();
    current_bytes = 0;
  };
  for (const std::vector<int>& layer : LayersInBackwardOrder(network)) {
    for (const int tensor : layer) {
      if (!current.empty()) {
        const auto [lowest, highest] = std::minmax_element(current.begin(), current.end());
        if (tensor != *lowest - 1 && tensor != *highest + 1) flush();
      }
      current.push_back(tensor);
      current_bytes += Bytes(network, tensor);
      if (current_bytes >= target_bytes) flush();
    }
  }
  if (!current.empty()) flush();
  return groups;
}

// CNTK 2.x: tensors up to the threshold in one continuous buffer, the others alone.
Sets PackSmall(const ShapedNetwork& network, int64_t threshold_bytes) {
  Sets groups;
  std::vector<int> packed;
  for (const int tensor : ReverseTensors(network)) {
    if (Bytes(network, tensor) <= threshold_bytes) {
      packed.push_back(tensor);
    } else {
      groups.push_back({tensor});
    }
  }
  if (!packed.empty()) groups.push_back(packed);
  return groups;
}

// MG-WFBP (arXiv 1811.11141, algorithm 1): the gradients of layer l wait for those of layer l-1 if
// these are ready before l's message could have paid its start-up cost: r(l-1) - s(l) < alpha.
Sets MergedGradient(const ShapedNetwork& network, double alpha_seconds,
                    double beta_seconds_per_byte, const std::vector<double>& backward_seconds) {
  const Sets layers = LayersInBackwardOrder(network);
  std::vector<double> ready_seconds;  // Per entry of `layers`.
  double now_seconds = 0;
  for (int layer = static_cast<int>(network.layers.size()) - 1; layer >= 0; --layer) {
    now_seconds += backward_seconds[layer];
    if (!network.layers[layer].parameters.empty()) ready_seconds.push_back(now_seconds);
  }
  Sets groups;
  std::vector<int> current;
  int64_t current_bytes = 0;
  double channel_free_seconds = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const int tensor : layers[i]) {
      current.push_back(tensor);
      current_bytes += Bytes(network, tensor);
    }
    const double start_seconds = std::max(ready_seconds[i], channel_free_seconds);
    if (i + 1 < layers.size() && ready_seconds[i + 1] - start_seconds < alpha_seconds) continue;
    channel_free_seconds = start_seconds + alpha_seconds + beta_seconds_per_byte * current_bytes;
    groups.push_back(current);
    current.clear();
    current_bytes = 0;
  }
  return groups;
}

// TensorFlow gradient_repacking=k (batch_allreduce.py _TensorPacker): one concatenation in k parts
// of equal element counts, the remainder in the last.
std::vector<TensorGroup> Repack(const ShapedNetwork& network, int parts) {
  std::vector<int> all(network.parameters.size());
  std::iota(all.begin(), all.end(), 0);
  const int64_t elements = network.gradient_bytes / 4;
  std::vector<TensorGroup> groups(parts);
  for (int i = 0; i < parts; ++i) {
    groups[i].tensors = all;
    groups[i].partial = true;
    groups[i].offset_bytes = 4 * (elements / parts * i);
    const int64_t end_bytes = i + 1 == parts ? 4 * elements : 4 * (elements / parts * (i + 1));
    groups[i].bytes = end_bytes - groups[i].offset_bytes;
    groups[i].ready_layer = network.parameters.front().layer;
  }
  return groups;
}

absl::StatusOr<Sets> TensorSets(const ShapedNetwork& network, const v1::Grouping& grouping,
                                const ScheduleCosts& costs) {
  switch (grouping.rule_case()) {
    case v1::Grouping::kOneGroup:
      return Sets{ReverseTensors(network)};
    case v1::Grouping::kPerTensor:
      return PerTensor(network);
    case v1::Grouping::kPerLayer:
      return LayersInBackwardOrder(network);
    case v1::Grouping::kByBytes:
      if (grouping.by_bytes().bytes() <= 0) {
        return absl::InvalidArgumentError(
            "communication.grouping.by_bytes.bytes: must be positive");
      }
      if (grouping.by_bytes().cycle_seconds() > 0) {
        return ByCycle(network, grouping.by_bytes(), costs.backward_seconds);
      }
      return ByBytes(network, grouping.by_bytes());
    case v1::Grouping::kCaffeMpiBuckets:
      if (grouping.caffe_mpi_buckets().reduce_buckets() <= 0) {
        return absl::InvalidArgumentError(
            "communication.grouping.caffe_mpi_buckets.reduce_buckets: must be positive "
            "(caffe.proto's "
            "default is 6)");
      }
      return CaffeMpiBuckets(network, grouping.caffe_mpi_buckets().reduce_buckets());
    case v1::Grouping::kPackSmall:
      return PackSmall(network, grouping.pack_small().threshold_bytes());
    case v1::Grouping::kMergedGradient: {
      const v1::MergedGradient& rule = grouping.merged_gradient();
      const bool own = rule.alpha_seconds() > 0 || rule.beta_seconds_per_byte() > 0;
      return MergedGradient(network, own ? rule.alpha_seconds() : costs.alpha_seconds,
                            own ? rule.beta_seconds_per_byte() : costs.beta_seconds_per_byte,
                            costs.backward_seconds);
    }
    default:
      return absl::InvalidArgumentError(
          "communication.grouping: one rule is required (one_group, per_tensor, per_layer, "
          "by_bytes, "
          "caffe_mpi_buckets, pack_small, repack or merged_gradient)");
  }
}

}  // namespace

absl::StatusOr<std::vector<double>> BackwardSeconds(const ShapedNetwork& network, int batch,
                                                    const ScheduleCosts& costs) {
  if (!costs.backward_seconds.empty()) {
    if (costs.backward_seconds.size() != network.layers.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "costs.backward_seconds has ", costs.backward_seconds.size(), " entries, but ",
          network.network.name(), " has ", network.layers.size(), " layers"));
    }
    return costs.backward_seconds;
  }
  if (!(costs.flops_per_second > 0)) {
    return absl::InvalidArgumentError("costs.flops_per_second: must be positive");
  }
  std::vector<double> seconds;
  for (const ShapedLayer& layer : network.layers) {
    seconds.push_back(static_cast<double>(layer.backward_flops) * batch / costs.flops_per_second);
  }
  return seconds;
}

absl::StatusOr<std::vector<TensorGroup>> GroupTensors(const ShapedNetwork& network,
                                                      const v1::Grouping& grouping,
                                                      const ScheduleCosts& costs) {
  if (network.parameters.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("network ", network.network.name(), " has nothing to learn: no parameters"));
  }
  if (grouping.rule_case() == v1::Grouping::kRepack) {
    const int parts = grouping.repack().parts();
    if (parts <= 0 || parts > network.gradient_bytes / 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("communication.grouping.repack.parts: must be between 1 and the number of "
                       "parameters, not ",
                       parts));
    }
    return Repack(network, parts);
  }
  absl::StatusOr<Sets> sets = TensorSets(network, grouping, costs);
  if (!sets.ok()) return sets.status();
  std::vector<TensorGroup> groups;
  for (std::vector<int>& tensors : *sets) {
    TensorGroup group;
    std::sort(tensors.begin(), tensors.end());
    group.tensors = std::move(tensors);
    group.ready_layer = static_cast<int>(network.layers.size());
    for (const int tensor : group.tensors) {
      group.bytes += Bytes(network, tensor);
      group.ready_layer = std::min(group.ready_layer, network.parameters[tensor].layer);
    }
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(), [](const TensorGroup& a, const TensorGroup& b) {
    return a.ready_layer > b.ready_layer;
  });
  return groups;
}

}  // namespace paceline
