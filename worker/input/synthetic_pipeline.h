// Input that costs nothing: one random batch per rank, made from the seed, over and over.
#ifndef PACELINE_WORKER_INPUT_SYNTHETIC_PIPELINE_H_
#define PACELINE_WORKER_INPUT_SYNTHETIC_PIPELINE_H_

#include <memory>

#include "worker/input/input_pipeline.h"

namespace paceline {

// `options` must be valid.
std::unique_ptr<InputPipeline> CreateSyntheticPipeline(const InputOptions& options);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_SYNTHETIC_PIPELINE_H_
