#include "worker/input/photographs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/runfiles.h"
#include "worker/input/data_set_writer.h"
#include "worker/input/jpeg_decoder.h"
#include "worker/input/jpeg_encoder.h"
#include "worker/input/sample_order.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultImages = 512;
constexpr int kMaxImages = 1'000'000;

// Part of the cache's names: raise it when CutPhotographs gives other bytes.
constexpr int kCutVersion = 1;

// Cutting 512 images takes seconds; a million, minutes.
constexpr absl::Duration kCutTimeout = absl::Minutes(20);

constexpr double kMaxReduction = 4;

absl::StatusOr<std::string> CacheFolder() {
  std::string base;
  // Relative values are to be ignored (XDG Base Directory Specification).
  if (const char* cache = getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    base = cache;
  } else if (const char* test = getenv("TEST_TMPDIR"); test != nullptr && test[0] == '/') {
    base = test;  // Tests write nowhere else.
  } else if (const char* home = getenv("HOME"); home != nullptr && home[0] == '/') {
    base = absl::StrCat(home, "/.cache");
  } else {
    return absl::FailedPreconditionError(
        "photographs: no place for the data set: neither XDG_CACHE_HOME nor HOME is set; set "
        "XDG_CACHE_HOME to a folder with 100 MB of space");
  }
  const std::string folder = absl::StrCat(base, "/paceline/datasets");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat("photographs: cannot make the cache folder '",
                                                      folder, "': ", error.message(),
                                                      "; set XDG_CACHE_HOME to a writable folder"));
  }
  return folder;
}

// A lock file, held for the scope.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (file_ >= 0) close(file_);  // Gives the lock back.
  }

  absl::Status Acquire(const std::string& path, absl::Time deadline) {
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("photographs: cannot write '", path, "': ", strerror(errno),
                       "; set XDG_CACHE_HOME to a writable folder"));
    }
    while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return absl::FailedPreconditionError(
            absl::StrCat("photographs: cannot lock '", path, "': ", strerror(errno)));
      }
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "photographs: another process has held '", path, "' for ",
            absl::FormatDuration(kCutTimeout), " to cut the data set; end it or remove the file"));
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::OkStatus();
  }

 private:
  int file_ = -1;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read '", path, "'"));
  return content;
}

struct Photograph {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;
};

// Shares of source pixels in each output pixel along one axis: output i covers
// [begin + i * step, begin + (i + 1) * step).
struct AreaWeights {
  struct Span {
    int first;
    std::vector<float> weights;  // Sum 1.
  };
  std::vector<Span> spans;

  AreaWeights(double begin, double step, int count, int limit) {
    for (int i = 0; i < count; ++i) {
      const double from = begin + i * step;
      const double to = std::min(from + step, static_cast<double>(limit));
      Span span;
      span.first = static_cast<int>(from);
      for (int pixel = span.first; pixel < to; ++pixel) {
        const double covered = std::min(pixel + 1.0, to) - std::max<double>(pixel, from);
        span.weights.push_back(static_cast<float>(covered / (to - from)));
      }
      spans.push_back(std::move(span));
    }
  }
};

