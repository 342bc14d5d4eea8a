#include "coordinator/results/run_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/support/mutex.h"
#include "proto/support/text_proto.h"
#include "proto/support/version.h"

namespace paceline {
namespace {

// Raised whenever a reader of the old layout would misread the new one.
constexpr int kSchemaVersion = 1;
constexpr char kFileName[] = "run.sqlite";
// A file of another program must not be taken for a run store ("Pace" in ASCII).
constexpr int kApplicationId = 0x50616365;

// Every table and column is documented in docs/run_store.md.
constexpr char kSchema[] = R"sql(
CREATE TABLE run (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE trials (
  trial_index INTEGER PRIMARY KEY,
  trial_id TEXT NOT NULL UNIQUE,
  configuration_id TEXT NOT NULL,
  repeat INTEGER NOT NULL,
  network TEXT NOT NULL,
  policy TEXT NOT NULL,
  engine TEXT NOT NULL,
  hosts INTEGER NOT NULL,
  devices INTEGER NOT NULL,
  batch_per_device INTEGER NOT NULL,
  precision TEXT NOT NULL,
  input TEXT NOT NULL,
  trial_proto BLOB NOT NULL
);

CREATE TABLE attempts (
  trial_id TEXT NOT NULL REFERENCES trials(trial_id),
  attempt INTEGER NOT NULL,
  final INTEGER NOT NULL,
  status TEXT NOT NULL,
  cause TEXT NOT NULL,
  started_unix_ns INTEGER,
  finished_unix_ns INTEGER,
  PRIMARY KEY (trial_id, attempt)
) WITHOUT ROWID;

CREATE TABLE results (
  result_id INTEGER PRIMARY KEY,
  trial_id TEXT NOT NULL REFERENCES trials(trial_id),
  attempt INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  status TEXT NOT NULL,
  cause TEXT NOT NULL,
  worker_id TEXT NOT NULL,
  host TEXT NOT NULL,
  start_unix_ns INTEGER NOT NULL,
  end_unix_ns INTEGER NOT NULL,
  warmup_iterations INTEGER NOT NULL,
  peak_resident_bytes INTEGER NOT NULL,
  result_proto BLOB NOT NULL,
  UNIQUE (trial_id, attempt, rank)
);

CREATE TABLE iterations (
  result_id INTEGER NOT NULL REFERENCES results(result_id),
  iteration INTEGER NOT NULL,
  warmup INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  input_ns INTEGER NOT NULL,
  input_wait_ns INTEGER NOT NULL,
  copy_ns INTEGER NOT NULL,
  forward_ns INTEGER NOT NULL,
  backward_ns INTEGER NOT NULL,
  communication_ns INTEGER NOT NULL,
  exposed_communication_ns INTEGER NOT NULL,
  update_ns INTEGER NOT NULL,
  loss REAL,
  PRIMARY KEY (result_id, iteration)
) WITHOUT ROWID;

CREATE VIEW samples AS
  SELECT t.trial_index, t.network, t.policy, t.devices, t.batch_per_device, t.precision,
         r.attempt, r.rank, r.status, i.*
  FROM iterations i JOIN results r USING (result_id) JOIN trials t USING (trial_id);
)sql";

std::string StatusName(v1::TrialStatus status) {
  return std::string(absl::StripPrefix(v1::TrialStatus_Name(status), "TRIAL_STATUS_"));
}

v1::TrialStatus ParseStatusName(absl::string_view name) {
  v1::TrialStatus status = v1::TRIAL_STATUS_UNSPECIFIED;
  v1::TrialStatus_Parse(absl::StrCat("TRIAL_STATUS_", name), &status);
  return status;
}

std::string InputName(const v1::InputSource& input) {
  switch (input.source_case()) {
    case v1::InputSource::kImageFolder:
      return absl::StrCat("image_folder:", input.image_folder());
    case v1::InputSource::kLmdb:
      return absl::StrCat("lmdb:", input.lmdb());
    case v1::InputSource::kPhotographs:
      return input.photographs().as_lmdb() ? "photographs_lmdb" : "photographs";
    case v1::InputSource::kSynthetic:
    case v1::InputSource::SOURCE_NOT_SET:
      break;
  }
  return "synthetic";
}

// "1.5 GB free" of the disk that holds `path`.
std::string FreeSpace(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) return "free space unknown";
  return absl::StrFormat("%.1f MB free", static_cast<double>(disk.f_bavail) * disk.f_frsize / 1e6);
}

// The folder that holds `file`.
std::string FolderOf(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash + 1);
}

