#include "models/simulate/default_costs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/simulate/simulator.h"

namespace paceline {
namespace {

int64_t ElementBytes(v1::Precision precision) {
  return precision == v1::PRECISION_BF16 || precision == v1::PRECISION_FP16 ? 2 : 4;
}

bool IsDense(const v1::Layer& layer) {
  return layer.has_convolution() || layer.has_fully_connected();
}

// Engines run a ReLU inside the layer before it: it costs nothing and stores nothing of its own.
bool IsFusedRelu(const ShapedNetwork& network, int layer) {
  const ShapedLayer& shaped = network.layers[layer];
  if (!shaped.layer.has_relu() || shaped.inputs.empty() || shaped.inputs[0] == kDataInput)
    return false;
  const v1::Layer& before = network.layers[shaped.inputs[0]].layer;
  return IsDense(before) || before.has_batch_norm() || before.has_add();
}

double Elements(const ShapedNetwork& network, int layer) {
  return network.layers[layer].output.elements();
}

// Bytes one pass of the layer moves: inputs, output, weights.
double BytesOnePass(const ShapedNetwork& network, int layer, int batch, v1::Precision precision) {
  const ShapedLayer& shaped = network.layers[layer];
  double activations = shaped.output.elements();
  for (const int input : shaped.inputs) {
    const v1::ImageSize& image = network.network.input();
    activations += input == kDataInput
                       ? static_cast<double>(image.channels()) * image.height() * image.width()
                       : Elements(network, input);
  }
  double weights = 0;
  for (const int tensor : shaped.parameters) weights += network.parameters[tensor].elements;
  return ElementBytes(precision) * (activations * batch + weights);
}

double LayerSeconds(const ShapedNetwork& network, int layer, int batch, v1::Precision precision,
                    const DeviceSpeed& speed, double flops, double passes) {
  if (IsFusedRelu(network, layer)) return 0;
  const double memory_seconds =
      passes * BytesOnePass(network, layer, batch, precision) / speed.memory_bytes_per_second;
  if (!IsDense(network.layers[layer].layer)) return speed.layer_overhead_seconds + memory_seconds;
  const double speedup = ElementBytes(precision) == 2 ? speed.reduced_precision_speedup : 1;
  const double flop_seconds = flops * batch / (speed.flops_per_second * speedup);
  return speed.layer_overhead_seconds + std::max(flop_seconds, memory_seconds);
}

int64_t UpdatedBytes(const IterationSchedule& schedule, const ShapedNetwork& network, int group) {
  return group < 0 ? network.gradient_bytes : schedule.groups[group].bytes;
}

// Bytes of this group that the busiest server holds.
int64_t LargestShareBytes(const IterationSchedule& schedule, const Group& group) {
  std::vector<int64_t> share(std::max(1, schedule.servers));
  for (const Group::Shard& shard : group.shards) share[shard.server] += shard.bytes;
  return *std::max_element(share.begin(), share.end());
}

double CommunicationSeconds(const IterationSchedule& schedule, const ShapedNetwork& network,
                            const Operation& operation, const DeviceSpeed& speed) {
  const Group& group = schedule.groups[operation.group];
  const double n = schedule.ranks;
  const double bytes = group.bytes;
  const double alpha = speed.message_seconds, bandwidth = speed.network_bytes_per_second;
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      return 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes / bandwidth;
    case OperationKind::kReduceToOwner:
    case OperationKind::kBroadcast:
      // A tree, pipelined.
      return std::ceil(std::log2(n)) * alpha + bytes / bandwidth;
    case OperationKind::kPush:
    case OperationKind::kPull: {
      // The worker's link, or the busiest server's, which serves all workers.
      double seconds = alpha + std::max(bytes, n * LargestShareBytes(schedule, group)) / bandwidth;
      if (operation.kind == OperationKind::kPull && schedule.servers_update) {
        // The server's SGD: gradient, weight and momentum read, the last two written.
        seconds += 5.0 * LargestShareBytes(schedule, group) / speed.memory_bytes_per_second;
      }
      return seconds;
    }
    default:
      return 0;
  }
}

// Must the output of `layer` stay in memory until backward?
bool IsKept(const ShapedNetwork& network, int layer, const std::vector<std::vector<int>>& readers) {
  const ShapedLayer& shaped = network.layers[layer];
  if (shaped.layer.has_relu() || shaped.layer.has_softmax_loss() || shaped.layer.has_dropout()) {
    return true;  // Its own backward looks at the output (or a mask of that size at most).
  }
  for (const int reader : readers[layer]) {
    const v1::Layer& kind = network.layers[reader].layer;
    // A fused ReLU overwrites its input; batch norm keeps what it normalised.
    if (IsFusedRelu(network, reader)) continue;
    if (IsDense(kind) || kind.has_lrn() || kind.has_batch_norm() || kind.has_pooling()) return true;
  }
  return false;
}

int64_t ActivationBytes(const ShapedNetwork& network, int batch, v1::Precision precision) {
  const int count = static_cast<int>(network.layers.size());
  std::vector<std::vector<int>> readers(count);
  for (int layer = 0; layer < count; ++layer) {
    for (const int input : network.layers[layer].inputs) {
      if (input != kDataInput) readers[input].push_back(layer);
    }
  }
  int64_t kept = 0, largest_gradients = 0;
  for (int layer = 0; layer < count; ++layer) {
    const ShapedLayer& shaped = network.layers[layer];
    if (IsKept(network, layer, readers)) kept += shaped.output.elements();
    int64_t gradients = shaped.output.elements();
    for (const int input : shaped.inputs) {
      if (input != kDataInput) gradients += network.layers[input].output.elements();
    }
    largest_gradients = std::max(largest_gradients, gradients);
  }
  return (kept + largest_gradients) * batch * ElementBytes(precision);
}

}  // namespace

