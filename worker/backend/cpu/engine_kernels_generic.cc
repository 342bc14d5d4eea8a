#include "worker/backend/cpu/engine_kernels.h"

namespace paceline {
namespace {
#include "worker/backend/cpu/engine_kernels_impl.inc"
}  // namespace

const EngineKernels& GenericKernels() {
  static const EngineKernels kernels = MakeKernels("generic");
  return kernels;
}

const EngineKernels& Kernels() {
  static const EngineKernels& kernels =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
          ? Avx512Kernels()
          : GenericKernels();
  return kernels;
}

}  // namespace paceline
