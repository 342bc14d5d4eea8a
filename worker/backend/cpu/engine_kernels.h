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

// Batch norm of 16 channels that lie side by side (oneDNN's nChw16c), all samples. Strides are
// from sample to sample, in elements, so that x and y may be slices of larger tensors. gamma, beta
// and all per-channel results have 16 elements; channels that only pad are 0 and stay 0.
struct BatchNormBlock {
  int64_t samples;
  int64_t pixels;
  int64_t x_stride;  // Also of dx.
  int64_t y_stride;  // Also of dy.
  int64_t addend_stride;
  const float* gamma;
  const float* beta;
  double epsilon;
  bool relu;  // Of the result, addend included; backward (without addend): masks dy accordingly.
};

// Backward pass of a fully connected layer with at most 16 samples: memory-bound, so each weight is
// read and each gradient written once. Weights are blocks of 16 inputs by 64 outputs (oneDNN's
// AB16b64a, in bf16 AB8b64a2b); missing samples and padding outputs of dy are 0.
struct SmallBatchFullyConnected {
  int64_t samples;        // <= 16
  int64_t input_blocks;   // Of 16.
  int64_t output_blocks;  // Of 64.
  const float* dy;        // {output block, 16 samples, 64 outputs}
  const float* x;         // {input block, 16 inputs, 16 samples}
};

// Loops over activations of type T.
template <typename T>
struct ActivationKernels {
  // out = max(a, 0).
  void (*relu)(T* out, const T* a, int64_t n);
  // out = sum of the terms; 0 where `mask` (may be null) is not positive; max(., 0) with `relu`.
  // `out` may be one of the terms.
  void (*sum)(T* out, const T* const* terms, int count, const T* mask, bool relu, int64_t n);
  // out[i] = keep(key, first + i) ? a[i] * scale : 0, where keep is true for about
  // 1 - threshold / 2^32 of all indices. The backward pass calls it with the same key.
  void (*dropout)(T* out, const T* a, int64_t n, int64_t first, uint64_t key, uint32_t threshold,
                  float scale);
  // y = gamma (x - mean) / sqrt(variance + epsilon) + beta [+ addend], of which `inverse` returns
  // 1 / sqrt. The statistics read x once (oneDNN: twice), and the sum of a residual block costs no
  // pass of its own.
  void (*batch_norm_forward)(const BatchNormBlock& block, const T* x, T* y, const T* addend,
                             float* mean, float* inverse);
  // `dx` may be null.
  void (*batch_norm_backward)(const BatchNormBlock& block, const T* x, const T* dy, T* dx,
                              const float* mean, const float* inverse, float* dgamma, float* dbeta);
  // Input blocks [first, last) of the gradient of the input, {samples, inputs}.
  void (*fully_connected_data)(const SmallBatchFullyConnected& layer, const T* weights, T* dx,
                               int64_t first, int64_t last);
  void (*from_float)(T* out, const float* a, int64_t n);
  void (*to_float)(float* out, const T* a, int64_t n);
};

struct EngineKernels {
  const char* name;  // "avx512" or "generic".
  ActivationKernels<float> fp32;
  ActivationKernels<uint16_t> bf16;
  // Blocks [first, last) of the gradient of the weights (fp32), counted as they lie in memory:
  // input block fastest. `gradient` is 64-byte aligned; it bypasses the caches.
  void (*fully_connected_weights)(const SmallBatchFullyConnected& layer, float* gradient,
                                  int64_t first, int64_t last);
  // v = momentum v + lr (gradient * scale + decay w);  w -= v.
  void (*sgd)(float* w, float* v, const float* gradient, int64_t n, const SgdStep& step);
  // The same, and in the same pass the bf16 working copy that oneDNN's primitives read: rows of
  // `row` weights (a multiple of 16) taken in pairs, neighbours in a column side by side. `n` is a
  // multiple of 2 `row`; all pointers are 64-byte aligned. The copy bypasses the caches.
  void (*sgd_with_copy)(float* w, float* v, const float* gradient, uint16_t* copy, int64_t row,
                        int64_t n, const SgdStep& step);
};

const EngineKernels& Kernels();

// The two variants, for tests.
const EngineKernels& GenericKernels();
const EngineKernels& Avx512Kernels();

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_ENGINE_KERNELS_H_
