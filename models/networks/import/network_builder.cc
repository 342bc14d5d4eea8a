#include "models/networks/import/network_builder.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace paceline {
namespace {

// Of the file's outputs that are not the main one, where the file has no loss: GoogLeNet's weight
// of its two heads (Szegedy et al. 2014, arXiv:1409.4842, section 5).
constexpr double kAuxiliaryLossWeight = 0.3;

// More problems than these are counted, not listed.
constexpr size_t kMostProblems = 100;

// `wanted` with every character that a name cannot have replaced.
std::string ValidName(absl::string_view wanted, absl::string_view allowed_punctuation) {
  while (absl::StartsWith(wanted, "/")) wanted.remove_prefix(1);
  std::string name;
  for (const char c : wanted) {
    const bool valid = absl::ascii_isalnum(c) || absl::StrContains(allowed_punctuation, c);
    name.push_back(valid ? c : '_');
  }
  return name;
}

double LossWeight(const v1::Layer& layer) {
  return layer.softmax_loss().loss_weight() == 0 ? 1 : layer.softmax_loss().loss_weight();
}

std::string KindName(const v1::Layer& layer) {
  const auto* descriptor = v1::Layer::descriptor();
  const auto* field = descriptor->FindFieldByNumber(layer.kind_case());
  return field == nullptr ? "unknown" : std::string(field->name());
}

bool IsSet(const v1::ImageSize& size) {
  return size.channels() != 0 || size.height() != 0 || size.width() != 0;
}

std::string SizeText(const v1::ImageSize& size) {
  return absl::StrCat(size.channels(), "x", size.height(), "x", size.width());
}

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.1f MB", 1e-6 * bytes); }

}  // namespace

void NetworkBuilder::SetInput(const v1::ImageSize& input) {
  if (!IsSet(options_.input)) {
    options_.input = input;
  } else if (SizeText(options_.input) != SizeText(input)) {
    Note("images are ", SizeText(options_.input), " as asked for, not ", SizeText(input),
         " as the file has it");
  }
}

std::string NetworkBuilder::UniqueName(absl::string_view wanted_name) {
  std::string name = ValidName(wanted_name, "._-/");
  if (name.empty()) name = "layer";
  int last = name_uses_[name];
  if (last == 0 && name != "data") {  // "data" is the network's input.
    name_uses_[name] = 1;
    return name;
  }
  std::string numbered;
  last = std::max(last, 1);
  do {
    numbered = absl::StrCat(name, ".", ++last);
  } while (name_uses_.contains(numbered));
  name_uses_[name] = last;
  name_uses_[numbered] = 1;
  return numbered;
}

int NetworkBuilder::Add(absl::string_view wanted_name, v1::Layer layer,
                        const std::vector<int>& inputs) {
  layer.set_name(UniqueName(wanted_name));
  for (const int input : inputs) {
    if (input != kDataInput) layers_[input].is_read = true;
  }
  layers_.push_back({std::move(layer), inputs});
  return layer_count() - 1;
}

void NetworkBuilder::Expect(int number, std::string where, Check check) {
  checks_.push_back({number, std::move(where), std::move(check), 0});
}

void NetworkBuilder::ExpectParameter(int number, int index, const std::vector<int64_t>& shape,
                                     const std::string& where) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  PendingCheck check{number, where, nullptr, elements};
  check.check = [shape, index](const ShapedNetwork& network, const ShapedLayer& layer) {
    if (index >= static_cast<int>(layer.parameters.size())) {
      return std::string("has a parameter that the layer does not have");
    }
    const ParameterTensor& tensor = network.parameters[layer.parameters[index]];
    if (tensor.shape == shape) return std::string();
    return absl::StrCat("shape inference gives ", tensor.name, " the shape ",
                        absl::StrJoin(tensor.shape, "x"), ", the file ", absl::StrJoin(shape, "x"));
  };
  checks_.push_back(std::move(check));
}

void NetworkBuilder::ExpectElements(int number, int64_t elements, const std::string& where) {
  if (number == kDataInput) return;
  Expect(number, where, [elements](const ShapedNetwork&, const ShapedLayer& layer) {
    if (layer.output.elements() == elements) return std::string();
    return absl::StrCat("shape inference gives ", layer.output.channels, "x", layer.output.height,
                        "x", layer.output.width, " = ", layer.output.elements(),
                        " values a sample, the file ", elements);
  });
}

void NetworkBuilder::AddNote(std::string note) {
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) {
    notes_.push_back(std::move(note));
  }
}

int32_t NetworkBuilder::Size(int64_t value, absl::string_view where, absl::string_view field) {
  if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(value);
  }
  Problem(where, ": ", field, ": expected 0 to 2147483647, got ", value);
  return 0;
}

int32_t NetworkBuilder::PositiveSize(int64_t value, absl::string_view where,
                                     absl::string_view field) {
  if (value > 0 && value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(value);
  }
  Problem(where, ": ", field, ": expected 1 to 2147483647, got ", value);
  return 1;
}