// Whether this process may write files up to a certain size only; SQLite does not say that this is
// why a write failed.
bool FileSizeLimited() {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// What the last error on `db` means to the caller. `action` completes "cannot ...".
absl::Status DatabaseError(sqlite3* db, const std::string& path, absl::string_view action) {
  const int code = sqlite3_extended_errcode(db);
  const int system_error = sqlite3_system_errno(db);
  const std::string detail = sqlite3_errmsg(db);
  const bool io = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  const bool file_limit = code == SQLITE_IOERR_WRITE && FileSizeLimited();
  if ((code & 0xff) == SQLITE_FULL || code == SQLITE_IOERR_SHMSIZE || file_limit ||
      (io && (system_error == ENOSPC || system_error == EDQUOT))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": cannot ", action, ": ",
        file_limit ? "the file has reached the limit set for this process (ulimit -f)"
                   : absl::StrCat("the disk is full (", FreeSpace(FolderOf(path)), ")"),
        ". Everything stored before is safe: make room, then continue the run with --resume."));
  }
  const std::string message = absl::StrCat(
      path, ": cannot ", action, ": ", detail, system_error != 0 && io ? " (" : "",
      system_error != 0 && io ? strerror(system_error) : "", system_error != 0 && io ? ")" : "");
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_CONSTRAINT:
      if (code == SQLITE_CONSTRAINT_FOREIGNKEY) {
        return absl::NotFoundError(
            absl::StrCat(path, ": cannot ", action, ": this run has no such trial"));
      }
      return absl::InternalError(message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

// Owns a prepared statement. Bind in order, then Step until it is done.
class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&& other) noexcept {
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement() { sqlite3_finalize(statement_); }

  int Prepare(sqlite3* db, absl::string_view sql) {
    return sqlite3_prepare_v3(db, sql.data(), static_cast<int>(sql.size()),
                              SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  }
  // Makes the statement ready for new values.
  Statement& Reset() {
    sqlite3_reset(statement_);
    next_ = 1;
    return *this;
  }
  Statement& Bind(int64_t value) {
    sqlite3_bind_int64(statement_, next_++, value);
    return *this;
  }
  // NaN becomes NULL, as SQLite has it.
  Statement& Bind(double value) {
    sqlite3_bind_double(statement_, next_++, value);
    return *this;
  }
  // The text must live until the next Reset().
  Statement& Bind(absl::string_view value) {
    sqlite3_bind_text(statement_, next_++, value.data(), static_cast<int>(value.size()),
                      SQLITE_STATIC);
    return *this;
  }
  Statement& BindBlob(absl::string_view value) {
    sqlite3_bind_blob(statement_, next_++, value.data(), static_cast<int>(value.size()),
                      SQLITE_STATIC);
    return *this;
  }
  int Step() { return sqlite3_step(statement_); }
  int64_t Int(int column) { return sqlite3_column_int64(statement_, column); }
  bool IsNull(int column) { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  absl::string_view Text(int column) {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? absl::string_view()
                           : absl::string_view(static_cast<const char*>(data), size);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int next_ = 1;
};

// mkdir -p.
absl::Status MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
      const int error = errno;
      const std::string message =
          absl::StrCat("cannot make the folder ", folder, ": ", strerror(error));
      if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
      if (error == EACCES || error == EROFS) return absl::PermissionDeniedError(message);
      return absl::InvalidArgumentError(message);
    }
    if (slash == std::string::npos) return absl::OkStatus();
  }
}

