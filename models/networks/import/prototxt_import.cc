// What layers do: https://caffe.berkeleyvision.org/tutorial/layers.html and BVLC Caffe's
// src/caffe/layers; which layers a phase has: src/caffe/net.cpp, Net::FilterNet and StateMeetsRule.
#include "models/networks/import/prototxt_import.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/networks/import/caffe.pb.h"
#include "models/networks/network.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/closest_name.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using V1Type = caffe::V1LayerParameter;

// More ignored fields than these are counted, not listed.
constexpr size_t kMostListed = 10;

// The newer name of a type of the older form; empty if there is none.
std::string TypeName(V1Type::LayerType type) {
  static const auto* names = new std::map<V1Type::LayerType, std::string>{
      {V1Type::ABSVAL, "AbsVal"},
      {V1Type::ACCURACY, "Accuracy"},
      {V1Type::ARGMAX, "ArgMax"},
      {V1Type::BNLL, "BNLL"},
      {V1Type::CONCAT, "Concat"},
      {V1Type::CONTRASTIVE_LOSS, "ContrastiveLoss"},
      {V1Type::CONVOLUTION, "Convolution"},
      {V1Type::DATA, "Data"},
      {V1Type::DECONVOLUTION, "Deconvolution"},
      {V1Type::DROPOUT, "Dropout"},
      {V1Type::DUMMY_DATA, "DummyData"},
      {V1Type::ELTWISE, "Eltwise"},
      {V1Type::EUCLIDEAN_LOSS, "EuclideanLoss"},
      {V1Type::EXP, "Exp"},
      {V1Type::FLATTEN, "Flatten"},
      {V1Type::HDF5_DATA, "HDF5Data"},
      {V1Type::HDF5_OUTPUT, "HDF5Output"},
      {V1Type::HINGE_LOSS, "HingeLoss"},
      {V1Type::IM2COL, "Im2col"},
      {V1Type::IMAGE_DATA, "ImageData"},
      {V1Type::INFOGAIN_LOSS, "InfogainLoss"},
      {V1Type::INNER_PRODUCT, "InnerProduct"},
      {V1Type::LRN, "LRN"},
      {V1Type::MEMORY_DATA, "MemoryData"},
      {V1Type::MULTINOMIAL_LOGISTIC_LOSS, "MultinomialLogisticLoss"},
      {V1Type::MVN, "MVN"},
      {V1Type::POOLING, "Pooling"},
      {V1Type::POWER, "Power"},
      {V1Type::RELU, "ReLU"},
      {V1Type::SIGMOID, "Sigmoid"},
      {V1Type::SIGMOID_CROSS_ENTROPY_LOSS, "SigmoidCrossEntropyLoss"},
      {V1Type::SILENCE, "Silence"},
      {V1Type::SLICE, "Slice"},
      {V1Type::SOFTMAX, "Softmax"},
      {V1Type::SOFTMAX_LOSS, "SoftmaxWithLoss"},
      {V1Type::SPLIT, "Split"},
      {V1Type::TANH, "TanH"},
      {V1Type::THRESHOLD, "Threshold"},
      {V1Type::WINDOW_DATA, "WindowData"},
  };
  const auto found = names->find(type);
  return found == names->end() ? "" : found->second;
}

// The newer form of a layer of the older.
caffe::LayerParameter Upgraded(const caffe::V1LayerParameter& old) {
  caffe::LayerParameter layer;
  layer.set_name(old.name());
  layer.set_type(TypeName(old.type()));
  *layer.mutable_bottom() = old.bottom();
  *layer.mutable_top() = old.top();
  *layer.mutable_include() = old.include();
  *layer.mutable_exclude() = old.exclude();
  *layer.mutable_loss_weight() = old.loss_weight();
  for (int i = 0; i < std::max(old.blobs_lr_size(), old.param_size()); ++i) {
    caffe::ParamSpec& param = *layer.add_param();
    if (i < old.blobs_lr_size()) param.set_lr_mult(old.blobs_lr(i));
    if (i < old.param_size()) param.set_name(old.param(i));
  }
  // Parameters of layers have the same names in both forms.
  const auto* old_type = old.GetDescriptor();
  for (int i = 0; i < old_type->field_count(); ++i) {
    const auto* from = old_type->field(i);
    const auto* to = layer.GetDescriptor()->FindFieldByName(from->name());
    if (from->is_repeated() || to == nullptr || from->message_type() == nullptr ||
        from->message_type() != to->message_type() || !old.GetReflection()->HasField(old, from)) {
      continue;
    }
    layer.GetReflection()
        ->MutableMessage(&layer, to)
        ->CopyFrom(old.GetReflection()->GetMessage(old, from));
  }
  return layer;
}