void ScaleByArea(const Photograph& photograph, double x, double y, double reduction,
                 const CutOptions& options, std::vector<uint8_t>& out) {
  const AreaWeights columns(x, reduction, options.width, photograph.width);
  const AreaWeights rows(y, reduction, options.height, photograph.height);
  const int first = columns.spans.front().first;
  const int last =
      columns.spans.back().first + static_cast<int>(columns.spans.back().weights.size());
  std::vector<float> line(static_cast<size_t>(last - first) * 3);
  out.resize(static_cast<size_t>(options.width) * static_cast<size_t>(options.height) * 3);
  uint8_t* to = out.data();
  for (const AreaWeights::Span& row : rows.spans) {
    std::fill(line.begin(), line.end(), 0.0f);
    for (size_t r = 0; r < row.weights.size(); ++r) {
      const size_t offset =
          (static_cast<size_t>(row.first) + r) * static_cast<size_t>(photograph.width) +
          static_cast<size_t>(first);
      const uint8_t* source = photograph.rgb.data() + offset * 3;
      const float weight = row.weights[r];
      for (size_t i = 0; i < line.size(); ++i) line[i] += weight * static_cast<float>(source[i]);
    }
    for (const AreaWeights::Span& column : columns.spans) {
      const float* from = line.data() + static_cast<ptrdiff_t>(column.first - first) * 3;
      float sum[3] = {0, 0, 0};
      for (size_t i = 0; i < column.weights.size(); ++i) {
        for (size_t c = 0; c < 3; ++c) sum[c] += column.weights[i] * from[3 * i + c];
      }
      for (float value : sum) *to++ = static_cast<uint8_t>(std::lround(value));
    }
  }
}

absl::Status CutOne(const Photograph& photograph, const CutOptions& options, int image,
                    std::string& jpeg, std::vector<uint8_t>& pixels) {
  SampleRandom random(options.seed, /*epoch=*/0, image, /*attempt=*/0);
  const double reach = std::min(static_cast<double>(photograph.width) / options.width,
                                static_cast<double>(photograph.height) / options.height);
  const double reduction = 1 + random.Uniform() * (std::min(reach, kMaxReduction) - 1);
  const double x = random.Uniform() * (photograph.width - options.width * reduction);
  const double y = random.Uniform() * (photograph.height - options.height * reduction);
  ScaleByArea(photograph, x, y, reduction, options, pixels);
  absl::StatusOr<std::string> encoded =
      EncodeJpeg(pixels.data(), options.width, options.height, options.quality);
  if (!encoded.ok()) return encoded.status();
  jpeg = *std::move(encoded);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FindPhotographs(const char* override_folder) {
  if (override_folder != nullptr) return ListPhotographs(override_folder);
  absl::StatusOr<std::string> folder = FindRunfile("@photographs/photographs");
  if (folder.ok()) return ListPhotographs(*folder);
  return absl::NotFoundError(absl::StrCat(
      "photographs: the photographs that belong to this program were not found (",
      folder.status().message(),
      "). Start it with bazel, copy its runfiles folder along, or set PACELINE_PHOTOGRAPHS to a "
      "folder of large JPEGs"));
}

// Differs between sets of photographs.
std::string Fingerprint(const std::vector<std::string>& photographs) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a.
  for (const std::string& path : photographs) {
    std::error_code error;
    for (char c :
         absl::StrCat(fs::path(path).filename().string(), ":", fs::file_size(path, error), ";")) {
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    }
  }
  return absl::StrFormat("%08x", static_cast<uint32_t>(hash ^ hash >> 32));
}