absl::Status DeviceSpeed::Validate() const {
  const std::pair<const char*, double> positive[] = {
      {"flops_per_second", flops_per_second},
      {"reduced_precision_speedup", reduced_precision_speedup},
      {"memory_bytes_per_second", memory_bytes_per_second},
      {"copy_bytes_per_second", copy_bytes_per_second},
      {"images_per_second", images_per_second},
      {"network_bytes_per_second", network_bytes_per_second}};
  for (const auto& [name, value] : positive) {
    if (!(value > 0) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": must be positive, not ", value));
    }
  }
  for (const auto& [name, value] :
       {std::pair<const char*, double>{"layer_overhead_seconds", layer_overhead_seconds},
        {"message_seconds", message_seconds}}) {
    if (!(value >= 0) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": must not be negative, not ", value));
    }
  }
  return absl::OkStatus();
}

DeviceSpeed CpuSpeed(double cores) {
  // Per core, with oneDNN: ResNet-50's convolutions reach 110 to 230 GFLOP/s with AVX-512 on two
  // kinds of machine, about half without; memory 10 GB/s; 1000 photographs of 500x375 a second
  // decoded.
  bool wide = false, bf16 = false;
#if defined(__x86_64__)
  wide = __builtin_cpu_supports("avx512f");
  bf16 = __builtin_cpu_supports("avx512bf16");
#endif
  DeviceSpeed speed;
  speed.flops_per_second = cores * (wide ? 150e9 : 70e9);
  speed.reduced_precision_speedup = bf16 ? 1.9 : 1;
  speed.memory_bytes_per_second = cores * 10e9;
  speed.copy_bytes_per_second = cores * 5e9;
  speed.images_per_second = cores * 1000;
  return speed;
}

double PredictForwardSeconds(const ShapedNetwork& network, int layer, int batch,
                             v1::Precision precision, const DeviceSpeed& speed) {
  return LayerSeconds(network, layer, batch, precision, speed, network.layers[layer].forward_flops,
                      1);
}

double PredictBackwardSeconds(const ShapedNetwork& network, int layer, int batch,
                              v1::Precision precision, const DeviceSpeed& speed) {
  return LayerSeconds(network, layer, batch, precision, speed, network.layers[layer].backward_flops,
                      2);
}

ScheduleCosts PredictScheduleCosts(const ShapedNetwork& network, int batch, int ranks,
                                   v1::Precision precision, const DeviceSpeed& speed) {
  ScheduleCosts costs;
  for (size_t layer = 0; layer < network.layers.size(); ++layer) {
    costs.backward_seconds.push_back(
        PredictBackwardSeconds(network, static_cast<int>(layer), batch, precision, speed));
  }
  costs.flops_per_second = speed.flops_per_second;
  costs.alpha_seconds = 2 * (ranks - 1) * speed.message_seconds;
  costs.beta_seconds_per_byte = 2.0 * (ranks - 1) / ranks / speed.network_bytes_per_second;
  return costs;
}

