#include "worker/input/input_pipeline.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/paceline/v1/plan.pb.h"
#include "worker/input/data_set.h"
#include "worker/input/decoding_pipeline.h"
#include "worker/input/photographs.h"
#include "worker/input/synthetic_pipeline.h"

namespace paceline {
namespace {

constexpr double kDefaultMaxCorruptFraction = 0.01;

absl::Status CheckOptions(const InputOptions& options) {
  const v1::ImageSize& image = options.image;
  if (image.height() <= 0 || image.width() <= 0 || image.channels() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("input: image size ", image.channels(), "x",
                                                   image.height(), "x", image.width(),
                                                   ": all three must be positive"));
  }
  if (options.batch <= 0 || options.classes <= 0 || options.decode_threads <= 0 ||
      options.prefetch_batches < 0 || options.ranks <= 0 || options.rank < 0 ||
      options.rank >= options.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input: batch ", options.batch, ", classes ", options.classes, ", decode_threads ",
        options.decode_threads, ", prefetch_batches ", options.prefetch_batches, ", rank ",
        options.rank, " of ", options.ranks,
        ": expected positive numbers (prefetch_batches may be 0) and a rank below ranks"));
  }
  return absl::OkStatus();
}

int64_t AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kibibytes = 0;
  std::string unit;
  while (file >> key >> kibibytes >> unit) {
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// Before allocating: the system hands out memory that it does not have and then kills somebody.
absl::Status CheckMemory(const InputOptions& options) {
  const v1::ImageSize& image = options.image;
  const double batch_bytes =
      4.0 * options.batch * image.channels() * image.height() * static_cast<double>(image.width());
  const double needed = batch_bytes * (1 + std::max(1, options.prefetch_batches));
  const auto available = static_cast<double>(AvailableMemoryBytes());
  if (needed <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "input: a batch of %d needs %.0f MB, and %d are held at once; %.0f MB are available. Use a "
      "smaller batch_per_device",
      options.batch, batch_bytes * 1e-6, 1 + std::max(1, options.prefetch_batches),
      available * 1e-6));
}

}  // namespace

absl::StatusOr<std::unique_ptr<InputPipeline>> CreateInputPipeline(const v1::InputSource& source,
                                                                   const InputOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = CheckMemory(options); !status.ok()) return status;
  if (source.source_case() == v1::InputSource::kSynthetic ||
      source.source_case() == v1::InputSource::SOURCE_NOT_SET) {
    return CreateSyntheticPipeline(options);
  }
  if (options.image.channels() != 1 && options.image.channels() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input: images have 1 or 3 channels, the network expects ",
                     options.image.channels(), "; use synthetic input"));
  }
  const double fraction = source.max_corrupt_fraction();
  if (!(fraction >= 0 && fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("input.max_corrupt_fraction: ", fraction, " is outside [0, 1]"));
  }
  DecodingOptions decoding;
  decoding.input = options;
  decoding.max_corrupt_fraction = fraction == 0 ? kDefaultMaxCorruptFraction : fraction;
  absl::StatusOr<std::unique_ptr<DataSet>> data_set;
  switch (source.source_case()) {
    case v1::InputSource::kImageFolder:
      decoding.description = absl::StrCat("image folder '", source.image_folder(), "'");
      data_set = OpenImageFolder(source.image_folder());
      break;
    case v1::InputSource::kLmdb:
      decoding.description = absl::StrCat("LMDB '", source.lmdb(), "'");
      data_set = OpenLmdb(source.lmdb(), options.decode_threads);
      break;
    default: {
      absl::StatusOr<std::string> path = PhotographsDataSet(source.photographs());
      if (!path.ok()) return path.status();
      decoding.description = absl::StrCat("photographs '", *path, "'");
      decoding.wrap_labels = true;
      data_set = OpenDataSet(*path, options.decode_threads);
    }
  }
  if (!data_set.ok()) return data_set.status();
  return CreateDecodingPipeline(*std::move(data_set), decoding);
}

}  // namespace paceline
