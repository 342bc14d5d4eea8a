// Operators: https://github.com/onnx/onnx/blob/main/docs/Operators.md; what changed between their
// versions: docs/Changelog.md there.
#include "models/networks/import/onnx_import.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "models/networks/network.h"
#include "onnx/onnx.pb.h"
#include "proto/paceline/v1/network.pb.h"

namespace paceline {
namespace {

// Elements of integer tensors that stand for a size the file leaves open.
constexpr int64_t kBatchSize = std::numeric_limits<int64_t>::min();
constexpr int64_t kOpenSize = kBatchSize + 1;

// Tensors of at most so many values are read: shapes and ratios, not weights.
constexpr size_t kMostValues = 64;
// The bound of shape inference.
constexpr int64_t kMostElements = int64_t{1} << 46;
// Nodes named for one operator that is not supported.
constexpr size_t kMostNamedNodes = 3;

struct Value {
  enum Kind {
    kUnknown,   // Computed by something not supported, which is reported already.
    kFeature,   // Output of a layer, or the image.
    kTensor,    // A weight or another constant.
    kIntegers,  // Sizes computed from shapes.
    kScores,    // Softmax of a layer's output.
    kLabels,    // A graph input other than the image.
    kOther,     // A node's further outputs and a loss, which nothing here can read.
    kMerged,    // A layer's output before its bias was added, which no other node can read.
  };
  Kind kind = kUnknown;
  int layer = kDataInput;         // kFeature, kScores, kMerged.
  bool flat = false;              // kFeature: {batch, values} instead of {batch, C, H, W}.
  std::vector<int64_t> shape;     // kTensor.
  std::vector<int64_t> integers;  // kIntegers, and of a small integer kTensor.
  std::vector<double> numbers;    // Of a small floating-point kTensor.
  bool is_scalar = false;         // kTensor, kIntegers: of rank 0.
};

// Values of a small tensor; none if it is large, stored elsewhere or of another type.
template <typename T, typename Stored, typename Field>
std::vector<T> SmallValues(const onnx::TensorProto& tensor, const Field& field) {
  if (!field.empty()) {
    if (static_cast<size_t>(field.size()) > kMostValues) return {};
    return std::vector<T>(field.begin(), field.end());
  }
  const std::string& raw = tensor.raw_data();
  if (raw.size() % sizeof(Stored) != 0 || raw.size() / sizeof(Stored) > kMostValues) return {};
  std::vector<T> values;
  for (size_t at = 0; at < raw.size(); at += sizeof(Stored)) {
    Stored value;
    std::memcpy(&value, raw.data() + at, sizeof(value));
    values.push_back(static_cast<T>(value));
  }
  return values;
}

// A node's attributes. Those nobody asked for are reported as ignored.
class Attributes {
 public:
  explicit Attributes(const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      by_name_.emplace(attribute.name(), &attribute);
    }
  }
  const onnx::AttributeProto* Find(const std::string& name) {
    asked_.insert(name);
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  int64_t Int(const std::string& name, int64_t otherwise) {
    const onnx::AttributeProto* attribute = Find(name);
    return attribute == nullptr ? otherwise : attribute->i();
  }
  double Float(const std::string& name, double otherwise) {
    const onnx::AttributeProto* attribute = Find(name);
    return attribute == nullptr ? otherwise : Decimal(attribute->f());
  }
  std::vector<int64_t> Ints(const std::string& name) {
    const onnx::AttributeProto* attribute = Find(name);
    if (attribute == nullptr) return {};
    return std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end());
  }
  std::string Text(const std::string& name) {
    const onnx::AttributeProto* attribute = Find(name);
    return attribute == nullptr ? "" : attribute->s();
  }
  std::vector<std::string> Ignored() const {
    std::vector<std::string> names;
    for (const auto& [name, attribute] : by_name_) {
      if (asked_.count(name) == 0) names.push_back(name);
    }
    return names;
  }

 private:
  std::map<std::string, const onnx::AttributeProto*> by_name_;
  std::set<std::string> asked_;
};

// "/layer1/layer1.0/relu/Relu_2", as PyTorch names nodes, becomes "layer1.0.relu".
std::string ModulePath(absl::string_view node_name, absl::string_view op_type) {
  std::vector<std::string> parts = absl::StrSplit(node_name, '/', absl::SkipEmpty());
  if (!parts.empty()) {
    absl::string_view last = parts.back();
    if (absl::ConsumePrefix(&last, op_type) &&
        (last.empty() || (last.size() > 1 && last[0] == '_' &&
                          absl::c_all_of(last.substr(1), absl::ascii_isdigit)))) {
      parts.pop_back();
    }
  }
  std::vector<std::string> kept;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool repeated = i + 1 < parts.size() && absl::StartsWith(parts[i + 1], parts[i] + ".");
    if (!repeated) kept.push_back(parts[i]);
  }
  return absl::StrJoin(kept, ".");
}

class OnnxImporter {
 public:
  OnnxImporter(const onnx::ModelProto& model, const ImportOptions& options)
      : graph_(model.graph()), builder_(options) {
    for (const onnx::OperatorSetIdProto& set : model.opset_import()) {
      if (IsDefaultDomain(set.domain())) opset_ = set.version();
    }
    if (opset_ == 0 && model.ir_version() >= 3) {
      builder_.Problem("names no version of its operators (opset_import); was it cut off?");
    }
  }

