#include "worker/backend/cpu/onednn_engine.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dnnl.hpp"
#include "worker/backend/cpu/engine_fillers.h"
#include "worker/backend/cpu/engine_kernels.h"
#include "worker/backend/cpu/engine_memory.h"

namespace paceline {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using Tag = memory::format_tag;
using DataType = memory::data_type;
using Dims = memory::dims;

constexpr int64_t kFloatsPerLine = 16;  // Tensors begin on cache lines.

dnnl::engine& CpuEngine() {
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string DimsText(const Dims& dims) { return absl::StrCat("{", absl::StrJoin(dims, ","), "}"); }

// {N, C, H, W} in plain row-major order.
memory::desc Plain(const Dims& dims, DataType type) {
  Dims strides(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * std::max<int64_t>(dims[i + 1], 1);
  }
  return memory::desc(dims, type, strides);
}

memory::desc AnyLayout(const Dims& dims, DataType type) {
  return memory::desc(dims, type, Tag::any);
}

bool IsBlockedBy16(const memory::desc& desc) {
  const auto& blocking = desc.data.format_desc.blocking;
  return desc.data.format_kind == dnnl_blocked && blocking.inner_nblks == 1 &&
         blocking.inner_idxs[0] == 1 && blocking.inner_blks[0] == 16;
}

bool HasPadding(const memory::desc& desc) {
  for (int i = 0; i < desc.data.ndims; ++i) {
    if (desc.data.dims[i] != desc.data.padded_dims[i]) return true;
  }
  return false;
}

// Whether the bytes lie in plain {N, C, H, W} order.
bool LiesPlain(const memory::desc& desc) {
  const Dims dims = desc.dims();
  if (desc == Plain(dims, static_cast<DataType>(desc.data.data_type))) return true;
  return dims.size() == 4 && dims[2] == 1 && dims[3] == 1 && IsBlockedBy16(desc) &&
         !HasPadding(desc) && desc.data.format_desc.blocking.strides[0] == dims[1];
}

// Row length R if `copy` holds `master`'s blocks of 16 inputs by R outputs (oneDNN's ...16i<R>o) as
// bf16 with pairs of inputs side by side (...8i<R>o2i), in the same order; else 0.
int64_t PairedRow(const memory::desc& master, const memory::desc& copy) {
  if (master.data.format_kind != dnnl_blocked || copy.data.format_kind != dnnl_blocked ||
      copy.data.data_type != dnnl_bf16 || master.data.ndims != copy.data.ndims) {
    return 0;
  }
  const auto &m = master.data.format_desc.blocking, &c = copy.data.format_desc.blocking;
  if (m.inner_nblks != 2 || c.inner_nblks != 3) return 0;
  const int64_t row = m.inner_blks[1];
  const bool paired = m.inner_blks[0] == 16 && row % 16 == 0 && c.inner_blks[0] == 8 &&
                      c.inner_blks[1] == row && c.inner_blks[2] == 2 &&
                      c.inner_idxs[0] == m.inner_idxs[0] && c.inner_idxs[1] == m.inner_idxs[1] &&
                      c.inner_idxs[2] == m.inner_idxs[0];
  if (!paired) return 0;
  for (int i = 0; i < master.data.ndims; ++i) {
    if (m.strides[i] != c.strides[i] || master.data.padded_dims[i] != copy.data.padded_dims[i]) {
      return 0;
    }
  }
  return row;
}

// A oneDNN memory over (part of) a planned buffer. Its address is set once memory is planned.
struct Mem {
  memory mem;
  int buffer = -1;
  int64_t offset = 0;
  memory::desc desc() const { return mem.get_desc(); }
  void* data() const { return mem.get_data_handle(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(mem.get_data_handle());
  }
};

enum class BufferKind { kActivation, kWorkspace, kWeightCopy };

struct Buffer {
  BufferKind kind = BufferKind::kActivation;
  BufferLifetime life;
  bool used = false;
};

// An activation (one per layer output; a fused ReLU shares its producer's).
struct Value {
  Mem mem;
  Dims dims;
  int producer = kDataInput;
  bool needs_gradient = false;
  bool consumed = false;           // Its producer's backward pass is built.
  std::vector<Mem> contributions;  // To its gradient, not yet summed.
};

struct Parameter {
  int64_t offset = 0;  // In floats, of the weight, gradient and momentum arenas.
  int64_t padded_elements = 0;
  Dims dims;            // As the primitives see it (grouped: 5-D).
  memory::desc master;  // fp32 layout of weight, gradient and momentum.
  memory weight;        // Over the weight arena.
  memory gradient;
  Mem forward, backward;  // What the primitives read; empty if unused or the master itself.
  bool has_forward = false, has_backward = false;
  bool copy_forward = false, copy_backward = false;
  // Not 0: forward's copy is the master in bf16 with rows of this many elements interleaved in
  // pairs, and the update writes it in its own pass.
  int64_t pair_row = 0;
  dnnl::reorder refresh_forward, refresh_backward;
};

struct Step {
  int layer;
  std::string name;
  std::function<void()> run;
  int64_t total_ns = 0;
  int64_t count = 0;
};

class OneDnnEngine : public LayerEngine {
 public:
  OneDnnEngine(const ShapedNetwork& network, const EngineOptions& options, const OneDnnOptions& cpu)
      : network_(network),
        options_(options),
        cpu_(cpu),
        threads_(cpu.threads > 0 ? cpu.threads : omp_get_max_threads()),
        type_(options.precision == v1::PRECISION_BF16 ? DataType::bf16 : DataType::f32),
        stream_(CpuEngine()),
        copy_stream_(CpuEngine()) {}

  absl::Status Build();

  absl::Status LoadInput(const HostBatch& batch, Stream& stream) override;
  absl::Status Forward(int layer, Stream& stream) override;
  absl::Status Backward(int layer, Stream& stream) override;
  absl::Status Update(absl::Span<const int> tensors, float gradient_scale, Stream& stream) override;
  absl::Status WeightsChanged(absl::Span<const int> tensors, Stream& stream) override;
  DeviceSpan GradientSpan(absl::Span<const int> tensors) override {
    return Span(gradient_arena_, tensors);
  }
  DeviceSpan WeightSpan(absl::Span<const int> tensors) override {
    return Span(weight_arena_, tensors);
  }
  double Loss() const override { return loss_.load(); }
  v1::MemoryUse Memory() const override { return memory_use_; }
  absl::StatusOr<std::vector<float>> ReadWeights(int tensor) const override;
  absl::Status WriteWeights(int tensor, absl::Span<const float> values) override;
  absl::StatusOr<std::vector<float>> ReadGradient(int tensor) const override;
  absl::StatusOr<std::vector<float>> ReadOutput(int layer) const override;
  uint64_t WeightsChecksum() const override;

  std::vector<EngineStepTime> StepTimes() const;

 private:
  // ---- Building. All of it may throw dnnl::error; Build turns that into a Status.
  absl::Status Check() const;
  void FuseRelus();
  void BuildForward(int l);
  void BuildBackward(int l);
  void BuildConvolution(int l);
  void BuildConvolutionBackward(int l);
  void BuildFullyConnected(int l);
  void BuildFullyConnectedBackward(int l);
  bool EmitSmallBatchBackward(int l, const Mem& gradient);
  void BuildBatchNorm(int l);
  void BuildBatchNormBackward(int l);
  bool OwnBatchNorm(const Mem& source) const;
  double Epsilon(int l) const;
  void EmitBatchNorm(int l, const Mem& out, const Mem& addend, bool relu);
  void EmitBatchNormBackward(int l, const Mem& gradient);
  Mem SliceOfConcat(int l, const Dims& dims);
  void BuildPooling(int l);
  void BuildPoolingBackward(int l);
  void BuildLrn(int l);
  void BuildLrnBackward(int l);
  void BuildConcat(int l);
  void BuildConcatBackward(int l);
  void BuildAdd(int l);
  void BuildAddBackward(int l);
  void BuildRelu(int l);
  void BuildReluBackward(int l);
  void BuildDropout(int l, bool backward);
  void BuildSoftmaxLoss(int l);
  void BuildSoftmaxLossBackward(int l);

  int NewBuffer(int64_t bytes, BufferKind kind);
  Mem NewMem(const memory::desc& desc, BufferKind kind = BufferKind::kActivation) {
    return View(desc, NewBuffer(desc.get_size(), kind), 0);
  }
  Mem View(const memory::desc& desc, int buffer, int64_t offset) {
    Mem mem{memory(desc, CpuEngine(), DNNL_MEMORY_NONE), buffer, offset};
    bindings_.push_back(mem);
    return mem;
  }
  void Touch(const Mem& mem);
  void Emit(std::string name, std::function<void()> run) {
    (*emit_to_)[emit_layer_].push_back({emit_layer_, std::move(name), std::move(run)});
  }
  void EmitPrimitive(const std::string& what, const dnnl::primitive& primitive,
                     const std::vector<std::pair<int, Mem>>& args, const memory::desc& scratchpad,
                     const std::string& implementation);
  void EmitSlice(const Mem& whole, const Mem& part, int64_t first_channel, bool into_whole);
  void EmitSlices(int l);
  // `mem` in the wanted layout: itself, or a copy made by a reorder emitted here.
  Mem InLayout(const Mem& mem, const memory::desc& desc);
  // `mem` as a plain {N, C H W} matrix.
  Mem AsMatrix(const Mem& mem);

  Value& OutputOf(int l) { return values_[value_of_[l]]; }
  Value& InputOf(int l, int i = 0) {
    int producer = network_.layers[l].inputs[i];
    return producer == kDataInput ? values_[0] : OutputOf(producer);
  }
  void NewOutput(int l, const Mem& mem);
  void NewOutput(int l, const memory::desc& desc) { NewOutput(l, NewMem(desc)); }
  // Gradient of the value once all consumers have contributed: their sum, and with `relu` masked by
  // the value itself. The result may be shared unless masked.
  Mem Gradient(Value& value, bool relu);
  void Contribute(Value& value, Mem gradient) {
    value.contributions.push_back(std::move(gradient));
  }
  bool SharedWithPending(const Value& value, const Mem& mem) const;

  // Parallel loop over [0, n) in ranges of whole cache lines.
  template <typename F>
  void ParallelRanges(int64_t n, F run, int64_t grain = 4096) const;
  void UpdateRange(int64_t begin, int64_t end, const SgdStep& step);
  void UpdateWithCopy(const Parameter& parameter, const SgdStep& step);
  template <typename F>
  void WithKernels(F run) const {
    if (type_ == DataType::bf16) {
      run(Kernels().bf16, uint16_t{});
    } else {
      run(Kernels().fp32, float{});
    }
  }
  int64_t PaddedElements(const Mem& mem) const {
    return static_cast<int64_t>(mem.desc().get_size()) / TypeBytes();
  }
  int64_t TypeBytes() const { return type_ == DataType::bf16 ? 2 : 4; }

  Parameter& WeightOf(int l) { return parameters_[network_.layers[l].parameters[0]]; }
  Parameter* BiasOf(int l) {
    const auto& p = network_.layers[l].parameters;
    return p.size() > 1 ? &parameters_[p[1]] : nullptr;
  }
  Mem MasterMem(Parameter& parameter, bool gradient);
  Mem ForwardWeights(int l, const memory::desc& desc);
  Mem BackwardWeights(int l, const memory::desc& desc);

  absl::Status PlanMemory();
  absl::Status FillWeights();
  // Makes the working copies from the master; `updated` if Update has written the paired one.
  void Refresh(int tensor, bool updated = false);
  DeviceSpan Span(const Arena& arena, absl::Span<const int> tensors) const;
  memory::desc CanonicalDesc(int tensor) const {
    return Plain(parameters_[tensor].dims, DataType::f32);
  }
  absl::Status RunSteps(std::vector<Step>& steps);
  absl::Status CheckTensors(absl::Span<const int> tensors) const;
  absl::Status CheckBatch(const HostBatch& batch) const;
  absl::Status Enqueue(Stream& stream, std::function<absl::Status()> work) {
    return stream.RunOnHost(std::move(work));
  }

  const ShapedNetwork network_;
  const EngineOptions options_;
  const OneDnnOptions cpu_;
  const int threads_;
  const DataType type_;
  dnnl::stream stream_;
  dnnl::stream copy_stream_;

  // Build state.
  int now_ = 0;  // Step of the iteration: forward l is l, backward l is 2 L - 1 - l.
  std::vector<std::vector<Step>>* emit_to_ = nullptr;
  int emit_layer_ = 0;
  std::vector<bool> fused_relu_;  // The layer applies the ReLU that follows it.
  std::vector<bool> is_fused_;    // The layer is a ReLU done by its producer.
  // Batch norms that write elsewhere: into the sum, or their part of the concatenation, that is
  // their only consumer.
  struct Slice {
    int concat = -1;
    int64_t first_channel = 0;
  };
  std::vector<Slice> slice_of_;
  std::vector<Mem> concat_outputs_;   // Layer -> output made early for the slices; or empty.
  std::vector<int> norm_of_add_;      // Add layer -> batch norm that does its work, or -1.
  std::vector<bool> fused_into_add_;  // The batch norm's work is done at its add.
  std::vector<int> value_of_;         // Layer -> values_.
  std::vector<Value> values_;         // 0: the network's input.
  std::vector<Buffer> buffers_;
  std::vector<Mem> bindings_;
  std::vector<Mem> master_bindings_;  // `buffer` is the tensor, `offset` 1 for gradients.
  int64_t scratchpad_bytes_ = 0;
  std::vector<memory> scratchpads_;
  std::string building_;  // For error messages.
  struct LayerState {     // What backward needs of forward.
    dnnl::convolution_forward::primitive_desc convolution;
    dnnl::inner_product_forward::primitive_desc fully_connected;
    dnnl::batch_normalization_forward::primitive_desc batch_norm;
    dnnl::pooling_forward::primitive_desc pooling;
    algorithm pooling_method = algorithm::pooling_max;
    dnnl::lrn_forward::primitive_desc lrn;
    Mem source, workspace, mean;
    Mem variance;  // Of our own batch norm: 1 / sqrt(variance + epsilon).
    Mem gamma, beta;
    Dims strides, pad_left, pad_right, kernel;
  };
  std::vector<LayerState> states_;

  std::vector<Parameter> parameters_;
  std::vector<int> order_position_;  // Tensor -> place in tensor_order.
  std::vector<std::vector<Step>> forward_, backward_;

  Arena weight_arena_, gradient_arena_, momentum_arena_, activation_arena_, copy_arena_,
      input_arena_, scratch_arena_;
  int64_t parameter_floats_ = 0;

  // Input slots: LoadInput fills the next, the first forward layer takes the oldest filled one.
  static constexpr int kInputSlots = 2;
  char* input_slots_[kInputSlots] = {};
  std::vector<int32_t> labels_[kInputSlots];
  int64_t loads_ = 0, takes_ = 0;
  int running_slot_ = 0;  // Of the forward pass in progress (stream side).
  int next_call_ = 0;     // Expected position in forward + backward order.

  uint64_t iteration_ = 0;  // Stream side; draws new dropout masks.
  double pending_loss_ = 0;
  int last_loss_layer_ = -1;
  std::atomic<double> loss_{0};
  v1::MemoryUse memory_use_;
};

// ---- Small helpers.

template <typename F>
void OneDnnEngine::ParallelRanges(int64_t n, F run, int64_t grain) const {
  const int64_t chunks = (n + grain - 1) / grain;
  if (chunks <= 1 || threads_ == 1) {
    if (n > 0) run(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(threads_)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const int64_t begin = chunks * thread / threads * grain;
    const int64_t end = std::min(n, chunks * (thread + 1) / threads * grain);
    if (begin < end) run(begin, end);
  }
}

int OneDnnEngine::NewBuffer(int64_t bytes, BufferKind kind) {
  Buffer buffer;
  buffer.kind = kind;
  buffer.life.bytes = std::max<int64_t>(bytes, 64);
  buffers_.push_back(buffer);
  return static_cast<int>(buffers_.size()) - 1;
}

void OneDnnEngine::Touch(const Mem& mem) {
  if (mem.buffer < 0) return;
  Buffer& buffer = buffers_[mem.buffer];
  if (!buffer.used) buffer.life.first_step = buffer.life.last_step = now_;
  buffer.used = true;
  buffer.life.first_step = std::min(buffer.life.first_step, now_);
  buffer.life.last_step = std::max(buffer.life.last_step, now_);
}

void OneDnnEngine::EmitPrimitive(const std::string& what, const dnnl::primitive& primitive,
                                 const std::vector<std::pair<int, Mem>>& args,
                                 const memory::desc& scratchpad,
                                 const std::string& implementation) {
  std::unordered_map<int, memory> by_index;
  for (const auto& [index, mem] : args) {
    Touch(mem);
    by_index.emplace(index, mem.mem);
  }
  if (scratchpad.get_size() > 0) {
    // One scratchpad for all primitives: they never run at the same time.
    memory scratch(scratchpad, CpuEngine(), DNNL_MEMORY_NONE);
    scratchpad_bytes_ = std::max<int64_t>(scratchpad_bytes_, scratchpad.get_size());
    scratchpads_.push_back(scratch);
    by_index.emplace(DNNL_ARG_SCRATCHPAD, scratch);
  }
  Emit(absl::StrCat(what, " ", implementation),
       [this, primitive, by_index] { primitive.execute(stream_, by_index); });
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Mem OneDnnEngine::InLayout(const Mem& mem, const memory::desc& desc) {
  if (mem.desc() == desc) return mem;
  Mem copy = NewMem(desc);
  dnnl::reorder::primitive_desc pd(CpuEngine(), mem.desc(), CpuEngine(), desc, UserScratchpad());
  EmitPrimitive("reorder", dnnl::reorder(pd), {{DNNL_ARG_FROM, mem}, {DNNL_ARG_TO, copy}},
                pd.scratchpad_desc(), pd.impl_info_str());
  return copy;
}

Mem OneDnnEngine::AsMatrix(const Mem& mem) {
  const Dims dims = mem.desc().dims();
  int64_t columns = 1;
  for (size_t i = 1; i < dims.size(); ++i) columns *= dims[i];
  const memory::desc matrix = Plain({dims[0], columns}, type_);
  Mem plain = LiesPlain(mem.desc()) ? mem : InLayout(mem, Plain(dims, type_));
  return View(matrix, plain.buffer, plain.offset);
}

void OneDnnEngine::NewOutput(int l, const Mem& mem) {
  Value value;
  value.mem = mem;
  value.dims = mem.desc().dims();
  value.producer = l;
  value.needs_gradient = !network_.layers[l].parameters.empty();
  for (size_t i = 0; i < network_.layers[l].inputs.size(); ++i) {
    value.needs_gradient |= InputOf(l, i).needs_gradient;
  }
  values_.push_back(value);
  value_of_[l] = static_cast<int>(values_.size()) - 1;
}

bool OneDnnEngine::SharedWithPending(const Value& value, const Mem& mem) const {
  for (const Value& other : values_) {
    if (&other == &value || other.consumed) continue;
    for (const Mem& contribution : other.contributions) {
      if (contribution.buffer == mem.buffer) return true;
    }
  }
  return false;
}

Mem OneDnnEngine::Gradient(Value& value, bool relu) {
  std::vector<Mem> terms = std::move(value.contributions);
  value.contributions.clear();
  const memory::desc desc = value.mem.desc();
  for (Mem& term : terms) term = InLayout(term, desc);
  if (terms.size() == 1 && !relu) {
    value.contributions = terms;
    return terms[0];
  }
  // Written in place of a term that nobody else reads.
  Mem out;
  for (const Mem& term : terms) {
    if (!SharedWithPending(value, term)) out = term;
  }
  if (out.buffer < 0) out = NewMem(desc);
  const int64_t n = PaddedElements(out);
  Mem mask = relu ? value.mem : Mem();
  for (const Mem& term : terms) Touch(term);
  Touch(mask);
  Touch(out);
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit(relu ? "sum, relu mask" : "sum", [this, kernels, terms, mask, out, n] {
      ParallelRanges(n, [&](int64_t begin, int64_t end) {
        std::vector<const T*> pointers;
        for (const Mem& term : terms) pointers.push_back(term.as<T>() + begin);
        kernels.sum(out.as<T>() + begin, pointers.data(), static_cast<int>(pointers.size()),
                    mask.buffer < 0 ? nullptr : mask.as<T>() + begin, false, end - begin);
      });
    });
  });
  value.contributions = {out};
  return out;
}

// ---- Parameters.

Mem OneDnnEngine::MasterMem(Parameter& parameter, bool gradient) {
  Mem mem{memory(parameter.master, CpuEngine(), DNNL_MEMORY_NONE), -1, 0};
  Mem binding = mem;
  binding.buffer = static_cast<int>(&parameter - parameters_.data());
  binding.offset = gradient ? 1 : 0;
  master_bindings_.push_back(binding);
  return mem;
}

Mem OneDnnEngine::ForwardWeights(int l, const memory::desc& desc) {
  Parameter& parameter = WeightOf(l);
  // Whether this is a copy or the master itself is known once backward has chosen its layout.
  parameter.forward = Mem{memory(desc, CpuEngine(), DNNL_MEMORY_NONE), -1, 0};
  parameter.has_forward = true;
  return parameter.forward;
}

Mem OneDnnEngine::BackwardWeights(int l, const memory::desc& desc) {
  Parameter& parameter = WeightOf(l);
  if (desc == parameter.forward.desc()) return parameter.forward;
  parameter.backward = Mem{memory(desc, CpuEngine(), DNNL_MEMORY_NONE), -1, 0};
  parameter.has_backward = true;
  return parameter.backward;
}

// ---- Layers.

void OneDnnEngine::FuseRelus() {
  const int layers = static_cast<int>(network_.layers.size());
  std::vector<int> consumers(layers, 0);
  for (const ShapedLayer& layer : network_.layers) {
    for (int input : layer.inputs) {
      if (input != kDataInput) ++consumers[input];
    }
  }
  fused_relu_.assign(layers, false);
  is_fused_.assign(layers, false);
  for (int l = 0; l < layers; ++l) {
    if (!network_.layers[l].layer.has_relu()) continue;
    const int producer = network_.layers[l].inputs[0];
    if (producer == kDataInput || consumers[producer] != 1) continue;
    const v1::Layer& layer = network_.layers[producer].layer;
    if (layer.has_convolution() || layer.has_fully_connected() || layer.has_batch_norm() ||
        layer.has_add()) {
      fused_relu_[producer] = true;
      is_fused_[l] = true;
    }
  }
  slice_of_.assign(layers, Slice());
  concat_outputs_.assign(layers, Mem());
  norm_of_add_.assign(layers, -1);
  fused_into_add_.assign(layers, false);
  for (int l = 0; l < layers; ++l) {
    const ShapedLayer& shaped = network_.layers[l];
    if (shaped.layer.has_add() && shaped.inputs.size() == 2) {
      for (int input : shaped.inputs) {
        if (input != kDataInput && network_.layers[input].layer.has_batch_norm() &&
            consumers[input] == 1) {
          norm_of_add_[l] = input;
        }
      }
      if (norm_of_add_[l] >= 0) fused_into_add_[norm_of_add_[l]] = true;
    }
    if (shaped.layer.has_concat()) {
      bool aligned = true;
      for (int input : shaped.inputs) {
        aligned &= input != kDataInput && network_.layers[input].output.channels % 16 == 0;
      }
      int64_t channel = 0;
      for (int input : shaped.inputs) {
        if (!aligned) break;
        const int64_t channels = network_.layers[input].output.channels;
        int producer = is_fused_[input] ? network_.layers[input].inputs[0] : input;
        if (consumers[input] == 1 && network_.layers[producer].layer.has_batch_norm()) {
          slice_of_[producer] = {l, channel};
        }
        channel += channels;
      }
    }
  }
}

dnnl::primitive_attr AttrWithRelu(bool relu) {
  dnnl::primitive_attr attr = UserScratchpad();
  if (relu) {
    dnnl::post_ops ops;
    ops.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
    attr.set_post_ops(ops);
  }
  return attr;
}

void OneDnnEngine::BuildConvolution(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  const v1::Convolution& c = shaped.layer.convolution();
  const ParameterTensor& tensor = network_.parameters[shaped.parameters[0]];
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  const int64_t groups = std::max(1, c.groups());
  const int64_t stride = std::max(1, c.stride()), pad = c.pad();
  const Dims out = {options_.batch, shaped.output.channels, shaped.output.height,
                    shaped.output.width};
  Parameter& weight = WeightOf(l);
  weight.dims = tensor.shape;
  if (groups > 1) {
    weight.dims = {groups, tensor.shape[0] / groups, tensor.shape[1], tensor.shape[2],
                   tensor.shape[3]};
  }
  state.strides = {stride, stride};
  state.pad_left = {pad, pad};
  state.pad_right = {pad, pad};
  building_ =
      absl::StrCat("convolution of ", DimsText(input.dims), " with ", DimsText(weight.dims));
  const bool from_data = shaped.inputs[0] == kDataInput;
  const memory::desc source =
      from_data && input.mem.buffer < 0 ? AnyLayout(input.dims, type_) : input.mem.desc();
  auto make = [&](const memory::desc& src) {
    const memory::desc weights = AnyLayout(weight.dims, type_), dst = AnyLayout(out, type_);
    Parameter* bias = BiasOf(l);
    dnnl::convolution_forward::desc desc =
        bias != nullptr
            ? dnnl::convolution_forward::desc(prop_kind::forward_training,
                                              algorithm::convolution_direct, src, weights,
                                              AnyLayout({out[1]}, DataType::f32), dst,
                                              state.strides, state.pad_left, state.pad_right)
            : dnnl::convolution_forward::desc(prop_kind::forward_training,
                                              algorithm::convolution_direct, src, weights, dst,
                                              state.strides, state.pad_left, state.pad_right);
    return dnnl::convolution_forward::primitive_desc(desc, AttrWithRelu(fused_relu_[l]),
                                                     CpuEngine());
  };
  state.convolution = make(source);
  if (absl::StrContains(state.convolution.impl_info_str(), "ref")) {
    state.convolution = make(AnyLayout(input.dims, type_));
  }
  const auto& pd = state.convolution;
  if (from_data && input.mem.buffer < 0) {
    input.mem = NewMem(pd.src_desc());
    Touch(input.mem);
  }
  state.source = InLayout(input.mem, pd.src_desc());
  Mem weights = ForwardWeights(l, pd.weights_desc());
  NewOutput(l, pd.dst_desc());
  std::vector<std::pair<int, Mem>> args = {
      {DNNL_ARG_SRC, state.source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, OutputOf(l).mem}};
  if (Parameter* bias = BiasOf(l)) {
    bias->dims = {out[1]};
    bias->master = Plain({out[1]}, DataType::f32);
    args.push_back({DNNL_ARG_BIAS, MasterMem(*bias, false)});
  }
  EmitPrimitive("convolution", dnnl::convolution_forward(pd), args, pd.scratchpad_desc(),
                pd.impl_info_str());
}

void OneDnnEngine::BuildConvolutionBackward(int l) {
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  Value& output = OutputOf(l);
  Parameter& weight = WeightOf(l);
  Parameter* bias = BiasOf(l);
  Mem gradient = Gradient(output, false);
  building_ = absl::StrCat("convolution backward of ", DimsText(input.dims), " with ",
                           DimsText(weight.dims));
  const memory::desc source = state.source.desc();
  auto make_weights = [&](const memory::desc& src, const memory::desc& diff) {
    const memory::desc weights = AnyLayout(weight.dims, DataType::f32);
    dnnl::convolution_backward_weights::desc desc =
        bias != nullptr
            ? dnnl::convolution_backward_weights::desc(algorithm::convolution_direct, src, weights,
                                                       AnyLayout({output.dims[1]}, DataType::f32),
                                                       diff, state.strides, state.pad_left,
                                                       state.pad_right)
            : dnnl::convolution_backward_weights::desc(algorithm::convolution_direct, src, weights,
                                                       diff, state.strides, state.pad_left,
                                                       state.pad_right);
    return dnnl::convolution_backward_weights::primitive_desc(desc, UserScratchpad(), CpuEngine(),
                                                              state.convolution);
  };
  auto pd = make_weights(source, gradient.desc());
  if (absl::StrContains(pd.impl_info_str(), "ref")) {
    pd = make_weights(AnyLayout(input.dims, type_), AnyLayout(output.dims, type_));
  }
  weight.master = pd.diff_weights_desc();
  std::vector<std::pair<int, Mem>> args = {
      {DNNL_ARG_SRC, InLayout(state.source, pd.src_desc())},
      {DNNL_ARG_DIFF_DST, InLayout(gradient, pd.diff_dst_desc())},
      {DNNL_ARG_DIFF_WEIGHTS, MasterMem(weight, true)}};
  if (bias != nullptr) args.push_back({DNNL_ARG_DIFF_BIAS, MasterMem(*bias, true)});
  EmitPrimitive("convolution weights", dnnl::convolution_backward_weights(pd), args,
                pd.scratchpad_desc(), pd.impl_info_str());

  if (!input.needs_gradient) return;
  auto make_data = [&](const memory::desc& src, const memory::desc& diff) {
    return dnnl::convolution_backward_data::primitive_desc(
        dnnl::convolution_backward_data::desc(algorithm::convolution_direct, src,
                                              AnyLayout(weight.dims, type_), diff, state.strides,
                                              state.pad_left, state.pad_right),
        UserScratchpad(), CpuEngine(), state.convolution);
  };
  auto data = make_data(input.mem.desc(), gradient.desc());
  if (absl::StrContains(data.impl_info_str(), "ref")) {
    data = make_data(AnyLayout(input.dims, type_), AnyLayout(output.dims, type_));
  }
  Mem result = NewMem(data.diff_src_desc());
  EmitPrimitive("convolution data", dnnl::convolution_backward_data(data),
                {{DNNL_ARG_DIFF_DST, InLayout(gradient, data.diff_dst_desc())},
                 {DNNL_ARG_WEIGHTS, BackwardWeights(l, data.weights_desc())},
                 {DNNL_ARG_DIFF_SRC, result}},
                data.scratchpad_desc(), data.impl_info_str());
  Contribute(input, result);
}

void OneDnnEngine::BuildFullyConnected(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  const ParameterTensor& tensor = network_.parameters[shaped.parameters[0]];
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  if (input.mem.buffer < 0) {
    input.mem = NewMem(Plain(input.dims, type_));
    Touch(input.mem);
  }
  Parameter& weight = WeightOf(l);
  weight.dims = tensor.shape;  // {outputs, inputs}
  const Dims out = {options_.batch, tensor.shape[0]};
  building_ =
      absl::StrCat("fully connected of ", DimsText(input.dims), " with ", DimsText(weight.dims));
  state.source = AsMatrix(input.mem);
  const memory::desc source = state.source.desc(), dst = Plain(out, type_);
  const memory::desc weights = AnyLayout(weight.dims, type_);
  Parameter* bias = BiasOf(l);
  dnnl::inner_product_forward::desc desc =
      bias != nullptr
          ? dnnl::inner_product_forward::desc(prop_kind::forward_training, source, weights,
                                              AnyLayout({out[1]}, DataType::f32), dst)
          : dnnl::inner_product_forward::desc(prop_kind::forward_training, source, weights, dst);
  state.fully_connected =
      dnnl::inner_product_forward::primitive_desc(desc, AttrWithRelu(fused_relu_[l]), CpuEngine());
  const auto& pd = state.fully_connected;
  NewOutput(l, Plain({out[0], out[1], 1, 1}, type_));
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_SRC, state.source},
                                           {DNNL_ARG_WEIGHTS, ForwardWeights(l, pd.weights_desc())},
                                           {DNNL_ARG_DST, AsMatrix(OutputOf(l).mem)}};
  if (bias != nullptr) {
    bias->dims = {out[1]};
    bias->master = Plain({out[1]}, DataType::f32);
    args.push_back({DNNL_ARG_BIAS, MasterMem(*bias, false)});
  }
  EmitPrimitive("fully connected", dnnl::inner_product_forward(pd), args, pd.scratchpad_desc(),
                pd.impl_info_str());
}

// With few samples oneDNN's backward passes transpose every weight and read gradients before they
// write them; the engine's own kernels do neither. False if the layout or batch is not theirs.
bool OneDnnEngine::EmitSmallBatchBackward(int l, const Mem& gradient) {
  const LayerState& state = states_[l];
  Value& input = InputOf(l);
  Parameter& weight = WeightOf(l);
  const int64_t samples = options_.batch, outputs = weight.dims[0], inputs = weight.dims[1];
  const memory::desc blocked(weight.dims, DataType::f32, Tag::AB16b64a);
  const memory::desc forward = weight.forward.desc();
  const bool fits =
      type_ == DataType::bf16 ? PairedRow(blocked, forward) == 64 : forward == blocked;
  if (samples > 16 || inputs % 16 != 0 || !fits) return false;
  weight.master = blocked;
  SmallBatchFullyConnected layer = {};
  layer.samples = samples;
  layer.input_blocks = inputs / 16;
  layer.output_blocks = (outputs + 63) / 64;
  const Mem x = state.source;
  const Mem dy_blocks = NewMem(Plain({layer.output_blocks * 16 * 64}, DataType::f32));
  const Mem x_blocks = NewMem(Plain({inputs * 16}, DataType::f32));
  const Mem dweight = MasterMem(weight, true);
  Parameter* bias = BiasOf(l);
  const Mem dbias = bias != nullptr ? MasterMem(*bias, true) : Mem();
  for (const Mem& mem : {gradient, x, dy_blocks, x_blocks}) Touch(mem);
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit("fully connected weights, few samples", [=]() mutable {
      layer.dy = dy_blocks.as<float>();
      layer.x = x_blocks.as<float>();
#pragma omp parallel num_threads(threads_)
      {
#pragma omp for
        for (int64_t block = 0; block < layer.output_blocks; ++block) {
          float* rows = dy_blocks.as<float>() + block * 16 * 64;
          float sums[64] = {};
          const int64_t columns = std::min<int64_t>(64, outputs - block * 64);
          std::memset(rows, 0, 16 * 64 * sizeof(float));
          for (int64_t n = 0; n < samples; ++n, rows += 64) {
            kernels.to_float(rows, gradient.as<T>() + n * outputs + block * 64, columns);
            for (int64_t c = 0; c < columns; ++c) sums[c] += rows[c];
          }
          if (bias != nullptr) {
            std::memcpy(dbias.as<float>() + block * 64, sums, columns * sizeof(float));
          }
        }
#pragma omp for
        for (int64_t block = 0; block < layer.input_blocks; ++block) {
          float* columns = x_blocks.as<float>() + block * 16 * 16;
          std::memset(columns, 0, 16 * 16 * sizeof(float));
          for (int64_t n = 0; n < samples; ++n) {
            float row[16];
            kernels.to_float(row, x.as<T>() + n * inputs + block * 16, 16);
            for (int i = 0; i < 16; ++i) columns[i * 16 + n] = row[i];
          }
        }
      }
      ParallelRanges(
          layer.input_blocks * layer.output_blocks,
          [&](int64_t begin, int64_t end) {
            Kernels().fully_connected_weights(layer, dweight.as<float>(), begin, end);
          },
          /*grain=*/8);
    });
    if (!input.needs_gradient) return;
    const Mem result = NewMem(Plain(input.dims, type_));
    const Mem weights = weight.forward;
    Touch(result);
    Emit("fully connected data, few samples", [=]() mutable {
      layer.dy = dy_blocks.as<float>();
      ParallelRanges(
          layer.input_blocks,
          [&](int64_t begin, int64_t end) {
            kernels.fully_connected_data(layer, weights.as<T>(), result.as<T>(), begin, end);
          },
          /*grain=*/2);
    });
    const memory::desc wanted = input.mem.desc();
    Contribute(input,
               LiesPlain(wanted) ? View(wanted, result.buffer, 0) : InLayout(result, wanted));
  });
  return true;
}

