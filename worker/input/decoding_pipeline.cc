#include "worker/input/decoding_pipeline.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>  // NOLINT(build/c++11)
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/support/mutex.h"
#include "worker/input/data_set.h"
#include "worker/input/host_batch.h"
#include "worker/input/input_pipeline.h"
#include "worker/input/sample_order.h"
#include "worker/input/sample_reader.h"

namespace paceline {
namespace {

constexpr size_t kNamedCorruptRecords = 10;

struct CorruptRecord {
  int64_t epoch;
  int64_t record;
  std::string message;  // Name and reason.
};

class DecodingPipeline : public InputPipeline {
 public:
  DecodingPipeline(std::unique_ptr<DataSet> data_set, const DecodingOptions& options)
      : options_(options),
        data_set_(std::move(data_set)),
        sample_values_(static_cast<size_t>(options.input.image.channels()) *
                       static_cast<size_t>(options.input.image.height()) *
                       static_cast<size_t>(options.input.image.width())),
        share_(data_set_->size() / options.input.ranks),
        corrupt_limit_(static_cast<int64_t>(
            std::floor(options.max_corrupt_fraction * static_cast<double>(share_)))),
        slots_(static_cast<size_t>(std::max(1, options.input.prefetch_batches))) {
    for (Slot& slot : slots_) Size(slot.batch);
    for (int i = 0; i < options.input.decode_threads; ++i) {
      threads_.emplace_back([this, i] { Work(i); });
    }
  }

  ~DecodingPipeline() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    work_.NotifyAll();
    done_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Next(HostBatch& batch, absl::Time deadline) override {
    // Before waiting, and a no-op for a batch that has been here before: its buffers go to the
    // pool.
    Size(batch);
    MutexLock lock(&mu_);
    waiting_ = true;
    if (options_.input.prefetch_batches == 0) work_.NotifyAll();
    Slot& slot = slots_[static_cast<size_t>(delivered_) % slots_.size()];
    const bool ready = done_.WaitUntil(&mu_, deadline, [&] {
      mu_.AssertHeld();
      return cancelled_ || slot.samples_done == options_.input.batch;
    });
    waiting_ = false;
    if (cancelled_) return absl::CancelledError("input: cancelled");
    if (!ready) {
      return absl::DeadlineExceededError(absl::StrCat(
          "input: batch ", delivered_, " of ", options_.description, " not ready: ",
          slot.samples_done, " of ", options_.input.batch, " samples decoded by the deadline"));
    }
    // A failure is final: the slot stays as it is, and the next call finds it again.
    if (absl::Status status = CountCorrupt(slot); !status.ok()) return status;
    counters_.set_images_read(counters_.images_read() + options_.input.batch);
    counters_.set_bytes_read(counters_.bytes_read() + slot.bytes);
    slot.batch.busy_ns = slot.busy_ns;
    std::swap(batch, slot.batch);
    slot.samples_done = 0;
    slot.busy_ns = 0;
    slot.bytes = 0;
    ++delivered_;
    if (options_.input.prefetch_batches > 0) work_.NotifyAll();
    return absl::OkStatus();
  }

  v1::InputCounters Counters() const override {
    MutexLock lock(&mu_);
    return counters_;
  }

  int64_t MemoryBytes() const override {
    const auto batch = static_cast<int64_t>(options_.input.batch);
    const int64_t batch_bytes =
        batch * static_cast<int64_t>(sample_values_ * sizeof(float) + sizeof(int32_t));
    return batch_bytes * static_cast<int64_t>(slots_.size()) + data_set_->MemoryBytes();
  }

  void Cancel() override {
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
    }
    work_.NotifyAll();
    done_.NotifyAll();
  }

 private:
  // A batch in the making: batch number n is made in slots_[n % slots].
  struct Slot {
    HostBatch batch;
    int samples_done = 0;
    int64_t busy_ns = 0;
    int64_t bytes = 0;
    std::vector<CorruptRecord> corrupt;
  };

  // What one thread found while making one sample.
  struct SampleOutcome {
    int64_t busy_ns = 0;
    int64_t bytes = 0;
    std::vector<CorruptRecord> corrupt;
  };

  void Size(HostBatch& batch) const {
    batch.size = options_.input.batch;
    const auto samples = static_cast<size_t>(options_.input.batch);
    if (batch.pixels.size() != samples * sample_values_) {
      batch.pixels = std::vector<float>(samples * sample_values_);
    }
    batch.labels.resize(samples);
  }

  void Work(int thread) {
    pthread_setname_np(pthread_self(), "input");
    SampleReader reader(*data_set_, thread,
                        {options_.input.image, options_.input.classes, options_.wrap_labels});
    mu_.Lock();
    while (true) {
      while (!stopping_ && (cancelled_ || claimed_batch_ >= ClaimLimit())) {
        work_.WaitFor(&mu_, absl::Hours(1));
      }
      if (stopping_) break;
      const int64_t number = claimed_batch_;
      const int sample = claimed_sample_;
      if (++claimed_sample_ == options_.input.batch) {
        claimed_sample_ = 0;
        ++claimed_batch_;
      }
      Slot& slot = slots_[static_cast<size_t>(number) % slots_.size()];
      float* pixels = slot.batch.pixels.data() + static_cast<size_t>(sample) * sample_values_;
      int32_t* label = &slot.batch.labels[static_cast<size_t>(sample)];
      mu_.Unlock();

      SampleOutcome outcome =
          MakeSample(reader, number * options_.input.batch + sample, pixels, *label);

      mu_.Lock();
      slot.busy_ns += outcome.busy_ns;
      slot.bytes += outcome.bytes;
      for (CorruptRecord& corrupt : outcome.corrupt) slot.corrupt.push_back(std::move(corrupt));
      if (++slot.samples_done == options_.input.batch) done_.NotifyAll();
    }
    mu_.Unlock();
  }

