#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/input/data_set.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

// A symbolic link may lead back up.
constexpr int kMaxDepth = 16;

// Far above any photograph; a stray disk image must not fill the memory.
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

bool IsJpegName(absl::string_view name) {
  return absl::EndsWithIgnoreCase(name, ".jpg") || absl::EndsWithIgnoreCase(name, ".jpeg");
}

class FolderDataSet : public DataSet {
 public:
  explicit FolderDataSet(std::string root) : root_(std::move(root)) {}

  absl::Status List() {
    std::vector<std::string> classes;
    bool loose_files = false;
    std::error_code error;
    for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name[0] == '.') continue;
      std::error_code ignored;
      if (it->is_directory(ignored)) {
        classes.push_back(name);
      } else if (IsJpegName(name)) {
        loose_files = true;
      }
    }
    if (error) return ListingError(root_, error);
    std::sort(classes.begin(), classes.end());
    classes_ = static_cast<int>(classes.size());
    for (int label = 0; label < classes_; ++label) {
      std::vector<std::string> files;
      if (absl::Status status = ListFiles(classes[static_cast<size_t>(label)], 0, files);
          !status.ok()) {
        return status;
      }
      std::sort(files.begin(), files.end());
      for (const std::string& file : files) {
        entries_.push_back({names_.size(), label});
        names_ += file;
      }
    }
    if (entries_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image folder '", root_, "': no JPEG found; expected one sub-folder per class with ",
          ".jpg or .jpeg files",
          loose_files ? " (there are JPEGs beside the sub-folders, which have no class: move them "
                        "into a sub-folder)"
                      : ""));
    }
    return absl::OkStatus();
  }

  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  int classes() const override { return classes_; }

  std::string Name(int64_t index) const override {
    const auto i = static_cast<size_t>(index);
    const size_t end = i + 1 < entries_.size() ? entries_[i + 1].name_offset : names_.size();
    return absl::StrCat(
        root_, "/",
        absl::string_view(names_).substr(entries_[i].name_offset, end - entries_[i].name_offset));
  }

  absl::Status Read(int64_t index, int reader, Record& record) const override {
    const std::string path = Name(index);
    record.raw = false;
    record.label = entries_[static_cast<size_t>(index)].label;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return absl::DataLossError(absl::StrCat("open: ", strerror(errno)));
    absl::Status status = ReadAll(file, record.buffer);
    close(file);
    record.bytes = record.buffer;
    return status;
  }

  int64_t MemoryBytes() const override {
    return static_cast<int64_t>(names_.capacity() + entries_.capacity() * sizeof(Entry));
  }

 private:
  struct Entry {
    size_t name_offset;  // Into names_: a million paths are one block of memory.
    int label;
  };

  static absl::Status ListingError(const std::string& path, const std::error_code& error) {
    const std::string message = absl::StrCat("image folder '", path, "': ", error.message(),
                                             "; expected a folder with one sub-folder per class");
    return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(message)
                                                         : absl::InvalidArgumentError(message);
  }

  // `folder` and the results are relative to the root.
  absl::Status ListFiles(const std::string& folder, int depth, std::vector<std::string>& files) {
    if (depth > kMaxDepth) {
      return absl::InvalidArgumentError(absl::StrCat("image folder '", root_, "': '", folder,
                                                     "' lies more than ", kMaxDepth,
                                                     " folders deep; does a link lead back up?"));
    }
    std::error_code error;
    const std::string path = absl::StrCat(root_, "/", folder);
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name[0] == '.') continue;
      const std::string relative = absl::StrCat(folder, "/", name);
      std::error_code ignored;
      if (it->is_directory(ignored)) {
        if (absl::Status status = ListFiles(relative, depth + 1, files); !status.ok()) {
          return status;
        }
      } else if (IsJpegName(name)) {
        files.push_back(relative);
      }
    }
    return error ? ListingError(path, error) : absl::OkStatus();
  }

  static absl::Status ReadAll(int file, std::string& buffer) {
    struct stat info;
    if (fstat(file, &info) != 0)
      return absl::DataLossError(absl::StrCat("stat: ", strerror(errno)));
    if (!S_ISREG(info.st_mode)) return absl::DataLossError("is not a regular file");
    if (info.st_size > kMaxFileBytes) {
      return absl::DataLossError(
          absl::StrCat("has ", info.st_size, " bytes; the limit is ", kMaxFileBytes));
    }
    buffer.resize(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < buffer.size()) {
      const ssize_t got = read(file, &buffer[done], buffer.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::DataLossError(absl::StrCat("read: ", strerror(errno)));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    buffer.resize(done);
    return absl::OkStatus();
  }

  const std::string root_;
  int classes_ = 0;
  std::string names_;
  std::vector<Entry> entries_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataSet>> OpenImageFolder(absl::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  if (path.empty()) return absl::InvalidArgumentError("image folder: the path is empty");
  auto set = std::make_unique<FolderDataSet>(std::string(path));
  if (absl::Status status = set->List(); !status.ok()) return status;
  return set;
}

absl::StatusOr<std::unique_ptr<DataSet>> OpenDataSet(absl::string_view path, int readers) {
  struct stat info;
  const std::string file(path);
  if (stat(file.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat("data set '", path, "': ", strerror(errno),
                                            "; expected an LMDB file or a folder of images"));
  }
  const bool lmdb = S_ISREG(info.st_mode) || stat((file + "/data.mdb").c_str(), &info) == 0;
  return lmdb ? OpenLmdb(path, readers) : OpenImageFolder(path);
}

}  // namespace paceline
