// Batches for one rank: synthetic, from a folder of JPEGs, or from an LMDB of encoded images;
// decoded, randomly cropped and flipped, normalised by a pool of threads, a bounded number ahead.
//
//   auto pipeline = CreateInputPipeline(source, options);
//   HostBatch batch;                                   // Reused: its buffers go back to the pool.
//   absl::Status status = (*pipeline)->Next(batch, deadline);   // batch.busy_ns is t_io.
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
#include "worker/input/host_batch.h"

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
  // Fills `batch` with the next one by swapping buffers: no copy, and the old buffers are reused.
  // (Synthetic input fills a batch once and leaves it alone when it comes back.) INVALID_ARGUMENT
  // (input error) once more than the stated share of records is corrupt, naming the first ones.
  virtual absl::Status Next(HostBatch& batch, absl::Time deadline) = 0;
  virtual v1::InputCounters Counters() const = 0;
  virtual int64_t MemoryBytes() const = 0;
  // Wakes a waiting Next with CANCELLED. From any thread.
  virtual void Cancel() = 0;
};

// NOT_FOUND / INVALID_ARGUMENT name the path, what was expected and what to do. RESOURCE_EXHAUSTED:
// the batches do not fit in the memory that is available.
absl::StatusOr<std::unique_ptr<InputPipeline>> CreateInputPipeline(const v1::InputSource& source,
                                                                   const InputOptions& options);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_INPUT_PIPELINE_H_