void OneDnnEngine::BuildFullyConnectedBackward(int l) {
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  Value& output = OutputOf(l);
  Parameter& weight = WeightOf(l);
  Parameter* bias = BiasOf(l);
  Mem gradient = AsMatrix(Gradient(output, false));
  building_ = absl::StrCat("fully connected backward of ", DimsText(input.dims), " with ",
                           DimsText(weight.dims));
  if (EmitSmallBatchBackward(l, gradient)) return;
  const memory::desc source = state.source.desc();
  auto make_weights = [&](const memory::desc& weights) {
    dnnl::inner_product_backward_weights::desc desc =
        bias != nullptr
            ? dnnl::inner_product_backward_weights::desc(
                  source, weights, AnyLayout({output.dims[1]}, DataType::f32), gradient.desc())
            : dnnl::inner_product_backward_weights::desc(source, weights, gradient.desc());
    return dnnl::inner_product_backward_weights::primitive_desc(desc, UserScratchpad(), CpuEngine(),
                                                                state.fully_connected);
  };
  auto pd = make_weights(AnyLayout(weight.dims, DataType::f32));
  weight.master = pd.diff_weights_desc();
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_SRC, state.source},
                                           {DNNL_ARG_DIFF_DST, gradient},
                                           {DNNL_ARG_DIFF_WEIGHTS, MasterMem(weight, true)}};
  if (bias != nullptr) args.push_back({DNNL_ARG_DIFF_BIAS, MasterMem(*bias, true)});
  EmitPrimitive("fully connected weights", dnnl::inner_product_backward_weights(pd), args,
                pd.scratchpad_desc(), pd.impl_info_str());

  if (!input.needs_gradient) return;
  dnnl::inner_product_backward_data::primitive_desc data(
      dnnl::inner_product_backward_data::desc(source, AnyLayout(weight.dims, type_),
                                              gradient.desc()),
      UserScratchpad(), CpuEngine(), state.fully_connected);
  Mem result = NewMem(Plain(input.dims, type_));
  EmitPrimitive("fully connected data", dnnl::inner_product_backward_data(data),
                {{DNNL_ARG_DIFF_DST, gradient},
                 {DNNL_ARG_WEIGHTS, BackwardWeights(l, data.weights_desc())},
                 {DNNL_ARG_DIFF_SRC, AsMatrix(result)}},
                data.scratchpad_desc(), data.impl_info_str());
  const memory::desc wanted = input.mem.desc();
  Contribute(input, LiesPlain(wanted) ? View(wanted, result.buffer, 0) : InLayout(result, wanted));
}

