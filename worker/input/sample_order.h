// Which record comes at which position of an epoch, and the random numbers of its augmentation:
// pure functions of the seed, so any thread can compute any sample.
//
//   int64_t record = ShuffledIndex(seed, epoch, position, records);   // A permutation per epoch.
//   SampleRandom random(seed, epoch, record, /*attempt=*/0);
//   bool flip = random.Next() & 1;
#ifndef PACELINE_WORKER_INPUT_SAMPLE_ORDER_H_
#define PACELINE_WORKER_INPUT_SAMPLE_ORDER_H_

#include <cstdint>

namespace paceline {

// SplitMix64 (Steele et al., 2014): one multiplication chain per number, good enough statistically.
class SampleRandom {
 public:
  explicit SampleRandom(uint64_t seed) : state_(seed) {}
  SampleRandom(uint64_t seed, int64_t epoch, int64_t record, int attempt);
  uint64_t Next();
  // Uniform in [0, bound). bound > 0.
  int64_t Below(int64_t bound);
  // Uniform in [0, 1).
  double Uniform();

 private:
  uint64_t state_;
};

// The record at `position` of the epoch's order, both in [0, count). Bijective in position.
int64_t ShuffledIndex(uint64_t seed, int64_t epoch, int64_t position, int64_t count);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_SAMPLE_ORDER_H_
