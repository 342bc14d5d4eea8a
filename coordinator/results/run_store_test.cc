#include "coordinator/results/run_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

class RunStoreTest : public ::testing::Test {
 protected:
  RunStoreTest() {
    std::string pattern = testing::TempDir() + "/run_store_XXXXXX";
    dir_ = mkdtemp(pattern.data());
    plan_.set_name("test");
    for (int i = 0; i < 3; ++i) {
      v1::Trial& trial = trials_.emplace_back();
      trial.set_trial_id(absl::StrCat("trial", i));
      trial.set_index(i);
      trial.mutable_network()->set_name("lenet5");
      trial.mutable_policy()->set_name("cntk");
      trial.mutable_cluster()->set_hosts(1);
      trial.mutable_cluster()->set_devices_per_host(2);
      trial.set_batch_per_device(8);
      trial.set_precision(v1::PRECISION_FP32);
    }
  }

  std::unique_ptr<RunStore> Create() {
    auto store = RunStore::Create(dir_, plan_, trials_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::unique_ptr<RunStore> Open(bool read_only = false) {
    auto store = RunStore::Open(dir_, read_only);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  v1::TrialResult MakeResult(int trial, int attempt, int rank, int iterations = 5) {
    v1::TrialResult result;
    *result.mutable_trial() = trials_[trial];
    result.set_attempt(attempt);
    result.set_rank(rank);
    result.set_status(v1::TRIAL_STATUS_OK);
    result.set_worker_id(absl::StrCat("worker", rank));
    result.set_warmup_iterations(2);
    for (int i = 0; i < iterations; ++i) {
      v1::IterationSample& sample = *result.add_iterations();
      sample.set_start_ns(1700000000000000000 + i);
      sample.set_duration_ns(1000 + i);
      sample.set_input_ns(1);
      sample.set_input_wait_ns(2);
      sample.set_copy_ns(3);
      sample.set_forward_ns(4);
      sample.set_backward_ns(5);
      sample.set_communication_ns(6);
      sample.set_exposed_communication_ns(7);
      sample.set_update_ns(8);
      sample.set_loss(i == 4 ? std::nan("") : 0.5 * i);
    }
    return result;
  }
  // The single value of a query on the file, asked by another connection as a user would.
  std::string Query(const std::string& sql) {
    sqlite3* db = nullptr;
    std::string value = "none";
    EXPECT_EQ(sqlite3_open_v2((dir_ + "/run.sqlite").c_str(), &db, SQLITE_OPEN_READONLY, nullptr),
              SQLITE_OK);
    char* error = nullptr;
    sqlite3_exec(
        db, sql.c_str(),
        [](void* out, int, char** values, char**) {
          *static_cast<std::string*>(out) = values[0] == nullptr ? "NULL" : values[0];
          return 0;
        },
        &value, &error);
    if (error != nullptr) value = error;
    sqlite3_free(error);
    sqlite3_close(db);
    return value;
  }

  std::string dir_;
  v1::BenchmarkPlan plan_;
  std::vector<v1::Trial> trials_;
};

TEST_F(RunStoreTest, GivesBackWhatWasStored) {
  std::string run_id;
  {
    auto store = Create();
    run_id = store->info().run_id;
    EXPECT_EQ(run_id.size(), 16);
    ASSERT_TRUE(store->StartAttempt("trial1", 1).ok());
    ASSERT_TRUE(store->Append(MakeResult(1, 1, 1)).ok());
    ASSERT_TRUE(store->Append(MakeResult(1, 1, 0)).ok());
    ASSERT_TRUE(store->FinishAttempt({"trial1", 1, true, v1::TRIAL_STATUS_OK, ""}).ok());
  }
  auto store = Open(/*read_only=*/true);
  EXPECT_EQ(store->info().run_id, run_id);
  EXPECT_EQ(store->info().plan.name(), "test");
  EXPECT_GT(store->info().created_unix_ns, 0);
  ASSERT_EQ(store->Trials()->size(), 3);
  EXPECT_EQ((*store->Trials())[2].SerializeAsString(), trials_[2].SerializeAsString());
  const auto results = *store->Results("trial1");
  ASSERT_EQ(results.size(), 2);
  EXPECT_EQ(results[0].SerializeAsString(), MakeResult(1, 1, 0).SerializeAsString());
  EXPECT_EQ(results[1].rank(), 1);
  EXPECT_TRUE(store->Results("trial0")->empty());
  const auto outcomes = *store->Outcomes();
  ASSERT_EQ(outcomes.size(), 3);
  EXPECT_EQ(outcomes[0].attempt, 0);
  EXPECT_FALSE(outcomes[0].final);
  EXPECT_EQ(outcomes[1].attempt, 1);
  EXPECT_TRUE(outcomes[1].final);
  EXPECT_EQ(outcomes[1].status, v1::TRIAL_STATUS_OK);
  EXPECT_EQ(store->Append(MakeResult(0, 1, 0)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RunStoreTest, FirstReportOfARankWins) {
  auto store = Create();
  ASSERT_TRUE(store->Append(MakeResult(0, 1, 0)).ok());
  v1::TrialResult other = MakeResult(0, 1, 0, 3);
  other.set_status(v1::TRIAL_STATUS_INTERNAL);
  ASSERT_TRUE(store->Append(other).ok());
  const auto results = *store->Results("trial0");
  ASSERT_EQ(results.size(), 1);
  EXPECT_EQ(results[0].status(), v1::TRIAL_STATUS_OK);
  EXPECT_EQ(Query("SELECT count(*) FROM iterations"), "5");
}

TEST_F(RunStoreTest, FinalOutcomeIsNeverChanged) {
  auto store = Create();
  ASSERT_TRUE(store->FinishAttempt({"trial0", 1, false, v1::TRIAL_STATUS_RANK_LOST, "gone"}).ok());
  ASSERT_TRUE(store->FinishAttempt({"trial0", 2, true, v1::TRIAL_STATUS_OK, ""}).ok());
  ASSERT_TRUE(store->FinishAttempt({"trial0", 2, false, v1::TRIAL_STATUS_RANK_LOST, "late"}).ok());
  ASSERT_TRUE(store->FinishAttempt({"trial0", 3, false, v1::TRIAL_STATUS_RANK_LOST, "late"}).ok());
  const TrialOutcome outcome = (*store->Outcomes())[0];
  EXPECT_EQ(outcome.attempt, 2);
  EXPECT_EQ(outcome.status, v1::TRIAL_STATUS_OK);
  EXPECT_TRUE(outcome.final);
}

TEST_F(RunStoreTest, HalfFinishedAttemptIsSeenAfterACrash) {
  {
    auto store = Create();
    ASSERT_TRUE(
        store->FinishAttempt({"trial0", 1, false, v1::TRIAL_STATUS_RANK_LOST, "gone"}).ok());
    ASSERT_TRUE(store->StartAttempt("trial0", 2).ok());
    ASSERT_TRUE(store->Append(MakeResult(1, 4, 0)).ok());  // No row in attempts.
  }
  const auto outcomes = *Open()->Outcomes();
  EXPECT_EQ(outcomes[0].attempt, 2);
  EXPECT_FALSE(outcomes[0].final);
  EXPECT_EQ(outcomes[0].status, v1::TRIAL_STATUS_UNSPECIFIED);
  EXPECT_EQ(outcomes[1].attempt, 4);
  EXPECT_FALSE(outcomes[1].final);
}

TEST_F(RunStoreTest, KeepsEverythingWhenTheWriterIsKilled) {
  Create();
  const pid_t child = fork();
  if (child == 0) {
    auto store = RunStore::Open(dir_, false);
    const bool ok = store.ok() && (*store)->Append(MakeResult(0, 1, 0)).ok() &&
                    (*store)->FinishAttempt({"trial0", 1, true, v1::TRIAL_STATUS_OK, ""}).ok();
    if (ok) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = Open();
  EXPECT_EQ(store->Results("trial0")->size(), 1);
  EXPECT_TRUE((*store->Outcomes())[0].final);
}

TEST_F(RunStoreTest, SqlUsersReadTheSamplesWhileTheRunGoesOn) {
  auto store = Create();
  ASSERT_TRUE(store->Append(MakeResult(2, 1, 1)).ok());
  EXPECT_EQ(Query("SELECT count(*) FROM samples WHERE network = 'lenet5' AND policy = 'cntk'"),
            "5");
  EXPECT_EQ(Query("SELECT sum(duration_ns) FROM samples WHERE NOT warmup"), "3009");
  EXPECT_EQ(Query("SELECT loss FROM samples WHERE iteration = 3"), "1.5");
  EXPECT_EQ(Query("SELECT loss FROM samples WHERE iteration = 4"), "NULL");  // NaN.
  EXPECT_EQ(Query("SELECT status FROM results"), "OK");
}

TEST_F(RunStoreTest, ManyThreadsMayAppend) {
  auto store = Create();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      for (int attempt = 1; attempt <= 5; ++attempt) {
        EXPECT_TRUE(store->Append(MakeResult(0, attempt, rank)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int attempt = 1; attempt <= 5; ++attempt) {
    EXPECT_EQ(store->Results("trial0", attempt)->size(), 4);
  }
}

TEST_F(RunStoreTest, RefusesToOverwriteARun) {
  Create();
  const auto again = RunStore::Create(dir_, plan_, trials_);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("--resume"));
}

TEST_F(RunStoreTest, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(RunStore::Open(dir_, true).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(RunStore::Open(dir_ + "/missing", true).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFile(std::string(8192, 'x'), dir_ + "/run.sqlite").ok());
  EXPECT_EQ(RunStore::Open(dir_, true).status().code(), absl::StatusCode::kDataLoss);
  unlink((dir_ + "/run.sqlite").c_str());
  Create();
  sqlite3* db = nullptr;
  sqlite3_open((dir_ + "/run.sqlite").c_str(), &db);
  sqlite3_exec(db, "UPDATE run SET value = '99' WHERE key = 'schema_version'", nullptr, nullptr,
               nullptr);
  sqlite3_close(db);
  const auto newer = RunStore::Open(dir_, true);
  EXPECT_EQ(newer.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(newer.status().message()), HasSubstr("schema version 99"));
}

TEST_F(RunStoreTest, RefusesResultsOfAnotherRun) {
  auto store = Create();
  v1::TrialResult result = MakeResult(0, 1, 0);
  result.mutable_trial()->set_trial_id("stranger");
  EXPECT_EQ(store->Append(result).code(), absl::StatusCode::kNotFound);
}

TEST_F(RunStoreTest, OpensFileWithoutItsLogInAReadOnlyFolder) {
  Create();
  ASSERT_EQ(chmod(dir_.c_str(), 0555), 0);
  auto store = RunStore::Open(dir_, true);
  chmod(dir_.c_str(), 0755);
  EXPECT_TRUE(store.ok()) << store.status();
}

// A limit on the size of files stands for the full disk: writes fail in the same places, and
// mounting a small disk takes more rights than a test has.
class FullDiskTest : public RunStoreTest {
 protected:
  FullDiskTest() {
    signal(SIGXFSZ, SIG_IGN);  // write() then fails with EFBIG.
    getrlimit(RLIMIT_FSIZE, &old_limit_);
  }
  ~FullDiskTest() override { Restore(); }
  void LimitFiles(rlim_t bytes) {
    struct rlimit limit = old_limit_;
    limit.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  void Restore() { setrlimit(RLIMIT_FSIZE, &old_limit_); }
  struct rlimit old_limit_;
};

TEST_F(FullDiskTest, StopsWithAClearMessageAndTheStoreStillOpens) {
  int stored = 0;
  {
    auto store = Create();
    LimitFiles(400 << 10);
    absl::Status status;
    while (stored < 1000) {
      status = store->Append(MakeResult(0, stored + 1, 0, 200));
      if (!status.ok()) break;
      ++stored;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has reached the limit"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--resume"));
    EXPECT_GT(stored, 2);
    // Still full: what was stored can be read, by this writer and by a reader.
    EXPECT_EQ(store->Results("trial0", stored)->size(), 1);
  }
  {
    auto reader = RunStore::Open(dir_, true);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->Results("trial0", stored)->size(), 1);
  }
  Restore();
  auto store = Open();
  for (int attempt = 1; attempt <= stored; ++attempt) {
    ASSERT_EQ(store->Results("trial0", attempt)->size(), 1) << attempt;
  }
  EXPECT_TRUE(store->Results("trial0", stored + 1)->empty());
  EXPECT_TRUE(store->Append(MakeResult(0, stored + 1, 0, 200)).ok());
}

TEST_F(FullDiskTest, CreatesAllOrNothing) {
  LimitFiles(8 << 10);
  const auto store = RunStore::Create(dir_, plan_, trials_);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted) << store.status();
  Restore();
  EXPECT_EQ(RunStore::Open(dir_, true).status().code(), absl::StatusCode::kNotFound);
  Create();
}

}  // namespace
}  // namespace paceline
