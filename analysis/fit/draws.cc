#include "analysis/fit/draws.h"

#include <cmath>
#include <cstdint>
#include <random>

namespace paceline {

double NormalOfDraw(int draw, absl::string_view subject) {
  if (draw == 0) return 0;
  uint64_t hash = 1469598103934665603ULL + draw;  // FNV-1a.
  for (unsigned char c : subject) hash = (hash ^ c) * 1099511628211ULL;
  std::mt19937_64 random(hash);
  return std::normal_distribution<double>()(random);
}

double UniformOfDraw(int draw, absl::string_view subject) {
  return 0.5 * std::erfc(-NormalOfDraw(draw, subject) / std::sqrt(2.0));
}

}  // namespace paceline
