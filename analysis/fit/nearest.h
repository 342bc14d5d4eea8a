// The entry of a map whose key is nearest to a wanted one by ratio: of measurements at 1, 4 and 16
// devices, 8 is as near to 4 as to 16 (the smaller one is taken).
//
//   int at = 0;
//   const double* value = NearestByRatio(by_devices, 8, &at);   // Null if the map is empty.
#ifndef PACELINE_ANALYSIS_FIT_NEAREST_H_
#define PACELINE_ANALYSIS_FIT_NEAREST_H_

#include <cmath>
#include <map>

namespace paceline {

// Keys and `wanted` are positive. `at` (may be null) becomes the key found.
template <typename Value>
const Value* NearestByRatio(const std::map<int, Value>& values, int wanted, int* at) {
  const Value* nearest = nullptr;
  double least = 0;
  for (const auto& entry : values) {
    const double distance = std::abs(std::log(1.0 * entry.first / wanted));
    if (nearest != nullptr && distance >= least) continue;
    nearest = &entry.second;
    least = distance;
    if (at != nullptr) *at = entry.first;
  }
  return nearest;
}

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_NEAREST_H_