  absl::StatusOr<ImportedNetwork> Run() {
    builder_.SetName(graph_.name());
    ReadInitializers();
    ReadInputs();
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (const std::string& output : graph_.node(i).output()) producer_.emplace(output, i);
    }
    for (int i = 0; i < graph_.node_size(); ++i) ReadNode(graph_.node(i), i);
    ReportUnsupported();
    std::vector<int> outputs;
    for (const onnx::ValueInfoProto& output : graph_.output()) {
      const auto found = values_.find(output.name());
      if (found == values_.end()) {
        builder_.Problem("output '", output.name(), "': no node computes it");
      } else if (found->second.kind == Value::kFeature || found->second.kind == Value::kScores) {
        outputs.push_back(found->second.layer);
      }
    }
    CompareShapes();
    AddNotes();
    return std::move(builder_).Finish(outputs);
  }

 private:
  using Handler = void (OnnxImporter::*)();

  static bool IsDefaultDomain(absl::string_view domain) {
    return domain.empty() || domain == "ai.onnx";
  }

  static const std::map<std::string, Handler>& Handlers() {
    static const auto* handlers = new std::map<std::string, Handler>{
        {"Add", &OnnxImporter::ReadAdd},
        {"AveragePool", &OnnxImporter::ReadPool},
        {"BatchNormalization", &OnnxImporter::ReadBatchNormalization},
        {"Cast", &OnnxImporter::PassOn},
        {"Concat", &OnnxImporter::ReadConcat},
        {"Constant", &OnnxImporter::ReadConstant},
        {"Conv", &OnnxImporter::ReadConv},
        {"Div", &OnnxImporter::ReadImageScaling},
        {"Dropout", &OnnxImporter::ReadDropout},
        {"Flatten", &OnnxImporter::ReadFlatten},
        {"Gather", &OnnxImporter::ReadGather},
        {"Gemm", &OnnxImporter::ReadGemm},
        {"GlobalAveragePool", &OnnxImporter::ReadGlobalPool},
        {"GlobalMaxPool", &OnnxImporter::ReadGlobalPool},
        {"Identity", &OnnxImporter::PassOn},
        {"LRN", &OnnxImporter::ReadLrn},
        {"LogSoftmax", &OnnxImporter::ReadSoftmax},
        {"MatMul", &OnnxImporter::ReadMatMul},
        {"MaxPool", &OnnxImporter::ReadPool},
        {"Mul", &OnnxImporter::ReadImageScaling},
        {"NegativeLogLikelihoodLoss", &OnnxImporter::ReadLoss},
        {"ReduceMean", &OnnxImporter::ReadReduceMean},
        {"Relu", &OnnxImporter::ReadRelu},
        {"Reshape", &OnnxImporter::ReadReshape},
        {"Shape", &OnnxImporter::ReadShape},
        {"Slice", &OnnxImporter::ReadSlice},
        {"Softmax", &OnnxImporter::ReadSoftmax},
        {"SoftmaxCrossEntropyLoss", &OnnxImporter::ReadLoss},
        {"Squeeze", &OnnxImporter::ReadSqueeze},
        {"Sub", &OnnxImporter::ReadImageScaling},
        {"Sum", &OnnxImporter::ReadSum},
        {"Transpose", &OnnxImporter::ReadTranspose},
        {"Unsqueeze", &OnnxImporter::ReadUnsqueeze},
    };
    return *handlers;
  }

  // ---- The graph as a whole.

  Value TensorValue(const onnx::TensorProto& tensor, absl::string_view where) {
    Value value;
    value.kind = Value::kTensor;
    value.shape.assign(tensor.dims().begin(), tensor.dims().end());
    value.is_scalar = value.shape.empty();
    int64_t elements = 1;
    for (const int64_t size : value.shape) {
      // Empty tensors exist (optional inputs of Resize and the like).
      if (size < 0 || (size > 0 && elements > kMostElements / size)) {
        builder_.Problem(where, ": the tensor's shape ", absl::StrJoin(value.shape, "x"),
                         " is negative or holds more than 2^46 values");
        return Value();
      }
      elements *= size;
    }
    switch (tensor.data_type()) {
      case onnx::TensorProto::INT64:
        value.integers = SmallValues<int64_t, int64_t>(tensor, tensor.int64_data());
        break;
      case onnx::TensorProto::INT32:
        value.integers = SmallValues<int64_t, int32_t>(tensor, tensor.int32_data());
        break;
      case onnx::TensorProto::FLOAT:
        value.numbers = SmallValues<double, float>(tensor, tensor.float_data());
        for (double& number : value.numbers) number = Decimal(static_cast<float>(number));
        break;
      case onnx::TensorProto::DOUBLE:
        value.numbers = SmallValues<double, double>(tensor, tensor.double_data());
        break;
      default:
        break;
    }
    return value;
  }

  void ReadInitializers() {
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      values_[tensor.name()] =
          TensorValue(tensor, absl::StrCat("initializer '", tensor.name(), "'"));
    }
    for (const onnx::SparseTensorProto& tensor : graph_.sparse_initializer()) {
      builder_.Problem("initializer '", tensor.values().name(),
                       "': sparse weights are not supported; export them dense");
      values_[tensor.values().name()] = Value();
    }
  }

  // Before IR version 4 weights are listed among the inputs as well. What is left is the image, and
  // in a training graph the labels.
  void ReadInputs() {
    std::vector<std::string> images;
    for (const onnx::ValueInfoProto& input : graph_.input()) {
      if (values_.contains(input.name())) continue;
      const onnx::TypeProto::Tensor& type = input.type().tensor_type();
      const bool is_image = (type.shape().dim_size() == 4 || !type.has_shape()) &&
                            type.elem_type() != onnx::TensorProto::INT64 &&
                            type.elem_type() != onnx::TensorProto::INT32;
      values_[input.name()].kind = is_image ? Value::kFeature : Value::kLabels;
      if (!is_image) continue;
      images.push_back(input.name());
      if (images.size() > 1 || !type.has_shape()) continue;
      const auto size = [&](int dimension) {
        return type.shape().dim(dimension).has_dim_value() ? type.shape().dim(dimension).dim_value()
                                                           : 0;
      };
      batch_ = size(0);
      for (int i = 0; i < 3; ++i) image_[i] = size(i + 1);
    }
    if (images.size() != 1) {
      builder_.Problem("inputs: expected one image of four dimensions, found ",
                       images.empty() ? "none" : absl::StrJoin(images, ", "));
      return;
    }
    SetImage();
  }

  void SetImage() {
    if (image_[0] <= 0 || image_[1] <= 0 || image_[2] <= 0) return;  // --input has to say.
    v1::ImageSize size;
    size.set_channels(builder_.PositiveSize(image_[0], "input", "channels"));
    size.set_height(builder_.PositiveSize(image_[1], "input", "height"));
    size.set_width(builder_.PositiveSize(image_[2], "input", "width"));
    // Known only once it is sure that no Transpose turns the image.
    image_size_ = size;
  }

  void ReadNode(const onnx::NodeProto& node, int index) {
    node_ = &node;
    node_index_ = index;
    where_ = absl::StrCat("node '", node.name().empty() ? absl::StrCat("#", index) : node.name(),
                          "' (", node.op_type(), ")");
    for (const std::string& output : node.output()) {
      if (output.empty()) continue;  // Optional and left out.
      if (!values_.try_emplace(output).second) {
        return Problem("computes '", output, "', which was there before");
      }
    }
    const auto handler = Handlers().find(node.op_type());
    if (!IsDefaultDomain(node.domain()) || handler == Handlers().end()) {
      const std::string operation = IsDefaultDomain(node.domain())
                                        ? node.op_type()
                                        : absl::StrCat(node.domain(), ".", node.op_type());
      unsupported_[operation].push_back(node.name().empty() ? absl::StrCat("#", index)
                                                            : node.name());
      return;
    }
    if (node.output_size() == 0 || node.output(0).empty()) return Problem("has no output");
    Attributes attributes(node);
    attributes_ = &attributes;
    if (InputsAreKnown()) {
      for (int i = 1; i < node.output_size(); ++i) {
        if (!node.output(i).empty()) values_[node.output(i)].kind = Value::kOther;
      }
      (this->*handler->second)();
      const std::vector<std::string> ignored = attributes.Ignored();
      if (!ignored.empty()) {
        builder_.Note("attributes ignored: ", node.op_type(), " ", absl::StrJoin(ignored, ", "));
      }
    }
    attributes_ = nullptr;
  }

  // False if an input cannot be read; reported here unless it was before.
  bool InputsAreKnown() {
    bool known = true;
    for (const std::string& name : node_->input()) {
      if (name.empty()) continue;  // Optional and left out.
      const auto produced = producer_.find(name);
      const auto found = values_.find(name);
      if (produced != producer_.end() && produced->second >= node_index_) {
        Problem("reads '", name, "', which a later node computes: a cycle, or nodes out of order");
        known = false;
      } else if (found == values_.end()) {
        Problem("reads '", name, "', which nothing computes");
        known = false;
      } else if (found->second.kind == Value::kOther) {
        Problem("reads '", name, "', which is not a layer's output");
        known = false;
      } else if (found->second.kind == Value::kMerged) {
        Problem("reads '", name, "', from which another node makes a layer with a bias");
        known = false;
      } else if (found->second.kind == Value::kUnknown) {
        known = false;
      }
    }
    return known;
  }

  void ReportUnsupported() {
    for (const auto& [operation, nodes] : unsupported_) {
      std::vector<std::string> named = nodes;
      if (named.size() > kMostNamedNodes) named.resize(kMostNamedNodes);
      builder_.Problem("node", nodes.size() > 1 ? "s '" : " '", absl::StrJoin(named, "', '"), "'",
                       nodes.size() > named.size()
                           ? absl::StrCat(" and ", nodes.size() - named.size(), " more")
                           : "",
                       ": operator ", operation, " is not supported");
    }
    if (unsupported_.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, handler] : Handlers()) names.push_back(name);
    builder_.Hint("Supported operators: ", absl::StrJoin(names, ", "));
  }

  // The shapes that the file holds of intermediate values and outputs.
  void CompareShapes() {
    const auto compare = [&](const onnx::ValueInfoProto& info) {
      const auto found = values_.find(info.name());
      if (found == values_.end() || found->second.kind != Value::kFeature ||
          found->second.layer == kDataInput || !info.type().tensor_type().has_shape()) {
        return;
      }
      std::vector<int64_t> sizes;  // Behind the batch.
      const auto& dims = info.type().tensor_type().shape().dim();
      for (int i = 1; i < dims.size(); ++i) {
        if (!dims[i].has_dim_value()) return;
        sizes.push_back(dims[i].dim_value());
      }
      const std::string where = absl::StrCat("value '", info.name(), "'");
      if (sizes.size() == 1) {
        builder_.ExpectElements(found->second.layer, sizes[0], where);
      } else if (sizes.size() == 3) {
        builder_.Expect(
            found->second.layer, where, [sizes](const ShapedNetwork&, const ShapedLayer& layer) {
              const FeatureShape& out = layer.output;
              if (out.channels == sizes[0] && out.height == sizes[1] && out.width == sizes[2]) {
                return std::string();
              }
              return absl::StrCat("shape inference gives ", out.channels, "x", out.height, "x",
                                  out.width, ", the file ", absl::StrJoin(sizes, "x"));
            });
      }
    };
    for (const onnx::ValueInfoProto& info : graph_.value_info()) compare(info);
    for (const onnx::ValueInfoProto& info : graph_.output()) compare(info);
    if (image_size_.channels() > 0) builder_.SetInput(image_size_);
  }

  void AddNotes() {
    if (merged_batch_norms_ > 0) {
      builder_.Note("the exporter merged batch normalization into ", merged_batch_norms_,
                    " convolutions, whose biases are all that is left of it; for the network as it "
                    "is trained export in training mode (PyTorch: training=TrainingMode.TRAINING, "
                    "do_constant_folding=False)");
    }
    int shared = 0;
    for (const auto& [name, uses] : weight_uses_) shared += uses > 1;
    if (shared > 0) {
      builder_.Note(shared,
                    " stored tensors are used by several layers, each of which has its own "
                    "here (exporters store equal values once)");
    }
  }

  // ---- Helpers of the handlers.

  template <typename... Text>
  void Problem(const Text&... text) {
    builder_.Problem(where_, ": ", text...);
  }

  bool HasInput(int i) const { return i < node_->input_size() && !node_->input(i).empty(); }
  const std::string& InputName(int i) const { return node_->input(i); }
  // Only for inputs that HasInput().
  const Value& Input(int i) const { return values_.at(node_->input(i)); }

  // The feature at input `i`, or null with a problem.
  const Value* Feature(int i) {
    if (!HasInput(i)) {
      Problem("input ", i, " is missing");
      return nullptr;
    }
    const Value& value = Input(i);
    if (value.kind == Value::kFeature) return &value;
    Problem("input '", InputName(i), "' must be a layer's output, and is ",
            value.kind == Value::kScores   ? "a softmax, which only the loss can read"
            : value.kind == Value::kTensor ? "a constant"
                                           : "none");
    return nullptr;
  }
  const Value* Image(int i) {
    const Value* feature = Feature(i);
    if (feature == nullptr || !feature->flat) return feature;
    Problem("input '", InputName(i), "' has no height and width");
    return nullptr;
  }
  // The constant at input `i` of so many dimensions, or null with a problem.
  const Value* Weight(int i, size_t rank, absl::string_view what) {
    if (!HasInput(i) || Input(i).kind != Value::kTensor) {
      Problem(what, " must be a constant (two computed values are not a layer)");
      return nullptr;
    }
    const Value& value = Input(i);
    if (value.shape.size() == rank) return &value;
    Problem(what, " '", InputName(i), "' must have ", rank, " dimensions, has the shape ",
            absl::StrJoin(value.shape, "x"));
    return nullptr;
  }

  void SetOutput(Value value) { values_[node_->output(0)] = std::move(value); }
  void SetFeature(int layer, bool flat) {
    Value value;
    value.kind = Value::kFeature;
    value.layer = layer;
    value.flat = flat;
    SetOutput(std::move(value));
  }
  void SetIntegers(std::vector<int64_t> integers, bool is_scalar = false) {
    Value value;
    value.kind = Value::kIntegers;
    value.integers = std::move(integers);
    value.is_scalar = is_scalar;
    SetOutput(std::move(value));
  }

  // A layer is named as the module in whose name its weight is, then as the node, then by number.
  std::string LayerName(int weight_input) const {
    if (weight_input > 0) {
      absl::string_view weight = InputName(weight_input);
      for (const char* suffix : {".weight", ".gamma", ".scale", "_weight", "_gamma"}) {
        if (absl::ConsumeSuffix(&weight, suffix)) return std::string(weight);
      }
    }
    const std::string path = ModulePath(node_->name(), node_->op_type());
    // PyTorch's newer exporter numbers its nodes and gives the outputs the names.
    if (absl::StartsWith(path, "node_")) return node_->output(0);
    if (!path.empty()) return path;
    return absl::StrCat(absl::AsciiStrToLower(node_->op_type()), node_index_);
  }

  int AddLayer(const v1::Layer& layer, const std::vector<int>& inputs, int weight_input = 0) {
    return builder_.Add(LayerName(weight_input), layer, inputs);
  }
  // A layer whose output is shaped as its input.
  void AddElementwise(const v1::Layer& layer, const Value& input) {
    const bool flat = input.flat;
    SetFeature(AddLayer(layer, {input.layer}), flat);
  }

  void ExpectParameter(int layer, int index, int input, const std::vector<int64_t>& shape) {
    ++weight_uses_[InputName(input)];
    builder_.ExpectParameter(layer, index, shape,
                             absl::StrCat(where_, ": weight '", InputName(input), "'"));
  }

  // The one value of height and width.
  int64_t Square(absl::string_view name, const std::vector<int64_t>& sizes, int64_t otherwise) {
    if (sizes.empty()) return otherwise;
    if (sizes.size() != 2) {
      Problem(name, ": must have 2 values (for images), got ", sizes.size());
    } else if (sizes[0] != sizes[1]) {
      Problem(name, ": must be equal in height and width, got ", absl::StrJoin(sizes, ", "));
    }
    return sizes[0];
  }

  struct Window {
    int32_t kernel = 0;
    int32_t stride = 1;
    int32_t pad = 0;
    int64_t pad_behind = 0;  // Where it differs from `pad`, which is 0 then.
  };

  Window ReadWindow(const std::vector<int64_t>& kernel_shape) {
    Window window;
    window.kernel =
        builder_.PositiveSize(Square("kernel_shape", kernel_shape, 0), where_, "kernel_shape");
    window.stride = builder_.PositiveSize(Square("strides", attributes_->Ints("strides"), 1),
                                          where_, "strides");
    if (Square("dilations", attributes_->Ints("dilations"), 1) != 1) {
      Problem("dilations: only 1 is supported, got ",
              absl::StrJoin(attributes_->Ints("dilations"), ", "));
    }
    const std::string auto_pad = attributes_->Text("auto_pad");
    const std::vector<int64_t> pads = attributes_->Ints("pads");
    if (absl::StartsWith(auto_pad, "SAME")) {
      // An image of `size` gets max((ceil(size / stride) - 1) stride + kernel - size, 0) in all.
      if (window.kernel % 2 == 1 && window.stride == 1) {
        window.pad = (window.kernel - 1) / 2;
      } else if (window.kernel > window.stride) {
        Problem("auto_pad: ", auto_pad, " with stride ", window.stride, " and kernel ",
                window.kernel,
                " pads one side more than the other; only equal padding is "
                "supported");
      }
    } else if (!auto_pad.empty() && auto_pad != "NOTSET" && auto_pad != "VALID") {
      Problem("auto_pad: expected NOTSET, VALID or SAME_UPPER, got ", auto_pad);
    } else if (!pads.empty() && auto_pad != "VALID") {
      const bool is_square =
          absl::c_all_of(kernel_shape, [&](int64_t size) { return size == kernel_shape[0]; });
      if (!is_square) return window;  // Its padding differs likewise.
      if (pads.size() != 4) {
        Problem("pads: must have 4 values (for images), got ", pads.size());
      } else if (pads[0] == pads[1] && pads[2] == pads[3] && pads[0] == pads[2]) {
        window.pad = builder_.Size(pads[0], where_, "pads");
      } else if (node_->op_type() == "MaxPool" && pads[0] == 0 && pads[1] == 0 &&
                 pads[2] == pads[3] && pads[2] > 0 && pads[2] < kMostElements) {
        window.pad_behind = pads[2];
      } else {
        Problem("pads: only equal padding on all sides is supported, got ",
                absl::StrJoin(pads, ", "));
      }
    }
    return window;
  }

  // ---- Layers.

  void ReadConv() {
    const Value* input = Image(0);
    const Value* weight = Weight(1, 4, "the weight");
    if (input == nullptr || weight == nullptr) return;
    const std::vector<int64_t> shape = weight->shape;
    const std::vector<int64_t> kernel_shape = attributes_->Ints("kernel_shape");
    if (!kernel_shape.empty() &&
        kernel_shape != std::vector<int64_t>(shape.begin() + 2, shape.end())) {
      Problem("kernel_shape: ", absl::StrJoin(kernel_shape, "x"), " is not that of the weight, ",
              absl::StrJoin(shape, "x"));
      return;
    }
    const Window window = ReadWindow({shape[2], shape[3]});
    v1::Layer layer;
    v1::Convolution& convolution = *layer.mutable_convolution();
    convolution.set_output_channels(builder_.PositiveSize(shape[0], where_, "weight"));
    convolution.set_kernel(window.kernel);
    if (window.stride != 1) convolution.set_stride(window.stride);
    convolution.set_pad(window.pad);
    const int64_t groups = attributes_->Int("group", 1);
    if (groups != 1) convolution.set_groups(builder_.PositiveSize(groups, where_, "group"));
    convolution.set_no_bias(!HasInput(2));
    const int number = AddLayer(layer, {input->layer}, 1);
    ExpectParameter(number, 0, 1, shape);
    if (HasInput(2)) {
      const Value* bias = Weight(2, 1, "the bias");
      if (bias != nullptr) ExpectParameter(number, 1, 2, bias->shape);
      // PyTorch gives weights that it computed itself, and did not find in a module, such a name.
      if (absl::StartsWith(InputName(1), "onnx::Conv_")) ++merged_batch_norms_;
    }
    SetFeature(number, /*flat=*/false);
  }

  void ReadBatchNormalization() {
    const Value* input = Feature(0);
    const Value* scale = Weight(1, 1, "the scale");
    const Value* shift = Weight(2, 1, "the shift");
    if (input == nullptr || scale == nullptr || shift == nullptr) return;
    if (attributes_->Int("spatial", 1) == 0) {
      Problem("spatial: 0 (statistics of every pixel) is not supported");
    }
    for (const char* of_training : {"momentum", "training_mode", "is_test", "consumed_inputs"}) {
      attributes_->Find(of_training);
    }
    v1::Layer layer;
    const double epsilon = attributes_->Float("epsilon", 1e-5);
    layer.mutable_batch_norm();
    if (epsilon != 1e-5) layer.mutable_batch_norm()->set_epsilon(epsilon);
    const bool flat = input->flat;
    const int number = AddLayer(layer, {input->layer}, 1);
    ExpectParameter(number, 0, 1, scale->shape);
    ExpectParameter(number, 1, 2, shift->shape);
    SetFeature(number, flat);
  }

  void ReadRelu() {
    const Value* input = Feature(0);
    if (input == nullptr) return;
    v1::Layer layer;
    layer.mutable_relu();
    AddElementwise(layer, *input);
  }

  void ReadPool() {
    const Value* input = Image(0);
    if (input == nullptr) return;
    const Window window = ReadWindow(attributes_->Ints("kernel_shape"));
    const bool ceil_mode = attributes_->Int("ceil_mode", 0) != 0;
    attributes_->Find("storage_order");
    const bool is_average = node_->op_type() == "AveragePool";
    const bool counts_padding = attributes_->Int("count_include_pad", 0) != 0;
    if (is_average && window.kernel == 1 && window.stride == 1 && window.pad == 0) {
      builder_.Note("left out: AveragePool of single values, which changes nothing");
      return PassOn();
    }
    v1::Layer layer;
    v1::Pooling& pooling = *layer.mutable_pooling();
    pooling.set_method(!is_average      ? v1::Pooling::METHOD_MAX
                       : counts_padding ? v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING
                                        : v1::Pooling::METHOD_AVERAGE_EXCLUDE_PADDING);
    pooling.set_kernel(window.kernel);
    if (window.stride != 1) pooling.set_stride(window.stride);
    pooling.set_pad(window.pad);
    // Padding behind only changes how many windows there are, as a maximum ignores it: Caffe2 wrote
    // Caffe's rounding up that way.
    pooling.set_ceil_mode(ceil_mode || window.pad_behind > 0);
    const int number = AddLayer(layer, {input->layer});
    if (window.pad_behind > 0 && window.stride > 0) {
      const int64_t room = window.pad_behind - window.kernel, stride = window.stride;
      builder_.Expect(number, absl::StrCat(where_, ": pads"),
                      [room, stride](const ShapedNetwork&, const ShapedLayer& shaped) {
                        const int64_t height = (shaped.input.height + room) / stride + 1;
                        const int64_t width = (shaped.input.width + room) / stride + 1;
                        if (shaped.output.height == height && shaped.output.width == width) {
                          return std::string();
                        }
                        return absl::StrCat("padding behind the image of ", shaped.input.height,
                                            "x", shaped.input.width,
                                            " is not the same as rounding up");
                      });
    }
    SetFeature(number, /*flat=*/false);
  }

  void AddGlobalPool(v1::Pooling::Method method, bool flat) {
    const Value* input = Image(0);
    if (input == nullptr) return;
    v1::Layer layer;
    layer.mutable_pooling()->set_method(method);
    layer.mutable_pooling()->set_global(true);
    SetFeature(AddLayer(layer, {input->layer}), flat);
  }

  void ReadGlobalPool() {
    // Without padding both ways to average are one.
    AddGlobalPool(node_->op_type() == "GlobalMaxPool" ? v1::Pooling::METHOD_MAX
                                                      : v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING,
                  /*flat=*/false);
  }

  void ReadReduceMean() {
    if (!AxesAre({2, 3})) {
      return Problem("axes: only the mean over height and width (2, 3) is supported");
    }
    attributes_->Find("noop_with_empty_axes");
    AddGlobalPool(v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING,
                  /*flat=*/attributes_->Int("keepdims", 1) == 0);
  }

  void ReadAdd() {
    if (node_->input_size() != 2 || !HasInput(0) || !HasInput(1)) {
      return Problem("needs two inputs");
    }
    attributes_->Find("axis");  // Of the broadcasting before opset 7.
    attributes_->Find("broadcast");
    for (const int constant : {0, 1}) {
      if (Input(constant).kind == Value::kTensor) return AddConstant(1 - constant, constant);
    }
    if (Input(0).kind == Value::kIntegers && Input(1).kind == Value::kIntegers) {
      return SetIntegers({kOpenSize}, true);
    }
    ReadSum();
  }

  // A bias, or a shift of the image.
  void AddConstant(int operand, int constant) {
    const Value* input = Feature(operand);
    if (input == nullptr) return;
    if (input->layer == kDataInput) return ReadImageScaling();
    v1::Layer& layer = builder_.layer(input->layer);
    const bool lacks_bias = (layer.has_convolution() && layer.convolution().no_bias()) ||
                            (layer.has_fully_connected() && layer.fully_connected().no_bias());
    if (!lacks_bias || builder_.IsRead(input->layer)) {
      return Problem("adds the constant '", InputName(constant),
                     "'; only the bias of a convolution or MatMul right before it is supported");
    }
    // {C, 1, 1} or {1, C, 1, 1} of a convolution, {outputs} or {1, outputs} of a MatMul.
    int64_t elements = 1;
    for (const int64_t size : Input(constant).shape) elements *= size;
    if (layer.has_convolution()) {
      layer.mutable_convolution()->clear_no_bias();
    } else {
      layer.mutable_fully_connected()->clear_no_bias();
    }
    ExpectParameter(input->layer, 1, constant, {elements});
    const int number = input->layer;
    const bool flat = input->flat;
    values_[InputName(operand)].kind = Value::kMerged;
    SetFeature(number, flat);
  }

  void ReadSum() {
    std::vector<int> inputs;
    bool flat = true;
    for (int i = 0; i < node_->input_size(); ++i) {
      const Value* input = Feature(i);
      if (input == nullptr) return;
      inputs.push_back(input->layer);
      flat &= input->flat;
    }
    if (inputs.size() == 1) return PassOn();
    v1::Layer layer;
    layer.mutable_add();
    SetFeature(AddLayer(layer, inputs), flat);
  }

  void ReadConcat() {
    const int64_t axis = attributes_->Int("axis", 1);
    if (node_->input_size() > 0 && HasInput(0) && Input(0).kind != Value::kFeature) {
      return ConcatIntegers();
    }
    std::vector<int> inputs;
    bool flat = true;
    for (int i = 0; i < node_->input_size(); ++i) {
      const Value* input = Feature(i);
      if (input == nullptr) return;
      inputs.push_back(input->layer);
      flat &= input->flat;
    }
    if (axis != 1 && axis != (flat ? -1 : -3)) {
      return Problem("axis: only concatenation of channels (1) is supported, got ", axis);
    }
    if (inputs.size() == 1) return PassOn();
    v1::Layer layer;
    layer.mutable_concat();
    SetFeature(AddLayer(layer, inputs), flat);
  }

  void ReadGemm() {
    if (attributes_->Int("transA", 0) != 0) return Problem("transA: only 0 is supported");
    for (const char* factor : {"alpha", "beta"}) {
      if (attributes_->Float(factor, 1) != 1) Problem(factor, ": only 1 is supported");
    }
    attributes_->Find("broadcast");
    const bool is_transposed = attributes_->Int("transB", 0) != 0;
    const int number = AddFullyConnected(is_transposed, HasInput(2));
    if (number < 0 || !HasInput(2)) return;
    if (Input(2).kind != Value::kTensor) return Problem("the bias must be a constant");
    int64_t elements = 1;
    for (const int64_t size : Input(2).shape) elements *= size;
    ExpectParameter(number, 1, 2, {elements});
  }

  void ReadMatMul() { AddFullyConnected(/*is_transposed=*/false, /*has_bias=*/false); }

  // Returns the layer's number, or -1 with a problem.
  int AddFullyConnected(bool is_transposed, bool has_bias) {
    const Value* input = Feature(0);
    const Value* weight = Weight(1, 2, "the weight");
    if (input == nullptr || weight == nullptr) return -1;
    if (!input->flat) {
      Problem("input '", InputName(0), "' has a height and width; flatten it first");
      return -1;
    }
    const int64_t outputs = weight->shape[is_transposed ? 0 : 1];
    const int64_t inputs = weight->shape[is_transposed ? 1 : 0];
    v1::Layer layer;
    layer.mutable_fully_connected()->set_outputs(builder_.PositiveSize(outputs, where_, "weight"));
    layer.mutable_fully_connected()->set_no_bias(!has_bias);
    const int number = AddLayer(layer, {input->layer}, 1);
    ExpectParameter(number, 0, 1, {outputs, inputs});
    SetFeature(number, /*flat=*/true);
    return number;
  }

  void ReadDropout() {
    const Value* input = Feature(0);
    if (input == nullptr) return;
    // An attribute before opset 12, an input since.
    double ratio = attributes_->Float("ratio", 0.5);
    if (HasInput(1) && Input(1).kind == Value::kTensor && !Input(1).numbers.empty()) {
      ratio = Input(1).numbers[0];
    }
    for (const char* other : {"seed", "is_test", "consumed_inputs"}) attributes_->Find(other);
    if (ratio == 0) {
      builder_.Note("left out: Dropout with ratio 0");
      return PassOn();
    }
    v1::Layer layer;
    layer.mutable_dropout()->set_ratio(ratio);
    AddElementwise(layer, *input);
  }

  void ReadLrn() {
    const Value* input = Image(0);
    if (input == nullptr) return;
    v1::Layer layer;
    v1::LocalResponseNormalization& lrn = *layer.mutable_lrn();
    lrn.set_local_size(builder_.PositiveSize(attributes_->Int("size", 0), where_, "size"));
    lrn.set_alpha(attributes_->Float("alpha", 1e-4));
    lrn.set_beta(attributes_->Float("beta", 0.75));
    lrn.set_k(attributes_->Float("bias", 1));
    if (lrn.k() == 0) Problem("bias: must be positive, got 0");  // Unset means 1 in a network file.
    AddElementwise(layer, *input);
  }

  void ReadSoftmax() {
    const Value* input = Feature(0);
    if (input == nullptr) return;
    // The default was 1 (all that follows) before opset 13, and is -1 (the last) since.
    const int64_t axis = attributes_->Int("axis", opset_ < 13 ? 1 : -1);
    if (axis != 1 && !(axis == -1 && input->flat)) {
      Problem("axis: only a softmax over the classes (1) is supported, got ", axis);
    }
    Value scores;
    scores.kind = Value::kScores;
    scores.layer = input->layer;
    SetOutput(scores);
  }

  void ReadLoss() {
    if (!HasInput(0)) return Problem("input 0 is missing");
    attributes_->Find("reduction");
    attributes_->Find("ignore_index");
    const Value& input = Input(0);
    const bool is_likelihood = node_->op_type() == "NegativeLogLikelihoodLoss";
    if (input.kind != (is_likelihood ? Value::kScores : Value::kFeature)) {
      return Problem("input '", InputName(0), "' must be ",
                     is_likelihood ? "a LogSoftmax" : "a layer's output");
    }
    v1::Layer layer;
    layer.mutable_softmax_loss();
    AddLayer(layer, {input.layer});
    Value loss;
    loss.kind = Value::kOther;
    SetOutput(std::move(loss));
  }

  // ---- What changes no values: shapes, constants, and the arithmetic on them.

  void PassOn() {
    if (!HasInput(0)) return Problem("input 0 is missing");
    attributes_->Find("to");  // Of Cast: computing precision is the trial's.
    attributes_->Find("saturate");
    const Value value = Input(0);
    SetOutput(value);
  }

  void ReadConstant() {
    Value value;
    if (const onnx::AttributeProto* tensor = attributes_->Find("value")) {
      value = TensorValue(tensor->t(), where_);
    } else if (const onnx::AttributeProto* integer = attributes_->Find("value_int")) {
      value.kind = Value::kTensor;
      value.integers = {integer->i()};
      value.is_scalar = true;
    } else if (const onnx::AttributeProto* number = attributes_->Find("value_float")) {
      value.kind = Value::kTensor;
      value.numbers = {Decimal(number->f())};
      value.is_scalar = true;
    } else if (attributes_->Find("value_ints") != nullptr) {
      value.kind = Value::kTensor;
      value.integers = attributes_->Ints("value_ints");
      value.shape = {static_cast<int64_t>(value.integers.size())};
    } else {
      return Problem("only value, value_int, value_ints and value_float are supported");
    }
    SetOutput(std::move(value));
  }

  void ReadFlatten() {
    const Value* input = Feature(0);
    if (input == nullptr) return;
    const int64_t axis = attributes_->Int("axis", 1);
    if (axis != 1 && axis != (input->flat ? -1 : -3)) {
      return Problem("axis: only 1 is supported, got ", axis);
    }
    SetFeature(input->layer, /*flat=*/true);
  }

  void ReadReshape() {
    // The target was an attribute before opset 5.
    std::vector<int64_t> target = attributes_->Ints("shape");
    attributes_->Find("allowzero");
    if (HasInput(1)) target = Input(1).integers;
    if (HasInput(0) && Input(0).kind == Value::kTensor) return ReshapeConstant(target);
    const Value* input = Feature(0);
    if (input == nullptr) return;
    const bool keeps_batch =
        !target.empty() && (target[0] == kBatchSize || target[0] == 0 || target[0] == -1 ||
                            target[0] == 1 || (batch_ > 0 && target[0] == batch_));
    const int layer = input->layer;
    const std::string where = absl::StrCat(where_, ": shape");
    if (keeps_batch && target.size() == 2) {
      if (target[1] > 0) builder_.ExpectElements(layer, target[1], where);
      return SetFeature(layer, /*flat=*/true);
    }
    if (keeps_batch && target.size() == 4 && target[2] == 1 && target[3] == 1) {
      builder_.Expect(layer, where, [](const ShapedNetwork&, const ShapedLayer& shaped) {
        return shaped.output.height == 1 && shaped.output.width == 1
                   ? ""
                   : "only one value a channel can become a channel";
      });
      if (target[1] > 0) builder_.ExpectElements(layer, target[1], where);
      return SetFeature(layer, /*flat=*/false);
    }
    std::vector<std::string> sizes;
    for (const int64_t size : target) {
      sizes.push_back(size == kBatchSize ? "batch" : size == kOpenSize ? "?" : absl::StrCat(size));
    }
    Problem("shape: only flattening to {batch, values} is supported, got {",
            absl::StrJoin(sizes, ", "), "}");
  }

  void ReshapeConstant(const std::vector<int64_t>& target) {
    Value value = Input(0);
    int64_t elements = 1, known = 1;
    for (const int64_t size : value.shape) elements *= size;
    for (const int64_t size : target) {
      if (size > 0 && size <= kMostElements / known) known *= size;
    }
    value.shape = target;
    for (int64_t& size : value.shape) {
      if (size == -1) size = elements / known;
    }
    int64_t product = 1;
    for (const int64_t size : value.shape) {
      if (size <= 0 || product > kMostElements / size) return Problem("shape: is not constant");
      product *= size;
    }
    if (product != elements) {
      return Problem("shape: ", absl::StrJoin(target, "x"), " does not hold the ", elements,
                     " values of '", InputName(0), "'");
    }
    SetOutput(std::move(value));
  }

  // Whether the axes, an attribute before opset 13 (18 of ReduceMean) and an input since, are these
  // of an image; sorted.
  bool AxesAre(const std::vector<int64_t>& wanted) {
    std::vector<int64_t> axes = attributes_->Ints("axes");
    if (HasInput(1)) axes = Input(1).integers;
    for (int64_t& axis : axes) {
      if (axis < 0 && axis >= -4) axis += 4;
    }
    std::sort(axes.begin(), axes.end());
    return axes == wanted;
  }

  bool IsSizeComputation() {
    return HasInput(0) && (Input(0).kind == Value::kIntegers ||
                           (Input(0).kind == Value::kTensor && !Input(0).integers.empty()));
  }

  void ReadSqueeze() {
    if (IsSizeComputation()) {
      attributes_->Find("axes");
      return SetIntegers(Input(0).integers, true);
    }
    const Value* input = Image(0);
    if (input == nullptr) return;
    const bool has_axes = HasInput(1) || attributes_->Find("axes") != nullptr;
    if (has_axes && !AxesAre({2, 3})) {
      return Problem("axes: only height and width (2, 3) are supported");
    }
    if (input->layer != kDataInput) {
      builder_.Expect(input->layer, where_, [](const ShapedNetwork&, const ShapedLayer& shaped) {
        return shaped.output.height == 1 && shaped.output.width == 1
                   ? ""
                   : "only an image of one pixel can be squeezed";
      });
    }
    SetFeature(input->layer, /*flat=*/true);
  }

  void ReadUnsqueeze() {
    if (IsSizeComputation()) {
      attributes_->Find("axes");
      return SetIntegers(Input(0).integers);
    }
    const Value* input = Feature(0);
    if (input == nullptr) return;
    if (!input->flat || !AxesAre({2, 3})) {
      return Problem("axes: only height and width (2, 3) of flat values are supported");
    }
    SetFeature(input->layer, /*flat=*/false);
  }

  void ReadShape() {
    const Value* input = Feature(0);
    if (input == nullptr) return;
    std::vector<int64_t> sizes(input->flat ? 2 : 4, kOpenSize);
    sizes[0] = kBatchSize;
    int64_t begin = attributes_->Int("start", 0);
    int64_t end = attributes_->Int("end", static_cast<int64_t>(sizes.size()));
    SetIntegers(Part(sizes, begin, end));
  }

  // [begin, end) of `values`, counted from the end where negative, as Python has it.
  static std::vector<int64_t> Part(const std::vector<int64_t>& values, int64_t begin, int64_t end) {
    const auto size = static_cast<int64_t>(values.size());
    const auto at = [size](int64_t i) {
      return std::clamp<int64_t>(i < 0 && i >= -size ? i + size : i, 0, size);
    };
    begin = at(begin);
    end = std::max(begin, at(end));
    return std::vector<int64_t>(values.begin() + begin, values.begin() + end);
  }

  void ReadGather() {
    if (!IsSizeComputation() || !HasInput(1) || attributes_->Int("axis", 0) != 0) {
      return Problem("only picking from a shape is supported");
    }
    const std::vector<int64_t>& from = Input(0).integers;
    std::vector<int64_t> picked;
    for (int64_t index : Input(1).integers) {
      if (index < 0) index += static_cast<int64_t>(from.size());
      if (index < 0 || index >= static_cast<int64_t>(from.size())) {
        return Problem("index ", index, " is outside the ", from.size(), " values");
      }
      picked.push_back(from[index]);
    }
    SetIntegers(picked, Input(1).is_scalar);
  }

  void ReadSlice() {
    if (!IsSizeComputation()) return Problem("only slices of a shape are supported");
    // Attributes before opset 10, inputs since.
    std::vector<int64_t> starts = attributes_->Ints("starts"), ends = attributes_->Ints("ends");
    attributes_->Find("axes");
    if (HasInput(1)) starts = Input(1).integers;
    if (HasInput(2)) ends = Input(2).integers;
    if (starts.size() != 1 || ends.size() != 1) {
      return Problem("starts and ends must be one constant each");
    }
    SetIntegers(Part(Input(0).integers, starts[0], ends[0]));
  }

  void ConcatIntegers() {
    std::vector<int64_t> all;
    for (int i = 0; i < node_->input_size(); ++i) {
      if (!HasInput(i) || (Input(i).kind != Value::kIntegers && Input(i).kind != Value::kTensor)) {
        return Problem("input ", i, " must be a constant or computed from a shape");
      }
      all.insert(all.end(), Input(i).integers.begin(), Input(i).integers.end());
      if (all.size() > kMostValues) return Problem("makes a shape of too many dimensions");
    }
    SetIntegers(std::move(all));
  }

  void ReadTranspose() {
    const std::vector<int64_t> order = attributes_->Ints("perm");
    if (HasInput(0) && Input(0).kind == Value::kTensor) {
      Value value = Input(0);
      if (value.shape.size() != 2 || !(order.empty() || order == std::vector<int64_t>{1, 0})) {
        return Problem("perm: of constants only matrices are supported");
      }
      std::swap(value.shape[0], value.shape[1]);
      return SetOutput(std::move(value));
    }
    const Value* input = Image(0);
    if (input == nullptr) return;
    if (input->layer != kDataInput || order != std::vector<int64_t>{0, 3, 1, 2}) {
      return Problem("only turning the image from {batch, height, width, channels} is supported");
    }
    builder_.Note("the image is given as {height, width, channels}; its Transpose was left out");
    image_ = {image_[2], image_[0], image_[1]};
    SetImage();
    SetFeature(kDataInput, /*flat=*/false);
  }

  // Arithmetic with a constant: of the image before the first layer, which costs nothing next to
  // it.
  void ReadImageScaling() {
    if (node_->input_size() != 2 || !HasInput(0) || !HasInput(1)) {
      return Problem("needs two inputs");
    }
    if (Input(0).kind != Value::kFeature && Input(1).kind != Value::kFeature) {
      return SetIntegers({kOpenSize}, true);  // A product of sizes.
    }
    const int constant = Input(0).kind == Value::kTensor ? 0 : 1;
    const Value* input = Feature(1 - constant);
    if (input == nullptr) return;
    if (input->layer != kDataInput || Input(constant).kind != Value::kTensor) {
      return Problem("is supported on the input image only, to scale it by constants");
    }
    builder_.Note("left out: the scaling of the image by ", node_->op_type());
    SetFeature(kDataInput, /*flat=*/false);
  }

  const onnx::GraphProto& graph_;
  NetworkBuilder builder_;
  int64_t opset_ = 0;
  int64_t batch_ = 0;  // 0: open.
  std::array<int64_t, 3> image_ = {0, 0, 0};
  v1::ImageSize image_size_;
  absl::flat_hash_map<std::string, Value> values_;
  absl::flat_hash_map<std::string, int> producer_;  // Number of the node that computes a value.
  std::map<std::string, int> weight_uses_;
  std::map<std::string, std::vector<std::string>> unsupported_;  // Nodes by operator.
  int merged_batch_norms_ = 0;

  // The node being read.
  const onnx::NodeProto* node_ = nullptr;
  int node_index_ = 0;
  std::string where_;
  Attributes* attributes_ = nullptr;
};

}  // namespace

absl::StatusOr<ImportedNetwork> ImportOnnx(absl::string_view bytes, const ImportOptions& options) {
  onnx::ModelProto model;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.file,
                     ": is larger than 2 GiB, the most a protobuf file can be; export the model "
                     "with its weights in a file of their own"));
  }
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(options.file,
                                                   ": is no ONNX model, or was cut off: its ",
                                                   bytes.size(), " bytes do not parse"));
  }
  if (!model.has_graph() || model.graph().node_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.file, ": is no ONNX model, or was cut off: it holds no nodes"));
  }
  return OnnxImporter(model, options).Run();
}

}  // namespace paceline