void OneDnnEngine::BuildBatchNorm(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  const float epsilon = shaped.layer.batch_norm().epsilon() == 0
                            ? 1e-5f
                            : static_cast<float>(shaped.layer.batch_norm().epsilon());
  auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (fused_relu_[l]) flags |= dnnl::normalization_flags::fuse_norm_relu;
  building_ = absl::StrCat("batch norm of ", DimsText(input.dims));
  state.source = input.mem;
  if (OwnBatchNorm(input.mem)) {
    const Dims channels = {input.dims[1]}, padded = {(input.dims[1] + 15) / 16 * 16};
    for (Parameter* parameter : {&WeightOf(l), BiasOf(l)}) {
      parameter->dims = channels;
      parameter->master = Plain(channels, DataType::f32);
    }
    state.mean = NewMem(Plain(padded, DataType::f32));
    state.variance = NewMem(Plain(padded, DataType::f32));
    state.gamma = MasterMem(WeightOf(l), false);
    state.beta = MasterMem(*BiasOf(l), false);
    NewOutput(l,
              slice_of_[l].concat >= 0 ? SliceOfConcat(l, input.dims) : NewMem(input.mem.desc()));
    if (!fused_into_add_[l]) EmitBatchNorm(l, OutputOf(l).mem, Mem(), fused_relu_[l]);
    return;
  }
  fused_into_add_[l] = false;
  state.batch_norm = dnnl::batch_normalization_forward::primitive_desc(
      dnnl::batch_normalization_forward::desc(prop_kind::forward_training, input.mem.desc(),
                                              epsilon, flags),
      UserScratchpad(), CpuEngine());
  const auto& pd = state.batch_norm;
  NewOutput(l, pd.dst_desc());
  state.mean = NewMem(pd.mean_desc());
  state.variance = NewMem(pd.variance_desc());
  Parameter &scale = WeightOf(l), &shift = *BiasOf(l);
  for (Parameter* parameter : {&scale, &shift}) {
    parameter->dims = {input.dims[1]};
    parameter->master = Plain(parameter->dims, DataType::f32);
  }
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_SRC, state.source},
                                           {DNNL_ARG_DST, OutputOf(l).mem},
                                           {DNNL_ARG_MEAN, state.mean},
                                           {DNNL_ARG_VARIANCE, state.variance},
                                           {DNNL_ARG_SCALE, MasterMem(scale, false)},
                                           {DNNL_ARG_SHIFT, MasterMem(shift, false)}};
  if (pd.workspace_desc().get_size() > 0) {
    state.workspace = NewMem(pd.workspace_desc(), BufferKind::kWorkspace);
    args.push_back({DNNL_ARG_WORKSPACE, state.workspace});
  }
  EmitPrimitive("batch norm", dnnl::batch_normalization_forward(pd), args, pd.scratchpad_desc(),
                pd.impl_info_str());
}

