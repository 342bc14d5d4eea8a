// Compiled with -mavx512{f,bw,dq,vl} (see BUILD); called only where the CPU has them.
#include "worker/backend/cpu/engine_kernels.h"

namespace paceline {
namespace {
#include "worker/backend/cpu/engine_kernels_impl.inc"
}  // namespace

const EngineKernels& Avx512Kernels() {
  static const EngineKernels kernels = MakeKernels("avx512");
  return kernels;
}

}  // namespace paceline
