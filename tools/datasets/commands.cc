#include "tools/datasets/commands.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "worker/input/data_set.h"
#include "worker/input/data_set_writer.h"
#include "worker/input/photographs.h"
#include "worker/input/sample_reader.h"

namespace paceline {
namespace {

absl::Status AnnotatedWith(absl::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

}  // namespace

absl::Status ConvertDataSet(const std::string& from, const std::string& to, std::ostream& out) {
  absl::StatusOr<std::unique_ptr<DataSet>> set = OpenDataSet(from, /*readers=*/1);
  if (!set.ok()) return set.status();
  Record record;
  // A pass for the size: only address space is reserved by it, but that must suffice.
  int64_t bytes = 0;
  for (int64_t i = 0; i < (*set)->size(); ++i) {
    if (absl::Status status = (*set)->Read(i, 0, record); !status.ok()) {
      return AnnotatedWith((*set)->Name(i), status);
    }
    if (record.raw) {
      return absl::InvalidArgumentError(
          absl::StrCat((*set)->Name(i),
                       ": holds raw pixels, not a JPEG. Paceline reads this LMDB "
                       "as it is; to convert it, encode the images first"));
    }
    if (record.label < 0 || record.label > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat((*set)->Name(i), ": label ", record.label, " is not a class number"));
    }
    bytes += static_cast<int64_t>(record.bytes.size());
  }
  absl::StatusOr<std::unique_ptr<DataSetWriter>> writer =
      CreateLmdbWriter(to, bytes + (*set)->size() * 4096);
  if (!writer.ok()) return writer.status();
  for (int64_t i = 0; i < (*set)->size(); ++i) {
    absl::Status status = (*set)->Read(i, 0, record);
    if (!status.ok()) return AnnotatedWith((*set)->Name(i), status);
    status = (*writer)->Add(static_cast<int32_t>(record.label), "", record.bytes);
    if (!status.ok()) return status;
  }
  if (absl::Status status = (*writer)->Finish(); !status.ok()) return status;
  out << absl::StrFormat("%s: %d images, %.1f MB\n", to, (*set)->size(), 1e-6 * bytes);
  return absl::OkStatus();
}

absl::Status CutDataSet(const std::string& from, const std::string& to, const CutOptions& options,
                        std::ostream& out) {
  absl::StatusOr<std::vector<std::string>> photographs = ListPhotographs(from);
  if (!photographs.ok()) return photographs.status();
  const int64_t pixels = static_cast<int64_t>(options.images) * std::max(options.width, 1) *
                         std::max(options.height, 1);
  absl::StatusOr<std::unique_ptr<DataSetWriter>> writer =
      absl::EndsWith(to, ".lmdb") ? CreateLmdbWriter(to, std::max<int64_t>(pixels, 0) * 3)
                                  : CreateFolderWriter(to);
  if (!writer.ok()) return writer.status();
  if (absl::Status status = CutPhotographs(*photographs, options, **writer); !status.ok()) {
    return status;
  }
  if (absl::Status status = (*writer)->Finish(); !status.ok()) return status;
  out << absl::StrFormat("%s: %d images of %dx%d from %d photographs, one class each\n", to,
                         options.images, options.width, options.height, photographs->size());
  return absl::OkStatus();
}

absl::Status VerifyDataSet(const std::string& path, int classes, std::ostream& out) {
  absl::StatusOr<std::unique_ptr<DataSet>> set = OpenDataSet(path, /*readers=*/1);
  if (!set.ok()) return set.status();
  SampleOptions options;
  options.classes = classes > 0 ? classes : std::numeric_limits<int>::max();
  SampleReader reader(**set, /*reader=*/0, options);
  int64_t corrupt = 0;
  int64_t bytes = 0;
  for (int64_t i = 0; i < (*set)->size(); ++i) {
    const absl::Status status = reader.Verify(i);
    bytes += reader.encoded_bytes();
    if (status.ok()) continue;
    ++corrupt;
    out << (*set)->Name(i) << ": " << status.message() << "\n";
  }
  out << absl::StrFormat("%s: %d images, %.1f MB, %d corrupt\n", path, (*set)->size(), 1e-6 * bytes,
                         corrupt);
  if (corrupt == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%d of %d records are corrupt", corrupt, (*set)->size()));
}

}  // namespace paceline