// Whether the engine's own kernel does it: the layout that convolutions choose.
bool OneDnnEngine::OwnBatchNorm(const Mem& source) const {
  const memory::desc desc = source.desc(), blocked(desc.dims(), type_, Tag::nChw16c);
  return desc == blocked;
}

int64_t SampleStride(const Mem& mem) { return mem.desc().data.format_desc.blocking.strides[0]; }

// First element, for views of a part of a tensor.
template <typename T>
T* Begin(const Mem& mem) {
  return mem.as<T>() + mem.desc().data.offset0;
}

double OneDnnEngine::Epsilon(int l) const {
  const double epsilon = network_.layers[l].layer.batch_norm().epsilon();
  return epsilon == 0 ? 1e-5 : epsilon;
}

void OneDnnEngine::EmitBatchNorm(int l, const Mem& out, const Mem& addend, bool relu) {
  const LayerState& state = states_[l];
  const Mem x = state.source, mean = state.mean, inverse = state.variance;
  const memory gamma = state.gamma.mem, beta = state.beta.mem;
  const Dims dims = x.desc().dims();
  BatchNormBlock common = {};
  common.samples = dims[0];
  common.pixels = dims[2] * dims[3];
  common.x_stride = SampleStride(x);
  common.y_stride = SampleStride(out);
  common.addend_stride = addend.buffer < 0 ? 0 : SampleStride(addend);
  common.epsilon = Epsilon(l);
  common.relu = relu;
  const int64_t blocks = (dims[1] + 15) / 16;
  for (const Mem& mem : {x, out, addend, mean, inverse}) Touch(mem);
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit(addend.buffer < 0 ? "batch norm" : "batch norm, add",
         [this, kernels, common, blocks, x, out, addend, mean, inverse, gamma, beta] {
#pragma omp parallel for num_threads(threads_)
           for (int64_t b = 0; b < blocks; ++b) {
             BatchNormBlock block = common;
             block.gamma = static_cast<const float*>(gamma.get_data_handle()) + 16 * b;
             block.beta = static_cast<const float*>(beta.get_data_handle()) + 16 * b;
             const int64_t first = b * block.pixels * 16;
             kernels.batch_norm_forward(block, Begin<T>(x) + first, Begin<T>(out) + first,
                                        addend.buffer < 0 ? nullptr : Begin<T>(addend) + first,
                                        mean.as<float>() + 16 * b, inverse.as<float>() + 16 * b);
           }
         });
  });
}

void OneDnnEngine::EmitBatchNormBackward(int l, const Mem& gradient) {
  const LayerState& state = states_[l];
  Value& input = InputOf(l);
  const Mem x = state.source, mean = state.mean, inverse = state.variance;
  const memory gamma = state.gamma.mem, beta = state.beta.mem;
  const memory dgamma = MasterMem(WeightOf(l), true).mem, dbeta = MasterMem(*BiasOf(l), true).mem;
  Mem result = input.needs_gradient ? NewMem(x.desc()) : Mem();
  const Dims dims = x.desc().dims();
  BatchNormBlock common = {};
  common.samples = dims[0];
  common.pixels = dims[2] * dims[3];
  common.x_stride = SampleStride(x);
  common.y_stride = SampleStride(gradient);
  common.epsilon = Epsilon(l);
  common.relu = fused_relu_[l];
  const int64_t blocks = (dims[1] + 15) / 16;
  for (const Mem& mem : {x, gradient, result, mean, inverse}) Touch(mem);
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit("batch norm", [this, kernels, common, blocks, x, gradient, result, mean, inverse, gamma,
                        beta, dgamma, dbeta] {
#pragma omp parallel for num_threads(threads_)
      for (int64_t b = 0; b < blocks; ++b) {
        BatchNormBlock block = common;
        block.gamma = static_cast<const float*>(gamma.get_data_handle()) + 16 * b;
        block.beta = static_cast<const float*>(beta.get_data_handle()) + 16 * b;
        const int64_t first = b * block.pixels * 16;
        kernels.batch_norm_backward(block, Begin<T>(x) + first, Begin<T>(gradient) + first,
                                    result.buffer < 0 ? nullptr : Begin<T>(result) + first,
                                    mean.as<float>() + 16 * b, inverse.as<float>() + 16 * b,
                                    static_cast<float*>(dgamma.get_data_handle()) + 16 * b,
                                    static_cast<float*>(dbeta.get_data_handle()) + 16 * b);
      }
    });
  });
  if (input.needs_gradient) Contribute(input, result);
}

// The part of its concat's output that batch norm `l` writes.
Mem OneDnnEngine::SliceOfConcat(int l, const Dims& dims) {
  const Slice& slice = slice_of_[l];
  Mem& whole = concat_outputs_[slice.concat];
  if (whole.buffer < 0) {
    const FeatureShape& shape = network_.layers[slice.concat].output;
    whole = NewMem(memory::desc({options_.batch, shape.channels, shape.height, shape.width}, type_,
                                Tag::nChw16c));
  }
  return View(whole.desc().submemory_desc(dims, {0, slice.first_channel, 0, 0}), whole.buffer, 0);
}