bool StateMeetsRule(const caffe::NetState& state, const caffe::NetStateRule& rule) {
  if (rule.has_phase() && rule.phase() != state.phase()) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  const auto has_stage = [&](const std::string& stage) {
    return std::find(state.stage().begin(), state.stage().end(), stage) != state.stage().end();
  };
  return std::all_of(rule.stage().begin(), rule.stage().end(), has_stage) &&
         std::none_of(rule.not_stage().begin(), rule.not_stage().end(), has_stage);
}

bool IsIncluded(const caffe::NetState& state, const caffe::LayerParameter& layer) {
  const auto met = [&](const caffe::NetStateRule& rule) { return StateMeetsRule(state, rule); };
  if (layer.include_size() > 0) {
    return std::any_of(layer.include().begin(), layer.include().end(), met);
  }
  return std::none_of(layer.exclude().begin(), layer.exclude().end(), met);
}

struct Blob {
  enum Kind {
    kUnknown,     // Made by a layer with a problem, which is reported already.
    kFeature,     // Output of a layer, or the image.
    kLabels,      // Of the input.
    kNormalized,  // BatchNorm, whose Scale is to come.
    kScores,      // Softmax of a layer's output.
  };
  Kind kind = kUnknown;
  int layer = kDataInput;
};

class PrototxtImporter {
 public:
  PrototxtImporter(const caffe::NetParameter& net, const TextProtoLocations& locations,
                   const ImportOptions& options)
      : net_(net), locations_(locations), file_(options.file), builder_(options) {}

  absl::StatusOr<ImportedNetwork> Run(const std::vector<std::string>& ignored_fields) {
    builder_.SetName(net_.name());
    if (net_.layer_size() > 0 && net_.layers_size() > 0) {
      builder_.Problem("has both layer and layers; Caffe takes one of the two forms");
    }
    ReadInputs();
    CollectLayers();
    for (const SourceLayer& source : layers_) {
      for (const std::string& top : source.layer.top()) makers_.emplace(top, source.layer.name());
    }
    for (const SourceLayer& source : layers_) ReadLayer(source);
    for (const auto& [layer, where] : without_scale_) {
      builder_.Problem(where,
                       ": no Scale with bias_term follows; batch normalization has a scale "
                       "and a shift here");
    }
    if (has_unsupported_type_) {
      std::vector<std::string> names;
      for (const auto& [name, handler] : Handlers()) names.push_back(name);
      builder_.Hint("Supported types: ", absl::StrJoin(names, ", "));
    }
    AddNotes(ignored_fields);
    return std::move(builder_).Finish(Outputs());
  }

 private:
  using Handler = void (PrototxtImporter::*)();

  struct SourceLayer {
    caffe::LayerParameter layer;
    std::string where;  // "net.prototxt:12: layer 'conv1' (Convolution)"
  };

