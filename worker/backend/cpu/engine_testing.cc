#include "worker/backend/cpu/engine_testing.h"

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/status/statusor.h"

namespace paceline {
namespace {

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << "engine: " << status << std::endl;
  std::abort();
}

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  CheckOk(value.status());
  return *std::move(value);
}

}  // namespace

std::vector<double> HashedValues(uint32_t stream, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + (stream * 40503u + 12345u);
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    values[i] = static_cast<double>(h) / 2147483648.0 - 1.0;
  }
  return values;
}

std::vector<float> HashedWeights(const ShapedNetwork& network, int index) {
  const ParameterTensor& tensor = network.parameters[index];
  const ShapedLayer& layer = network.layers[tensor.layer];
  std::vector<double> values = HashedValues(index, tensor.elements);
  std::vector<float> weights(values.size());
  const bool bias = layer.parameters.front() != index;
  const double range =
      std::sqrt(6.0 * static_cast<double>(tensor.shape[0]) / static_cast<double>(tensor.elements));
  for (size_t i = 0; i < values.size(); ++i) {
    double value = bias                           ? 0.1 * values[i]
                   : layer.layer.has_batch_norm() ? 1.0 + 0.25 * values[i]
                                                  : range * values[i];
    weights[i] = static_cast<float>(value);
  }
  return weights;
}

HostBatch HashedBatch(const ShapedNetwork& network, int size, uint32_t stream) {
  const v1::ImageSize& image = network.network.input();
  HostBatch batch;
  batch.size = size;
  std::vector<double> pixels =
      HashedValues(stream, int64_t{size} * image.channels() * image.height() * image.width());
  batch.pixels.assign(pixels.begin(), pixels.end());
  for (int n = 0; n < size; ++n) batch.labels.push_back((7 * n + 3) % network.network.classes());
  return batch;
}

EngineOptions TestOptions(const ShapedNetwork& network, int batch) {
  EngineOptions options;
  options.batch = batch;
  options.training.set_learning_rate(0.01);
  options.training.set_momentum(0.9);
  options.training.set_weight_decay(5e-4);
  options.training.set_seed(1);
  for (int t = static_cast<int>(network.parameters.size()) - 1; t >= 0; --t) {
    options.tensor_order.push_back(t);
  }
  return options;
}

std::unique_ptr<TestEngine> TestEngine::Create(const ShapedNetwork& network,
                                               const EngineOptions& options,
                                               const OneDnnOptions& cpu) {
  auto test = std::make_unique<TestEngine>();
  test->network = network;
  test->engine = ValueOrDie(CreateOneDnnEngine(network, options, cpu));
  test->batch = HashedBatch(network, options.batch);
  for (size_t t = 0; t < network.parameters.size(); ++t) {
    test->all_tensors.push_back(static_cast<int>(t));
  }
  return test;
}

void TestEngine::UseHashedWeights() {
  for (int t : all_tensors) CheckOk(engine->WriteWeights(t, HashedWeights(network, t)));
}

void TestEngine::LoadAndForward() {
  CheckOk(engine->LoadInput(batch, stream));
  for (size_t l = 0; l < network.layers.size(); ++l) {
    CheckOk(engine->Forward(static_cast<int>(l), stream));
  }
}

void TestEngine::Backward() {
  for (int l = static_cast<int>(network.layers.size()) - 1; l >= 0; --l) {
    CheckOk(engine->Backward(l, stream));
  }
}

void TestEngine::Update(float scale) { CheckOk(engine->Update(all_tensors, scale, stream)); }

double TestEngine::Iterate() {
  LoadAndForward();
  Backward();
  Update();
  return engine->Loss();
}

std::vector<float> TestEngine::Weights(int tensor) const {
  return ValueOrDie(engine->ReadWeights(tensor));
}

std::vector<float> TestEngine::Gradient(int tensor) const {
  return ValueOrDie(engine->ReadGradient(tensor));
}

}  // namespace paceline