class SqliteRunStore : public RunStore {
 public:
  SqliteRunStore(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  ~SqliteRunStore() override {
    statements_ = Statements();
    sqlite3_close(db_);
  }

  // Writes the schema and the run itself into an empty file.
  absl::Status Initialise(const v1::BenchmarkPlan& plan, const std::vector<v1::Trial>& trials)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Reads what Initialise() wrote.
  absl::Status ReadInfo() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status PrepareWriter() ABSL_LOCKS_EXCLUDED(mu_);

  const RunInfo& info() const override { return info_; }
  absl::Status StartAttempt(absl::string_view trial_id, int attempt) override;
  absl::Status Append(const v1::TrialResult& result) override;
  absl::Status FinishAttempt(const TrialOutcome& outcome) override;
  absl::StatusOr<std::vector<v1::Trial>> Trials() const override;
  absl::StatusOr<std::vector<TrialOutcome>> Outcomes() const override;
  absl::StatusOr<std::vector<v1::TrialResult>> Results(absl::string_view trial_id,
                                                       int attempt) const override;

 private:
  struct Statements {
    Statement start_attempt, find_result, add_result, add_iteration, finish_attempt;
  };

  absl::Status Execute(const char* sql, absl::string_view action) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
    return Error(action);
  }
  absl::Status Error(absl::string_view action) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return DatabaseError(db_, path_, action);
  }
  // Runs `body` in one transaction: all of it is on the disk afterwards, or nothing.
  template <typename Body>
  absl::Status InTransaction(absl::string_view action, Body body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    absl::Status status = Execute("BEGIN IMMEDIATE", action);
    if (!status.ok()) return status;
    status = body();
    if (status.ok()) status = Execute("COMMIT", action);
    // SQLite rolls back by itself after some errors; then this does nothing.
    if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  }
  // Runs a statement that returns no rows.
  absl::Status Run(Statement& statement, absl::string_view action)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const int code = statement.Step();
    absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(action);
    statement.Reset();
    return status;
  }
  absl::Status CheckWritable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!writable_) return absl::FailedPreconditionError(absl::StrCat(path_, ": opened read-only"));
    return absl::OkStatus();
  }

  mutable Mutex mu_;
  sqlite3* const db_;
  const std::string path_;
  RunInfo info_;
  bool writable_ ABSL_GUARDED_BY(mu_) = false;
  Statements statements_ ABSL_GUARDED_BY(mu_);
};

