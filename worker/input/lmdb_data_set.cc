#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lmdb.h"
#include "worker/input/data_set.h"
#include "worker/input/lmdb_record.h"

namespace paceline {
namespace {

class LmdbDataSet : public DataSet {
 public:
  explicit LmdbDataSet(std::string path) : path_(std::move(path)) {}

  ~LmdbDataSet() override {
    for (MDB_txn* reader : readers_) mdb_txn_abort(reader);
    if (environment_ != nullptr) mdb_env_close(environment_);
  }

  absl::Status Open(int readers) {
    struct stat info;
    if (stat(path_.c_str(), &info) != 0) {
      return absl::NotFoundError(
          absl::StrCat("LMDB '", path_, "': ", strerror(errno),
                       "; expected an LMDB file, or a folder with data.mdb, of labelled JPEGs"));
    }
    const bool folder = S_ISDIR(info.st_mode);
    if (folder && stat((path_ + "/data.mdb").c_str(), &info) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("LMDB '", path_, "': the folder holds no data.mdb"));
    }
    if (int rc = mdb_env_create(&environment_); rc != 0) return Error(rc);
    // Read only, so no lock file: the data set may lie on a read-only file system, and several
    // ranks of one process may open it. Records are read in random order: no read-ahead.
    const unsigned flags =
        MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD | (folder ? 0 : MDB_NOSUBDIR);
    if (int rc = mdb_env_open(environment_, path_.c_str(), flags, 0644); rc != 0) return Error(rc);
    MDB_envinfo environment;
    MDB_stat statistics;
    mdb_env_info(environment_, &environment);
    mdb_env_stat(environment_, &statistics);
    // Reading the map beyond the end of the file would kill the process.
    const auto needed = static_cast<int64_t>(environment.me_last_pgno + 1) * statistics.ms_psize;
    if (info.st_size < needed) {
      return absl::InvalidArgumentError(
          absl::StrCat("LMDB '", path_, "': truncated: the file has ", info.st_size, " bytes of ",
                       needed, "; make it again with: bazel run //tools/datasets -- convert"));
    }
    for (int i = 0; i < readers; ++i) {
      MDB_txn* reader = nullptr;
      if (int rc = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &reader); rc != 0) {
        return Error(rc);
      }
      readers_.push_back(reader);
    }
    return ListKeys();
  }

  int64_t size() const override { return static_cast<int64_t>(offsets_.size()) - 1; }
  int classes() const override { return 0; }

  std::string Name(int64_t index) const override {
    return absl::StrCat(path_, " record '", absl::CHexEscape(Key(index)), "'");
  }

  absl::Status Read(int64_t index, int reader, Record& record) const override {
    const absl::string_view key = Key(index);
    MDB_val name{key.size(), const_cast<char*>(key.data())};
    MDB_val value;
    if (int rc = mdb_get(readers_[static_cast<size_t>(reader)], database_, &name, &value);
        rc != 0) {
      return absl::DataLossError(absl::StrCat("LMDB: ", mdb_strerror(rc)));
    }
    return ParseLmdbRecord(
        absl::string_view(static_cast<const char*>(value.mv_data), value.mv_size), record);
  }

  int64_t MemoryBytes() const override {
    return static_cast<int64_t>(keys_.capacity() + offsets_.capacity() * sizeof(size_t));
  }

 private:
  absl::Status Error(int rc) const {
    return absl::InvalidArgumentError(absl::StrCat("LMDB '", path_, "': ", mdb_strerror(rc),
                                                   "; expected an LMDB of labelled JPEGs"));
  }

  absl::Status ListKeys() {
    MDB_txn* reader = readers_.front();
    if (int rc = mdb_dbi_open(reader, nullptr, 0, &database_); rc != 0) return Error(rc);
    MDB_cursor* cursor = nullptr;
    if (int rc = mdb_cursor_open(reader, database_, &cursor); rc != 0) return Error(rc);
    MDB_val key;
    MDB_val value;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
    for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
      offsets_.push_back(keys_.size());
      keys_.append(static_cast<const char*>(key.mv_data), key.mv_size);
    }
    mdb_cursor_close(cursor);
    offsets_.push_back(keys_.size());
    if (rc != MDB_NOTFOUND) return Error(rc);
    if (size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "LMDB '", path_, "': holds no record; expected labelled JPEGs in the unnamed database"));
    }
    return absl::OkStatus();
  }

  absl::string_view Key(int64_t index) const {
    const auto i = static_cast<size_t>(index);
    return absl::string_view(keys_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }

  const std::string path_;
  MDB_env* environment_ = nullptr;
  MDB_dbi database_ = 0;
  std::vector<MDB_txn*> readers_;  // One per thread: a transaction must not be shared.
  std::string keys_;               // All keys, in LMDB's order.
  std::vector<size_t> offsets_;    // size() + 1.
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataSet>> OpenLmdb(absl::string_view path, int readers) {
  if (path.empty()) return absl::InvalidArgumentError("LMDB: the path is empty");
  auto set = std::make_unique<LmdbDataSet>(std::string(path));
  if (absl::Status status = set->Open(readers); !status.ok()) return status;
  return set;
}

}  // namespace paceline
