#include "worker/backend/cpu/engine_fillers.h"

#include <cmath>

namespace paceline {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// In (0, 1), never its ends: Box-Muller takes the logarithm.
double Uniform(uint64_t stream, uint64_t index) {
  uint64_t bits = Mix(stream + (index + 1) * 0x9e3779b97f4a7c15u);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

std::vector<float> InitialValues(const ShapedNetwork& network, int tensor, uint64_t seed) {
  const ParameterTensor& parameter = network.parameters[tensor];
  const ShapedLayer& shaped = network.layers[parameter.layer];
  const v1::Layer& layer = shaped.layer;
  const int64_t n = parameter.elements;
  const bool is_weight = shaped.parameters.front() == tensor;
  if (layer.has_batch_norm()) return std::vector<float>(n, is_weight ? 1.0f : 0.0f);
  std::vector<float> values(n, 0.0f);
  if (!is_weight) return values;

  const v1::Filler& filler = layer.has_convolution() ? layer.convolution().weight_filler()
                                                     : layer.fully_connected().weight_filler();
  v1::Filler::Kind kind = filler.kind();
  if (kind == v1::Filler::KIND_UNSPECIFIED) {
    kind = layer.has_convolution() ? v1::Filler::KIND_MSRA : v1::Filler::KIND_XAVIER;
  }
  const double fan_in = static_cast<double>(n) / static_cast<double>(parameter.shape[0]);
  const uint64_t stream = Mix(Mix(seed) + static_cast<uint64_t>(tensor));
  if (kind == v1::Filler::KIND_XAVIER) {
    const double range = std::sqrt(3.0 / fan_in);
#pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>((2 * Uniform(stream, i) - 1) * range);
    }
    return values;
  }
  const double deviation =
      kind == v1::Filler::KIND_GAUSSIAN ? filler.standard_deviation() : std::sqrt(2.0 / fan_in);
  // Box-Muller: indices 2i and 2i + 1 of the stream give values 2i and 2i + 1.
#pragma omp parallel for
  for (int64_t i = 0; i < n; i += 2) {
    const double radius = deviation * std::sqrt(-2 * std::log(Uniform(stream, i)));
    const double angle = 2 * M_PI * Uniform(stream, i + 1);
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < n) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

}  // namespace paceline