void OneDnnEngine::BuildBatchNormBackward(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  Value& output = OutputOf(l);
  Mem gradient = Gradient(output, false);
  if (OwnBatchNorm(state.source)) {
    EmitBatchNormBackward(l, gradient);
    return;
  }
  const float epsilon = shaped.layer.batch_norm().epsilon() == 0
                            ? 1e-5f
                            : static_cast<float>(shaped.layer.batch_norm().epsilon());
  auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (fused_relu_[l]) flags |= dnnl::normalization_flags::fuse_norm_relu;
  building_ = absl::StrCat("batch norm backward of ", DimsText(input.dims));
  dnnl::batch_normalization_backward::primitive_desc pd(
      dnnl::batch_normalization_backward::desc(prop_kind::backward, gradient.desc(),
                                               state.source.desc(), epsilon, flags),
      UserScratchpad(), CpuEngine(), state.batch_norm);
  Mem result = NewMem(pd.diff_src_desc());
  Parameter &scale = WeightOf(l), &shift = *BiasOf(l);
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_SRC, state.source},
                                           {DNNL_ARG_DIFF_DST, gradient},
                                           {DNNL_ARG_DIFF_SRC, result},
                                           {DNNL_ARG_MEAN, state.mean},
                                           {DNNL_ARG_VARIANCE, state.variance},
                                           {DNNL_ARG_SCALE, MasterMem(scale, false)},
                                           {DNNL_ARG_SHIFT, MasterMem(shift, false)},
                                           {DNNL_ARG_DIFF_SCALE, MasterMem(scale, true)},
                                           {DNNL_ARG_DIFF_SHIFT, MasterMem(shift, true)}};
  if (state.workspace.buffer >= 0) args.push_back({DNNL_ARG_WORKSPACE, state.workspace});
  EmitPrimitive("batch norm", dnnl::batch_normalization_backward(pd), args, pd.scratchpad_desc(),
                pd.impl_info_str());
  if (input.needs_gradient) Contribute(input, result);
}

void OneDnnEngine::BuildPooling(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  const v1::Pooling& p = shaped.layer.pooling();
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  const int64_t height = shaped.input.height, width = shaped.input.width;
  const int64_t stride = p.global() ? 1 : std::max(1, p.stride());
  const int64_t pad = p.global() ? 0 : p.pad();
  state.kernel = p.global() ? Dims{height, width} : Dims{p.kernel(), p.kernel()};
  state.strides = {stride, stride};
  state.pad_left = {pad, pad};
  const Dims out = {options_.batch, shaped.output.channels, shaped.output.height,
                    shaped.output.width};
  // How far the last window reaches beyond the image (ceil mode), never less than nothing.
  auto pad_right = [&](int64_t output, int64_t kernel, int64_t size) {
    return std::max<int64_t>(0, (output - 1) * stride + kernel - size - pad);
  };
  state.pad_right = {pad_right(out[2], state.kernel[0], height),
                     pad_right(out[3], state.kernel[1], width)};
  algorithm& method = state.pooling_method;
  method = algorithm::pooling_max;
  if (p.method() == v1::Pooling::METHOD_AVERAGE_EXCLUDE_PADDING) {
    method = algorithm::pooling_avg_exclude_padding;
  } else if (p.method() == v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING) {
    // Caffe divides by the window's part inside the padded image. oneDNN's "include" divides by
    // the whole window: the same unless ceil mode reaches beyond. Without padding "exclude" is
    // Caffe's rule there; Check refuses the rest.
    const bool beyond = state.pad_right[0] > pad || state.pad_right[1] > pad;
    method =
        beyond ? algorithm::pooling_avg_exclude_padding : algorithm::pooling_avg_include_padding;
  }
  building_ = absl::StrCat("pooling of ", DimsText(input.dims));
  state.source = input.mem;
  state.pooling = dnnl::pooling_forward::primitive_desc(
      dnnl::pooling_forward::desc(prop_kind::forward_training, method, input.mem.desc(),
                                  AnyLayout(out, type_), state.strides, state.kernel,
                                  state.pad_left, state.pad_right),
      UserScratchpad(), CpuEngine());
  const auto& pd = state.pooling;
  NewOutput(l, pd.dst_desc());
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_SRC, input.mem},
                                           {DNNL_ARG_DST, OutputOf(l).mem}};
  if (pd.workspace_desc().get_size() > 0) {
    state.workspace = NewMem(pd.workspace_desc(), BufferKind::kWorkspace);
    args.push_back({DNNL_ARG_WORKSPACE, state.workspace});
  }
  EmitPrimitive("pooling", dnnl::pooling_forward(pd), args, pd.scratchpad_desc(),
                pd.impl_info_str());
}

void OneDnnEngine::BuildPoolingBackward(int l) {
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  if (!input.needs_gradient) return;
  Mem gradient = Gradient(OutputOf(l), false);
  building_ = absl::StrCat("pooling backward of ", DimsText(input.dims));
  dnnl::pooling_backward::primitive_desc pd(
      dnnl::pooling_backward::desc(state.pooling_method, input.mem.desc(), gradient.desc(),
                                   state.strides, state.kernel, state.pad_left, state.pad_right),
      UserScratchpad(), CpuEngine(), state.pooling);
  Mem result = NewMem(pd.diff_src_desc());
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_DIFF_DST, gradient},
                                           {DNNL_ARG_DIFF_SRC, result}};
  if (state.workspace.buffer >= 0) args.push_back({DNNL_ARG_WORKSPACE, state.workspace});
  EmitPrimitive("pooling", dnnl::pooling_backward(pd), args, pd.scratchpad_desc(),
                pd.impl_info_str());
  Contribute(input, result);
}

void OneDnnEngine::BuildLrn(int l) {
  const v1::LocalResponseNormalization& lrn = network_.layers[l].layer.lrn();
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  building_ = absl::StrCat("local response normalization of ", DimsText(input.dims));
  state.source = input.mem;
  state.lrn = dnnl::lrn_forward::primitive_desc(
      dnnl::lrn_forward::desc(prop_kind::forward_training, algorithm::lrn_across_channels,
                              input.mem.desc(), lrn.local_size(), static_cast<float>(lrn.alpha()),
                              static_cast<float>(lrn.beta()),
                              lrn.k() == 0 ? 1.0f : static_cast<float>(lrn.k())),
      UserScratchpad(), CpuEngine());
  const auto& pd = state.lrn;
  NewOutput(l, pd.dst_desc());
  std::vector<std::pair<int, Mem>> args = {{DNNL_ARG_SRC, input.mem},
                                           {DNNL_ARG_DST, OutputOf(l).mem}};
  if (pd.workspace_desc().get_size() > 0) {
    state.workspace = NewMem(pd.workspace_desc(), BufferKind::kWorkspace);
    args.push_back({DNNL_ARG_WORKSPACE, state.workspace});
  }
  EmitPrimitive("lrn", dnnl::lrn_forward(pd), args, pd.scratchpad_desc(), pd.impl_info_str());
}

void OneDnnEngine::BuildLrnBackward(int l) {
  const v1::LocalResponseNormalization& lrn = network_.layers[l].layer.lrn();
  LayerState& state = states_[l];
  Value& input = InputOf(l);
  if (!input.needs_gradient) return;
  Mem gradient = Gradient(OutputOf(l), false);
  building_ = absl::StrCat("local response normalization backward of ", DimsText(input.dims));
  dnnl::lrn_backward::primitive_desc pd(
      dnnl::lrn_backward::desc(algorithm::lrn_across_channels, input.mem.desc(), gradient.desc(),
                               lrn.local_size(), static_cast<float>(lrn.alpha()),
                               static_cast<float>(lrn.beta()),
                               lrn.k() == 0 ? 1.0f : static_cast<float>(lrn.k())),
      UserScratchpad(), CpuEngine(), state.lrn);
  Mem result = NewMem(pd.diff_src_desc());
  std::vector<std::pair<int, Mem>> args = {
      {DNNL_ARG_SRC, state.source}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, result}};
  if (state.workspace.buffer >= 0) args.push_back({DNNL_ARG_WORKSPACE, state.workspace});
  EmitPrimitive("lrn", dnnl::lrn_backward(pd), args, pd.scratchpad_desc(), pd.impl_info_str());
  Contribute(input, result);
}

// Copies between `part` and the channels of `whole` from `first_channel` on.
void OneDnnEngine::EmitSlice(const Mem& whole, const Mem& part, int64_t first_channel,
                             bool into_whole) {
  const Dims dims = part.desc().dims(), whole_dims = whole.desc().dims();
  const bool blocked = IsBlockedBy16(whole.desc()) && IsBlockedBy16(part.desc()) &&
                       first_channel % 16 == 0 && !HasPadding(part.desc());
  const bool plain = whole.desc() == Plain(whole_dims, type_) && part.desc() == Plain(dims, type_);
  if (blocked || plain) {
    // In both layouts a sample's part is one piece.
    const int64_t image = dims[2] * dims[3] * TypeBytes();
    const int64_t piece = dims[1] * image, sample = whole_dims[1] * image;
    const int64_t first = first_channel * image, samples = dims[0];
    Touch(whole);
    Touch(part);
    Emit("copy", [this, whole, part, piece, sample, first, samples, into_whole] {
#pragma omp parallel for num_threads(threads_)
      for (int64_t n = 0; n < samples; ++n) {
        char* w = whole.as<char>() + n * sample + first;
        char* p = part.as<char>() + n * piece;
        std::memcpy(into_whole ? w : p, into_whole ? p : w, piece);
      }
    });
    return;
  }
  const memory::desc slice = whole.desc().submemory_desc(dims, {0, first_channel, 0, 0});
  Mem view = View(slice, whole.buffer, whole.offset);
  const Mem &from = into_whole ? part : view, &to = into_whole ? view : part;
  dnnl::reorder::primitive_desc pd(CpuEngine(), from.desc(), CpuEngine(), to.desc(),
                                   UserScratchpad());
  EmitPrimitive("copy", dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
                pd.scratchpad_desc(), pd.impl_info_str());
}

void OneDnnEngine::BuildConcat(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  building_ = absl::StrCat("concat of ", shaped.inputs.size(), " inputs");
  if (concat_outputs_[l].buffer >= 0) {
    NewOutput(l, concat_outputs_[l]);
    EmitSlices(l);
    return;
  }
  // Blocked if no block would hold channels of two inputs.
  bool blocked = true;
  for (size_t i = 0; i < shaped.inputs.size(); ++i) {
    blocked &= IsBlockedBy16(InputOf(l, i).mem.desc()) && InputOf(l, i).dims[1] % 16 == 0;
  }
  const Dims dims = {options_.batch, shaped.output.channels, shaped.output.height,
                     shaped.output.width};
  NewOutput(l, blocked ? memory::desc(dims, type_, Tag::nChw16c) : Plain(dims, type_));
  EmitSlices(l);
}

void OneDnnEngine::EmitSlices(int l) {
  int64_t channel = 0;
  for (size_t i = 0; i < network_.layers[l].inputs.size(); ++i) {
    Value& input = InputOf(l, i);
    // Batch norms have written their part already.
    if (input.mem.buffer != OutputOf(l).mem.buffer) {
      EmitSlice(OutputOf(l).mem, input.mem, channel, /*into_whole=*/true);
    }
    channel += input.dims[1];
  }
}

void OneDnnEngine::BuildConcatBackward(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  if (!OutputOf(l).needs_gradient) return;
  Mem gradient = Gradient(OutputOf(l), false);
  building_ = "concat backward";
  int64_t channel = 0;
  for (size_t i = 0; i < shaped.inputs.size(); ++i) {
    Value& input = InputOf(l, i);
    if (input.needs_gradient) {
      if (input.mem.buffer == OutputOf(l).mem.buffer) {
        // A batch norm reads its part where it lies.
        Contribute(input, View(input.mem.desc(), gradient.buffer, gradient.offset));
      } else {
        Mem part = NewMem(input.mem.desc());
        EmitSlice(gradient, part, channel, /*into_whole=*/false);
        Contribute(input, part);
      }
    }
    channel += input.dims[1];
  }
}