  static const std::map<std::string, Handler>& Handlers() {
    static const auto* handlers = new std::map<std::string, Handler>{
        {"Accuracy", &PrototxtImporter::LeaveOut},
        {"BatchNorm", &PrototxtImporter::ReadBatchNorm},
        {"Concat", &PrototxtImporter::ReadConcat},
        {"Convolution", &PrototxtImporter::ReadConvolution},
        {"Data", &PrototxtImporter::ReadData},
        {"Dropout", &PrototxtImporter::ReadDropout},
        {"DummyData", &PrototxtImporter::ReadData},
        {"Eltwise", &PrototxtImporter::ReadEltwise},
        {"Flatten", &PrototxtImporter::ReadFlatten},
        {"HDF5Data", &PrototxtImporter::ReadData},
        {"ImageData", &PrototxtImporter::ReadData},
        {"InnerProduct", &PrototxtImporter::ReadInnerProduct},
        {"Input", &PrototxtImporter::ReadData},
        {"LRN", &PrototxtImporter::ReadLrn},
        {"MemoryData", &PrototxtImporter::ReadData},
        {"Pooling", &PrototxtImporter::ReadPooling},
        {"ReLU", &PrototxtImporter::ReadRelu},
        {"Scale", &PrototxtImporter::ReadScale},
        {"Silence", &PrototxtImporter::LeaveOut},
        {"Softmax", &PrototxtImporter::ReadSoftmax},
        {"SoftmaxWithLoss", &PrototxtImporter::ReadSoftmaxWithLoss},
        {"Split", &PrototxtImporter::ReadSplit},
        {"WindowData", &PrototxtImporter::ReadData},
    };
    return *handlers;
  }

  // ---- The file as a whole.

  // Inputs that are no layers, as deploy files of older Caffe have them.
  void ReadInputs() {
    for (int i = 0; i < net_.input_size(); ++i) {
      std::vector<int64_t> shape;
      if (i < net_.input_shape_size()) {
        shape.assign(net_.input_shape(i).dim().begin(), net_.input_shape(i).dim().end());
      } else {
        for (int k = 4 * i; k < std::min(4 * i + 4, net_.input_dim_size()); ++k) {
          shape.push_back(net_.input_dim(k));
        }
      }
      AddInput(net_.input(i), shape, absl::StrCat(file_, ": input '", net_.input(i), "'"));
    }
  }

  void CollectLayers() {
    caffe::NetState state = net_.state();
    state.set_phase(caffe::TRAIN);
    const bool is_newer = net_.layer_size() > 0;
    const auto* field = net_.GetDescriptor()->FindFieldByName(is_newer ? "layer" : "layers");
    std::vector<std::string> left_out;
    for (int i = 0; i < (is_newer ? net_.layer_size() : net_.layers_size()); ++i) {
      SourceLayer source;
      source.layer = is_newer ? net_.layer(i) : Upgraded(net_.layers(i));
      const int line = locations_.GetLocation(field, i).line + 1;
      const std::string name =
          source.layer.name().empty() ? absl::StrCat("#", i) : source.layer.name();
      source.where =
          absl::StrCat(file_, ":", line, ": layer '", name, "' (", source.layer.type(), ")");
      if (!is_newer && net_.layers(i).has_layer()) {
        builder_.Problem(source.where,
                         ": a layer within layers is the form before 2014; bring the "
                         "file up to date with Caffe's upgrade_net_proto_text");
      } else if (IsIncluded(state, source.layer)) {
        layers_.push_back(std::move(source));
      } else if (source.layer.type() != "Data") {  // The test images need no mention.
        left_out.push_back(name);
      }
    }
    if (!left_out.empty()) {
      builder_.Note("left out, as not of the TRAIN phase: ", absl::StrJoin(left_out, ", "));
    }
    if (layers_.empty()) {
      builder_.Problem(
          "holds no layers of the TRAIN phase: is it a network's definition, and not "
          "a solver's?");
    }
  }

  void ReadLayer(const SourceLayer& source) {
    layer_ = &source.layer;
    where_ = source.where;
    const auto handler = Handlers().find(layer_->type());
    // A top is unknown until the handler succeeds; an in-place layer reads its bottom first.
    std::vector<Blob> bottoms;
    bool known = true;
    for (const std::string& bottom : layer_->bottom()) {
      const auto found = blobs_.find(bottom);
      if (found == blobs_.end()) {
        Problem("bottom '", bottom, "' is made by no layer before this one", Suggestion(bottom));
        known = false;
        continue;
      }
      known &= found->second.kind != Blob::kUnknown;
      bottoms.push_back(found->second);
    }
    bottoms_ = std::move(bottoms);
    for (const std::string& top : layer_->top()) blobs_[top] = Blob();
    if (handler == Handlers().end()) {
      has_unsupported_type_ = true;
      return builder_.Problem(where_, ": type ", layer_->type().empty() ? "?" : layer_->type(),
                              " is not supported");
    }
    if (known) (this->*handler->second)();
  }