absl::Status SqliteRunStore::Initialise(const v1::BenchmarkPlan& plan,
                                        const std::vector<v1::Trial>& trials) {
  MutexLock lock(&mu_);
  std::random_device random;
  const std::string run_id = absl::StrFormat("%08x%08x", random(), random());
  return InTransaction("create the run", [&]() -> absl::Status {
    mu_.AssertHeld();
    absl::Status status = Execute(kSchema, "create the tables");
    if (!status.ok()) return status;
    Statement add_info;
    if (add_info.Prepare(db_, "INSERT INTO run VALUES (?, ?)") != SQLITE_OK) {
      return Error("create the run");
    }
    const std::pair<const char*, std::string> rows[] = {
        {"schema_version", absl::StrCat(kSchemaVersion)},
        {"run_id", run_id},
        {"created_unix_ns", absl::StrCat(absl::ToUnixNanos(absl::Now()))},
        {"paceline_version", kPacelineVersion},
        {"plan", PrintTextProto(plan)},
    };
    for (const auto& [key, value] : rows) {
      add_info.Reset().Bind(key).Bind(value);
      status = Run(add_info, "store the run");
      if (!status.ok()) return status;
    }
    Statement add_trial;
    if (add_trial.Prepare(db_,
                          "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") !=
        SQLITE_OK) {
      return Error("store the trials");
    }
    for (size_t i = 0; i < trials.size(); ++i) {
      const v1::Trial& trial = trials[i];
      const std::string engine(absl::StripPrefix(v1::Engine_Name(trial.engine()), "ENGINE_"));
      const std::string precision(
          absl::StripPrefix(v1::Precision_Name(trial.precision()), "PRECISION_"));
      const std::string input = InputName(trial.input());
      const std::string proto = trial.SerializeAsString();
      const int64_t devices = int64_t{trial.cluster().hosts()} * trial.cluster().devices_per_host();
      add_trial.Reset()
          .Bind(static_cast<int64_t>(i))
          .Bind(trial.trial_id())
          .Bind(trial.configuration_id())
          .Bind(int64_t{trial.repeat()})
          .Bind(trial.network().name())
          .Bind(trial.policy().name())
          .Bind(engine)
          .Bind(int64_t{trial.cluster().hosts()})
          .Bind(devices)
          .Bind(int64_t{trial.batch_per_device()})
          .Bind(precision)
          .Bind(input)
          .BindBlob(proto);
      status = Run(add_trial, absl::StrCat("store trial ", trial.trial_id()));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::Status SqliteRunStore::ReadInfo() {
  MutexLock lock(&mu_);
  Statement application;
  if (application.Prepare(db_, "PRAGMA application_id") != SQLITE_OK ||
      application.Step() != SQLITE_ROW) {
    return Error("read the file");
  }
  if (application.Int(0) != kApplicationId) {
    return absl::DataLossError(absl::StrCat(path_, ": not a Paceline run store"));
  }
  Statement select;
  if (select.Prepare(db_, "SELECT key, value FROM run") != SQLITE_OK) return Error("read the run");
  int schema_version = 0;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    const absl::string_view key = select.Text(0);
    const absl::string_view value = select.Text(1);
    if (key == "schema_version") {
      if (!absl::SimpleAtoi(value, &schema_version)) schema_version = 0;
    } else if (key == "run_id") {
      info_.run_id = std::string(value);
    } else if (key == "created_unix_ns") {
      if (!absl::SimpleAtoi(value, &info_.created_unix_ns)) info_.created_unix_ns = 0;
    } else if (key == "paceline_version") {
      info_.paceline_version = std::string(value);
    } else if (key == "plan" && schema_version <= kSchemaVersion) {
      absl::Status status = ParseTextProto(value, absl::StrCat(path_, ": plan"), &info_.plan);
      if (!status.ok()) return absl::DataLossError(status.message());
    }
  }
  if (code != SQLITE_DONE) return Error("read the run");
  if (schema_version == 0 || info_.run_id.empty()) {
    return absl::DataLossError(
        absl::StrCat(path_, ": not a Paceline run store (it names no run and no schema version)"));
  }
  if (schema_version > kSchemaVersion) {
    return absl::DataLossError(absl::StrCat(
        path_, ": written by Paceline ", info_.paceline_version, " with schema version ",
        schema_version, "; this is Paceline ", kPacelineVersion, ", which reads up to version ",
        kSchemaVersion, ". Please use the newer one."));
  }
  return absl::OkStatus();
}

absl::Status SqliteRunStore::PrepareWriter() {
  MutexLock lock(&mu_);
  if (statements_.start_attempt.Prepare(
          db_,
          "INSERT INTO attempts (trial_id, attempt, final, status, cause, started_unix_ns) "
          "VALUES (?, ?, 0, 'UNSPECIFIED', '', ?) ON CONFLICT DO NOTHING") != SQLITE_OK ||
      statements_.find_result.Prepare(
          db_, "SELECT 1 FROM results WHERE trial_id = ? AND attempt = ? AND rank = ?") !=
          SQLITE_OK ||
      statements_.add_result.Prepare(
          db_,
          "INSERT INTO results (trial_id, attempt, rank, status, cause, worker_id, host, "
          "start_unix_ns, end_unix_ns, warmup_iterations, peak_resident_bytes, result_proto) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") != SQLITE_OK ||
      statements_.add_iteration.Prepare(
          db_, "INSERT INTO iterations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") !=
          SQLITE_OK ||
      statements_.finish_attempt.Prepare(
          db_,
          "INSERT INTO attempts (trial_id, attempt, final, status, cause, finished_unix_ns) "
          "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET final = excluded.final, "
          "status = excluded.status, cause = excluded.cause, "
          "finished_unix_ns = excluded.finished_unix_ns WHERE NOT final") != SQLITE_OK) {
    return Error("prepare for writing");
  }
  writable_ = true;
  return absl::OkStatus();
}

absl::Status SqliteRunStore::StartAttempt(absl::string_view trial_id, int attempt) {
  MutexLock lock(&mu_);
  absl::Status status = CheckWritable();
  if (!status.ok()) return status;
  const std::string action = absl::StrCat("note the start of trial ", trial_id);
  return InTransaction(action, [&]() -> absl::Status {
    mu_.AssertHeld();
    statements_.start_attempt.Reset()
        .Bind(trial_id)
        .Bind(int64_t{attempt})
        .Bind(absl::ToUnixNanos(absl::Now()));
    return Run(statements_.start_attempt, action);
  });
}

absl::Status SqliteRunStore::Append(const v1::TrialResult& result) {
  const std::string& trial_id = result.trial().trial_id();
  const std::string blob = result.SerializeAsString();
  const std::string status_name = StatusName(result.status());
  MutexLock lock(&mu_);
  absl::Status status = CheckWritable();
  if (!status.ok()) return status;
  const std::string action =
      absl::StrCat("store the result of trial ", trial_id, ", rank ", result.rank());
  return InTransaction(action, [&]() -> absl::Status {
    mu_.AssertHeld();
    Statement& find = statements_.find_result;
    find.Reset().Bind(trial_id).Bind(int64_t{result.attempt()}).Bind(int64_t{result.rank()});
    const int found = find.Step();
    find.Reset();
    if (found == SQLITE_ROW) return absl::OkStatus();
    if (found != SQLITE_DONE) return Error(action);
    statements_.add_result.Reset()
        .Bind(trial_id)
        .Bind(int64_t{result.attempt()})
        .Bind(int64_t{result.rank()})
        .Bind(status_name)
        .Bind(result.cause())
        .Bind(result.worker_id())
        .Bind(result.machine().host())
        .Bind(result.start_unix_ns())
        .Bind(result.end_unix_ns())
        .Bind(int64_t{result.warmup_iterations()})
        .Bind(result.memory().peak_resident_bytes())
        .BindBlob(blob);
    absl::Status added = Run(statements_.add_result, action);
    if (!added.ok()) return added;
    const int64_t result_id = sqlite3_last_insert_rowid(db_);
    for (int i = 0; i < result.iterations_size(); ++i) {
      const v1::IterationSample& sample = result.iterations(i);
      statements_.add_iteration.Reset()
          .Bind(result_id)
          .Bind(int64_t{i})
          .Bind(int64_t{i < result.warmup_iterations() ? 1 : 0})
          .Bind(sample.start_ns())
          .Bind(sample.duration_ns())
          .Bind(sample.input_ns())
          .Bind(sample.input_wait_ns())
          .Bind(sample.copy_ns())
          .Bind(sample.forward_ns())
          .Bind(sample.backward_ns())
          .Bind(sample.communication_ns())
          .Bind(sample.exposed_communication_ns())
          .Bind(sample.update_ns())
          .Bind(sample.loss());
      added = Run(statements_.add_iteration, action);
      if (!added.ok()) return added;
    }
    return absl::OkStatus();
  });
}

absl::Status SqliteRunStore::FinishAttempt(const TrialOutcome& outcome) {
  const std::string status_name = StatusName(outcome.status);
  MutexLock lock(&mu_);
  absl::Status status = CheckWritable();
  if (!status.ok()) return status;
  const std::string action = absl::StrCat("store the outcome of trial ", outcome.trial_id);
  return InTransaction(action, [&]() -> absl::Status {
    mu_.AssertHeld();
    statements_.finish_attempt.Reset()
        .Bind(outcome.trial_id)
        .Bind(int64_t{outcome.attempt})
        .Bind(int64_t{outcome.final ? 1 : 0})
        .Bind(status_name)
        .Bind(outcome.cause)
        .Bind(absl::ToUnixNanos(absl::Now()));
    return Run(statements_.finish_attempt, action);
  });
}

absl::StatusOr<std::vector<v1::Trial>> SqliteRunStore::Trials() const {
  MutexLock lock(&mu_);
  Statement select;
  if (select.Prepare(db_, "SELECT trial_proto FROM trials ORDER BY trial_index") != SQLITE_OK) {
    return Error("read the trials");
  }
  std::vector<v1::Trial> trials;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    const absl::string_view blob = select.Text(0);
    if (!trials.emplace_back().ParseFromArray(blob.data(), static_cast<int>(blob.size()))) {
      return absl::DataLossError(
          absl::StrCat(path_, ": trial ", trials.size() - 1, " cannot be decoded"));
    }
  }
  if (code != SQLITE_DONE) return Error("read the trials");
  return trials;
}

absl::StatusOr<std::vector<TrialOutcome>> SqliteRunStore::Outcomes() const {
  MutexLock lock(&mu_);
  // The final attempt if there is one, else the latest; a result without an attempt's row counts as
  // an attempt that has not ended.
  Statement select;
  if (select.Prepare(
          db_,
          "SELECT t.trial_id, coalesce(a.attempt, 0), coalesce(a.final, 0), a.status, a.cause, "
          "(SELECT max(attempt) FROM results r WHERE r.trial_id = t.trial_id) "
          "FROM trials t LEFT JOIN attempts a ON a.trial_id = t.trial_id AND a.attempt = "
          "(SELECT attempt FROM attempts b WHERE b.trial_id = t.trial_id "
          " ORDER BY final DESC, attempt DESC LIMIT 1) ORDER BY t.trial_index") != SQLITE_OK) {
    return Error("read the outcomes");
  }
  std::vector<TrialOutcome> outcomes;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    TrialOutcome& outcome = outcomes.emplace_back();
    outcome.trial_id = std::string(select.Text(0));
    outcome.attempt = static_cast<int>(select.Int(1));
    outcome.final = select.Int(2) != 0;
    if (!select.IsNull(3)) {
      outcome.status = ParseStatusName(select.Text(3));
      outcome.cause = std::string(select.Text(4));
    }
    if (!outcome.final && select.Int(5) > outcome.attempt) {
      outcome.attempt = static_cast<int>(select.Int(5));
      outcome.status = v1::TRIAL_STATUS_UNSPECIFIED;
      outcome.cause.clear();
    }
  }
  if (code != SQLITE_DONE) return Error("read the outcomes");
  return outcomes;
}

absl::StatusOr<std::vector<v1::TrialResult>> SqliteRunStore::Results(absl::string_view trial_id,
                                                                     int attempt) const {
  MutexLock lock(&mu_);
  Statement select;
  if (select.Prepare(db_,
                     "SELECT result_proto FROM results WHERE trial_id = ?1 AND attempt = "
                     "CASE WHEN ?2 > 0 THEN ?2 ELSE "
                     "(SELECT max(attempt) FROM results WHERE trial_id = ?1) END ORDER BY rank") !=
      SQLITE_OK) {
    return Error("read the results");
  }
  select.Bind(trial_id).Bind(int64_t{attempt});
  std::vector<v1::TrialResult> results;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    const absl::string_view blob = select.Text(0);
    if (!results.emplace_back().ParseFromArray(blob.data(), static_cast<int>(blob.size()))) {
      return absl::DataLossError(
          absl::StrCat(path_, ": a result of trial ", trial_id, " cannot be decoded"));
    }
  }
  if (code != SQLITE_DONE) return Error("read the results");
  return results;
}