void OneDnnEngine::BuildAdd(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  building_ = absl::StrCat("add of ", DimsText(InputOf(l).dims));
  if (norm_of_add_[l] >= 0 && fused_into_add_[norm_of_add_[l]]) {
    // The batch norm before it adds while it writes.
    const int norm = norm_of_add_[l];
    const int other = shaped.inputs[0] == norm ? 1 : 0;
    NewOutput(l, OutputOf(norm).mem.desc());
    Mem addend = InLayout(InputOf(l, other).mem, OutputOf(norm).mem.desc());
    EmitBatchNorm(norm, OutputOf(l).mem, addend, fused_relu_[l]);
    return;
  }
  const memory::desc desc = InputOf(l).mem.desc();
  std::vector<Mem> terms;
  for (size_t i = 0; i < shaped.inputs.size(); ++i) {
    terms.push_back(InLayout(InputOf(l, i).mem, desc));
  }
  NewOutput(l, desc);
  Mem out = OutputOf(l).mem;
  const int64_t n = PaddedElements(out);
  for (const Mem& term : terms) Touch(term);
  Touch(out);
  const bool relu = fused_relu_[l];
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit(relu ? "add, relu" : "add", [this, kernels, terms, out, n, relu] {
      ParallelRanges(n, [&](int64_t begin, int64_t end) {
        std::vector<const T*> pointers;
        for (const Mem& term : terms) pointers.push_back(term.as<T>() + begin);
        kernels.sum(out.as<T>() + begin, pointers.data(), static_cast<int>(pointers.size()),
                    nullptr, relu, end - begin);
      });
    });
  });
}

void OneDnnEngine::BuildAddBackward(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  if (!OutputOf(l).needs_gradient) return;
  Mem gradient = Gradient(OutputOf(l), false);
  building_ = "add backward";
  // Every input gets the same gradient: shared, not copied.
  for (size_t i = 0; i < shaped.inputs.size(); ++i) {
    Value& input = InputOf(l, i);
    if (input.needs_gradient) Contribute(input, InLayout(gradient, input.mem.desc()));
  }
}

void OneDnnEngine::BuildRelu(int l) {
  if (is_fused_[l]) {
    value_of_[l] = value_of_[network_.layers[l].inputs[0]];
    return;
  }
  Mem in = InputOf(l).mem;
  NewOutput(l, in.desc());
  Mem out = OutputOf(l).mem;
  Touch(in);
  Touch(out);
  const int64_t n = PaddedElements(out);
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit("relu", [this, kernels, in, out, n] {
      ParallelRanges(n, [&](int64_t begin, int64_t end) {
        kernels.relu(out.as<T>() + begin, in.as<T>() + begin, end - begin);
      });
    });
  });
}

void OneDnnEngine::BuildReluBackward(int l) {
  Value& output = OutputOf(l);
  if (!output.needs_gradient) return;
  building_ = "relu backward";
  if (is_fused_[l]) {
    // Batch norm masks with its own workspace; the others get their gradient masked here.
    if (!network_.layers[network_.layers[l].inputs[0]].layer.has_batch_norm()) {
      Gradient(output, /*relu=*/true);
    }
    return;
  }
  Mem gradient = Gradient(output, /*relu=*/true);
  Contribute(InputOf(l), gradient);
}

void OneDnnEngine::BuildDropout(int l, bool backward) {
  Value& input = InputOf(l);
  const double ratio = network_.layers[l].layer.dropout().ratio();
  building_ = absl::StrCat("dropout of ", DimsText(input.dims));
  Mem in, out;
  if (options_.training.no_dropout()) {
    // The layer's output is its input, and so are their gradients.
    const int producer = network_.layers[l].inputs[0];
    value_of_[l] = producer == kDataInput ? 0 : value_of_[producer];
    return;
  }
  if (backward) {
    if (!input.needs_gradient) return;
    in = Gradient(OutputOf(l), false);
    out = NewMem(input.mem.desc());
    Contribute(input, out);
  } else {
    in = input.mem;
    NewOutput(l, in.desc());
    out = OutputOf(l).mem;
  }
  Touch(in);
  Touch(out);
  const int64_t n = PaddedElements(out);
  const auto threshold = static_cast<uint32_t>(std::min(ratio * 0x1p32, 0x1p32 - 1));
  const float scale = static_cast<float>(1 / (1 - ratio));
  // Streams differ by seed, rank, layer and iteration.
  const uint64_t stream = (options_.training.seed() * 0x9e3779b97f4a7c15u) ^
                          (static_cast<uint64_t>(options_.rank) << 48) ^
                          (static_cast<uint64_t>(l) << 32);
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit("dropout", [this, kernels, in, out, n, threshold, scale, stream] {
      uint64_t key = (stream + iteration_) * 0xbf58476d1ce4e5b9u;
      key ^= key >> 31;
      ParallelRanges(n, [&](int64_t begin, int64_t end) {
        kernels.dropout(out.as<T>() + begin, in.as<T>() + begin, end - begin, begin, key, threshold,
                        scale);
      });
    });
  });
}

void OneDnnEngine::BuildSoftmaxLoss(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  Value& input = InputOf(l);
  building_ = absl::StrCat("softmax loss of ", DimsText(input.dims));
  Mem logits = AsMatrix(input.mem);
  const int64_t rows = options_.batch, columns = logits.desc().dims()[1];
  NewOutput(l, Plain({rows, columns, 1, 1}, DataType::f32));
  Mem probabilities = OutputOf(l).mem;  // {N, classes}, fp32 in every precision.
  Touch(logits);
  Touch(probabilities);
  const double loss_weight = shaped.layer.softmax_loss().loss_weight() == 0
                                 ? 1.0
                                 : shaped.layer.softmax_loss().loss_weight();
  const bool last = l == last_loss_layer_;
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit("softmax loss", [this, kernels, logits, probabilities, rows, columns, loss_weight, last] {
      const std::vector<int32_t>& labels = labels_[running_slot_];
      double loss = 0;
      for (int64_t r = 0; r < rows; ++r) {
        float* p = probabilities.as<float>() + r * columns;
        kernels.to_float(p, logits.as<T>() + r * columns, columns);
        const float largest = *std::max_element(p, p + columns);
        const double chosen = static_cast<double>(p[labels[r]]) - largest;
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += p[c] = std::exp(p[c] - largest);
        for (int64_t c = 0; c < columns; ++c) p[c] = static_cast<float>(p[c] / sum);
        loss += std::log(sum) - chosen;
      }
      pending_loss_ += loss_weight * loss / static_cast<double>(rows);
      if (last) loss_ = pending_loss_;
    });
  });
}

void OneDnnEngine::BuildSoftmaxLossBackward(int l) {
  const ShapedLayer& shaped = network_.layers[l];
  Value& input = InputOf(l);
  if (!input.needs_gradient) return;
  building_ = "softmax loss backward";
  Mem probabilities = OutputOf(l).mem;
  const int64_t rows = options_.batch, columns = OutputOf(l).dims[1];
  Mem result = NewMem(Plain(input.dims, type_));
  Touch(probabilities);
  Touch(result);
  const double loss_weight = shaped.layer.softmax_loss().loss_weight() == 0
                                 ? 1.0
                                 : shaped.layer.softmax_loss().loss_weight();
  const float scale = static_cast<float>(loss_weight / static_cast<double>(rows));
  WithKernels([&](const auto& kernels, auto type) {
    using T = decltype(type);
    Emit("softmax loss", [this, kernels, probabilities, result, rows, columns, scale] {
      const std::vector<int32_t>& labels = labels_[running_slot_];
      std::vector<float> row(columns);
      for (int64_t r = 0; r < rows; ++r) {
        const float* p = probabilities.as<float>() + r * columns;
        for (int64_t c = 0; c < columns; ++c) row[c] = p[c] * scale;
        row[labels[r]] -= scale;
        kernels.from_float(result.as<T>() + r * columns, row.data(), columns);
      }
    });
  });
  const memory::desc wanted = input.mem.desc();
  Contribute(input, LiesPlain(wanted) ? View(wanted, result.buffer, 0) : InLayout(result, wanted));
}

void OneDnnEngine::BuildForward(int l) {
  const v1::Layer& layer = network_.layers[l].layer;
  Value& input = InputOf(l);
  // Only a convolution chooses the input's layout; every other first layer takes it plain.
  if (input.mem.buffer < 0 && !layer.has_convolution()) {
    input.mem = NewMem(Plain(input.dims, type_));
    Touch(input.mem);
  }
  switch (layer.kind_case()) {
    case v1::Layer::kConvolution:
      return BuildConvolution(l);
    case v1::Layer::kPooling:
      return BuildPooling(l);
    case v1::Layer::kRelu:
      return BuildRelu(l);
    case v1::Layer::kLrn:
      return BuildLrn(l);
    case v1::Layer::kBatchNorm:
      return BuildBatchNorm(l);
    case v1::Layer::kConcat:
      return BuildConcat(l);
    case v1::Layer::kAdd:
      return BuildAdd(l);
    case v1::Layer::kDropout:
      return BuildDropout(l, false);
    case v1::Layer::kFullyConnected:
      return BuildFullyConnected(l);
    case v1::Layer::kSoftmaxLoss:
      return BuildSoftmaxLoss(l);
    case v1::Layer::KIND_NOT_SET:
      return;
  }
}

void OneDnnEngine::BuildBackward(int l) {
  const v1::Layer& layer = network_.layers[l].layer;
  switch (layer.kind_case()) {
    case v1::Layer::kConvolution:
      BuildConvolutionBackward(l);
      break;
    case v1::Layer::kPooling:
      BuildPoolingBackward(l);
      break;
    case v1::Layer::kRelu:
      BuildReluBackward(l);
      break;
    case v1::Layer::kLrn:
      BuildLrnBackward(l);
      break;
    case v1::Layer::kBatchNorm:
      BuildBatchNormBackward(l);
      break;
    case v1::Layer::kConcat:
      BuildConcatBackward(l);
      break;
    case v1::Layer::kAdd:
      BuildAddBackward(l);
      break;
    case v1::Layer::kDropout:
      BuildDropout(l, true);
      break;
    case v1::Layer::kFullyConnected:
      BuildFullyConnectedBackward(l);
      break;
    case v1::Layer::kSoftmaxLoss:
      BuildSoftmaxLossBackward(l);
      break;
    case v1::Layer::KIND_NOT_SET:
      break;
  }
  Value& output = OutputOf(l);
  if (output.producer == l) output.consumed = true;
}

