// First weights: a pure function of seed, tensor and index, so that every rank, thread count and
// device starts from the same values.
//
//   std::vector<float> weights = InitialValues(network, /*tensor=*/0, /*seed=*/1);
//
// Thread-safe.
#ifndef PACELINE_WORKER_BACKEND_CPU_ENGINE_FILLERS_H_
#define PACELINE_WORKER_BACKEND_CPU_ENGINE_FILLERS_H_

#include <cstdint>
#include <vector>

#include "models/networks/network.h"

namespace paceline {

// Values in the canonical layout of ParameterTensor::shape. Weights as their layer's filler says,
// biases 0, batch-norm scales 1.
std::vector<float> InitialValues(const ShapedNetwork& network, int tensor, uint64_t seed);

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_ENGINE_FILLERS_H_