absl::StatusOr<sqlite3*> OpenDatabase(const std::string& path, int flags) {
  sqlite3* db = nullptr;
  if (sqlite3_open_v2(path.c_str(), &db, flags | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_URI,
                      nullptr) != SQLITE_OK) {
    absl::Status status = DatabaseError(db, path, "open the run store");
    sqlite3_close(db);
    return status;
  }
  sqlite3_busy_timeout(db, 10000);  // Milliseconds: another process may be reading or recovering.
  return db;
}

absl::Status SetUpWriter(sqlite3* db, const std::string& path) {
  if (sqlite3_exec(db,
                   "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
                   "PRAGMA foreign_keys = ON",
                   nullptr, nullptr, nullptr) != SQLITE_OK) {
    return DatabaseError(db, path, "open the run store for writing");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::Create(const std::string& run_dir,
                                                           const v1::BenchmarkPlan& plan,
                                                           const std::vector<v1::Trial>& trials) {
  absl::Status status = MakeFolders(run_dir);
  if (!status.ok()) return status;
  const std::string path = absl::StrCat(run_dir, "/", kFileName);
  if (access(path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat(run_dir, " already holds a run: continue it with --resume --run_dir=", run_dir,
                     ", or choose another --run_dir"));
  }
  // Built under another name and renamed when whole, so that a crash or a full disk leaves no half
  // store behind.
  const std::string temporary = absl::StrCat(path, ".new");
  auto remove_temporary = [&temporary] {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
      unlink(absl::StrCat(temporary, suffix).c_str());
    }
  };
  remove_temporary();
  {
    absl::StatusOr<sqlite3*> db =
        OpenDatabase(temporary, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (!db.ok()) return db.status();
    SqliteRunStore store(*db, temporary);
    const std::string application_id = absl::StrCat("PRAGMA application_id = ", kApplicationId);
    if (sqlite3_exec(*db, application_id.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      status = DatabaseError(*db, path, "create the run store");
    } else {
      status = store.Initialise(plan, trials);
    }
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::InternalError(
        absl::StrCat("cannot rename ", temporary, " to ", path, ": ", strerror(errno)));
  }
  if (!status.ok()) {
    remove_temporary();
    return status;
  }
  return Open(path, /*read_only=*/false);
}

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::Open(const std::string& path, bool read_only) {
  std::string file = path;
  struct stat info;
  if (stat(file.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    file = absl::StrCat(absl::StripSuffix(path, "/"), "/", kFileName);
  }
  if (stat(file.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(
        file, ": there is no run here", errno == ENOENT ? "" : ": ",
        errno == ENOENT ? " (a run store is the file run.sqlite in the folder given as --run_dir)"
                        : strerror(errno)));
  }
  absl::StatusOr<sqlite3*> db =
      OpenDatabase(file, read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
  if (!db.ok()) return db.status();
  auto store = std::make_unique<SqliteRunStore>(*db, file);
  absl::Status status = store->ReadInfo();
  if (!status.ok() && status.code() != absl::StatusCode::kDataLoss && read_only) {
    // A reader of a WAL file has to make small files beside it; in a folder where it cannot
    // (read-only medium, full disk) the main file alone will do, provided that no log is left.
    if (stat(absl::StrCat(file, "-wal").c_str(), &info) == 0 && info.st_size > 0) return status;
    db = OpenDatabase(
        absl::StrCat("file:", absl::StrReplaceAll(file, {{"%", "%25"}, {"?", "%3f"}, {"#", "%23"}}),
                     "?immutable=1"),
        SQLITE_OPEN_READONLY);
    if (!db.ok()) return db.status();
    store = std::make_unique<SqliteRunStore>(*db, file);
    status = store->ReadInfo();
  }
  if (!status.ok()) return status;
  if (!read_only) {
    status = SetUpWriter(*db, file);
    if (status.ok()) status = store->PrepareWriter();
    if (!status.ok()) return status;
  }
  return store;
}

}  // namespace paceline
