// Whether an imported network is the network that was written, for tests.
#ifndef PACELINE_MODELS_NETWORKS_IMPORT_SAME_TENSORS_H_
#define PACELINE_MODELS_NETWORKS_IMPORT_SAME_TENSORS_H_

#include "models/networks/network.h"

namespace paceline {

// Expects the same parameter tensors (name, shape, order, auxiliary), operations and activations.
void ExpectSameTensors(const ShapedNetwork& imported, const ShapedNetwork& original);

}  // namespace paceline

#endif  // PACELINE_MODELS_NETWORKS_IMPORT_SAME_TENSORS_H_