absl::Status OneDnnEngine::Check() const {
  std::vector<std::string> problems;
  if (options_.batch < 1) problems.push_back(absl::StrCat("batch ", options_.batch, " < 1"));
  if (options_.precision != v1::PRECISION_FP32 && options_.precision != v1::PRECISION_BF16) {
    problems.push_back(absl::StrCat("precision ", v1::Precision_Name(options_.precision),
                                    ": the CPU backend trains in PRECISION_FP32 and, where the "
                                    "CPU has avx512_bf16, PRECISION_BF16"));
  } else if (options_.precision == v1::PRECISION_BF16 && !CpuHasBf16()) {
    problems.push_back("precision PRECISION_BF16: this CPU has no avx512_bf16; use PRECISION_FP32");
  }
  std::vector<int> order = options_.tensor_order;
  std::sort(order.begin(), order.end());
  bool permutation = order.size() == network_.parameters.size();
  for (size_t i = 0; permutation && i < order.size(); ++i) {
    permutation = order[i] == static_cast<int>(i);
  }
  if (!permutation) {
    problems.push_back(absl::StrCat("tensor_order must name each of the ",
                                    network_.parameters.size(), " tensors once; it has ",
                                    order.size(), " entries"));
  }
  bool has_loss = false;
  std::vector<int> consumers(network_.layers.size(), 0);
  for (const ShapedLayer& shaped : network_.layers) {
    for (int input : shaped.inputs) {
      if (input != kDataInput) ++consumers[input];
    }
  }
  for (size_t l = 0; l < network_.layers.size(); ++l) {
    const ShapedLayer& shaped = network_.layers[l];
    const std::string where = absl::StrCat("layer ", shaped.layer.name(), ": ");
    if (shaped.inputs.empty()) problems.push_back(where + "no inputs");
    has_loss |= shaped.layer.has_softmax_loss();
    if (consumers[l] == 0 && !shaped.layer.has_softmax_loss()) {
      problems.push_back(where + "its output reaches no softmax_loss, so it cannot be trained");
    }
    if (shaped.layer.has_pooling() &&
        shaped.layer.pooling().method() == v1::Pooling::METHOD_AVERAGE_INCLUDE_PADDING) {
      const v1::Pooling& p = shaped.layer.pooling();
      const int64_t stride = std::max(1, p.stride());
      const int64_t reach = (shaped.output.height - 1) * stride + p.kernel();
      const int64_t reach_width = (shaped.output.width - 1) * stride + p.kernel();
      if (!p.global() && p.pad() > 0 &&
          (reach > shaped.input.height + 2 * p.pad() ||
           reach_width > shaped.input.width + 2 * p.pad())) {
        problems.push_back(where +
                           "average pooling with padding whose last window reaches beyond the "
                           "padded image is not supported on the CPU; set ceil_mode: false or "
                           "METHOD_AVERAGE_EXCLUDE_PADDING");
      }
    }
  }
  if (!has_loss) problems.push_back("the network has no softmax_loss layer");
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("network ", network_.network.name(), ": ", absl::StrJoin(problems, "; ")));
}

absl::Status OneDnnEngine::Build() {
  if (absl::Status status = Check(); !status.ok()) return status;
  const int layers = static_cast<int>(network_.layers.size());
  FuseRelus();
  states_.resize(layers);
  value_of_.assign(layers, -1);
  values_.reserve(layers + 1);  // References to values stay valid while building.
  parameters_.resize(network_.parameters.size());
  forward_.resize(layers);
  backward_.resize(layers);
  for (int l = 0; l < layers; ++l) {
    if (network_.layers[l].layer.has_softmax_loss()) last_loss_layer_ = l;
  }
  Value data;
  data.dims = {options_.batch, network_.network.input().channels(),
               network_.network.input().height(), network_.network.input().width()};
  values_.push_back(data);

  const int outer_threads = omp_get_max_threads();
  omp_set_num_threads(threads_);  // oneDNN plans its primitives for this many.
  int layer = 0;
  absl::Status status;
  try {
    for (int l = 0; l < layers; ++l) {
      layer = emit_layer_ = now_ = l;
      emit_to_ = &forward_;
      BuildForward(l);
    }
    for (int l = layers - 1; l >= 0; --l) {
      layer = emit_layer_ = l;
      now_ = 2 * layers - 1 - l;
      emit_to_ = &backward_;
      BuildBackward(l);
    }
    status = PlanMemory();
    if (status.ok()) status = FillWeights();
  } catch (const dnnl::error& error) {
    status = absl::InvalidArgumentError(absl::StrCat("layer ", network_.layers[layer].layer.name(),
                                                     ": ", building_, ": oneDNN: ", error.what(),
                                                     " (status ", error.status, ")"));
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError(absl::StrCat("out of memory while building ", building_));
  }
  omp_set_num_threads(outer_threads);
  return status;
}

absl::Status OneDnnEngine::PlanMemory() {
  // Weights, gradients, momentum: tensor_order, each tensor on a cache line.
  order_position_.resize(parameters_.size());
  for (size_t i = 0; i < options_.tensor_order.size(); ++i) {
    const int tensor = options_.tensor_order[i];
    order_position_[tensor] = static_cast<int>(i);
    Parameter& parameter = parameters_[tensor];
    const auto floats = static_cast<int64_t>(parameter.master.get_size()) / 4;
    parameter.padded_elements = (floats + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
    parameter.offset = parameter_floats_;
    parameter_floats_ += parameter.padded_elements;
  }
  // Working copies where a primitive wants another layout or type than the master's.
  std::vector<Mem> copies;
  int64_t copy_bytes = 0;
  auto place = [&](Parameter& parameter, Mem& mem, bool& is_copy) {
    if (mem.desc() == parameter.master) {
      Mem binding = mem;
      binding.buffer = static_cast<int>(&parameter - parameters_.data());
      binding.offset = 0;
      master_bindings_.push_back(binding);
      return;
    }
    is_copy = true;
    mem.offset = copy_bytes;
    copy_bytes += (static_cast<int64_t>(mem.desc().get_size()) + 63) / 64 * 64;
    copies.push_back(mem);
  };
  for (Parameter& parameter : parameters_) {
    if (parameter.has_forward) place(parameter, parameter.forward, parameter.copy_forward);
    if (parameter.has_backward) place(parameter, parameter.backward, parameter.copy_backward);
  }
  // Activations. The input has memory of its own: the next batch may arrive at any time.
  const int64_t input_bytes =
      (static_cast<int64_t>(values_[0].mem.desc().get_size()) + 4095) / 4096 * 4096;
  std::vector<BufferLifetime> lives;
  for (const Buffer& buffer : buffers_) lives.push_back(buffer.life);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!buffers_[i].used) lives[i].bytes = 0;
  }
  lives[values_[0].mem.buffer].bytes = 0;
  const int64_t activation_bytes = PlanArena(lives, cpu_.reuse_memory);
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].life = lives[i];

  const int64_t parameter_bytes = parameter_floats_ * 4;
  const int64_t planned = 3 * parameter_bytes + copy_bytes + activation_bytes +
                          kInputSlots * input_bytes + scratchpad_bytes_;
  const int64_t available = AvailableMemoryBytes();
  if (planned > available) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "network %s at batch %d needs %d MiB (activations %d, weights, gradients and momentum %d, "
        "workspace %d), but only %d MiB are available; use a smaller batch",
        network_.network.name(), options_.batch, planned >> 20, activation_bytes >> 20,
        (3 * parameter_bytes + copy_bytes) >> 20, scratchpad_bytes_ >> 20, available >> 20));
  }
  struct Part {
    Arena* arena;
    int64_t bytes;
  };
  for (const Part& part :
       {Part{&weight_arena_, parameter_bytes}, Part{&gradient_arena_, parameter_bytes},
        Part{&momentum_arena_, parameter_bytes}, Part{&activation_arena_, activation_bytes},
        Part{&copy_arena_, copy_bytes}, Part{&input_arena_, kInputSlots * input_bytes},
        Part{&scratch_arena_, scratchpad_bytes_}}) {
    absl::StatusOr<Arena> arena = Arena::Create(part.bytes);
    if (!arena.ok()) return arena.status();
    *part.arena = std::move(*arena);
  }
  for (int slot = 0; slot < kInputSlots; ++slot) {
    input_slots_[slot] = input_arena_.data() + slot * input_bytes;
    labels_[slot].assign(options_.batch, 0);
  }
  for (Mem& mem : bindings_) {
    char* base = mem.buffer == values_[0].mem.buffer
                     ? input_slots_[0]
                     : activation_arena_.data() + buffers_[mem.buffer].life.offset;
    mem.mem.set_data_handle(base + mem.offset);
  }
  for (Mem& mem : master_bindings_) {
    const Arena& arena = mem.offset == 1 ? gradient_arena_ : weight_arena_;
    mem.mem.set_data_handle(reinterpret_cast<float*>(arena.data()) +
                            parameters_[mem.buffer].offset);
  }
  for (Mem& mem : copies) mem.mem.set_data_handle(copy_arena_.data() + mem.offset);
  for (memory& scratchpad : scratchpads_) scratchpad.set_data_handle(scratch_arena_.data());
  for (Parameter& parameter : parameters_) {
    float* weight = reinterpret_cast<float*>(weight_arena_.data()) + parameter.offset;
    float* gradient = reinterpret_cast<float*>(gradient_arena_.data()) + parameter.offset;
    parameter.weight = memory(parameter.master, CpuEngine(), weight);
    parameter.gradient = memory(parameter.master, CpuEngine(), gradient);
    if (parameter.copy_forward) {
      parameter.refresh_forward = dnnl::reorder(parameter.weight, parameter.forward.mem);
      parameter.pair_row = PairedRow(parameter.master, parameter.forward.desc());
    }
    if (parameter.copy_backward) {
      parameter.refresh_backward = dnnl::reorder(parameter.weight, parameter.backward.mem);
    }
  }
  memory_use_.set_weights_bytes(parameter_bytes + copy_bytes);
  memory_use_.set_gradients_bytes(parameter_bytes);
  memory_use_.set_optimizer_bytes(parameter_bytes);
  memory_use_.set_activations_bytes(activation_bytes);
  memory_use_.set_workspace_bytes(scratchpad_bytes_);
  memory_use_.set_input_bytes(kInputSlots * input_bytes);
  return absl::OkStatus();
}

absl::Status OneDnnEngine::FillWeights() {
  for (size_t t = 0; t < parameters_.size(); ++t) {
    absl::Status status =
        WriteWeights(static_cast<int>(t),
                     InitialValues(network_, static_cast<int>(t), options_.training.seed()));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void OneDnnEngine::Refresh(int tensor, bool updated) {
  Parameter& parameter = parameters_[tensor];
  if (parameter.copy_forward && !(updated && parameter.pair_row > 0)) {
    parameter.refresh_forward.execute(stream_, parameter.weight, parameter.forward.mem);
  }
  if (parameter.copy_backward) {
    parameter.refresh_backward.execute(stream_, parameter.weight, parameter.backward.mem);
  }
}

// ---- Running.

absl::Status OneDnnEngine::RunSteps(std::vector<Step>& steps) {
  omp_set_num_threads(threads_);  // A property of the calling thread.
  for (Step& step : steps) {
    const int64_t begin = cpu_.profile ? NowNs() : 0;
    try {
      step.run();
    } catch (const dnnl::error& error) {
      return absl::InternalError(absl::StrCat("layer ", network_.layers[step.layer].layer.name(),
                                              ": ", step.name, ": oneDNN: ", error.what()));
    }
    if (cpu_.profile) {
      step.total_ns += NowNs() - begin;
      ++step.count;
    }
  }
  return absl::OkStatus();
}

absl::Status OneDnnEngine::CheckBatch(const HostBatch& batch) const {
  const Dims& dims = values_[0].dims;
  const int64_t pixels = dims[0] * dims[1] * dims[2] * dims[3];
  if (batch.size != options_.batch || static_cast<int64_t>(batch.pixels.size()) != pixels ||
      static_cast<int>(batch.labels.size()) != options_.batch) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch of ", batch.size, " samples with ", batch.pixels.size(), " values and ",
                     batch.labels.size(), " labels; expected ", options_.batch, " samples with ",
                     pixels, " values of shape ", DimsText(dims)));
  }
  const int classes = network_.network.classes();
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] < 0 || batch.labels[i] >= classes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sample ", i, " of the batch: label ", batch.labels[i], " is not in [0, ", classes, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status OneDnnEngine::LoadInput(const HostBatch& batch, Stream& stream) {
  const int slot = static_cast<int>(loads_++ % kInputSlots);
  return Enqueue(stream, [this, slot, &batch]() -> absl::Status {
    if (absl::Status status = CheckBatch(batch); !status.ok()) return status;
    omp_set_num_threads(threads_);
    labels_[slot] = batch.labels;
    const memory::desc desc = values_[0].mem.desc();
    char* destination = input_slots_[slot];
    if (LiesPlain(desc)) {
      const float* source = batch.pixels.data();
      WithKernels([&](const auto& kernels, auto type) {
        using T = decltype(type);
        ParallelRanges(static_cast<int64_t>(batch.pixels.size()), [&](int64_t begin, int64_t end) {
          kernels.from_float(reinterpret_cast<T*>(destination) + begin, source + begin,
                             end - begin);
        });
      });
      return absl::OkStatus();
    }
    try {
      memory source(Plain(values_[0].dims, DataType::f32), CpuEngine(),
                    const_cast<float*>(batch.pixels.data()));
      memory target(desc, CpuEngine(), destination);
      dnnl::reorder(source, target).execute(copy_stream_, source, target);
    } catch (const dnnl::error& error) {
      return absl::InternalError(absl::StrCat("copy of the input: oneDNN: ", error.what()));
    }
    return absl::OkStatus();
  });
}