// Left over from processes that were killed. With the lock held nobody is at work on them.
void RemoveLeftovers(const std::string& folder, const std::string& name) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), name + ".tmp-")) {
      std::error_code ignored;
      fs::remove_all(it->path(), ignored);
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListPhotographs(absl::string_view folder) {
  std::vector<std::string> photographs;
  std::error_code error;
  for (fs::recursive_directory_iterator it(std::string(folder), error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    std::error_code ignored;
    if ((absl::EndsWithIgnoreCase(path, ".jpg") || absl::EndsWithIgnoreCase(path, ".jpeg")) &&
        it->is_regular_file(ignored)) {
      photographs.push_back(path);
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("photographs: '", folder, "': ", error.message(),
                                            "; expected a folder of large JPEGs"));
  }
  if (photographs.empty()) {
    return absl::NotFoundError(
        absl::StrCat("photographs: '", folder, "' holds no .jpg or .jpeg file"));
  }
  std::sort(photographs.begin(), photographs.end());
  return photographs;
}

absl::Status CutPhotographs(const std::vector<std::string>& photographs, const CutOptions& options,
                            DataSetWriter& writer) {
  if (options.images <= 0 || options.images > kMaxImages || options.width <= 0 ||
      options.height <= 0 || options.width > 4096 || options.height > 4096 || options.quality < 1 ||
      options.quality > 100) {
    return absl::InvalidArgumentError(
        absl::StrCat("cut: images ", options.images, ", size ", options.width, "x", options.height,
                     ", quality ", options.quality, ": expected 1 to ", kMaxImages,
                     " images of 1 to 4096 pixels a side and a quality of 1 to 100"));
  }
  JpegDecoder decoder;
  Photograph photograph;
  std::string jpeg;
  std::vector<uint8_t> pixels;
  const auto count = static_cast<int>(photographs.size());
  for (int p = 0; p < std::min(count, options.images); ++p) {
    const std::string& path = photographs[static_cast<size_t>(p)];
    absl::StatusOr<std::string> content = ReadFile(path);
    if (!content.ok()) return content.status();
    if (absl::Status status =
            decoder.DecodeRgb(*content, photograph.width, photograph.height, photograph.rgb);
        !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("photograph '", path, "': ", status.message()));
    }
    if (photograph.width < options.width || photograph.height < options.height) {
      return absl::InvalidArgumentError(
          absl::StrCat("photograph '", path, "' has ", photograph.width, "x", photograph.height,
                       " pixels, fewer than the ", options.width, "x", options.height,
                       " to be cut; remove it or cut smaller images"));
    }
    const std::string class_name = absl::StrFormat("%04d-%s", p, fs::path(path).stem().string());
    for (int image = p; image < options.images; image += count) {
      if (absl::Status status = CutOne(photograph, options, image, jpeg, pixels); !status.ok()) {
        return status;
      }
      if (absl::Status status = writer.Add(p, class_name, jpeg); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PhotographsDataSet(const v1::Photographs& source) {
  CutOptions cut;
  cut.images = source.images() == 0 ? kDefaultImages : source.images();
  if (cut.images < 0 || cut.images > kMaxImages) {
    return absl::InvalidArgumentError(absl::StrCat("input.photographs.images: ", cut.images,
                                                   " is outside [1, ", kMaxImages, "]"));
  }
  absl::StatusOr<std::string> folder = CacheFolder();
  if (!folder.ok()) return folder.status();

  std::string name = absl::StrCat("photographs-v", kCutVersion, "-", cut.images);
  const char* override_folder = getenv("PACELINE_PHOTOGRAPHS");
  absl::StatusOr<std::vector<std::string>> photographs = FindPhotographs(override_folder);
  if (override_folder != nullptr) {
    if (!photographs.ok()) return photographs.status();
    absl::StrAppend(&name, "-", Fingerprint(*photographs));
  }
  if (source.as_lmdb()) name += ".lmdb";
  const std::string path = absl::StrCat(*folder, "/", name);

  std::error_code error;
  if (fs::exists(path, error)) return path;
  if (!photographs.ok()) return photographs.status();
  FileLock lock;
  if (absl::Status status = lock.Acquire(path + ".lock", absl::Now() + kCutTimeout); !status.ok()) {
    return status;
  }
  if (fs::exists(path, error)) return path;  // Whoever held the lock has made it.
  RemoveLeftovers(*folder, name);
  absl::StatusOr<std::unique_ptr<DataSetWriter>> writer =
      source.as_lmdb()
          ? CreateLmdbWriter(path, static_cast<int64_t>(cut.images) * cut.width * cut.height)
          : CreateFolderWriter(path);
  if (!writer.ok()) return writer.status();
  absl::Status status = CutPhotographs(*photographs, cut, **writer);
  if (status.ok()) status = (*writer)->Finish();
  // On a file system without working locks another process may have been faster; all cut the same.
  if (status.ok() || absl::IsAlreadyExists(status)) return path;
  return status;
}

}  // namespace paceline
