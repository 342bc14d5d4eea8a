#include "worker/backend/fake/fake_backend.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/support/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/host_stream.h"

namespace paceline {

struct FakeWorld::Meeting {
  std::vector<DeviceSpan> spans;  // Of those who came, by place.
  std::vector<bool> came;
  int present = 0;
  bool done = false;
};

struct FakeWorld::Server {
  struct Group {
    std::vector<float> weights, velocity;
    std::map<int, std::vector<float>> pushes;  // By rank.
    int64_t version = 0;
  };
  std::vector<Group> groups;
};

FakeWorld::FakeWorld() = default;
FakeWorld::~FakeWorld() = default;

float FakeGradient(int rank, int64_t iteration, int tensor, int64_t element) {
  const int64_t mixed = 7 * (rank + 1) + 5 * iteration + 3 * tensor + element * (rank + 1);
  return static_cast<float>(mixed % 17 - 8) / 8.0f;
}

float FakeWeight(int tensor, int64_t element) {
  return static_cast<float>((tensor * 5 + element) % 13 - 6) / 4.0f;
}

namespace {

absl::Status Before(const FakeBackendOptions& options, const char* operation, int layer) {
  if (options.before_operation != nullptr) {
    absl::Status status = options.before_operation(operation, layer);
    if (!status.ok()) return status;
  }
  const auto seconds = options.operation_seconds.find(operation);
  if (seconds != options.operation_seconds.end()) absl::SleepFor(absl::Seconds(seconds->second));
  return absl::OkStatus();
}

class FakeEngine : public LayerEngine {
 public:
  FakeEngine(const ShapedNetwork& network, const EngineOptions& engine,
             const FakeBackendOptions& options)
      : network_(network), engine_(engine), options_(options) {
    std::vector<int> order = engine.tensor_order;
    if (order.empty()) {
      order.resize(network.parameters.size());
      std::iota(order.begin(), order.end(), 0);
    }
    first_.resize(network.parameters.size());
    int64_t total = 0;
    for (const int tensor : order) {
      first_[tensor] = total;
      total += network.parameters[tensor].elements;
    }
    weights_.resize(total);
    gradients_.resize(total);
    velocity_.resize(total);
    for (const int tensor : order) {
      for (int64_t i = 0; i < network.parameters[tensor].elements; ++i) {
        weights_[first_[tensor] + i] = FakeWeight(tensor, i);
      }
    }
  }

  absl::Status LoadInput(const HostBatch& batch, Stream& stream) override {
    return stream.RunOnHost([this] { return Before(options_, "load_input", -1); });
  }

  absl::Status Forward(int layer, Stream& stream) override {
    return stream.RunOnHost([this, layer]() -> absl::Status {
      absl::Status status = Before(options_, "forward", layer);
      if (status.ok() && layer + 1 == static_cast<int>(network_.layers.size())) {
        const int64_t pass = forwards_++;
        loss_ = options_.loss != nullptr ? options_.loss(pass) : 1.0 / (1.0 + pass);
      }
      return status;
    });
  }

  absl::Status Backward(int layer, Stream& stream) override {
    return stream.RunOnHost([this, layer]() -> absl::Status {
      absl::Status status = Before(options_, "backward", layer);
      if (!status.ok()) return status;
      for (const int tensor : network_.layers[layer].parameters) {
        for (int64_t i = 0; i < network_.parameters[tensor].elements; ++i) {
          gradients_[first_[tensor] + i] = FakeGradient(engine_.rank, backwards_, tensor, i);
        }
      }
      if (layer == 0) ++backwards_;
      return absl::OkStatus();
    });
  }

  absl::Status Update(absl::Span<const int> tensors, float gradient_scale,
                      Stream& stream) override {
    return stream.RunOnHost([this, all = std::vector<int>(tensors.begin(), tensors.end()),
                             gradient_scale]() -> absl::Status {
      absl::Status status = Before(options_, "update", -1);
      if (!status.ok()) return status;
      const float rate = static_cast<float>(engine_.training.learning_rate());
      const float momentum = std::max(0.0f, static_cast<float>(engine_.training.momentum()));
      const float decay = std::max(0.0f, static_cast<float>(engine_.training.weight_decay()));
      for (const int tensor : all) {
        for (int64_t i = first_[tensor]; i < first_[tensor] + network_.parameters[tensor].elements;
             ++i) {
          velocity_[i] = momentum * velocity_[i] +
                         rate * (gradients_[i] * gradient_scale + decay * weights_[i]);
          weights_[i] -= velocity_[i];
        }
      }
      return absl::OkStatus();
    });
  }

  absl::Status WeightsChanged(absl::Span<const int> tensors, Stream& stream) override {
    return absl::OkStatus();
  }

