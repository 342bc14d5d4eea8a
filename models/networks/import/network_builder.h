// What the importers share: they add layers as they find them; Finish() turns these into a checked
// network file, or into one error that lists every problem.
//
//   NetworkBuilder builder({.source = "model.onnx"});
//   builder.SetInput(input);
//   v1::Layer layer;
//   layer.mutable_relu();
//   const int relu = builder.Add("/features/Relu", layer, {kDataInput});
//   absl::StatusOr<ImportedNetwork> imported = std::move(builder).Finish({relu});
//
// Not thread-safe.
#ifndef PACELINE_MODELS_NETWORKS_IMPORT_NETWORK_BUILDER_H_
#define PACELINE_MODELS_NETWORKS_IMPORT_NETWORK_BUILDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"

namespace paceline {

struct ImportOptions {
  std::string file;     // Where the network comes from: starts errors and goes into Network.source.
  std::string name;     // Of the network. Empty: from the file.
  std::string title;    // Empty: the name.
  v1::ImageSize input;  // Of one image; overrides the file's. Unset: the file must say.
};

struct ImportedNetwork {
  v1::Network network;  // With its auxiliary layers.
  ShapedNetwork shaped;
  std::vector<std::string> notes;  // What was left out, added or assumed.
};

// The decimal number that a file's single-precision `value` stands for: 0.3, not 0.30000001192.
double Decimal(float value);

// The network's size and the notes, for people; several lines.
std::string ImportSummary(const ImportedNetwork& imported);

class NetworkBuilder {
 public:
  // Compares a layer with what the file says of it. Returns the problem, or an empty string.
  using Check = std::function<std::string(const ShapedNetwork&, const ShapedLayer&)>;

  explicit NetworkBuilder(ImportOptions options) : options_(std::move(options)) {}

  // The file's own input size; ImportOptions wins.
  void SetInput(const v1::ImageSize& input);
  // The file's own name of the network; ImportOptions wins.
  void SetName(absl::string_view name) {
    if (options_.name.empty()) options_.name = std::string(name);
  }

  // Adds a layer that reads the layers of these numbers (kDataInput: the image) and returns its
  // number. Its name is `wanted_name` made valid and unique.
  int Add(absl::string_view wanted_name, v1::Layer layer, const std::vector<int>& inputs);
  v1::Layer& layer(int number) { return layers_[number].layer; }
  int layer_count() const { return static_cast<int>(layers_.size()); }
  bool IsRead(int number) const { return layers_[number].is_read; }

  // To be checked once shapes are known. `where` names the place in the file.
  void Expect(int number, std::string where, Check check);
  // The layer's parameter of this index (weight, then bias) has this shape in the file.
  void ExpectParameter(int number, int index, const std::vector<int64_t>& shape,
                       const std::string& where);
  // `elements` of one sample's output of the layer.
  void ExpectElements(int number, int64_t elements, const std::string& where);

  template <typename... Text>
  void Problem(const Text&... text) {
    problems_.push_back(absl::StrCat(text...));
  }
  // What is said once below the problems, if there are any.
  template <typename... Text>
  void Hint(const Text&... text) {
    hint_ = absl::StrCat(text...);
  }
  template <typename... Text>
  void Note(const Text&... text) {
    AddNote(absl::StrCat(text...));
  }

  // A number of the file as the network file holds it; if it is negative (not positive) or does not
  // fit, a problem, and 0 (1). An unset field is 0 there, so that a 0 of the file would mean its
  // default.
  int32_t Size(int64_t value, absl::string_view where, absl::string_view field);
  int32_t PositiveSize(int64_t value, absl::string_view where, absl::string_view field);

  // Where the file has no loss, each of `outputs` gets a softmax loss, the first with weight 1, the
  // others as auxiliary heads. INVALID_ARGUMENT lists every problem.
  absl::StatusOr<ImportedNetwork> Finish(const std::vector<int>& outputs) &&;

 private:
  struct BuiltLayer {
    v1::Layer layer;
    std::vector<int> inputs;
    bool is_read = false;
  };
  struct PendingCheck {
    int number;
    std::string where;
    Check check;
    int64_t parameter_elements = 0;  // Where it is a parameter's.
  };

  void AddNote(std::string note);
  std::string UniqueName(absl::string_view wanted_name);
  void AddMissingLosses(const std::vector<int>& outputs);
  void MarkAuxiliaryHeads();
  void DropLayersWithoutLoss();
  v1::Network Assemble();
  // Shapes of the network with every softmax replaced by one of a single class, which tells how
  // many classes there are.
  absl::StatusOr<int> CountClasses(const v1::Network& network) const;
  absl::Status Problems() const;

  ImportOptions options_;
  std::vector<BuiltLayer> layers_;
  std::vector<bool> kept_;                           // Beside layers_, once Finish() has begun.
  absl::flat_hash_map<std::string, int> name_uses_;  // The last number given to a name.
  std::vector<PendingCheck> checks_;
  std::vector<std::string> problems_;
  std::string hint_;
  std::vector<std::string> notes_;
};

}  // namespace paceline

#endif  // PACELINE_MODELS_NETWORKS_IMPORT_NETWORK_BUILDER_H_
