// One batch of samples in host memory: what the input pipeline delivers and an engine reads.
#ifndef PACELINE_WORKER_INPUT_HOST_BATCH_H_
#define PACELINE_WORKER_INPUT_HOST_BATCH_H_

#include <cstdint>
#include <vector>

namespace paceline {

struct HostBatch {
  int size = 0;                 // Samples.
  std::vector<float> pixels;    // {size, channels, height, width}, normalised.
  std::vector<int32_t> labels;  // {size}, in [0, classes).
  // Pool time spent on it (t_io): reading, decoding and augmenting, summed over its samples. With n
  // threads on n free cores the batch takes busy_ns / n of wall-clock time.
  int64_t busy_ns = 0;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_HOST_BATCH_H_