void NetworkBuilder::AddMissingLosses(const std::vector<int>& outputs) {
  for (const BuiltLayer& built : layers_) {
    if (built.layer.has_softmax_loss()) return;
  }
  std::vector<int> distinct;
  for (const int output : outputs) {
    if (output != kDataInput &&
        std::find(distinct.begin(), distinct.end(), output) == distinct.end()) {
      distinct.push_back(output);
    }
  }
  if (distinct.empty()) {
    Problem("outputs: the network computes nothing from its image");
    return;
  }
  for (size_t i = 0; i < distinct.size(); ++i) {
    const std::string reads = layers_[distinct[i]].layer.name();
    v1::Layer loss;
    loss.mutable_softmax_loss();
    if (i > 0) loss.mutable_softmax_loss()->set_loss_weight(kAuxiliaryLossWeight);
    Add("loss", loss, {distinct[i]});
    if (i == 0) {
      Note("the file has no loss: a softmax loss was added behind '", reads, "'");
    } else {
      Note("output '", reads, "' is taken for an auxiliary head, its loss weighted ",
           kAuxiliaryLossWeight);
    }
  }
}

void NetworkBuilder::DropLayersWithoutLoss() {
  kept_.assign(layers_.size(), false);
  std::vector<std::string> dropped;
  for (int i = layer_count() - 1; i >= 0; --i) {
    if (layers_[i].layer.has_softmax_loss()) kept_[i] = true;
    if (!kept_[i]) {
      dropped.push_back(layers_[i].layer.name());
      continue;
    }
    for (const int input : layers_[i].inputs) {
      if (input != kDataInput) kept_[input] = true;
    }
  }
  std::reverse(dropped.begin(), dropped.end());
  if (!dropped.empty()) {
    Note("left out, as no loss depends on them: ", absl::StrJoin(dropped, ", "));
  }
}

void NetworkBuilder::MarkAuxiliaryHeads() {
  double most_weight = 0;
  for (const BuiltLayer& built : layers_) {
    if (built.layer.has_softmax_loss()) {
      most_weight = std::max(most_weight, LossWeight(built.layer));
    }
  }
  std::vector<bool> is_main(layers_.size(), false);
  for (int i = layer_count() - 1; i >= 0; --i) {
    const v1::Layer& layer = layers_[i].layer;
    if (layer.has_softmax_loss() && LossWeight(layer) >= most_weight) is_main[i] = true;
    layers_[i].layer.set_auxiliary(!is_main[i]);
    if (!is_main[i]) continue;
    for (const int input : layers_[i].inputs) {
      if (input != kDataInput) is_main[input] = true;
    }
  }
}

v1::Network NetworkBuilder::Assemble() {
  v1::Network network;
  network.set_name(ValidName(options_.name, "._-"));
  if (network.name().empty()) network.set_name("imported");
  network.set_title(options_.title.empty() ? network.name() : options_.title);
  network.set_source(options_.file);
  *network.mutable_input() = options_.input;
  int last = kDataInput, last_main = kDataInput;
  for (int i = 0; i < layer_count(); ++i) {
    if (!kept_[i]) continue;
    v1::Layer& layer = *network.add_layers();
    layer = layers_[i].layer;
    const std::vector<int>& inputs = layers_[i].inputs;
    // What a layer reads is left out where it is what the network file takes anyway.
    const int read_anyway = layer.auxiliary() ? last : last_main;
    if (inputs.size() != 1 || inputs[0] != read_anyway) {
      for (const int input : inputs) {
        layer.add_inputs(input == kDataInput ? "data" : layers_[input].layer.name());
      }
    }
    last = i;
    if (!layer.auxiliary()) last_main = i;
  }
  return network;
}

absl::StatusOr<int> NetworkBuilder::CountClasses(const v1::Network& network) const {
  v1::Network probe = network;
  probe.set_classes(1);
  probe.clear_layers();
  std::string main_loss;
  for (const v1::Layer& layer : network.layers()) {
    *probe.add_layers() = layer;
    if (!layer.has_softmax_loss()) continue;
    if (!layer.auxiliary()) main_loss = layer.name();
    v1::Layer& one_class = *probe.mutable_layers(probe.layers_size() - 1);
    one_class.mutable_fully_connected()->set_outputs(1);
    v1::Layer& loss = *probe.add_layers();
    loss.set_name(absl::StrCat(layer.name(), "+probe"));  // UniqueName() makes no such name.
    loss.add_inputs(layer.name());
    loss.set_auxiliary(layer.auxiliary());
    loss.mutable_softmax_loss();
  }
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(probe);
  if (!shaped.ok()) return shaped.status();
  for (const ShapedLayer& layer : shaped->layers) {
    if (layer.layer.name() != main_loss) continue;
    if (layer.input.height != 1 || layer.input.width != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", main_loss, ": a softmax over an image of ", layer.input.height, "x",
          layer.input.width, " is not supported; only one prediction for the whole image is"));
    }
    return static_cast<int>(
        std::min<int64_t>(layer.input.channels, std::numeric_limits<int32_t>::max()));
  }
  return absl::InternalError("the probe lost the main loss");
}

