#include "worker/input/synthetic_pipeline.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/result.pb.h"
#include "worker/input/host_batch.h"
#include "worker/input/input_pipeline.h"
#include "worker/input/sample_order.h"

namespace paceline {
namespace {

class SyntheticPipeline : public InputPipeline {
 public:
  explicit SyntheticPipeline(const InputOptions& options) {
    const size_t pixels =
        static_cast<size_t>(options.batch) * static_cast<size_t>(options.image.channels()) *
        static_cast<size_t>(options.image.height()) * static_cast<size_t>(options.image.width());
    SampleRandom random(options.seed, /*epoch=*/0, /*record=*/options.rank, /*attempt=*/0);
    batch_.size = options.batch;
    batch_.pixels.resize(pixels);
    // Uniform with mean 0 and variance 1, as normalised images have.
    const auto range = static_cast<float>(std::sqrt(12.0));
    for (float& pixel : batch_.pixels) {
      pixel = (static_cast<float>(random.Next() >> 40) * 0x1.0p-24f - 0.5f) * range;
    }
    batch_.labels.resize(static_cast<size_t>(options.batch));
    for (int32_t& label : batch_.labels) {
      label = static_cast<int32_t>(random.Below(options.classes));
    }
  }

  absl::Status Next(HostBatch& batch, absl::Time deadline) override {
    if (cancelled_) return absl::CancelledError("input: cancelled");
    if (!AlreadyFilled(batch)) batch = batch_;
    batch.busy_ns = 0;
    return absl::OkStatus();
  }

  v1::InputCounters Counters() const override { return v1::InputCounters(); }

  int64_t MemoryBytes() const override {
    return static_cast<int64_t>(batch_.pixels.size() * sizeof(float) +
                                batch_.labels.size() * sizeof(int32_t));
  }

  void Cancel() override { cancelled_ = true; }

 private:
  // Copying each time would cost more memory traffic than some networks' forward pass. A batch with
  // these labels and these pixels in 64 places is one that this pipeline filled.
  bool AlreadyFilled(const HostBatch& batch) const {
    if (batch.size != batch_.size || batch.pixels.size() != batch_.pixels.size() ||
        batch.labels != batch_.labels) {
      return false;
    }
    const size_t step = std::max<size_t>(1, batch_.pixels.size() / 64);
    for (size_t i = 0; i < batch_.pixels.size(); i += step) {
      if (batch.pixels[i] != batch_.pixels[i]) return false;
    }
    return true;
  }

  HostBatch batch_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::unique_ptr<InputPipeline> CreateSyntheticPipeline(const InputOptions& options) {
  return std::make_unique<SyntheticPipeline>(options);
}

}  // namespace paceline