  std::string Suggestion(const std::string& bottom) const {
    const auto maker = makers_.find(bottom);
    if (maker != makers_.end()) {
      return absl::StrCat(" (layer '", maker->second,
                          "', further down, makes it: a cycle, or layers out of order)");
    }
    std::vector<std::string> known;
    for (const auto& [name, blob] : blobs_) known.push_back(name);
    std::sort(known.begin(), known.end());
    return DidYouMean(bottom, known);
  }

  // Where the file has no loss: what no layer reads.
  std::vector<int> Outputs() {
    std::vector<int> scores, ends;
    for (const SourceLayer& source : layers_) {
      for (const std::string& top : source.layer.top()) {
        const auto blob = blobs_.find(top);
        if (blob == blobs_.end() || blob->second.layer == kDataInput) continue;
        if (blob->second.kind == Blob::kScores) scores.push_back(blob->second.layer);
        if (blob->second.kind == Blob::kFeature && !builder_.IsRead(blob->second.layer)) {
          ends.push_back(blob->second.layer);
        }
      }
    }
    std::vector<int>& outputs = scores.empty() ? ends : scores;
    // The classifier at the end is the main one.
    std::reverse(outputs.begin(), outputs.end());
    return outputs;
  }

  void AddNotes(const std::vector<std::string>& ignored_fields) {
    for (size_t i = 0; i < std::min(ignored_fields.size(), kMostListed); ++i) {
      builder_.Note("ignored: ", ignored_fields[i]);
    }
    if (ignored_fields.size() > kMostListed) {
      builder_.Note("ignored: ", ignored_fields.size() - kMostListed, " more fields");
    }
    if (!left_out_.empty()) builder_.Note("left out: ", absl::StrJoin(left_out_, ", "));
    if (!frozen_.empty()) {
      builder_.Note("learning rate 0 in the file, trained here: ", absl::StrJoin(frozen_, ", "));
    }
  }

  // ---- Helpers of the handlers.

  template <typename... Text>
  void Problem(const Text&... text) {
    builder_.Problem(where_, ": ", text...);
  }

  // The layers at all bottoms, at least `least`; empty with a problem.
  std::vector<int> Features(size_t least = 1) {
    std::vector<int> layers;
    for (size_t i = 0; i < bottoms_.size(); ++i) {
      if (bottoms_[i].kind != Blob::kFeature) {
        Problem("bottom '", layer_->bottom(static_cast<int>(i)), "' is ",
                bottoms_[i].kind == Blob::kLabels   ? "a label"
                : bottoms_[i].kind == Blob::kScores ? "a softmax, which only an Accuracy can read"
                                                    : "a BatchNorm, which only a Scale can read",
                ", not the output of a layer");
        return {};
      }
      layers.push_back(bottoms_[i].layer);
    }
    if (layers.size() < least) {
      Problem("needs ", least == 1 ? "a bottom" : absl::StrCat(least, " bottoms"), ", has ",
              layers.size());
      return {};
    }
    return layers;
  }
  // The layer at the only bottom, or -2 with a problem.
  int Feature() {
    const std::vector<int> layers = Features();
    if (layers.size() == 1) return layers[0];
    if (layers.size() > 1) Problem("takes one bottom, has ", layers.size());
    return kNone;
  }
  static constexpr int kNone = -2;

  void SetTop(Blob::Kind kind, int layer) {
    if (layer_->top_size() == 0) return Problem("has no top");
    Blob blob;
    blob.kind = kind;
    blob.layer = layer;
    blobs_[layer_->top(0)] = blob;
  }
  int AddLayer(v1::Layer layer, const std::vector<int>& inputs) {
    const int number = builder_.Add(layer_->name(), std::move(layer), inputs);
    if (layer_->top_size() > 0) SetTop(Blob::kFeature, number);
    for (const float weight : layer_->loss_weight()) {
      if (weight != 0 && !builder_.layer(number).has_softmax_loss()) {
        Problem("loss_weight: only of SoftmaxWithLoss is supported, got ", weight);
      }
    }
    return number;
  }

