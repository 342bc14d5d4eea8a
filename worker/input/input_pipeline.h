// Batches for one rank: synthetic, from a folder of JPEGs, or from an LMDB of encoded images; decoded,
// randomly cropped and flipped, normalised by a pool of threads, a bounded number ahead.
//
//   auto pipeline = CreateInputPipeline(source, options);
//   absl::StatusOr<const HostBatch*> batch = (*pipeline)->Next(deadline);   // busy_ns is t_io
//   ... (*pipeline)->Recycle(*batch);
//
// Order and augmentation depend on the seed alone, not on the number of threads. Ranks read
// disjoint shares of every epoch.
#ifndef PACELINE_WORKER_INPUT_INPUT_PIPELINE_H_
#define PACELINE_WORKER_INPUT_INPUT_PIPELINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "worker/backend/backend.h"

namespace paceline {

struct InputOptions {
  v1::ImageSize image;
  int classes = 1000;
  int batch = 1;
  int rank = 0;
  int ranks = 1;
  uint64_t seed = 1;
  int decode_threads = 1;    // Positive.
  int prefetch_batches = 1;  // Batches decoded ahead; 0: Next decodes, nothing runs between calls.
};

class InputPipeline {
 public:
  virtual ~InputPipeline() = default;
  // The next batch; owned by the pipeline until Recycle. INVALID_ARGUMENT (input error) once more
  // than the stated share of records is corrupt, naming the first ones.
  virtual absl::StatusOr<const HostBatch*> Next(absl::Time deadline) = 0;
  virtual void Recycle(const HostBatch* batch) = 0;
  virtual v1::InputCounters Counters() const = 0;
  virtual int64_t MemoryBytes() const = 0;
  // Wakes a waiting Next with CANCELLED. From any thread.
  virtual void Cancel() = 0;
};

// NOT_FOUND / INVALID_ARGUMENT name the path, what was expected and what to do.
absl::StatusOr<std::unique_ptr<InputPipeline>> CreateInputPipeline(const v1::InputSource& source,
                                                                   const InputOptions& options);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_INPUT_PIPELINE_H_
