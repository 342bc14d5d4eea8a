#include "worker/input/sample_order.h"

#include <cstdint>

namespace paceline {
namespace {

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

uint64_t Combine(uint64_t hash, uint64_t value) {
  return Mix((hash + kGolden) ^ Mix(value + kGolden));
}

}  // namespace

SampleRandom::SampleRandom(uint64_t seed, int64_t epoch, int64_t record, int attempt)
    : state_(Combine(
          Combine(Combine(seed, static_cast<uint64_t>(epoch)), static_cast<uint64_t>(record)),
          static_cast<uint64_t>(attempt))) {}

uint64_t SampleRandom::Next() {
  state_ += kGolden;
  return Mix(state_);
}

int64_t SampleRandom::Below(int64_t bound) {
  // The bias of the modulo is below bound / 2^64.
  return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
}

double SampleRandom::Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

int64_t ShuffledIndex(uint64_t seed, int64_t epoch, int64_t position, int64_t count) {
  // A Feistel network permutes [0, 4^half_bits); walking its cycle until the value falls below
  // `count` permutes [0, count) (Black and Rogaway, 2002). Fewer than four steps on average, no
  // memory, and every thread can ask for any position.
  int half_bits = 1;
  while ((int64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  const uint64_t key = Combine(seed, static_cast<uint64_t>(epoch));
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (Combine(key + round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace paceline
