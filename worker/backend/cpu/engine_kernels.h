// The engine's own elementwise loops, where oneDNN has no primitive or one that reads memory more
// often than needed. Each is compiled for AVX-512 and for any x86-64; Kernels() picks once.
//
//   const EngineKernels& kernels = Kernels();
//   kernels.sgd(weights, velocity, gradients, n, {0.01f, 0.9f, 5e-4f, 1.0f});
//
// Functions work on one range and do not start threads: the engine splits ranges among its own.
// Activations are fp32 or bf16 (the upper half of an fp32, uint16_t here). Thread-safe.
#ifndef PACELINE_WORKER_BACKEND_CPU_ENGINE_KERNELS_H_
#define PACELINE_WORKER_BACKEND_CPU_ENGINE_KERNELS_H_

#include <cstdint>

namespace paceline {

struct SgdStep {
  float learning_rate;
  float momentum;
  float weight_decay;
  float gradient_scale;
};

// Loops over activations of type T.
template <typename T>
struct ActivationKernels {
  // out = max(a, 0).
  void (*relu)(T* out, const T* a, int64_t n);
  // out = a + b, and max(., 0) of it.
  void (*add)(T* out, const T* a, const T* b, int64_t n);
  void (*add_relu)(T* out, const T* a, const T* b, int64_t n);
  // out = y > 0 ? a : 0, and the same for a + b. `out` may be `a` or `b`.
  void (*mask)(T* out, const T* a, const T* y, int64_t n);
  void (*add_mask)(T* out, const T* a, const T* b, const T* y, int64_t n);
  // out[i] = keep(key, first + i) ? a[i] * scale : 0, where keep is true for about
  // 1 - threshold / 2^32 of all indices. The backward pass calls it with the same key.
  void (*dropout)(T* out, const T* a, int64_t n, int64_t first, uint64_t key, uint32_t threshold,
                  float scale);
  void (*from_float)(T* out, const float* a, int64_t n);
  void (*to_float)(float* out, const T* a, int64_t n);
};

struct EngineKernels {
  const char* name;  // "avx512" or "generic".
  ActivationKernels<float> fp32;
  ActivationKernels<uint16_t> bf16;
  // v = momentum v + lr (gradient * scale + decay w);  w -= v.
  void (*sgd)(float* w, float* v, const float* gradient, int64_t n, const SgdStep& step);
};

const EngineKernels& Kernels();

// The two variants, for tests.
const EngineKernels& GenericKernels();
const EngineKernels& Avx512Kernels();

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_ENGINE_KERNELS_H_
