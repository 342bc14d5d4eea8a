// InferShapes. Floating-point operations are counted per sample as follows; each addition,
// multiplication, comparison, division, exponential and power counts as one. "out" and "in" are the
// elements of the layer's output and (first) input, "macs" its multiply-accumulates.
//
//   kind             forward                        backward
//   convolution,     2 macs + out if it has a bias  2 macs (weights) + out if it has a bias
//   fully connected                                   + 2 macs (data)
//   pooling          out * window area              max: out (one addition each);
//                                                   average: out * window area
//   relu             out                            out
//   lrn (size n)     out * (n + 5)                  out * (n + 7)
//   batch norm       out * 8                        out * 10
//   concat           0                              0
//   add (m inputs)   out * (m - 1)                  0 (the gradient is passed on)
//   dropout          out                            out
//   softmax loss     out * 5                        out * 2
//
// A layer fed by the input image alone computes no data gradient: its backward is the weight
// gradient of the first two rows, and 0 for the other kinds but batch norm. The window area of
// pooling is not reduced at the border. An output that r layers read costs r - 1 additions an
// element in backward to sum the gradients; they count towards the layer that produced it.
//   lrn, forward: square 1, sum n, scale and shift 2, power 1, product 1; backward: the products
//   dy y / s 2, sum n, scaling by 2 alpha beta x / n 2, dy s^-beta 2, difference 1.
//   batch norm, forward: mean 1, variance 3, normalization 2, scale and shift 2; backward: the
//   normalized input 2, sum of dy 1, sum of dy x^ 2, dx 5.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

constexpr absl::string_view kDataName = "data";

// Bounds that keep every sum below within 63 bits: a layer's largest number is 2^46 multiply-
// accumulates times 4 (backward) plus bytes and the like, and 2^13 layers of those are summed.
constexpr int64_t kMaxCount = int64_t{1} << 46;
constexpr int kMaxLayers = 1 << 13;

std::string ShapeText(const FeatureShape& shape) {
  return absl::StrCat(shape.channels, "x", shape.height, "x", shape.width);
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }
bool IsNonNegative(double value) { return std::isfinite(value) && value >= 0; }

// Names go into tables, file names and lists.
bool IsValidName(absl::string_view name) {
  if (name.empty()) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("._+-/", c)) return false;
  }
  return true;
}

class ShapeInference {
 public:
  explicit ShapeInference(const v1::Network& network) : network_(network) {}

