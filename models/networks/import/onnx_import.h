// ONNX models become networks.
//
//   absl::StatusOr<ImportedNetwork> imported = ImportOnnx(bytes, {.file = "model.onnx"});
//   std::cout << ImportSummary(*imported);
//
// Read are operators, attributes and the shapes of weights, not their values, so that a model whose
// weights lie in other files imports as well. Every weight's shape, every intermediate shape that
// the file holds and the number of parameters are compared with what shape inference finds. Models
// exported for training and for inference are taken; where an exporter merged batch normalization
// into convolutions, the network has none, and a note says so. Thread-safe.
#ifndef PACELINE_MODELS_NETWORKS_IMPORT_ONNX_IMPORT_H_
#define PACELINE_MODELS_NETWORKS_IMPORT_ONNX_IMPORT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/networks/import/network_builder.h"

namespace paceline {

// `bytes`: the whole file. INVALID_ARGUMENT lists every problem with its node and operator.
absl::StatusOr<ImportedNetwork> ImportOnnx(absl::string_view bytes, const ImportOptions& options);

}  // namespace paceline

#endif  // PACELINE_MODELS_NETWORKS_IMPORT_ONNX_IMPORT_H_