  DeviceSpan GradientSpan(absl::Span<const int> tensors) override {
    return SpanOf(tensors, gradients_);
  }
  DeviceSpan WeightSpan(absl::Span<const int> tensors) override {
    return SpanOf(tensors, weights_);
  }

  double Loss() const override { return loss_; }

  v1::MemoryUse Memory() const override {
    v1::MemoryUse memory;
    memory.set_weights_bytes(static_cast<int64_t>(weights_.size()) * 4);
    memory.set_gradients_bytes(static_cast<int64_t>(gradients_.size()) * 4);
    memory.set_optimizer_bytes(static_cast<int64_t>(velocity_.size()) * 4);
    return memory;
  }

  absl::StatusOr<std::vector<float>> ReadWeights(int tensor) const override {
    return Read(tensor, weights_);
  }
  absl::Status WriteWeights(int tensor, absl::Span<const float> values) override {
    if (static_cast<int64_t>(values.size()) != network_.parameters[tensor].elements) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, ": wrong size"));
    }
    std::copy(values.begin(), values.end(), weights_.begin() + first_[tensor]);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<float>> ReadGradient(int tensor) const override {
    return Read(tensor, gradients_);
  }
  absl::StatusOr<std::vector<float>> ReadOutput(int layer) const override {
    return std::vector<float>(engine_.batch * network_.layers[layer].output.elements());
  }

  uint64_t WeightsChecksum() const override {
    uint64_t sum = 0;
    for (const float weight : weights_) {
      uint32_t bits;
      std::memcpy(&bits, &weight, sizeof(bits));
      sum += bits;
    }
    return sum;
  }

 private:
  DeviceSpan SpanOf(absl::Span<const int> tensors, std::vector<float>& values) {
    DeviceSpan span;
    if (tensors.empty()) return span;
    span.data = values.data() + first_[tensors.front()];
    for (const int tensor : tensors) span.elements += network_.parameters[tensor].elements;
    return span;
  }
  std::vector<float> Read(int tensor, const std::vector<float>& values) const {
    const auto begin = values.begin() + first_[tensor];
    return {begin, begin + network_.parameters[tensor].elements};
  }

  const ShapedNetwork network_;
  const EngineOptions engine_;
  const FakeBackendOptions options_;
  std::vector<int64_t> first_;  // By tensor: first element in the arrays below.
  std::vector<float> weights_, gradients_, velocity_;
  int64_t forwards_ = 0;
  int64_t backwards_ = 0;
  std::atomic<double> loss_{0};
};

}  // namespace

class FakeCommunicator : public Communicator {
 public:
  FakeCommunicator(std::shared_ptr<FakeWorld> world, const RankInfo& info, absl::string_view name,
                   const FakeBackendOptions& options)
      : world_(std::move(world)), info_(info), name_(name), options_(options) {}
  // As a closed connection: peers must not wait for this rank.
  ~FakeCommunicator() override {
    MutexLock lock(&world_->mu_);
    world_->left_[name_].insert(info_.rank);
    world_->changed_.NotifyAll();
  }

  int rank() const override { return info_.rank; }
  int size() const override { return info_.ranks; }

  absl::Status AllReduceSum(DeviceSpan span, Stream& stream) override {
    return Collective("all-reduce", span, stream, [](std::vector<DeviceSpan>& spans) {
      Sum(spans, 0);
      CopyToAll(spans, 0);
    });
  }
  absl::Status ReduceSum(DeviceSpan span, int root, Stream& stream) override {
    return Collective("reduce", span, stream,
                      [root](std::vector<DeviceSpan>& spans) { Sum(spans, root); });
  }
  absl::Status Broadcast(DeviceSpan span, int root, Stream& stream) override {
    return Collective("broadcast", span, stream,
                      [root](std::vector<DeviceSpan>& spans) { CopyToAll(spans, root); });
  }
  absl::Status Send(DeviceSpan span, int peer, Stream& stream) override {
    return PointToPoint(rank(), peer, span, stream);
  }
  absl::Status Receive(DeviceSpan span, int peer, Stream& stream) override {
    return PointToPoint(peer, rank(), span, stream);
  }

  void Abort(const absl::Status& cause) override {
    MutexLock lock(&world_->mu_);
    absl::Status& broken = world_->broken_[name_];
    if (broken.ok()) broken = cause;
    world_->changed_.NotifyAll();
  }

 private:
  using Combine = std::function<void(std::vector<DeviceSpan>&)>;

  static void Sum(std::vector<DeviceSpan>& spans, int root) {
    for (int64_t i = 0; i < spans[root].elements; ++i) {
      float sum = 0;
      for (const DeviceSpan& span : spans) sum += span.data[i];
      spans[root].data[i] = sum;
    }
  }
  static void CopyToAll(std::vector<DeviceSpan>& spans, int root) {
    for (DeviceSpan& span : spans) {
      if (span.data != spans[root].data) std::copy_n(spans[root].data, span.elements, span.data);
    }
  }