  // What the weights' `param`s say.
  void ReadParams() {
    bool learns = layer_->param_size() == 0;
    for (const caffe::ParamSpec& param : layer_->param()) {
      learns |= param.lr_mult() != 0;
      if (param.name().empty()) continue;
      const auto [other, inserted] = shared_.emplace(param.name(), layer_->name());
      if (!inserted) {
        Problem("param '", param.name(), "' is shared with layer '", other->second,
                "'; only layers with weights of their own are supported");
      }
    }
    if (!learns) frozen_.push_back(layer_->name());
  }

  // The size in both directions, from a repeated field or from one field each.
  template <typename Repeated>
  int64_t Square(absl::string_view field, const Repeated& sizes, bool has_each, int64_t height,
                 int64_t width, int64_t otherwise) {
    std::vector<int64_t> values(sizes.begin(), sizes.end());
    if (has_each) values = {height, width};
    if (values.empty()) return otherwise;
    for (const int64_t value : values) {
      if (value != values[0]) {
        Problem(field, ": must be equal in height and width, got ", absl::StrJoin(values, ", "));
        break;
      }
    }
    if (values.size() > 2)
      Problem(field, ": only images are supported, got ", values.size(), " directions");
    return values[0];
  }

  void SetFiller(const caffe::FillerParameter& from, v1::Filler* filler) {
    if (from.type() == "xavier") {
      filler->set_kind(v1::Filler::KIND_XAVIER);
    } else if (from.type() == "msra") {
      filler->set_kind(v1::Filler::KIND_MSRA);
    } else if (from.type() == "gaussian" && from.std() > 0) {
      filler->set_kind(v1::Filler::KIND_GAUSSIAN);
      filler->set_standard_deviation(Decimal(from.std()));
    } else {
      builder_.Note("weights start as usual for their layer, not by the filler '", from.type(),
                    "'");
    }
  }

  // ---- Inputs.

  // `shape`: {batch, channels, height, width} of an image, empty if not known.
  void AddInput(const std::string& name, const std::vector<int64_t>& shape,
                absl::string_view where) {
    Blob blob;
    const bool is_image = shape.empty() ? name != "label" : shape.size() == 4;
    // A second input is what is compared with the first.
    blob.kind = is_image && !has_image_ ? Blob::kFeature : Blob::kLabels;
    blobs_[name] = blob;
    if (blob.kind != Blob::kFeature) return;
    has_image_ = true;
    if (shape.empty()) return;
    v1::ImageSize size;
    size.set_channels(builder_.PositiveSize(shape[1], where, "channels"));
    size.set_height(builder_.PositiveSize(shape[2], where, "height"));
    size.set_width(builder_.PositiveSize(shape[3], where, "width"));
    builder_.SetInput(size);
  }

  void ReadData() {
    for (int i = 0; i < layer_->top_size(); ++i) {
      AddInput(layer_->top(i),
               i == 0 || layer_->type() == "DummyData" || layer_->type() == "Input"
                   ? InputShape(i)
                   : std::vector<int64_t>{0},
               where_);
    }
  }

  // Of the image at this top; empty if the file does not say.
  std::vector<int64_t> InputShape(int top) {
    const auto shape_of = [](const caffe::BlobShape& shape) {
      return std::vector<int64_t>(shape.dim().begin(), shape.dim().end());
    };
    const auto& inputs = layer_->input_param().shape();
    if (!inputs.empty()) return shape_of(inputs[std::min(top, inputs.size() - 1)]);
    const caffe::DummyDataParameter& dummy = layer_->dummy_data_param();
    if (dummy.shape_size() > 0) return shape_of(dummy.shape(std::min(top, dummy.shape_size() - 1)));
    if (top < dummy.channels_size() && top < dummy.height_size() && top < dummy.width_size()) {
      return {1, dummy.channels(top), dummy.height(top), dummy.width(top)};
    }
    const caffe::MemoryDataParameter& memory = layer_->memory_data_param();
    if (layer_->has_memory_data_param()) {
      return {1, memory.channels(), memory.height(), memory.width()};
    }
    const caffe::TransformationParameter& transform = layer_->transform_param();
    const caffe::ImageDataParameter& image = layer_->image_data_param();
    int64_t height = std::max<int64_t>(
        {transform.crop_size(), layer_->data_param().crop_size(), image.crop_size()});
    int64_t width = height;
    if (height == 0) {
      height = image.new_height();
      width = image.new_width();
    }
    if (height == 0 || width == 0) return {};
    const bool is_gray = transform.force_gray() || !image.is_color();
    if (!is_gray && transform.mean_value_size() != 3) {
      builder_.Note("images are taken to have 3 channels, which the file does not say");
    }
    return {1, is_gray ? 1 : 3, height, width};
  }