absl::Status OneDnnEngine::Forward(int layer, Stream& stream) {
  const int layers = static_cast<int>(network_.layers.size());
  if (layer != next_call_) {
    return absl::FailedPreconditionError(
        absl::StrCat("Forward(", layer, ") out of order: call forward 0 .. ", layers - 1,
                     ", then backward ", layers - 1, " .. 0"));
  }
  ++next_call_;
  if (layer != 0) {
    return Enqueue(stream, [this, layer] { return RunSteps(forward_[layer]); });
  }
  // Without a new batch the latest one is used again.
  if (takes_ < loads_) ++takes_;
  const int slot = static_cast<int>((takes_ + kInputSlots - 1) % kInputSlots);
  return Enqueue(stream, [this, slot] {
    ++iteration_;
    pending_loss_ = 0;
    if (slot != running_slot_) {
      running_slot_ = slot;
      for (Mem& mem : bindings_) {
        if (mem.buffer == values_[0].mem.buffer) {
          mem.mem.set_data_handle(input_slots_[slot] + mem.offset);
        }
      }
    }
    return RunSteps(forward_[0]);
  });
}

absl::Status OneDnnEngine::Backward(int layer, Stream& stream) {
  const int layers = static_cast<int>(network_.layers.size());
  if (2 * layers - 1 - layer != next_call_) {
    return absl::FailedPreconditionError(
        absl::StrCat("Backward(", layer, ") out of order: call forward 0 .. ", layers - 1,
                     ", then backward ", layers - 1, " .. 0"));
  }
  next_call_ = (next_call_ + 1) % (2 * layers);
  return Enqueue(stream, [this, layer] { return RunSteps(backward_[layer]); });
}

absl::Status OneDnnEngine::CheckTensors(absl::Span<const int> tensors) const {
  for (int tensor : tensors) {
    if (tensor < 0 || tensor >= static_cast<int>(parameters_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor, " is not in [0, ", parameters_.size(), ")"));
    }
  }
  return absl::OkStatus();
}

void OneDnnEngine::UpdateRange(int64_t begin, int64_t end, const SgdStep& step) {
  float* weights = reinterpret_cast<float*>(weight_arena_.data()) + begin;
  float* momentum = reinterpret_cast<float*>(momentum_arena_.data()) + begin;
  const float* gradients = reinterpret_cast<const float*>(gradient_arena_.data()) + begin;
  ParallelRanges(end - begin, [&](int64_t b, int64_t e) {
    Kernels().sgd(weights + b, momentum + b, gradients + b, e - b, step);
  });
}

void OneDnnEngine::UpdateWithCopy(const Parameter& parameter, const SgdStep& step) {
  float* weights = reinterpret_cast<float*>(weight_arena_.data()) + parameter.offset;
  float* momentum = reinterpret_cast<float*>(momentum_arena_.data()) + parameter.offset;
  const float* gradients =
      reinterpret_cast<const float*>(gradient_arena_.data()) + parameter.offset;
  uint16_t* copy = parameter.forward.as<uint16_t>();
  const int64_t pair = 2 * parameter.pair_row;
  ParallelRanges(
      parameter.padded_elements / pair,
      [&](int64_t b, int64_t e) {
        Kernels().sgd_with_copy(weights + b * pair, momentum + b * pair, gradients + b * pair,
                                copy + b * pair, parameter.pair_row, (e - b) * pair, step);
      },
      std::max<int64_t>(4096 / pair, 1));
}

absl::Status OneDnnEngine::Update(absl::Span<const int> tensors, float gradient_scale,
                                  Stream& stream) {
  if (absl::Status status = CheckTensors(tensors); !status.ok()) return status;
  std::vector<int> sorted(tensors.begin(), tensors.end());
  std::sort(sorted.begin(), sorted.end(),
            [this](int a, int b) { return order_position_[a] < order_position_[b]; });
  const v1::TrainingSettings& training = options_.training;
  const SgdStep step = {static_cast<float>(training.learning_rate()),
                        static_cast<float>(std::max(training.momentum(), 0.0)),
                        static_cast<float>(std::max(training.weight_decay(), 0.0)), gradient_scale};
  return Enqueue(stream, [this, sorted = std::move(sorted), step]() -> absl::Status {
    omp_set_num_threads(threads_);
    for (size_t i = 0; i < sorted.size();) {
      Parameter& first = parameters_[sorted[i]];
      if (first.pair_row > 0) {
        UpdateWithCopy(first, step);
        ++i;
        continue;
      }
      // Neighbours in memory make one range.
      int64_t end = first.offset;
      while (i < sorted.size() && parameters_[sorted[i]].offset == end &&
             parameters_[sorted[i]].pair_row == 0) {
        end += parameters_[sorted[i++]].padded_elements;
      }
      UpdateRange(first.offset, end, step);
    }
    try {
      for (int tensor : sorted) Refresh(tensor, /*updated=*/true);
    } catch (const dnnl::error& error) {
      return absl::InternalError(absl::StrCat("weight copies: oneDNN: ", error.what()));
    }
    return absl::OkStatus();
  });
}

absl::Status OneDnnEngine::WeightsChanged(absl::Span<const int> tensors, Stream& stream) {
  if (absl::Status status = CheckTensors(tensors); !status.ok()) return status;
  std::vector<int> copy(tensors.begin(), tensors.end());
  return Enqueue(stream, [this, copy = std::move(copy)]() -> absl::Status {
    omp_set_num_threads(threads_);
    try {
      for (int tensor : copy) Refresh(tensor);
    } catch (const dnnl::error& error) {
      return absl::InternalError(absl::StrCat("weight copies: oneDNN: ", error.what()));
    }
    return absl::OkStatus();
  });
}

// ---- Looking in.

DeviceSpan OneDnnEngine::Span(const Arena& arena, absl::Span<const int> tensors) const {
  if (tensors.empty()) return {};
  int64_t begin = parameter_floats_, end = 0;
  for (int tensor : tensors) {
    const Parameter& parameter = parameters_[tensor];
    begin = std::min(begin, parameter.offset);
    end = std::max(end, parameter.offset + parameter.padded_elements);
  }
  return {reinterpret_cast<float*>(arena.data()) + begin, end - begin};
}

absl::StatusOr<std::vector<float>> ReadMemory(const memory& source, const memory::desc& wanted) {
  try {
    std::vector<float> values(wanted.get_size() / 4);
    memory target(wanted, CpuEngine(), values.data());
    memory from = source;
    dnnl::stream stream(CpuEngine());
    dnnl::reorder(from, target).execute(stream, from, target);
    stream.wait();
    return values;
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("reorder: oneDNN: ", error.what()));
  }
}

absl::StatusOr<std::vector<float>> OneDnnEngine::ReadWeights(int tensor) const {
  if (absl::Status status = CheckTensors({tensor}); !status.ok()) return status;
  return ReadMemory(parameters_[tensor].weight, CanonicalDesc(tensor));
}

absl::StatusOr<std::vector<float>> OneDnnEngine::ReadGradient(int tensor) const {
  if (absl::Status status = CheckTensors({tensor}); !status.ok()) return status;
  return ReadMemory(parameters_[tensor].gradient, CanonicalDesc(tensor));
}

absl::Status OneDnnEngine::WriteWeights(int tensor, absl::Span<const float> values) {
  if (absl::Status status = CheckTensors({tensor}); !status.ok()) return status;
  if (static_cast<int64_t>(values.size()) != network_.parameters[tensor].elements) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", network_.parameters[tensor].name,
                                                   " has ", network_.parameters[tensor].elements,
                                                   " elements, not ", values.size()));
  }
  try {
    memory source(CanonicalDesc(tensor), CpuEngine(), const_cast<float*>(values.data()));
    dnnl::reorder(source, parameters_[tensor].weight)
        .execute(stream_, source, parameters_[tensor].weight);
    Refresh(tensor);
    stream_.wait();
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("reorder: oneDNN: ", error.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> OneDnnEngine::ReadOutput(int layer) const {
  if (layer < 0 || layer >= static_cast<int>(network_.layers.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer, " is not in [0, ", network_.layers.size(), ")"));
  }
  const std::string& name = network_.layers[layer].layer.name();
  if (fused_relu_[layer]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "layer ", name, ": its output exists only after the ReLU fused into it; read that layer"));
  }
  if (fused_into_add_[layer]) {
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", name,
                     ": its output exists only after the addition fused into it; read that "
                     "layer"));
  }
  const Value& value = values_[value_of_[layer]];
  const BufferLifetime& mine = buffers_[value.mem.buffer].life;
  for (const Buffer& buffer : buffers_) {
    const BufferLifetime& other = buffer.life;
    if (&other != &mine && buffer.used && other.first_step > mine.first_step &&
        other.offset < mine.offset + mine.bytes && mine.offset < other.offset + other.bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", name,
                       ": its memory is reused later in the iteration; create the engine with "
                       "reuse_memory off to read it"));
    }
  }
  return ReadMemory(value.mem.mem, Plain(value.dims, DataType::f32));
}

uint64_t OneDnnEngine::WeightsChecksum() const {
  const auto* bits = reinterpret_cast<const uint32_t*>(weight_arena_.data());
  uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(threads_)
  for (int64_t i = 0; i < parameter_floats_; ++i) sum += bits[i];
  return sum;
}

std::vector<EngineStepTime> OneDnnEngine::StepTimes() const {
  std::vector<EngineStepTime> times;
  for (const auto* pass : {&forward_, &backward_}) {
    for (const std::vector<Step>& steps : *pass) {
      for (const Step& step : steps) {
        times.push_back({step.layer,
                         absl::StrCat(network_.layers[step.layer].layer.name(),
                                      pass == &forward_ ? " forward " : " backward ", step.name),
                         step.total_ns, step.count});
      }
    }
  }
  return times;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LayerEngine>> CreateOneDnnEngine(const ShapedNetwork& network,
                                                                const EngineOptions& options,
                                                                const OneDnnOptions& cpu) {
  auto engine = absl::make_unique<OneDnnEngine>(network, options, cpu);
  if (absl::Status status = engine->Build(); !status.ok()) return status;
  return std::unique_ptr<LayerEngine>(std::move(engine));
}

bool CpuHasBf16() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16; }

std::string OneDnnVersion() {
  const dnnl::version_t* version = dnnl::version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

std::vector<EngineStepTime> OneDnnStepTimes(const LayerEngine& engine) {
  return static_cast<const OneDnnEngine&>(engine).StepTimes();
}

}  // namespace paceline