  // Batches below this number may be worked on.
  int64_t ClaimLimit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (options_.input.prefetch_batches == 0) return delivered_ + (waiting_ ? 1 : 0);
    return delivered_ + options_.input.prefetch_batches;
  }

  // `position` counts this rank's samples from the start of training.
  SampleOutcome MakeSample(SampleReader& reader, int64_t position, float* pixels,
                           int32_t& label) const {
    const auto start = std::chrono::steady_clock::now();
    SampleOutcome outcome;
    const int64_t epoch = position / share_;
    // A corrupt record is replaced by the next one of this rank's share. Past the limit the batch
    // will fail anyway.
    for (int64_t attempt = 0; attempt <= std::min(corrupt_limit_, share_ - 1); ++attempt) {
      const int64_t place = (position + attempt) % share_;
      const int64_t record =
          ShuffledIndex(options_.input.seed, epoch,
                        place * options_.input.ranks + options_.input.rank, data_set_->size());
      SampleRandom random(options_.input.seed, epoch, record, static_cast<int>(attempt));
      const absl::Status status = reader.Read(record, random, pixels, label);
      outcome.bytes += reader.encoded_bytes();
      if (status.ok()) break;
      outcome.corrupt.push_back(
          {epoch, record, absl::StrCat(data_set_->Name(record), ": ", status.message())});
    }
    outcome.busy_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count();
    return outcome;
  }

  absl::Status CountCorrupt(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // Threads append in any order.
    std::sort(slot.corrupt.begin(), slot.corrupt.end(),
              [](const CorruptRecord& a, const CorruptRecord& b) {
                return std::make_pair(a.epoch, a.record) < std::make_pair(b.epoch, b.record);
              });
    for (const CorruptRecord& corrupt : slot.corrupt) {
      // A record can be met twice in a pass: at its place and as the replacement of the one before.
      std::set<int64_t>& seen = corrupt_[corrupt.epoch];
      if (!seen.insert(corrupt.record).second) continue;
      counters_.set_corrupt_records(counters_.corrupt_records() + 1);
      if (static_cast<size_t>(counters_.corrupt_names_size()) < kNamedCorruptRecords &&
          std::find(counters_.corrupt_names().begin(), counters_.corrupt_names().end(),
                    corrupt.message) == counters_.corrupt_names().end()) {
        counters_.add_corrupt_names(corrupt.message);
      }
      const auto count = static_cast<int64_t>(seen.size());
      // Where all records are corrupt there is nothing to go on with, whatever the limit.
      if ((count > corrupt_limit_ || count == share_) && failure_.ok()) {
        failure_ = absl::InvalidArgumentError(absl::StrCat(
            "input: ", options_.description, ": ", count, " corrupt records in a pass of ", share_,
            ", more than max_corrupt_fraction ", options_.max_corrupt_fraction, " allows (",
            corrupt_limit_, "). First ones: ", absl::StrJoin(counters_.corrupt_names(), "; "),
            ". Repair or remove them (bazel run //tools/datasets -- verify lists all), or raise "
            "input.max_corrupt_fraction"));
      }
    }
    slot.corrupt.clear();
    // A batch spans two passes, or several of a tiny set; older ones are over.
    const int64_t epoch = delivered_ * options_.input.batch / share_;
    corrupt_.erase(corrupt_.begin(), corrupt_.lower_bound(epoch));
    return failure_;
  }

  const DecodingOptions options_;
  const std::unique_ptr<DataSet> data_set_;
  const size_t sample_values_;
  const int64_t share_;  // Samples of this rank per pass: equal on all ranks.
  const int64_t corrupt_limit_;

  mutable Mutex mu_;
  CondVar work_;  // There may be samples to claim.
  CondVar done_;  // A batch is complete.
  // The vector itself is fixed; a sample's pixels and label belong to the thread that claimed it.
  std::vector<Slot> slots_;
  int64_t delivered_ ABSL_GUARDED_BY(mu_) = 0;      // Batches handed out.
  int64_t claimed_batch_ ABSL_GUARDED_BY(mu_) = 0;  // The next sample to be claimed.
  int claimed_sample_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  v1::InputCounters counters_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, std::set<int64_t>> corrupt_ ABSL_GUARDED_BY(mu_);  // Records by epoch.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InputPipeline>> CreateDecodingPipeline(
    std::unique_ptr<DataSet> data_set, const DecodingOptions& options) {
  if (data_set->size() < options.input.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input: ", options.description, " holds ", data_set->size(), " images, fewer than the ",
        options.input.ranks, " ranks; expected at least one per rank"));
  }
  if (data_set->classes() > options.input.classes && !options.wrap_labels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input: ", options.description, " has ", data_set->classes(), " classes, the network only ",
        options.input.classes, "; choose a network with enough classes or remove class folders"));
  }
  return std::make_unique<DecodingPipeline>(std::move(data_set), options);
}

}  // namespace paceline
