#include "coordinator/main/local_workers.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

class LocalWorkersTest : public ::testing::Test {
 protected:
  LocalWorkersTest() {
    std::string pattern = testing::TempDir() + "/workers_XXXXXX";
    options_.log_dir = mkdtemp(pattern.data());
  }
  // A shell script plays the worker.
  void UseScript(const std::string& text) {
    options_.program = options_.log_dir + "/worker.sh";
    ASSERT_TRUE(WriteFile("#!/bin/sh\n" + text, options_.program).ok());
    ASSERT_EQ(chmod(options_.program.c_str(), 0755), 0);
  }
  std::vector<LocalWorkers::Ended> WaitForEnd(LocalWorkers* workers) {
    for (int i = 0; i < 3000; ++i) {
      std::vector<LocalWorkers::Ended> ended = workers->Poll();
      if (!ended.empty()) return ended;
      absl::SleepFor(absl::Milliseconds(10));
    }
    ADD_FAILURE() << "no worker ended";
    return {};
  }
  std::string WaitForLog(int local_index, const std::string& text) {
    std::string log;
    for (int i = 0; i < 3000; ++i) {
      auto read = ReadFile(absl::StrCat(options_.log_dir, "/worker-", local_index, ".log"));
      if (read.ok()) log = *read;
      if (log.find(text) != std::string::npos) return log;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return log;
  }

  LocalWorkersOptions options_;
};

TEST_F(LocalWorkersTest, StartsEachWithItsPlaceAndStopsAll) {
  UseScript("echo $@; exec sleep 1000");
  options_.count = 2;
  options_.arguments = {"--coordinator=127.0.0.1:1"};
  LocalWorkers workers(options_);
  ASSERT_TRUE(workers.Start().ok());
  EXPECT_EQ(workers.running(), 2);
  EXPECT_THAT(WaitForLog(1, "count"),
              HasSubstr("--coordinator=127.0.0.1:1 --local_index=1 --local_count=2"));
  EXPECT_THAT(WaitForLog(0, "count"), HasSubstr("--local_index=0"));
  workers.Stop(absl::Seconds(20));
  EXPECT_EQ(workers.running(), 0);
}

TEST_F(LocalWorkersTest, RestartsUpToALimit) {
  UseScript("echo something is wrong; exit 1");
  options_.max_restarts = 2;
  LocalWorkers workers(options_);
  ASSERT_TRUE(workers.Start().ok());
  EXPECT_TRUE(WaitForEnd(&workers)[0].restarted);
  EXPECT_TRUE(WaitForEnd(&workers)[0].restarted);
  const auto ended = WaitForEnd(&workers);
  EXPECT_FALSE(ended[0].restarted);
  EXPECT_EQ(ended[0].cause, "ended with exit code 1");
  EXPECT_THAT(ended[0].log_tail, HasSubstr("something is wrong"));
  EXPECT_EQ(workers.running(), 0);
}

TEST_F(LocalWorkersTest, DoesNotRestartWhatIsHopeless) {
  UseScript("exit 2");
  LocalWorkers workers(options_);
  ASSERT_TRUE(workers.Start().ok());
  EXPECT_FALSE(WaitForEnd(&workers)[0].restarted);
}

TEST_F(LocalWorkersTest, SaysWhichSignalKilledAWorker) {
  UseScript("kill -9 $$");
  LocalWorkers workers(options_);
  ASSERT_TRUE(workers.Start().ok());
  EXPECT_EQ(WaitForEnd(&workers)[0].cause, "was killed by signal 9 (Killed)");
  workers.Kill();
}

TEST_F(LocalWorkersTest, KillsWhatDoesNotStop) {
  UseScript("trap '' TERM; echo ready; while true; do sleep 0.01; done");
  LocalWorkers workers(options_);
  ASSERT_TRUE(workers.Start().ok());
  WaitForLog(0, "ready");
  workers.Stop(absl::Milliseconds(50));
  EXPECT_EQ(workers.running(), 0);
}

}  // namespace
}  // namespace paceline