  // ---- Layers.

  void ReadConvolution() {
    const int input = Feature();
    if (input == kNone) return;
    const caffe::ConvolutionParameter& from = layer_->convolution_param();
    ReadParams();
    v1::Layer layer;
    v1::Convolution& convolution = *layer.mutable_convolution();
    convolution.set_output_channels(builder_.PositiveSize(from.num_output(), where_, "num_output"));
    convolution.set_kernel(builder_.PositiveSize(
        Square("kernel_size", from.kernel_size(), from.has_kernel_h() || from.has_kernel_w(),
               from.kernel_h(), from.kernel_w(), 0),
        where_, "kernel_size"));
    const int32_t stride = builder_.PositiveSize(
        Square("stride", from.stride(), from.has_stride_h() || from.has_stride_w(), from.stride_h(),
               from.stride_w(), 1),
        where_, "stride");
    if (stride != 1) convolution.set_stride(stride);
    convolution.set_pad(
        builder_.Size(Square("pad", from.pad(), from.has_pad_h() || from.has_pad_w(), from.pad_h(),
                             from.pad_w(), 0),
                      where_, "pad"));
    if (from.group() != 1) {
      convolution.set_groups(builder_.PositiveSize(from.group(), where_, "group"));
    }
    convolution.set_no_bias(!from.bias_term());
    for (const uint32_t dilation : from.dilation()) {
      if (dilation != 1) Problem("dilation: only 1 is supported, got ", dilation);
    }
    if (from.axis() != 1) Problem("axis: only 1 is supported, got ", from.axis());
    if (from.has_weight_filler()) {
      SetFiller(from.weight_filler(), convolution.mutable_weight_filler());
    }
    AddLayer(std::move(layer), {input});
  }

  void ReadInnerProduct() {
    const int input = Feature();
    if (input == kNone) return;
    const caffe::InnerProductParameter& from = layer_->inner_product_param();
    ReadParams();
    v1::Layer layer;
    v1::FullyConnected& fully_connected = *layer.mutable_fully_connected();
    fully_connected.set_outputs(builder_.PositiveSize(from.num_output(), where_, "num_output"));
    fully_connected.set_no_bias(!from.bias_term());
    if (from.axis() != 1) Problem("axis: only 1 is supported, got ", from.axis());
    if (from.has_weight_filler()) {
      SetFiller(from.weight_filler(), fully_connected.mutable_weight_filler());
    }
    AddLayer(std::move(layer), {input});
  }

  void ReadPooling() {
    const int input = Feature();
    if (input == kNone) return;
    const caffe::PoolingParameter& from = layer_->pooling_param();
    v1::Layer layer;
    v1::Pooling& pooling = *layer.mutable_pooling();
    if (from.pool() == caffe::PoolingParameter::STOCHASTIC) {
      Problem("pool: only MAX and AVE are supported, got STOCHASTIC");
    }
    pooling.set_method(from.pool() == caffe::PoolingParameter::AVE
                           ? v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING
                           : v1::Pooling::METHOD_MAX);
    const auto one = [](bool has, uint32_t value) {
      return has ? std::vector<uint32_t>{value} : std::vector<uint32_t>();
    };
    if (from.global_pooling()) {
      pooling.set_global(true);
      if (from.has_kernel_size() || from.has_kernel_h() || from.has_kernel_w()) {
        Problem("global_pooling: its window is the image; leave out kernel_size");
      }
    } else {
      pooling.set_kernel(builder_.PositiveSize(
          Square("kernel_size", one(from.has_kernel_size(), from.kernel_size()),
                 from.has_kernel_h() || from.has_kernel_w(), from.kernel_h(), from.kernel_w(), 0),
          where_, "kernel_size"));
      const int32_t stride = builder_.PositiveSize(
          Square("stride", one(true, from.stride()), from.has_stride_h() || from.has_stride_w(),
                 from.stride_h(), from.stride_w(), 1),
          where_, "stride");
      if (stride != 1) pooling.set_stride(stride);
      pooling.set_pad(
          builder_.Size(Square("pad", one(true, from.pad()), from.has_pad_h() || from.has_pad_w(),
                               from.pad_h(), from.pad_w(), 0),
                        where_, "pad"));
      // With stride 1 there is nothing to round.
      pooling.set_ceil_mode(from.round_mode() == caffe::PoolingParameter::CEIL && stride != 1);
    }
    AddLayer(std::move(layer), {input});
  }