absl::Status NetworkBuilder::Problems() const {
  if (problems_.empty()) return absl::OkStatus();
  std::vector<std::string> listed = problems_;
  if (listed.size() > kMostProblems) {
    listed.resize(kMostProblems);
    listed.push_back(absl::StrCat("and ", problems_.size() - kMostProblems, " more"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      options_.file, ": cannot be imported, ",
      problems_.size() == 1 ? "for one reason" : absl::StrCat("for ", problems_.size(), " reasons"),
      ":\n  ", absl::StrJoin(listed, "\n  "), hint_.empty() ? "" : absl::StrCat("\n", hint_)));
}

absl::StatusOr<ImportedNetwork> NetworkBuilder::Finish(const std::vector<int>& outputs) && {
  if (!IsSet(options_.input)) {
    Problem("the file does not say how large an image is: give --input=CHANNELSxHEIGHTxWIDTH");
  }
  // With layers missing, whatever else would be found is a consequence.
  if (problems_.empty()) AddMissingLosses(outputs);
  if (!problems_.empty()) return Problems();
  DropLayersWithoutLoss();
  MarkAuxiliaryHeads();

  ImportedNetwork imported;
  imported.network = Assemble();
  v1::Network& network = imported.network;
  const std::vector<std::string> known = KnownNetworks();
  if (std::find(known.begin(), known.end(), network.name()) != known.end()) {
    Problem("name: '", network.name(), "' is a built-in network; give --name=ANOTHER");
    return Problems();
  }
  const auto prefixed = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(options_.file, ": ", status.message()));
  };
  absl::StatusOr<int> classes = CountClasses(network);
  if (!classes.ok()) return prefixed(classes.status());
  network.set_classes(*classes);
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(network);
  if (!shaped.ok()) return prefixed(shaped.status());

  std::vector<int> index_of(layers_.size(), -1);
  int kept_count = 0;
  for (int i = 0; i < layer_count(); ++i) {
    if (kept_[i]) index_of[i] = kept_count++;
  }
  int64_t expected_parameters = 0;
  for (const PendingCheck& pending : checks_) {
    if (!kept_[pending.number]) continue;
    expected_parameters += pending.parameter_elements;
    const ShapedLayer& layer = shaped->layers[index_of[pending.number]];
    const std::string problem = pending.check(*shaped, layer);
    if (!problem.empty()) Problem(pending.where, ": layer ", layer.layer.name(), ": ", problem);
  }
  if (problems_.empty() && expected_parameters > 0 &&
      expected_parameters != shaped->parameter_count) {
    Problem("parameters: shape inference gives ", shaped->parameter_count, ", the file holds ",
            expected_parameters);
  }
  if (!problems_.empty()) return Problems();
  imported.shaped = *std::move(shaped);
  imported.notes = std::move(notes_);
  return imported;
}

double Decimal(float value) {
  double decimal = 0;
  // Six digits, fewer than a float holds, which is what people write.
  return absl::SimpleAtod(absl::StrCat(value), &decimal) ? decimal : value;
}

std::string ImportSummary(const ImportedNetwork& imported) {
  const v1::Network& network = imported.network;
  std::map<std::string, int> kinds;
  int64_t macs = 0, auxiliary_macs = 0;
  for (const ShapedLayer& layer : imported.shaped.layers) {
    ++kinds[KindName(layer.layer)];
    (layer.layer.auxiliary() ? auxiliary_macs : macs) += layer.forward_macs;
  }
  int64_t parameters = 0, auxiliary_parameters = 0;
  int tensors = 0, auxiliary_tensors = 0;
  for (const ParameterTensor& tensor : imported.shaped.parameters) {
    (tensor.auxiliary ? auxiliary_parameters : parameters) += tensor.elements;
    ++(tensor.auxiliary ? auxiliary_tensors : tensors);
  }
  std::vector<std::string> kind_counts;
  for (const auto& [kind, count] : kinds) kind_counts.push_back(absl::StrCat(count, " ", kind));
  std::string text =
      absl::StrCat("network      ", network.name(), ", images of ", SizeText(network.input()), ", ",
                   network.classes(), " classes\nlayers       ", network.layers_size(), ": ",
                   absl::StrJoin(kind_counts, ", "), "\nparameters   ", parameters,
                   "\ngradients    ", tensors, " tensors, ", Megabytes(4 * parameters),
                   "\noperations   ", macs, " multiply-accumulates an image, forward\n");
  if (auxiliary_tensors > 0) {
    absl::StrAppend(&text, "auxiliary    ", auxiliary_parameters, " parameters in ",
                    auxiliary_tensors, " tensors, ", auxiliary_macs,
                    " multiply-accumulates more, used with the suffix +aux\n");
  }
  for (const std::string& note : imported.notes)
    absl::StrAppend(&text, "note         ", note, "\n");
  return text;
}

}  // namespace paceline