std::vector<double> PredictOperationSeconds(const IterationSchedule& schedule,
                                            const ShapedNetwork& network, int batch,
                                            v1::Precision precision, bool reads_input,
                                            const DeviceSpeed& speed) {
  std::vector<double> seconds;
  for (const Operation& operation : schedule.operations) {
    switch (operation.kind) {
      case OperationKind::kRead:
        seconds.push_back(reads_input ? batch / speed.images_per_second : 0);
        break;
      case OperationKind::kCopyInput:
        seconds.push_back(operation.bytes / speed.copy_bytes_per_second);
        break;
      case OperationKind::kForward:
        seconds.push_back(PredictForwardSeconds(network, operation.layer, batch, precision, speed));
        break;
      case OperationKind::kBackward:
        seconds.push_back(
            PredictBackwardSeconds(network, operation.layer, batch, precision, speed));
        break;
      case OperationKind::kPack:
      case OperationKind::kUnpack:  // Read and written.
        seconds.push_back(2.0 * operation.bytes / speed.memory_bytes_per_second);
        break;
      case OperationKind::kUpdate:  // Gradient, weight, momentum read, the last two written.
        seconds.push_back(5.0 * UpdatedBytes(schedule, network, operation.group) /
                          speed.memory_bytes_per_second);
        break;
      default:
        seconds.push_back(CommunicationSeconds(schedule, network, operation, speed));
        break;
    }
  }
  return seconds;
}

MemoryPrediction PredictMemory(const ShapedNetwork& network, const IterationSchedule& schedule,
                               int batch, v1::Precision precision) {
  MemoryPrediction memory;
  memory.weights_bytes = network.parameter_count * 4;
  // Reduced precision works on a copy of the fp32 weights.
  if (ElementBytes(precision) == 2) memory.weights_bytes += network.parameter_count * 2;
  memory.gradients_bytes = network.gradient_bytes;
  memory.optimizer_bytes = network.parameter_count * 4;
  memory.activations_bytes = ActivationBytes(network, batch, precision);
  for (const Operation& operation : schedule.operations) {
    if (operation.kind == OperationKind::kPack) memory.communication_bytes += operation.bytes;
  }
  if (schedule.servers > 0) {
    // The busiest server: weights, momentum, sum.
    std::vector<int64_t> held(schedule.servers);
    for (const Group& group : schedule.groups) {
      for (const Group::Shard& shard : group.shards) held[shard.server] += shard.bytes;
    }
    memory.communication_bytes += 3 * *std::max_element(held.begin(), held.end());
  }
  const v1::ImageSize& image = network.network.input();
  memory.input_bytes = int64_t{4} * batch * image.channels() * image.height() * image.width() *
                       (schedule.input_buffers + std::max(1, schedule.prefetch_batches));
  memory.total_bytes = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes +
                       memory.activations_bytes + memory.communication_bytes + memory.input_bytes;
  return memory;
}

absl::StatusOr<TrialPrediction> PredictTrial(const v1::Trial& trial, const DeviceSpeed& speed) {
  if (absl::Status valid = speed.Validate(); !valid.ok()) return valid;
  absl::StatusOr<ShapedNetwork> network = InferShapes(trial.network());
  if (!network.ok()) return network.status();
  const int batch = trial.batch_per_device();
  // With the compiler's own costs, as the worker compiles it: the schedule is the one that will
  // run.
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*network, trial.policy(), trial.cluster(), batch);
  if (!schedule.ok()) return schedule.status();
  const bool reads_input = !trial.input().has_synthetic() &&
                           trial.input().source_case() != v1::InputSource::SOURCE_NOT_SET;
  absl::StatusOr<Timeline> timeline = Simulate(
      *schedule,
      PredictOperationSeconds(*schedule, *network, batch, trial.precision(), reads_input, speed));
  if (!timeline.ok()) return timeline.status();
  TrialPrediction prediction;
  prediction.iteration_seconds = timeline->period_seconds;
  prediction.samples_per_second =
      static_cast<double>(schedule->ranks) * batch / timeline->period_seconds;
  prediction.memory_bytes =
      PredictMemory(*network, *schedule, batch, trial.precision()).total_bytes;
  return prediction;
}

}  // namespace paceline
