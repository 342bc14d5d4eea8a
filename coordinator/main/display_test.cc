#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/main/dry_run.h"
#include "coordinator/main/progress.h"
#include "coordinator/main/trial_summary.h"
#include "coordinator/plan/plan.h"
#include "coordinator/results/run_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::BenchmarkPlan MakePlan() {
  auto plan = ParsePlan(R"pb(
                          name: "test"
                          sweeps {
                            networks: "lenet5"
                            policies: "cntk"
                            devices: [ 1, 2, 4 ]
                            batch_per_device: 10
                          }
                        )pb",
                        "test");
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

// Two warm-up iterations of a second, then `count` of `milliseconds`.
v1::TrialResult MakeResult(const v1::Trial& trial, int rank, int64_t milliseconds, int count = 20) {
  v1::TrialResult result;
  *result.mutable_trial() = trial;
  result.set_attempt(1);
  result.set_rank(rank);
  result.set_status(v1::TRIAL_STATUS_OK);
  result.set_warmup_iterations(2);
  for (int i = 0; i < count + 2; ++i) {
    result.add_iterations()->set_duration_ns(i < 2 ? 1000000000 : milliseconds * 1000000);
  }
  return result;
}

TEST(TrialSummaryTest, ThroughputAndEfficiencyFromTheStore) {
  const v1::BenchmarkPlan plan = MakePlan();
  const std::vector<v1::Trial> trials = *ExpandPlan(plan);
  std::string pattern = testing::TempDir() + "/summary_XXXXXX";
  auto store = *RunStore::Create(mkdtemp(pattern.data()), plan, trials);
  ASSERT_TRUE(store->Append(MakeResult(trials[0], 0, 100)).ok());
  ASSERT_TRUE(store->FinishAttempt({trials[0].trial_id(), 1, true, v1::TRIAL_STATUS_OK, ""}).ok());
  ASSERT_TRUE(store->Append(MakeResult(trials[1], 0, 124)).ok());
  ASSERT_TRUE(store->Append(MakeResult(trials[1], 1, 126)).ok());
  ASSERT_TRUE(store->FinishAttempt({trials[1].trial_id(), 1, true, v1::TRIAL_STATUS_OK, ""}).ok());
  ASSERT_TRUE(store
                  ->FinishAttempt({trials[2].trial_id(), 1, true, v1::TRIAL_STATUS_OUT_OF_MEMORY,
                                   "rank 3: 9 GB"})
                  .ok());
  const auto summaries = SummarizeRun(*store);
  ASSERT_TRUE(summaries.ok()) << summaries.status();
  EXPECT_NEAR((*summaries)[0].samples_per_second, 100, 1e-6);
  EXPECT_FALSE((*summaries)[0].scaling_efficiency.has_value());
  EXPECT_NEAR((*summaries)[1].samples_per_second, 160, 1e-6);
  EXPECT_NEAR(*(*summaries)[1].scaling_efficiency, 0.8, 1e-6);
  EXPECT_EQ((*summaries)[1].iterations, 20);
  EXPECT_EQ((*summaries)[2].samples_per_second, 0);
  const std::string table = FormatSummaries(*summaries);
  EXPECT_THAT(table, HasSubstr("80 %"));
  EXPECT_THAT(table, HasSubstr("trial 3: OUT_OF_MEMORY: rank 3: 9 GB"));
}

TEST(TrialSummaryTest, FormatsForPeople) {
  EXPECT_EQ(FormatDurationForPeople(0.4), "0 s");
  EXPECT_EQ(FormatDurationForPeople(59.6), "1 min 0 s");
  EXPECT_EQ(FormatDurationForPeople(250), "4 min 10 s");
  EXPECT_EQ(FormatDurationForPeople(7500), "2 h 5 min");
  EXPECT_EQ(FormatTable({{"a", "b"}, {"±", "10"}}, {false, true}), "a   b\n±  10\n");
  TrialSummary summary;
  summary.samples_per_second = 12345.6;
  summary.half_width = 123.4;
  EXPECT_EQ(FormatThroughput(summary), "12346 img/s ± 123");
  summary.samples_per_second = 4.4712;
  summary.half_width = std::numeric_limits<double>::infinity();
  EXPECT_EQ(FormatThroughput(summary), "4.471 img/s");
}

TEST(ProgressTest, BarsAndTimeLeft) {
  EXPECT_EQ(FormatBar(0.5, 10), "[#####.....]");
  EXPECT_EQ(FormatBar(7, 4), "[####]");
  v1::GetStatusResponse status;
  status.set_trials_total(8);
  status.set_trials_done(4);
  status.set_trials_failed(1);
  status.set_seconds_left(75);
  status.add_workers();
  v1::RunningTrial& running = *status.add_running();
  *running.mutable_trial() = (*ExpandPlan(MakePlan()))[1];
  running.set_attempt(2);
  running.add_worker_ids("a");
  running.add_worker_ids("b");
  running.mutable_progress()->set_step("measuring");
  running.mutable_progress()->set_iterations_done(6);
  running.mutable_progress()->set_iterations_planned(12);
  running.mutable_progress()->set_samples_per_second(21);
  const std::vector<std::string> lines = FormatProgress(status);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_THAT(lines[0], HasSubstr("lenet5, cntk, 2 devices, batch 10, attempt 2"));
  EXPECT_THAT(lines[0], HasSubstr("[######......] measuring 6/12, 42 img/s"));
  EXPECT_EQ(lines[1],
            "[###############...............] 4/8 trials, 1 failed, about 1 min 15 s left");
}

TEST(ProgressTest, PlainLinesAreFewAndHaveNoEscapes) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressDisplay display(file, /*terminal=*/false);
  v1::GetStatusResponse status;
  status.set_trials_total(2);
  absl::Time now = absl::FromUnixSeconds(0);
  for (int i = 0; i < 600; ++i) display.Update(status, now += absl::Milliseconds(100));
  display.Line("done");
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  ASSERT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // Two a minute, and the line.
}

TEST(DryRunTest, ListsTrialsWithTimeAndMemory) {
  const std::vector<v1::Trial> trials = *ExpandPlan(MakePlan());
  const std::vector<TrialEstimate> estimates = EstimateTrials(trials, 2, 2);
  ASSERT_EQ(estimates.size(), 3);
  EXPECT_GT(estimates[0].seconds, 0);
  const std::string table = FormatDryRun(trials, estimates, /*host_memory_bytes=*/1);
  EXPECT_THAT(table, HasSubstr("lenet5"));
  EXPECT_THAT(table, HasSubstr("more than this machine's memory"));
  EXPECT_THAT(table, HasSubstr("3 trials, about"));
  EXPECT_THAT(FormatDryRun(trials, estimates, int64_t{1} << 50), Not(HasSubstr("more than")));
}

}  // namespace
}  // namespace paceline