  void ReadLrn() {
    const int input = Feature();
    if (input == kNone) return;
    const caffe::LRNParameter& from = layer_->lrn_param();
    if (from.norm_region() != caffe::LRNParameter::ACROSS_CHANNELS) {
      Problem("norm_region: only ACROSS_CHANNELS is supported");
    }
    if (from.k() == 0) Problem("k: must be positive, got 0");
    v1::Layer layer;
    v1::LocalResponseNormalization& lrn = *layer.mutable_lrn();
    lrn.set_local_size(builder_.PositiveSize(from.local_size(), where_, "local_size"));
    lrn.set_alpha(Decimal(from.alpha()));
    lrn.set_beta(Decimal(from.beta()));
    if (from.k() != 1) lrn.set_k(Decimal(from.k()));
    AddLayer(std::move(layer), {input});
  }

  void ReadRelu() {
    const int input = Feature();
    if (input == kNone) return;
    if (layer_->relu_param().negative_slope() != 0) {
      Problem("negative_slope: only 0 is supported, got ", layer_->relu_param().negative_slope());
    }
    v1::Layer layer;
    layer.mutable_relu();
    AddLayer(std::move(layer), {input});
  }

  void ReadDropout() {
    const int input = Feature();
    if (input == kNone) return;
    const double ratio = Decimal(layer_->dropout_param().dropout_ratio());
    if (ratio == 0) {
      builder_.Note("left out: Dropout with ratio 0");
      return SetTop(Blob::kFeature, input);
    }
    v1::Layer layer;
    layer.mutable_dropout()->set_ratio(ratio);
    AddLayer(std::move(layer), {input});
  }

  void ReadBatchNorm() {
    const int input = Feature();
    if (input == kNone) return;
    const caffe::BatchNormParameter& from = layer_->batch_norm_param();
    if (from.use_global_stats()) {
      builder_.Note(
          "use_global_stats (normalization by stored statistics) is for inference: in "
          "training every batch is normalized by its own");
    }
    v1::Layer layer;
    layer.mutable_batch_norm();
    const double epsilon = Decimal(from.eps());
    if (epsilon != 1e-5) layer.mutable_batch_norm()->set_epsilon(epsilon);
    const int number = AddLayer(std::move(layer), {input});
    if (from.scale_bias()) return;
    SetTop(Blob::kNormalized, number);
    without_scale_.emplace(number, where_);
  }

  // Of batch normalization, of which it is a part here.
  void ReadScale() {
    const caffe::ScaleParameter& from = layer_->scale_param();
    if (bottoms_.size() != 1 || bottoms_[0].kind != Blob::kNormalized) {
      return Problem("only a Scale right behind a BatchNorm is supported");
    }
    if (without_scale_.erase(bottoms_[0].layer) == 0) {
      return Problem("is the second Scale of the same BatchNorm");
    }
    if (!from.bias_term()) Problem("bias_term: must be true; batch normalization has a shift here");
    if (from.axis() != 1 || from.num_axes() != 1) {
      Problem("axis and num_axes: only 1 (a factor for each channel) is supported");
    }
    ReadParams();
    SetTop(Blob::kFeature, bottoms_[0].layer);
  }

  void ReadConcat() {
    const caffe::ConcatParameter& from = layer_->concat_param();
    if (from.axis() != 1 || from.concat_dim() != 1) {
      Problem("axis: only concatenation of channels (1) is supported");
    }
    const std::vector<int> inputs = Features();
    if (inputs.empty()) return;
    if (inputs.size() == 1) return SetTop(Blob::kFeature, inputs[0]);
    v1::Layer layer;
    layer.mutable_concat();
    AddLayer(std::move(layer), inputs);
  }

