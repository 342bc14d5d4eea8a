// Batches from a data set, decoded by a pool of threads a bounded number of batches ahead.
//
// Every sample is a pure function of (seed, position), so which thread computes it does not matter.
// Corrupt records are judged when their batch is delivered, in order, so the counters and a failure
// do not depend on the threads either.
#ifndef PACELINE_WORKER_INPUT_DECODING_PIPELINE_H_
#define PACELINE_WORKER_INPUT_DECODING_PIPELINE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/input/data_set.h"
#include "worker/input/input_pipeline.h"

namespace paceline {

struct DecodingOptions {
  InputOptions input;  // Valid.
  double max_corrupt_fraction = 0.01;
  bool wrap_labels = false;
  std::string description;  // For messages: "image folder '/data/train'".
};

// `data_set` must allow input.decode_threads readers.
absl::StatusOr<std::unique_ptr<InputPipeline>> CreateDecodingPipeline(
    std::unique_ptr<DataSet> data_set, const DecodingOptions& options);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_DECODING_PIPELINE_H_
