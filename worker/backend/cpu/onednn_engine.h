// Trains a network on CPU cores with oneDNN.
//
//   OneDnnOptions cpu;
//   cpu.threads = 2;
//   absl::StatusOr<std::unique_ptr<LayerEngine>> engine = CreateOneDnnEngine(network, options,
//   cpu); for (int l = 0; l < layers; ++l) (*engine)->Forward(l, *stream); for (int l = layers - 1;
//   l >= 0; --l) (*engine)->Backward(l, *stream);
//   (*engine)->Update(all_tensors, 1.0f / ranks, *stream);
//
// How it is fast: activations stay in oneDNN's blocked layouts between layers; ReLU runs inside
// convolutions, fully connected layers, batch norms and sums; all memory is planned once, on huge
// pages; weights, gradients and momentum lie in tensor_order, so that communication and SGD pass
// over memory once.
//
// Layers must be called in order: forward 0 .. L-1, then backward L-1 .. 0 (activation memory is
// reused along that order); anything else is FAILED_PRECONDITION. LoadInput may run one batch
// ahead: there are two input slots. Gradients are overwritten by each backward pass. Batch norm
// normalises with the batch's statistics; running averages, which training does not need, are not
// kept. Memory is in bytes, layouts are oneDNN's.
//
// Thread-safety: one thread enqueues; a job uses `threads` OpenMP threads of the stream's thread.
#ifndef PACELINE_WORKER_BACKEND_CPU_ONEDNN_ENGINE_H_
#define PACELINE_WORKER_BACKEND_CPU_ONEDNN_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/networks/network.h"
#include "worker/backend/backend.h"

namespace paceline {

struct OneDnnOptions {
  // Threads of this rank. 0: as many as OpenMP would take (OMP_NUM_THREADS, or all cores).
  int threads = 0;
  // Activations share memory once they are no longer needed. Off: every ReadOutput works.
  bool reuse_memory = true;
  // Measure each step; see LayerSteps.
  bool profile = false;
};

// One piece of a layer's work, for profiles.
struct EngineStepTime {
  int layer = 0;
  std::string name;  // "conv1 forward jit:avx512_core".
  int64_t total_ns = 0;
  int64_t count = 0;
};

// RESOURCE_EXHAUSTED: planned memory exceeds what is available (both are named).
// INVALID_ARGUMENT: the network, precision or an option is not supported.
absl::StatusOr<std::unique_ptr<LayerEngine>> CreateOneDnnEngine(const ShapedNetwork& network,
                                                                const EngineOptions& options,
                                                                const OneDnnOptions& cpu);

// Whether oneDNN has bf16 instructions to use on this CPU.
bool CpuHasBf16();

// "2.6.3".
std::string OneDnnVersion();

// Times since creation, if `engine` was made with `profile`. Not during work.
std::vector<EngineStepTime> OneDnnStepTimes(const LayerEngine& engine);

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_ONEDNN_ENGINE_H_
