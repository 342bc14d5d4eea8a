// Rough costs before anything is measured: seconds per operation from FLOPs and bytes, and peak
// memory. For `coordinator --dry_run`, for deciding whether a trial is worth starting, and as a
// start for fits.
//
//   absl::StatusOr<TrialPrediction> prediction =
//       PredictTrial(trial, CpuSpeed(/*cores=*/2.0 / ranks_on_host));
//   prediction->samples_per_second;
//
// Expect the right order of magnitude, not more: within a factor of about two on a known machine.
// Seconds, bytes, bytes per second. Pure functions, thread-safe.
#ifndef PACELINE_MODELS_SIMULATE_DEFAULT_COSTS_H_
#define PACELINE_MODELS_SIMULATE_DEFAULT_COSTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

// What one device (one rank) reaches, not what its maker promises.
struct DeviceSpeed {
  double flops_per_second = 300e9;        // Convolutions and fully connected layers, fp32.
  double reduced_precision_speedup = 1;   // Of those layers in bf16 or fp16.
  double memory_bytes_per_second = 20e9;  // Elementwise layers, updates, copies in device memory.
  double layer_overhead_seconds = 10e-6;  // Per call of a layer.
  double copy_bytes_per_second = 8e9;     // Host to device.
  double images_per_second = 1000;        // Read, decode, augment.
  double message_seconds = 100e-6;  // Start-up of one step of a collective, or of one message.
  double network_bytes_per_second = 1.5e9;  // One rank's link, each direction.

  // INVALID_ARGUMENT names the field that is not positive (overheads may be 0).
  absl::Status Validate() const;
};

// `cores` of this machine: a share of them per rank where several ranks run on one host.
DeviceSpeed CpuSpeed(double cores);

// Seconds of each operation of `schedule`, in its order. `reads_input`: false for synthetic input,
// whose reading costs nothing. Collectives as in the ring's closed form: 2(n-1) alpha + 2(n-1)/n
// M/B.
std::vector<double> PredictOperationSeconds(const IterationSchedule& schedule,
                                            const ShapedNetwork& network, int batch,
                                            v1::Precision precision, bool reads_input,
                                            const DeviceSpeed& speed);

// The same for one layer.
double PredictForwardSeconds(const ShapedNetwork& network, int layer, int batch,
                             v1::Precision precision, const DeviceSpeed& speed);
double PredictBackwardSeconds(const ShapedNetwork& network, int layer, int batch,
                              v1::Precision precision, const DeviceSpeed& speed);

// For CompileSchedule: what MG-WFBP and Horovod's grouping assume.
ScheduleCosts PredictScheduleCosts(const ShapedNetwork& network, int batch, int ranks,
                                   v1::Precision precision, const DeviceSpeed& speed);

// Peak memory of one rank.
struct MemoryPrediction {
  int64_t weights_bytes = 0;
  int64_t gradients_bytes = 0;
  int64_t optimizer_bytes = 0;  // Momentum.
  int64_t activations_bytes =
      0;  // Outputs that backward needs, and the largest gradients of outputs.
  int64_t communication_bytes = 0;  // Buffers, and a parameter server's own copies.
  int64_t input_bytes = 0;          // Batches on the host and on the device.
  int64_t total_bytes = 0;
};
MemoryPrediction PredictMemory(const ShapedNetwork& network, const IterationSchedule& schedule,
                               int batch, v1::Precision precision);

struct TrialPrediction {
  double iteration_seconds = 0;
  double samples_per_second = 0;  // Of all ranks.
  int64_t memory_bytes = 0;       // Of one rank.
};

// Compiles the trial's schedule, simulates it with predicted costs. INVALID_ARGUMENT as
// InferShapes, CompileSchedule and DeviceSpeed::Validate say.
absl::StatusOr<TrialPrediction> PredictTrial(const v1::Trial& trial, const DeviceSpeed& speed);

}  // namespace paceline

#endif  // PACELINE_MODELS_SIMULATE_DEFAULT_COSTS_H_