  absl::Status Collective(const char* what, DeviceSpan span, Stream& stream, Combine combine) {
    const std::string key = absl::StrCat(name_, "/", collectives_++);
    return stream.RunOnHost([this, what, span, key, combine = std::move(combine)] {
      std::vector<int> all(size());
      std::iota(all.begin(), all.end(), 0);
      return Meet(what, key, rank(), all, span, combine);
    });
  }

  absl::Status PointToPoint(int from, int to, DeviceSpan span, Stream& stream) {
    const std::string key = absl::StrCat(name_, "/", from, "to", to, "/", transfers_[{from, to}]++);
    return stream.RunOnHost([this, from, to, span, key] {
      return Meet("transfer", key, from == rank() ? 0 : 1, {from, to}, span,
                  [](std::vector<DeviceSpan>& spans) { CopyToAll(spans, 0); });
    });
  }

  // The last of `parties` (ranks) to come does the work for all. `place` is this rank's among them.
  absl::Status Meet(const char* what, const std::string& key, int place,
                    const std::vector<int>& parties, DeviceSpan span, const Combine& combine) {
    absl::Status status = Before(options_, "communication", -1);
    if (!status.ok()) return status;
    const absl::Time deadline = absl::Now() + info_.timeout;
    MutexLock lock(&world_->mu_);
    std::shared_ptr<FakeWorld::Meeting>& slot = world_->meetings_[key];
    if (slot == nullptr) slot = std::make_shared<FakeWorld::Meeting>();
    const std::shared_ptr<FakeWorld::Meeting> meeting = slot;
    meeting->spans.resize(parties.size());
    meeting->came.resize(parties.size());
    meeting->spans[place] = span;
    meeting->came[place] = true;
    ++meeting->present;
    while (!meeting->done) {
      if (!world_->broken_[name_].ok()) return world_->broken_[name_];
      if (meeting->present == static_cast<int>(parties.size())) {
        combine(meeting->spans);
        meeting->done = true;
        world_->meetings_.erase(key);
        world_->changed_.NotifyAll();
        return absl::OkStatus();
      }
      for (size_t i = 0; i < parties.size(); ++i) {
        if (!meeting->came[i] && world_->left_[name_].count(parties[i]) > 0) {
          return absl::UnavailableError(
              absl::StrCat("rank ", rank(), ": fake ", what, ": rank ", parties[i], " left"));
        }
      }
      if (!world_->changed_.WaitUntil(&world_->mu_, deadline) && absl::Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("rank ", rank(), ": fake ", what, ": not all ranks came in time"));
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<FakeWorld> world_;
  const RankInfo info_;
  const std::string name_;
  const FakeBackendOptions options_;
  int64_t collectives_ = 0;
  std::map<std::pair<int, int>, int64_t> transfers_;
};

class FakeParameterServer : public ParameterServer {
 public:
  FakeParameterServer(std::shared_ptr<FakeWorld> world, const RankInfo& info,
                      const IterationSchedule& schedule,
                      const std::vector<DeviceSpan>& initial_weights,
                      const v1::TrainingSettings& training, absl::string_view name,
                      const FakeBackendOptions& options)
      : world_(std::move(world)),
        info_(info),
        name_(absl::StrCat("server/", name)),
        options_(options),
        training_(training),
        servers_update_(schedule.servers_update),
        scale_(1.0f / static_cast<float>(std::max(1, schedule.gradient_divisor))),
        pulls_(initial_weights.size()) {
    MutexLock lock(&world_->mu_);
    std::shared_ptr<FakeWorld::Server>& server = world_->servers_[name_];
    if (server == nullptr) server = std::make_shared<FakeWorld::Server>();
    server_ = server;
    server_->groups.resize(initial_weights.size());
    if (info.rank != 0) return;
    for (size_t g = 0; g < initial_weights.size(); ++g) {
      const DeviceSpan& span = initial_weights[g];
      server_->groups[g].weights.assign(span.data, span.data + span.elements);
      server_->groups[g].velocity.assign(span.elements, 0.0f);
    }
  }

  absl::Status Push(int group, DeviceSpan gradients, Stream& stream) override {
    return stream.RunOnHost([this, group, gradients]() -> absl::Status {
      absl::Status status = Before(options_, "communication", -1);
      if (!status.ok()) return status;
      MutexLock lock(&world_->mu_);
      FakeWorld::Server::Group& state = server_->groups[group];
      state.pushes[info_.rank].assign(gradients.data, gradients.data + gradients.elements);
      if (static_cast<int>(state.pushes.size()) < info_.ranks) return absl::OkStatus();
      Update(state, gradients.elements);
      world_->changed_.NotifyAll();
      return absl::OkStatus();
    });
  }

  absl::Status Pull(int group, DeviceSpan destination, Stream& stream) override {
    return stream.RunOnHost([this, group, destination]() -> absl::Status {
      absl::Status status = Before(options_, "communication", -1);
      if (!status.ok()) return status;
      const absl::Time deadline = absl::Now() + info_.timeout;
      MutexLock lock(&world_->mu_);
      const FakeWorld::Server::Group& state = server_->groups[group];
      const int64_t wanted = ++pulls_[group];
      while (state.version < wanted) {
        if (!world_->broken_[name_].ok()) return world_->broken_[name_];
        if (!world_->changed_.WaitUntil(&world_->mu_, deadline) && absl::Now() >= deadline) {
          return absl::DeadlineExceededError("fake pull: not every rank pushed in time");
        }
      }
      std::copy(state.weights.begin(), state.weights.end(), destination.data);
      return absl::OkStatus();
    });
  }

  void Abort(const absl::Status& cause) override {
    MutexLock lock(&world_->mu_);
    absl::Status& broken = world_->broken_[name_];
    if (broken.ok()) broken = cause;
    world_->changed_.NotifyAll();
  }

 private:
  void Update(FakeWorld::Server::Group& state, int64_t elements) {
    state.weights.resize(elements);
    state.velocity.resize(elements);
    const float momentum = std::max(0.0f, static_cast<float>(training_.momentum()));
    const float decay = std::max(0.0f, static_cast<float>(training_.weight_decay()));
    for (int64_t i = 0; i < elements; ++i) {
      float sum = 0;
      for (const auto& [rank, values] : state.pushes) sum += values[i];
      if (!servers_update_) {
        state.weights[i] = sum;
        continue;
      }
      state.velocity[i] =
          momentum * state.velocity[i] +
          static_cast<float>(training_.learning_rate()) * (sum * scale_ + decay * state.weights[i]);
      state.weights[i] -= state.velocity[i];
    }
    state.pushes.clear();
    ++state.version;
  }

  const std::shared_ptr<FakeWorld> world_;
  const RankInfo info_;
  const std::string name_;
  const FakeBackendOptions options_;
  const v1::TrainingSettings training_;
  const bool servers_update_;
  const float scale_;
  std::shared_ptr<FakeWorld::Server> server_;
  std::vector<int64_t> pulls_;  // By group.
};

namespace {

class FakeBackend : public Backend {
 public:
  FakeBackend(std::shared_ptr<FakeWorld> world, FakeBackendOptions options)
      : world_(std::move(world)), options_(std::move(options)) {}

  std::string name() const override { return "fake"; }
  absl::Status Describe(v1::MachineState& machine) const override {
    machine.set_backend(name());
    machine.set_device("fake device");
    machine.set_compute_threads(1);
    return absl::OkStatus();
  }
  std::vector<v1::Precision> Precisions() const override { return {v1::PRECISION_FP32}; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind, std::string name) override {
    HostStreamOptions options;
    options.name = std::move(name);
    return std::make_unique<HostStream>(std::move(options));
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<HostEvent>();
  }
  absl::StatusOr<int64_t> EventUnixNs(const Event& event) const override {
    return static_cast<const HostEvent&>(event).UnixNs();
  }
  absl::StatusOr<std::unique_ptr<LayerEngine>> CreateEngine(const ShapedNetwork& network,
                                                            const EngineOptions& options) override {
    if (!options_.create_engine_status.ok()) return options_.create_engine_status;
    return std::make_unique<FakeEngine>(network, options, options_);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const RankInfo& rank, absl::string_view name, RendezvousStore& store) override {
    return std::make_unique<FakeCommunicator>(world_, rank, name, options_);
  }
  absl::StatusOr<std::unique_ptr<ParameterServer>> CreateParameterServer(
      const RankInfo& rank, const IterationSchedule& schedule,
      const std::vector<DeviceSpan>& initial_weights, const v1::TrainingSettings& training,
      absl::string_view name, RendezvousStore& store) override {
    return std::make_unique<FakeParameterServer>(world_, rank, schedule, initial_weights, training,
                                                 name, options_);
  }

 private:
  const std::shared_ptr<FakeWorld> world_;
  const FakeBackendOptions options_;
};

}  // namespace

std::unique_ptr<Backend> CreateFakeBackend(std::shared_ptr<FakeWorld> world,
                                           FakeBackendOptions options) {
  return std::make_unique<FakeBackend>(std::move(world), std::move(options));
}

}  // namespace paceline
