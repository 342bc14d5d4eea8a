#include "worker/input/data_set_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lmdb.h"
#include "worker/input/lmdb_record.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

absl::Status WriteError(absl::string_view path, int error) {
  const std::string message = absl::StrCat("cannot write '", path, "': ", strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message)
                                            : absl::FailedPreconditionError(message);
}

absl::Status CheckAbsent(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", path, "' exists already; choose another name or remove it first"));
  }
  return absl::OkStatus();
}

// Unique among processes and threads.
absl::StatusOr<std::string> MakeTemporaryFolder(const std::string& path) {
  std::string folder = absl::StrCat(path, ".tmp-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) return WriteError(folder, errno);
  chmod(folder.c_str(), 0755);
  return folder;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  // A folder replaces at most an empty folder; a file would replace a file, hence the check.
  if (absl::Status status = CheckAbsent(to); !status.ok()) return status;
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  if (errno == EEXIST || errno == ENOTEMPTY) {
    return absl::AlreadyExistsError(absl::StrCat("'", to, "' exists already"));
  }
  return WriteError(to, errno);
}

class FolderWriter : public DataSetWriter {
 public:
  FolderWriter(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}

  ~FolderWriter() override {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }

  absl::Status Add(int32_t label, absl::string_view class_name, absl::string_view jpeg) override {
    const std::string folder = absl::StrCat(temporary_, "/", class_name);
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return WriteError(folder, errno);
    const std::string path = absl::StrFormat("%s/%08d.jpg", folder, count_++);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) return WriteError(path, errno);
    int error = 0;
    while (!jpeg.empty() && error == 0) {
      const ssize_t written = write(file, jpeg.data(), jpeg.size());
      if (written >= 0) {
        jpeg.remove_prefix(static_cast<size_t>(written));
      } else if (errno != EINTR) {
        error = errno;
      }
    }
    if (close(file) != 0 && error == 0) error = errno;
    return error == 0 ? absl::OkStatus() : WriteError(path, error);
  }

  absl::Status Finish() override {
    absl::Status status = Rename(temporary_, path_);
    if (status.ok()) temporary_.clear();
    return status;
  }

 private:
  const std::string path_;
  std::string temporary_;
  int64_t count_ = 0;
};

class LmdbWriter : public DataSetWriter {
 public:
  LmdbWriter(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}

  ~LmdbWriter() override {
    Close();
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }

  absl::Status Open(int64_t expected_bytes) {
    if (int rc = mdb_env_create(&environment_); rc != 0) return Error(rc);
    // A value takes whole pages of 4096 bytes; twice the bytes and some cover that and the tree.
    mdb_env_set_mapsize(environment_, static_cast<size_t>(2 * expected_bytes + (64 << 20)));
    const unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC;  // Synced once, in Finish.
    const std::string file = File();
    if (int rc = mdb_env_open(environment_, file.c_str(), flags, 0644); rc != 0) return Error(rc);
    return Begin();
  }

  absl::Status Add(int32_t label, absl::string_view class_name, absl::string_view jpeg) override {
    const std::string key = absl::StrFormat("%08d", count_++);
    const std::string value = MakeLmdbRecord(label, jpeg);
    MDB_val name{key.size(), const_cast<char*>(key.data())};
    MDB_val data{value.size(), const_cast<char*>(value.data())};
    if (int rc = mdb_put(transaction_, database_, &name, &data, MDB_APPEND); rc != 0) {
      return Error(rc);
    }
    // Bounds the memory of a transaction, which keeps its pages until it is committed.
    pending_bytes_ += value.size();
    if (pending_bytes_ < (64u << 20)) return absl::OkStatus();
    if (absl::Status status = Commit(); !status.ok()) return status;
    return Begin();
  }

  absl::Status Finish() override {
    if (absl::Status status = Commit(); !status.ok()) return status;
    if (int rc = mdb_env_sync(environment_, /*force=*/1); rc != 0) return Error(rc);
    Close();
    return Rename(File(), path_);
  }

 private:
  std::string File() const { return temporary_ + "/data.mdb"; }

  absl::Status Error(int rc) const {
    if (rc > 0) return WriteError(path_, rc);
    return absl::InternalError(absl::StrCat("LMDB '", path_, "': ", mdb_strerror(rc)));
  }

  absl::Status Begin() {
    pending_bytes_ = 0;
    if (int rc = mdb_txn_begin(environment_, nullptr, 0, &transaction_); rc != 0) return Error(rc);
    if (int rc = mdb_dbi_open(transaction_, nullptr, 0, &database_); rc != 0) return Error(rc);
    return absl::OkStatus();
  }

  absl::Status Commit() {
    const int rc = mdb_txn_commit(std::exchange(transaction_, nullptr));
    return rc == 0 ? absl::OkStatus() : Error(rc);
  }

  void Close() {
    if (transaction_ != nullptr) mdb_txn_abort(std::exchange(transaction_, nullptr));
    if (environment_ != nullptr) mdb_env_close(std::exchange(environment_, nullptr));
  }

  const std::string path_;
  const std::string temporary_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi database_ = 0;
  int64_t count_ = 0;
  size_t pending_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataSetWriter>> CreateFolderWriter(const std::string& path) {
  if (absl::Status status = CheckAbsent(path); !status.ok()) return status;
  absl::StatusOr<std::string> temporary = MakeTemporaryFolder(path);
  if (!temporary.ok()) return temporary.status();
  return std::make_unique<FolderWriter>(path, *temporary);
}

absl::StatusOr<std::unique_ptr<DataSetWriter>> CreateLmdbWriter(const std::string& path,
                                                                int64_t expected_bytes) {
  if (absl::Status status = CheckAbsent(path); !status.ok()) return status;
  absl::StatusOr<std::string> temporary = MakeTemporaryFolder(path);
  if (!temporary.ok()) return temporary.status();
  auto writer = std::make_unique<LmdbWriter>(path, *temporary);
  if (absl::Status status = writer->Open(expected_bytes); !status.ok()) return status;
  return writer;
}

}  // namespace paceline