  absl::StatusOr<ShapedNetwork> Run() {
    CheckNetwork();
    if (network_.layers_size() <= kMaxLayers) {
      for (const v1::Layer& layer : network_.layers()) AddLayer(layer);
      CheckEveryLayerReachesALoss();
    }
    if (problems_.empty()) AddGradientSums();
    if (!problems_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network '", network_.name(), "' has ",
          problems_.size() == 1 ? "a problem" : absl::StrCat(problems_.size(), " problems"),
          ":\n  ", absl::StrJoin(problems_, "\n  ")));
    }
    SumUp();
    shaped_.network = network_;
    return std::move(shaped_);
  }

 private:
  // ---- The network as a whole.

  void CheckNetwork() {
    if (!IsValidName(network_.name())) {
      Problem("name", "needs letters, digits and ._+-/ only, at least one; got '", network_.name(),
              "'");
    }
    const v1::ImageSize& input = network_.input();
    const std::pair<const char*, int32_t> sizes[] = {{"input.channels", input.channels()},
                                                     {"input.height", input.height()},
                                                     {"input.width", input.width()}};
    data_is_known_ = true;
    for (const auto& [field, size] : sizes) {
      if (size > 0) continue;
      Problem(field, "must be positive, got ", size);
      data_is_known_ = false;
    }
    data_ = {input.channels(), input.height(), input.width()};
    if (data_is_known_ && !Product({data_.channels, data_.height, data_.width}).has_value) {
      Problem("input", "has more than 2^46 elements: ", ShapeText(data_));
      data_is_known_ = false;
    }
    if (network_.classes() <= 0) {
      Problem("classes", "must be positive, got ", network_.classes());
    }
    if (network_.layers_size() > kMaxLayers) {
      Problem("layers", "has ", network_.layers_size(), " layers, at most ", kMaxLayers,
              " are supported");
    }
    for (const v1::Layer& layer : network_.layers()) {
      has_loss_ |= layer.has_softmax_loss() && !layer.auxiliary();
    }
    if (!has_loss_) Problem("layers", "needs a softmax_loss layer that is not auxiliary");
  }

  // A layer from which at least one loss is computed is alive; backward never reaches the others.
  void CheckEveryLayerReachesALoss() {
    if (!has_loss_) return;  // Reported once instead of for every layer.
    const int count = static_cast<int>(shaped_.layers.size());
    std::vector<bool> alive(count, false);
    for (int i = count - 1; i >= 0; --i) {
      const ShapedLayer& layer = shaped_.layers[i];
      if (layer.layer.has_softmax_loss()) alive[i] = true;
      // A layer read under a mistyped name looks dead; that problem is reported already.
      if (!inputs_are_known_[i]) return;
      if (!alive[i]) continue;
      for (const int input : layer.inputs) {
        if (input != kDataInput) alive[input] = true;
      }
    }
    for (int i = 0; i < count; ++i) {
      if (!alive[i]) {
        at_ = LayerLabel(shaped_.layers[i].layer, i);
        LayerProblem("name", "no loss depends on this layer; let one read it or remove it");
      }
    }
  }

  void AddGradientSums() {
    std::vector<int> readers(shaped_.layers.size(), 0);
    for (const ShapedLayer& layer : shaped_.layers) {
      for (const int input : layer.inputs) {
        if (input != kDataInput) ++readers[input];
      }
    }
    for (size_t i = 0; i < readers.size(); ++i) {
      ShapedLayer& layer = shaped_.layers[i];
      if (readers[i] < 2) continue;
      const Count additions = Product({readers[i] - 1, layer.output.elements()});
      if (!additions.has_value) {
        at_ = LayerLabel(layer.layer, static_cast<int>(i));
        LayerProblem("output", "is read too often, by ", readers[i], " layers");
        continue;
      }
      layer.backward_flops += additions.value;
    }
  }

  void SumUp() {
    for (const ParameterTensor& parameter : shaped_.parameters) {
      shaped_.parameter_count += parameter.elements;
      shaped_.gradient_bytes += parameter.gradient_bytes();
    }
    for (const ShapedLayer& layer : shaped_.layers) {
      shaped_.forward_macs += layer.forward_macs;
      shaped_.forward_flops += layer.forward_flops;
      shaped_.backward_flops += layer.backward_flops;
      shaped_.activation_bytes += layer.output_bytes;
    }
  }

  // ---- One layer.

  void AddLayer(const v1::Layer& layer) {
    const int index = static_cast<int>(shaped_.layers.size());
    at_ = LayerLabel(layer, index);
    shaped_.layers.emplace_back();
    shape_is_known_.push_back(false);
    current_ = &shaped_.layers.back();
    current_->layer = layer;

    if (!IsValidName(layer.name())) {
      LayerProblem("name", "needs letters, digits and ._+-/ only, at least one");
    } else if (layer.name() == kDataName) {
      LayerProblem("name", "'data' is the network's input");
    }
    const bool inputs_are_known = ResolveInputs(layer, index);
    inputs_are_known_.push_back(inputs_are_known);
    // Only now: a layer cannot read itself.
    if (!layer.name().empty() && layer.name() != kDataName) {
      const auto [existing, inserted] = index_of_.emplace(layer.name(), index);
      if (!inserted) {
        LayerProblem("name", "is used twice, by layers[", existing->second, "] and layers[", index,
                     "]");
      }
    }
    if (!layer.auxiliary()) last_main_layer_ = index;

    // Fields are checked even if the input's shape is not known, so that all problems show at once.
    bool known = inputs_are_known;
    for (const int input : current_->inputs) {
      known &= input == kDataInput ? data_is_known_ : static_cast<bool>(shape_is_known_[input]);
    }
    if (inputs_are_known) current_->input = OutputOf(current_->inputs[0]);
    input_is_known_ = known;

    const size_t problems_before = problems_.size();
    InferKind(layer);
    if (known && problems_.size() == problems_before) {
      if (Product({current_->output.channels, current_->output.height, current_->output.width})
              .has_value) {
        current_->output_bytes = 4 * current_->output.elements();
        shape_is_known_[index] = true;
      } else {
        LayerProblem("output", "has more than 2^46 elements: ", ShapeText(current_->output));
      }
    }
    current_ = nullptr;
  }

  // Fills current_->inputs; false if one is not known.
  bool ResolveInputs(const v1::Layer& layer, int index) {
    std::vector<int>& inputs = current_->inputs;
    if (layer.inputs().empty()) {
      inputs.push_back(layer.auxiliary() ? index - 1 : last_main_layer_);  // -1 is kDataInput.
    }
    bool all_known = true;
    absl::flat_hash_set<absl::string_view> seen;
    for (const std::string& name : layer.inputs()) {
      if (!seen.insert(name).second) {
        LayerProblem("inputs", "'", name, "' is listed twice");
        all_known = false;
        continue;
      }
      if (name == kDataName) {
        inputs.push_back(kDataInput);
        continue;
      }
      const auto found = index_of_.find(name);
      if (found == index_of_.end()) {
        LayerProblem("inputs", UnknownInput(name));
        all_known = false;
        continue;
      }
      inputs.push_back(found->second);
    }
    for (const int input : inputs) {
      if (input == kDataInput) continue;
      const v1::Layer& producer = shaped_.layers[input].layer;
      if (producer.has_softmax_loss()) {
        LayerProblem("inputs", "'", producer.name(), "' is a loss, which nothing can read");
        all_known = false;
      }
      if (producer.auxiliary() && !layer.auxiliary()) {
        LayerProblem("inputs", "'", producer.name(), "' is auxiliary, and this layer is not");
      }
    }
    const bool takes_many = layer.has_concat() || layer.has_add();
    const int listed = layer.inputs().empty() ? 1 : layer.inputs_size();
    if (takes_many ? listed < 2 : listed != 1) {
      LayerProblem("inputs", "must list ", takes_many ? "two or more layers" : "one layer",
                   ", got ", listed);
      all_known = false;
    }
    return all_known;
  }

  std::string UnknownInput(absl::string_view name) const {
    std::vector<std::string> before = {std::string(kDataName)};
    for (const ShapedLayer& layer : shaped_.layers) {
      if (&layer != current_) before.push_back(layer.layer.name());
    }
    for (const v1::Layer& layer : network_.layers()) {
      if (layer.name() == name) {
        return absl::StrCat("'", name,
                            "' does not come before this layer; a layer reads earlier ones");
      }
    }
    return absl::StrCat("unknown layer '", name, "'", DidYouMean(name, before));
  }

  void InferKind(const v1::Layer& layer) {
    switch (layer.kind_case()) {
      case v1::Layer::kConvolution:
        return InferConvolution(layer.convolution());
      case v1::Layer::kPooling:
        return InferPooling(layer.pooling());
      case v1::Layer::kRelu:
        return InferElementwise(/*forward=*/1, /*backward=*/1);
      case v1::Layer::kLrn:
        return InferLrn(layer.lrn());
      case v1::Layer::kBatchNorm:
        return InferBatchNorm(layer.batch_norm());
      case v1::Layer::kConcat:
        return InferConcat();
      case v1::Layer::kAdd:
        return InferAdd();
      case v1::Layer::kDropout:
        if (!IsPositive(layer.dropout().ratio()) || layer.dropout().ratio() >= 1) {
          LayerProblem("dropout.ratio", "must lie between 0 and 1, got ", layer.dropout().ratio());
        }
        return InferElementwise(/*forward=*/1, /*backward=*/1);
      case v1::Layer::kFullyConnected:
        return InferFullyConnected(layer.fully_connected());
      case v1::Layer::kSoftmaxLoss:
        return InferSoftmaxLoss(layer.softmax_loss());
      case v1::Layer::KIND_NOT_SET:
        break;
    }
    LayerProblem("kind",
                 "is missing: set one of convolution, pooling, relu, lrn, batch_norm, concat, add, "
                 "dropout, fully_connected, softmax_loss");
  }

  void InferConvolution(const v1::Convolution& convolution) {
    const bool fields_are_valid = NoNewProblems([&] {
      RequirePositive("convolution.output_channels", convolution.output_channels());
      RequirePositive("convolution.kernel", convolution.kernel());
      RequireNonNegative("convolution.stride", convolution.stride());
      RequireNonNegative("convolution.pad", convolution.pad());
      RequireNonNegative("convolution.groups", convolution.groups());
      CheckFiller("convolution.weight_filler", convolution.weight_filler());
    });
    if (!fields_are_valid) return;
    const int64_t outputs = convolution.output_channels();
    const int64_t kernel = convolution.kernel();
    const int64_t groups = OrOne(convolution.groups());
    const FeatureShape& input = current_->input;
    const bool groups_divide_channels = NoNewProblems([&] {
      if (outputs % groups != 0) {
        LayerProblem("convolution.groups", groups, " groups do not divide ", outputs,
                     " output channels");
      }
      if (input_is_known_ && input.channels % groups != 0) {
        LayerProblem("convolution.groups", groups, " groups do not divide ", input.channels,
                     " input channels");
      }
    });
    if (!groups_divide_channels || !input_is_known_) return;
    const int64_t stride = OrOne(convolution.stride());
    const int64_t pad = convolution.pad();
    if (!WindowFits("convolution.kernel", kernel, pad)) return;
    current_->output = {outputs, (input.height + 2 * pad - kernel) / stride + 1,
                        (input.width + 2 * pad - kernel) / stride + 1};
    AddWeights("convolution.output_channels", {outputs, input.channels / groups, kernel, kernel},
               {current_->output.height, current_->output.width}, !convolution.no_bias());
  }

  void InferFullyConnected(const v1::FullyConnected& fully_connected) {
    const bool fields_are_valid = NoNewProblems([&] {
      RequirePositive("fully_connected.outputs", fully_connected.outputs());
      CheckFiller("fully_connected.weight_filler", fully_connected.weight_filler());
    });
    if (!fields_are_valid || !input_is_known_) return;
    current_->output = {fully_connected.outputs(), 1, 1};
    AddWeights("fully_connected.outputs", {fully_connected.outputs(), current_->input.elements()},
               {}, !fully_connected.no_bias());
  }

  // Weight and bias, with the work on them. Each weight is used at every output position.
  void AddWeights(absl::string_view outputs_field, std::vector<int64_t> shape,
                  const std::vector<int64_t>& output_positions, bool bias) {
    std::vector<int64_t> factors = shape;
    factors.insert(factors.end(), output_positions.begin(), output_positions.end());
    const Count macs = Product(factors);
    const Count output =
        Product({current_->output.channels, current_->output.height, current_->output.width});
    if (!macs.has_value || !output.has_value) {
      LayerProblem(outputs_field, "needs more than 2^46 multiply-accumulates for an image");
      return;
    }
    const int64_t outputs = shape[0];
    AddParameter("weight", std::move(shape));
    if (bias) AddParameter("bias", {outputs});
    const int64_t bias_flops = bias ? output.value : 0;
    current_->forward_macs = macs.value;
    current_->forward_flops = 2 * macs.value + bias_flops;
    current_->backward_flops = (NeedsDataGradient() ? 4 : 2) * macs.value + bias_flops;
  }

  void InferPooling(const v1::Pooling& pooling) {
    const bool fields_are_valid = NoNewProblems([&] {
      if (pooling.method() != v1::Pooling::METHOD_MAX &&
          pooling.method() != v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING &&
          pooling.method() != v1::Pooling::METHOD_AVERAGE_EXCLUDE_PADDING) {
        LayerProblem("pooling.method",
                     "must be METHOD_MAX, METHOD_AVERAGE_INCLUDE_PADDING or "
                     "METHOD_AVERAGE_EXCLUDE_PADDING");
      }
      if (pooling.global()) {
        const std::pair<const char*, int32_t> unused[] = {{"pooling.kernel", pooling.kernel()},
                                                          {"pooling.stride", pooling.stride()},
                                                          {"pooling.pad", pooling.pad()}};
        for (const auto& [field, value] : unused) {
          if (value != 0) LayerProblem(field, "cannot be set with `global`, got ", value);
        }
        return;
      }
      RequirePositive("pooling.kernel", pooling.kernel());
      RequireNonNegative("pooling.stride", pooling.stride());
      RequireNonNegative("pooling.pad", pooling.pad());
      if (pooling.kernel() > 0 && pooling.pad() >= pooling.kernel()) {
        LayerProblem("pooling.pad", "must be less than the kernel, ", pooling.kernel(), ", got ",
                     pooling.pad());
      }
    });
    if (!fields_are_valid || !input_is_known_) return;
    const FeatureShape& input = current_->input;
    int64_t window = 0;
    if (pooling.global()) {
      current_->output = {input.channels, 1, 1};
      window = input.height * input.width;
    } else {
      if (!WindowFits("pooling.kernel", pooling.kernel(), pooling.pad())) return;
      current_->output = {input.channels, PooledSize(input.height, pooling),
                          PooledSize(input.width, pooling)};
      window = int64_t{pooling.kernel()} * pooling.kernel();
    }
    const Count work =
        Product({input.channels, current_->output.height, current_->output.width, window});
    if (!work.has_value) {
      LayerProblem("pooling.kernel", "needs more than 2^46 operations for an image");
      return;
    }
    current_->forward_flops = work.value;
    if (!NeedsDataGradient()) return;
    current_->backward_flops =
        pooling.method() == v1::Pooling::METHOD_MAX ? current_->output.elements() : work.value;
  }

  static int64_t PooledSize(int64_t size, const v1::Pooling& pooling) {
    const int64_t stride = OrOne(pooling.stride());
    const int64_t room = size + 2 * int64_t{pooling.pad()} - pooling.kernel();
    int64_t pooled = (pooling.ceil_mode() ? (room + stride - 1) / stride : room / stride) + 1;
    // Caffe's pooling_layer.cpp: the last window starts inside the image or the padding before it.
    if (pooling.ceil_mode() && (pooled - 1) * stride >= size + pooling.pad()) --pooled;
    return pooled;
  }

  void InferLrn(const v1::LocalResponseNormalization& lrn) {
    const bool fields_are_valid = NoNewProblems([&] { CheckLrn(lrn); });
    if (!fields_are_valid) return;
    InferElementwise(int64_t{lrn.local_size()} + 5, int64_t{lrn.local_size()} + 7);
  }

  void CheckLrn(const v1::LocalResponseNormalization& lrn) {
    if (lrn.local_size() <= 0 || lrn.local_size() % 2 == 0) {
      LayerProblem("lrn.local_size", "must be positive and odd, got ", lrn.local_size());
    }
    if (!IsPositive(lrn.alpha())) LayerProblem("lrn.alpha", "must be positive, got ", lrn.alpha());
    if (!IsPositive(lrn.beta())) LayerProblem("lrn.beta", "must be positive, got ", lrn.beta());
    if (!IsNonNegative(lrn.k())) LayerProblem("lrn.k", "must not be negative, got ", lrn.k());
  }

  void InferBatchNorm(const v1::BatchNormalization& batch_norm) {
    if (!IsNonNegative(batch_norm.epsilon())) {
      LayerProblem("batch_norm.epsilon", "must not be negative, got ", batch_norm.epsilon());
      return;
    }
    if (!input_is_known_) return;
    InferElementwise(8, 10);
    if (!NeedsDataGradient()) current_->backward_flops = 5 * current_->output.elements();
    AddParameter("gamma", {current_->input.channels});
    AddParameter("beta", {current_->input.channels});
  }

  // Output like input, with so many operations an element.
  void InferElementwise(int64_t forward, int64_t backward) {
    if (!input_is_known_) return;
    current_->output = current_->input;
    const Count work = Product({current_->input.elements(), std::max(forward, backward)});
    if (!work.has_value) {
      LayerProblem("input", "needs more than 2^46 operations for an image");
      return;
    }
    current_->forward_flops = forward * current_->input.elements();
    if (NeedsDataGradient()) current_->backward_flops = backward * current_->input.elements();
  }

  void InferConcat() {
    if (!input_is_known_) return;
    current_->output = current_->input;
    for (size_t i = 1; i < current_->inputs.size(); ++i) {
      const FeatureShape other = OutputOf(current_->inputs[i]);
      if (other.height != current_->input.height || other.width != current_->input.width) {
        ShapeMismatch("height and width", i);
      }
      current_->output.channels += other.channels;
    }
  }

  void InferAdd() {
    if (!input_is_known_) return;
    current_->output = current_->input;
    for (size_t i = 1; i < current_->inputs.size(); ++i) {
      const FeatureShape other = OutputOf(current_->inputs[i]);
      if (other.channels != current_->input.channels || other.height != current_->input.height ||
          other.width != current_->input.width) {
        ShapeMismatch("shape", i);
      }
    }
    const Count work =
        Product({static_cast<int64_t>(current_->inputs.size()) - 1, current_->output.elements()});
    if (!work.has_value) {
      LayerProblem("inputs", "needs more than 2^46 operations for an image");
      return;
    }
    current_->forward_flops = work.value;
  }

  void InferSoftmaxLoss(const v1::SoftmaxLoss& loss) {
    if (!IsNonNegative(loss.loss_weight())) {
      LayerProblem("softmax_loss.loss_weight", "must not be negative, got ", loss.loss_weight());
    }
    if (!input_is_known_ || network_.classes() <= 0) return;
    if (current_->input.elements() != network_.classes()) {
      LayerProblem("inputs", "a softmax over ", network_.classes(),
                   " classes needs as many values, '", InputName(0), "' has ",
                   current_->input.elements(), " (", ShapeText(current_->input), ")");
      return;
    }
    current_->output = {network_.classes(), 1, 1};
    current_->forward_flops = 5 * current_->output.elements();
    current_->backward_flops = NeedsDataGradient() ? 2 * current_->output.elements() : 0;
  }

  // ---- Helpers.

  struct Count {
    int64_t value = 0;
    bool has_value = false;
  };
  // The product of positive factors, unless it exceeds kMaxCount.
  static Count Product(const std::vector<int64_t>& factors) {
    int64_t product = 1;
    for (const int64_t factor : factors) {
      if (factor > kMaxCount / product) return {};
      product *= factor;
    }
    return {product, true};
  }

  static int64_t OrOne(int32_t value) { return value == 0 ? 1 : value; }

  // Whether any gradient goes further back.
  bool NeedsDataGradient() const {
    for (const int input : current_->inputs) {
      if (input != kDataInput) return true;
    }
    return false;
  }

  FeatureShape OutputOf(int input) const {
    return input == kDataInput ? data_ : shaped_.layers[input].output;
  }
  absl::string_view InputName(size_t i) const {
    const int input = current_->inputs[i];
    return input == kDataInput ? kDataName : absl::string_view(shaped_.layers[input].layer.name());
  }

  void AddParameter(absl::string_view suffix, std::vector<int64_t> shape) {
    ParameterTensor parameter;
    parameter.name = absl::StrCat(current_->layer.name(), ".", suffix);
    parameter.elements = Product(shape).value;
    parameter.shape = std::move(shape);
    parameter.layer = static_cast<int>(shaped_.layers.size()) - 1;
    parameter.auxiliary = current_->layer.auxiliary();
    current_->parameters.push_back(static_cast<int>(shaped_.parameters.size()));
    shaped_.parameters.push_back(std::move(parameter));
  }

  bool WindowFits(absl::string_view field, int64_t kernel, int64_t pad) {
    const FeatureShape& input = current_->input;
    if (kernel <= input.height + 2 * pad && kernel <= input.width + 2 * pad) return true;
    LayerProblem(field, kernel, " is larger than the image of ", input.height, "x", input.width,
                 " with padding ", pad, " (from '", InputName(0), "')");
    return false;
  }

  void ShapeMismatch(absl::string_view what, size_t i) {
    LayerProblem("inputs", "must agree in ", what, ": '", InputName(0), "' has ",
                 ShapeText(current_->input), ", '", InputName(i), "' has ",
                 ShapeText(OutputOf(current_->inputs[i])));
  }

  void CheckFiller(absl::string_view field, const v1::Filler& filler) {
    if (!v1::Filler::Kind_IsValid(filler.kind())) {
      LayerProblem(absl::StrCat(field, ".kind"), "is unknown: ", static_cast<int>(filler.kind()));
    } else if (filler.kind() == v1::Filler::KIND_GAUSSIAN) {
      if (!IsPositive(filler.standard_deviation())) {
        LayerProblem(absl::StrCat(field, ".standard_deviation"), "must be positive, got ",
                     filler.standard_deviation());
      }
    } else if (filler.standard_deviation() != 0) {
      LayerProblem(absl::StrCat(field, ".standard_deviation"), "is for KIND_GAUSSIAN only");
    }
  }

  void RequirePositive(absl::string_view field, int32_t value) {
    if (value <= 0) LayerProblem(field, "must be positive, got ", value);
  }
  void RequireNonNegative(absl::string_view field, int32_t value) {
    if (value < 0) LayerProblem(field, "must not be negative, got ", value);
  }

  template <typename Checks>
  bool NoNewProblems(Checks checks) {
    const size_t before = problems_.size();
    checks();
    return problems_.size() == before;
  }

  static std::string LayerLabel(const v1::Layer& layer, int index) {
    return layer.name().empty() ? absl::StrCat("layers[", index, "]")
                                : absl::StrCat("layer ", layer.name());
  }

  template <typename... Text>
  void Problem(absl::string_view field, const Text&... text) {
    problems_.push_back(absl::StrCat(field, ": ", text...));
  }
  template <typename... Text>
  void LayerProblem(absl::string_view field, const Text&... text) {
    problems_.push_back(absl::StrCat(at_, ": ", field, ": ", text...));
  }

  const v1::Network& network_;
  ShapedNetwork shaped_;
  std::vector<std::string> problems_;

  FeatureShape data_;
  bool data_is_known_ = false;
  absl::flat_hash_map<std::string, int> index_of_;
  bool has_loss_ = false;
  int last_main_layer_ = kDataInput;    // The last layer so far that is not auxiliary.
  std::vector<bool> inputs_are_known_;  // Beside shaped_.layers.
  std::vector<bool> shape_is_known_;    // Beside shaped_.layers: `output` is set.

  // The layer being worked on.
  std::string at_;
  ShapedLayer* current_ = nullptr;  // The last of shaped_.layers.
  bool input_is_known_ = false;     // All inputs' shapes are.
};

}  // namespace

absl::StatusOr<ShapedNetwork> InferShapes(const v1::Network& network) {
  return ShapeInference(network).Run();
}

}  // namespace paceline
