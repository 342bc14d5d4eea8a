// Caffe's network definitions become networks.
//
//   absl::StatusOr<ImportedNetwork> imported =
//       ImportPrototxt(text, {.file = "train_val.prototxt"});
//
// Takes train_val and deploy files, `layer` and the older `layers`. Layers of the TEST phase are
// left out. A BatchNorm and the Scale behind it become one batch normalization. A loss whose weight
// is less than the largest makes an auxiliary head. A prototxt holds no weights, so that shapes are
// inferred, not compared. Thread-safe.
#ifndef PACELINE_MODELS_NETWORKS_IMPORT_PROTOTXT_IMPORT_H_
#define PACELINE_MODELS_NETWORKS_IMPORT_PROTOTXT_IMPORT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/networks/import/network_builder.h"

namespace paceline {

// INVALID_ARGUMENT lists every problem with its line and layer.
absl::StatusOr<ImportedNetwork> ImportPrototxt(absl::string_view text,
                                               const ImportOptions& options);

}  // namespace paceline

#endif  // PACELINE_MODELS_NETWORKS_IMPORT_PROTOTXT_IMPORT_H_
