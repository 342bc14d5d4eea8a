// A network with its shapes: what the schedule compiler, the engines and the models work on.
//
//   absl::StatusOr<Network> network = LoadNetwork("resnet50_v1.5");
//   absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
//   shaped->parameters[0].name;   // "conv1.weight"
//
// Everything is per sample (one image); multiply by the batch where needed. All functions are
// thread-safe.
#ifndef PACELINE_MODELS_NETWORKS_NETWORK_H_
#define PACELINE_MODELS_NETWORKS_NETWORK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/paceline/v1/network.pb.h"

namespace paceline {

// Output of a layer for one sample. Fully connected outputs are {outputs, 1, 1}.
struct FeatureShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t elements() const { return channels * height * width; }
};

// One learnable tensor, which is also one gradient tensor.
struct ParameterTensor {
  std::string name;            // "conv1.weight"; batch normalization: "conv1.bn.gamma".
  std::vector<int64_t> shape;  // {outputs, inputs / groups, kernel, kernel}; {channels}; {out, in}.
  int64_t elements = 0;
  int layer = 0;  // Index into ShapedNetwork::layers.
  bool auxiliary = false;
  int64_t gradient_bytes() const { return elements * 4; }  // Gradients are fp32.
};

struct ShapedLayer {
  v1::Layer layer;
  std::vector<int> inputs;  // Producing layers by index; kDataInput for the network's input.
  FeatureShape input;       // Of the first input.
  FeatureShape output;
  // Multiply-accumulates of convolutions and fully connected layers, without bias.
  int64_t forward_macs = 0;
  // Floating-point operations, forward: 2 per multiply-accumulate, and the elementwise work of all
  // kinds, counted as documented in shape_inference.cc.
  int64_t forward_flops = 0;
  // Backward: data gradient (not for layers fed by the input image only) plus weight gradient.
  int64_t backward_flops = 0;
  int64_t output_bytes = 0;     // fp32 activation.
  std::vector<int> parameters;  // Into ShapedNetwork::parameters: weight, then bias.
};

constexpr int kDataInput = -1;

struct ShapedNetwork {
  v1::Network network;  // As loaded, auxiliary layers dropped unless asked for.
  std::vector<ShapedLayer> layers;
  std::vector<ParameterTensor> parameters;  // Forward order.
  int64_t parameter_count = 0;
  int64_t gradient_bytes = 0;
  int64_t forward_macs = 0;
  int64_t forward_flops = 0;
  int64_t backward_flops = 0;
  int64_t activation_bytes = 0;  // Sum of all outputs, fp32.
};

// Names of the networks in models/networks, sorted.
std::vector<std::string> KnownNetworks();

// Loads and checks "NAME" (auxiliary layers dropped) or "NAME+aux" from the built-in networks, or
// from a file if `name_or_path` ends in ".textproto" (or ".textproto+aux"); a relative path is
// relative to where the user stands. The returned network's `name` includes "+aux". NOT_FOUND names
// the known networks (and the closest one); INVALID_ARGUMENT names the file's lines or the layers
// at fault.
absl::StatusOr<v1::Network> LoadNetwork(absl::string_view name_or_path);

// Checks the network and derives its shapes. INVALID_ARGUMENT lists every problem with its layer:
// "layer conv2: inputs: unknown layer 'conv1x' (did you mean 'conv1'?)". A layer whose output no
// loss depends on is a problem too.
absl::StatusOr<ShapedNetwork> InferShapes(const v1::Network& network);

}  // namespace paceline

#endif  // PACELINE_MODELS_NETWORKS_NETWORK_H_