  void ReadEltwise() {
    const caffe::EltwiseParameter& from = layer_->eltwise_param();
    if (from.operation() != caffe::EltwiseParameter::SUM) {
      Problem("operation: only SUM is supported, got ",
              caffe::EltwiseParameter::EltwiseOp_Name(from.operation()));
    }
    for (const float factor : from.coeff()) {
      if (factor != 1) Problem("coeff: only 1 is supported, got ", factor);
    }
    const std::vector<int> inputs = Features(2);
    if (inputs.empty()) return;
    v1::Layer layer;
    layer.mutable_add();
    AddLayer(std::move(layer), inputs);
  }

  void ReadFlatten() {
    const int input = Feature();
    if (input == kNone) return;
    const caffe::FlattenParameter& from = layer_->flatten_param();
    if (from.axis() != 1 || (from.end_axis() != -1 && from.end_axis() != 3)) {
      Problem("axis: only 1, to the end, is supported");
    }
    SetTop(Blob::kFeature, input);
  }

  void ReadSplit() {
    if (bottoms_.size() != 1) return Problem("takes one bottom, has ", bottoms_.size());
    for (const std::string& top : layer_->top()) blobs_[top] = bottoms_[0];
  }

  void ReadSoftmax() {
    const int input = Feature();
    if (input == kNone) return;
    if (layer_->softmax_param().axis() != 1) {
      Problem("axis: only 1 is supported, got ", layer_->softmax_param().axis());
    }
    SetTop(Blob::kScores, input);
  }

  void ReadSoftmaxWithLoss() {
    if (layer_->softmax_param().axis() != 1) {
      Problem("axis: only 1 is supported, got ", layer_->softmax_param().axis());
    }
    if (bottoms_.size() < 2 || bottoms_[0].kind != Blob::kFeature ||
        bottoms_[1].kind != Blob::kLabels) {
      return Problem("needs two bottoms, the output of a layer and the labels");
    }
    const double weight = layer_->loss_weight_size() > 0 ? Decimal(layer_->loss_weight(0)) : 1;
    if (weight == 0) return LeaveOut();
    v1::Layer layer;
    layer.mutable_softmax_loss();
    if (weight != 1) layer.mutable_softmax_loss()->set_loss_weight(weight);
    const int number = AddLayer(std::move(layer), {bottoms_[0].layer});
    if (layer_->top_size() > 0) SetTop(Blob::kLabels, number);  // Nothing computes with a loss.
  }

  void LeaveOut() { left_out_.push_back(absl::StrCat(layer_->type(), " '", layer_->name(), "'")); }

  const caffe::NetParameter& net_;
  const TextProtoLocations& locations_;
  const std::string file_;
  NetworkBuilder builder_;
  std::vector<SourceLayer> layers_;  // Of the TRAIN phase.
  absl::flat_hash_map<std::string, Blob> blobs_;
  absl::flat_hash_map<std::string, std::string> makers_;  // A layer that makes a blob.
  absl::flat_hash_map<std::string, std::string> shared_;  // A layer by the name of its parameter.
  std::map<int, std::string> without_scale_;              // BatchNorms whose Scale is to come.
  std::vector<std::string> left_out_, frozen_;
  bool has_image_ = false;
  bool has_unsupported_type_ = false;

  // The layer being read.
  const caffe::LayerParameter* layer_ = nullptr;
  std::string where_;
  std::vector<Blob> bottoms_;
};

}  // namespace

absl::StatusOr<ImportedNetwork> ImportPrototxt(absl::string_view text,
                                               const ImportOptions& options) {
  caffe::NetParameter net;
  std::vector<std::string> ignored_fields;
  TextProtoLocations locations;
  const absl::Status status =
      ParseTextProtoPart(text, options.file, &net, &ignored_fields, &locations);
  if (!status.ok()) return status;
  return PrototxtImporter(net, locations, options).Run(ignored_fields);
}

}  // namespace paceline
