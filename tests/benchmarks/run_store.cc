// How fast results are stored: iteration records per second, and whole trials per second with every
// one synced to disk, beside SQLite used plainly (one row a transaction, same durability).
//
//   bazel run //tests/benchmarks:run_store -- --dir=/data --json=run_store.json
#include "coordinator/results/run_store.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/plan/plan.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/support/command_line.h"
#include "proto/support/working_directory.h"
#include "tests/benchmarks/benchmark_report.h"

namespace paceline {
namespace {

constexpr int kIterationsPerResult = 1000;
constexpr int kIterationsPerTrial = 20;  // As the built-in plans measure.
constexpr absl::Duration kSeriesTime = absl::Seconds(1);
constexpr int kRounds = 5;

v1::TrialResult MakeResult(const v1::Trial& trial, int attempt, int iterations) {
  v1::TrialResult result;
  *result.mutable_trial() = trial;
  result.set_attempt(attempt);
  result.set_status(v1::TRIAL_STATUS_OK);
  result.set_worker_id("worker");
  result.set_warmup_iterations(2);
  for (int i = 0; i < iterations; ++i) {
    v1::IterationSample& sample = *result.add_iterations();
    sample.set_start_ns(1700000000000000000 + i * 123456789LL);
    sample.set_duration_ns(123456789 + i);
    sample.set_input_ns(12345678);
    sample.set_input_wait_ns(1234567);
    sample.set_copy_ns(2345678);
    sample.set_forward_ns(34567890);
    sample.set_backward_ns(67890123);
    sample.set_communication_ns(45678901);
    sample.set_exposed_communication_ns(5678901);
    sample.set_update_ns(3456789);
    sample.set_loss(6.9 - i * 1e-3);
  }
  return result;
}

// Calls `unit` until the series' time is over; calls per second.
template <typename Unit>
absl::StatusOr<double> Rate(Unit unit) {
  const absl::Time begin = absl::Now();
  int calls = 0;
  while (absl::Now() - begin < kSeriesTime) {
    absl::Status status = unit();
    if (!status.ok()) return status;
    ++calls;
  }
  return calls / absl::ToDoubleSeconds(absl::Now() - begin);
}

// SQLite without any care: a table of the same columns, every row its own transaction.
class PlainSqlite {
 public:
  explicit PlainSqlite(const std::string& path) {
    sqlite3_open(path.c_str(), &db_);
    sqlite3_exec(db_,
                 "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                 "CREATE TABLE iterations (result INTEGER, iteration INTEGER, start_ns INTEGER, "
                 "duration_ns INTEGER, input_ns INTEGER, input_wait_ns INTEGER, copy_ns INTEGER, "
                 "forward_ns INTEGER, backward_ns INTEGER, communication_ns INTEGER, "
                 "exposed_communication_ns INTEGER, update_ns INTEGER, loss REAL)",
                 nullptr, nullptr, nullptr);
    sqlite3_prepare_v2(db_, "INSERT INTO iterations VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", -1,
                       &insert_, nullptr);
  }
  ~PlainSqlite() {
    sqlite3_finalize(insert_);
    sqlite3_close(db_);
  }
  absl::Status AddRow() {
    for (int i = 1; i <= 12; ++i) sqlite3_bind_int64(insert_, i, 123456789LL * i + rows_);
    sqlite3_bind_double(insert_, 13, 6.9);
    ++rows_;
    const int code = sqlite3_step(insert_);
    sqlite3_reset(insert_);
    return code == SQLITE_DONE ? absl::OkStatus() : absl::InternalError(sqlite3_errmsg(db_));
  }

 private:
  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  int64_t rows_ = 0;
};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status RunBenchmark(const std::string& dir, BenchmarkReport* report) {
  absl::StatusOr<v1::BenchmarkPlan> plan = LoadPlan("builtin:default");
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::vector<v1::Trial>> trials = ExpandPlan(*plan);
  if (!trials.ok()) return trials.status();
  absl::StatusOr<std::unique_ptr<RunStore>> store = RunStore::Create(dir, *plan, *trials);
  if (!store.ok()) return store.status();
  PlainSqlite plain(dir + "/plain.sqlite");

  v1::TrialResult large = MakeResult(trials->front(), 1, kIterationsPerResult);
  v1::TrialResult small = MakeResult(trials->back(), 1, kIterationsPerTrial);
  std::vector<double> records, trials_per_second, rows;
  // Interleaved, so that a slow moment of the disk does not fall on one of them.
  for (int round = 0; round < kRounds; ++round) {
    absl::StatusOr<double> rate = Rate([&] {
      large.set_attempt(large.attempt() + 1);
      return (*store)->Append(large);
    });
    if (!rate.ok()) return rate.status();
    records.push_back(*rate * kIterationsPerResult);
    rate = Rate([&]() -> absl::Status {
      small.set_attempt(small.attempt() + 1);
      absl::Status status = (*store)->Append(small);
      if (!status.ok()) return status;
      return (*store)->FinishAttempt(
          {small.trial().trial_id(), small.attempt(), false, v1::TRIAL_STATUS_RANK_LOST, ""});
    });
    if (!rate.ok()) return rate.status();
    trials_per_second.push_back(*rate);
    rate = Rate([&] { return plain.AddRow(); });
    if (!rate.ok()) return rate.status();
    rows.push_back(*rate);
  }
  const double plain_rows = MedianOf(rows);
  BenchmarkRow row;
  row.name = absl::StrCat("iteration records, ", kIterationsPerResult, " a result");
  row.value = MedianOf(records);
  row.unit = "records/s";
  row.reference = "plain SQLite, one row a transaction";
  row.reference_value = plain_rows;
  row.goal = 10;
  report->Add(row);
  row.name = absl::StrCat("trials of ", kIterationsPerTrial, " iterations, result and outcome");
  row.value = MedianOf(trials_per_second);
  row.unit = "trials/s";
  row.reference = "plain SQLite, one row a transaction";
  row.reference_value = plain_rows / (kIterationsPerTrial + 2);
  row.goal = 3;
  report->Add(row);
  report->Note(absl::StrCat("Median of ", kRounds, " rounds of ", absl::FormatDuration(kSeriesTime),
                            ", interleaved; every commit synced (WAL, synchronous = FULL), in ",
                            dir));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::string dir;
  std::string json;
  CommandLine line("run_store", "measures how fast results are stored.",
                   {"bazel run //tests/benchmarks:run_store -- --dir=/data"});
  line.AddString("dir", &dir, "DIR", "Where to write, on the disk to be measured; by default /tmp.",
                 "--dir=/data");
  line.AddString("json", &json, "FILE", "Writes the rows as JSON.", "--json=run_store.json");
  const auto rest = line.Parse(argc, argv);
  if (line.help_wanted()) {
    absl::PrintF("%s", line.Help());
    return 0;
  }
  if (!rest.ok()) {
    absl::FPrintF(stderr, "%s\n", rest.status().message());
    return 2;
  }
  std::string folder =
      absl::StrCat(dir.empty() ? "/tmp" : ResolveUserPath(dir), "/paceline_run_store_XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    absl::FPrintF(stderr, "cannot write to %s\n", dir);
    return 1;
  }
  BenchmarkReport report("run_store");
  const absl::Status status = RunBenchmark(folder, &report);
  for (const char* file : {"run.sqlite", "plain.sqlite"}) {
    for (const char* suffix : {"", "-wal", "-shm"}) {
      unlink(absl::StrCat(folder, "/", file, suffix).c_str());
    }
  }
  rmdir(folder.c_str());
  if (!status.ok()) {
    absl::FPrintF(stderr, "%s\n", status.message());
    return 1;
  }
  return report.Finish(json);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
