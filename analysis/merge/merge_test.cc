#include "analysis/merge/merge.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "analysis/stats/statistics.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/result.pb.h"
#include "tests/testing/synthetic_run.h"

namespace paceline {
namespace {

SyntheticRunOptions SmallOptions() {
  SyntheticRunOptions options;
  options.networks = {"lenet5"};
  options.policies = {"wfbp"};
  return options;
}

RunData Make(const SyntheticRunOptions& options) {
  absl::StatusOr<RunData> run = MakeSyntheticRun(options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : RunData();
}

const MergedTrial* Find(const MergedRuns& runs, int devices, const std::string& status = "OK") {
  for (const MergedTrial& trial : runs.trials) {
    if (trial.devices == devices && trial.status == status) return &trial;
  }
  return nullptr;
}

TEST(MergeRunsTest, AlignsRanksAndLeavesTheWarmUpOut) {
  absl::StatusOr<MergedRuns> merged = MergeRuns({Make(SmallOptions())});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->trials.size(), 2u);
  const MergedTrial* two = Find(*merged, 2);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->measured_iterations, 30);
  EXPECT_EQ(two->repeats[0].ranks.size(), 2u);
  EXPECT_EQ(two->repeats[0].warmup_iterations, 3);
  EXPECT_TRUE(two->samples_per_second.has_bounds());
  EXPECT_NEAR(two->samples_per_second.value, 2 * 16 / Mean(two->repeats[0].iteration_seconds),
              1e-6 * two->samples_per_second.value);
  ASSERT_EQ(two->lateness.size(), 2u);
  EXPECT_NEAR(two->lateness[0].median_seconds, 0, 1e-9);
  EXPECT_NEAR(two->lateness[1].median_seconds, 2e-4, 1e-6);
}

TEST(MergeRunsTest, PeriodIsTheMeanOverRanksAndTheShorterSeriesCounts) {
  RunData run = Make(SmallOptions());
  std::vector<v1::TrialResult>& ranks = run.results.at("lenet5-wfbp-n2-b16-r0");
  ranks[0].mutable_iterations(5)->set_duration_ns(1000000);
  ranks[1].mutable_iterations(5)->set_duration_ns(3000000);
  ranks[1].mutable_iterations()->RemoveLast();
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  ASSERT_TRUE(merged.ok());
  const MergedTrial* two = Find(*merged, 2);
  EXPECT_EQ(two->measured_iterations, 29);
  EXPECT_DOUBLE_EQ(two->repeats[0].iteration_seconds[2], 2e-3);
}

TEST(MergeRunsTest, OnePlanOnOneAndOnTwoHostsGivesTwoConfigurations) {
  SyntheticRunOptions options = SmallOptions();
  RunData one_host = Make(options);
  options.run_id = "other";
  RunData two_hosts = Make(options);
  const std::string id = "lenet5-wfbp-n2-b16-r0";
  for (RunData* run : {&one_host, &two_hosts}) {
    for (v1::Trial& trial : run->trials) {
      trial.mutable_cluster()->set_free_placement(trial.trial_id() == id);
    }
  }
  for (v1::TrialResult& rank : two_hosts.results.at(id)) {
    rank.mutable_trial()->mutable_cluster()->set_hosts(2);
    rank.mutable_trial()->mutable_cluster()->set_devices_per_host(1);
  }
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(one_host), std::move(two_hosts)});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->trials.size(), 3u);
  std::map<int, std::string> ids;  // By hosts.
  for (const MergedTrial& trial : merged->trials) {
    if (trial.devices != 2) continue;
    EXPECT_EQ(trial.repeats.size(), 1u);
    ids[trial.trial.cluster().hosts()] = trial.configuration_id;
  }
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[2], ids[1] + "-2hosts");
}

TEST(MergeRunsTest, ScalingEfficiencyComparesWithOneDevice) {
  absl::StatusOr<MergedRuns> merged = MergeRuns({Make(SmallOptions())});
  ASSERT_TRUE(merged.ok());
  const MergedTrial* one = Find(*merged, 1);
  const MergedTrial* two = Find(*merged, 2);
  EXPECT_DOUBLE_EQ(one->scaling_efficiency.value, 1);
  EXPECT_NEAR(two->scaling_efficiency.value,
              two->samples_per_second.value / (2 * one->samples_per_second.value), 1e-9);
  EXPECT_LT(two->scaling_efficiency.high, 1);
}

TEST(MergeRunsTest, MissingBaselineLeavesEfficiencyUnknown) {
  SyntheticRunOptions options = SmallOptions();
  options.devices = {2};
  absl::StatusOr<MergedRuns> merged = MergeRuns({Make(options)});
  ASSERT_TRUE(merged.ok());
  EXPECT_FALSE(merged->trials[0].scaling_efficiency.known());
  EXPECT_EQ(merged->trials[0].scaling_note, "not measured on one device");
}

TEST(MergeRunsTest, PoolsRepeatsAndRunsOfOneConfiguration) {
  SyntheticRunOptions options = SmallOptions();
  options.repeats = 2;
  SyntheticRunOptions other = SmallOptions();
  other.run_id = "fedcba9876543210";
  other.host = "node-b";
  other.seed = 2;
  absl::StatusOr<MergedRuns> merged = MergeRuns({Make(options), Make(other)});
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->trials.size(), 2u);
  EXPECT_EQ(merged->trials[0].repeats.size(), 3u);
  EXPECT_EQ(merged->trials[0].measured_iterations, 90);
  EXPECT_EQ(merged->machines.size(), 2u);
}

TEST(MergeRunsTest, ARunGivenTwiceCountsOnce) {
  absl::StatusOr<MergedRuns> merged = MergeRuns({Make(SmallOptions()), Make(SmallOptions())});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->runs.size(), 1u);
  EXPECT_EQ(merged->trials[0].repeats.size(), 1u);
  ASSERT_EQ(merged->notes.size(), 1u);
  EXPECT_TRUE(absl::StrContains(merged->notes[0], "more than once"));
}

TEST(MergeRunsTest, DifferentMachinesAreNotPooled) {
  RunData other = Make(SmallOptions());
  other.info.run_id = "other";
  for (auto& results : other.results) {
    for (v1::TrialResult& rank : results.second) {
      rank.mutable_machine()->set_device("Another CPU");
    }
  }
  absl::StatusOr<MergedRuns> merged = MergeRuns({Make(SmallOptions()), std::move(other)});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->trials.size(), 4u);
}

TEST(MergeRunsTest, FailuresStayAsRowsWithTheirCause) {
  SyntheticRunOptions options = SmallOptions();
  options.repeats = 2;
  RunData run = Make(options);
  FailTrial(&run, 1, v1::TRIAL_STATUS_RANK_LOST, "rank 1: gone");
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->trials.size(), 3u) << "the other repeat is still measured";
  const MergedTrial* lost = Find(*merged, 2, "RANK_LOST");
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->cause, "rank 1: gone");
  EXPECT_EQ(lost->failed_repeats, 1);
  EXPECT_FALSE(lost->samples_per_second.known());
  EXPECT_NE(Find(*merged, 2), nullptr);
}

TEST(MergeRunsTest, TrialsThatNeverRanSaySo) {
  RunData run = Make(SmallOptions());
  FailTrial(&run, 0, v1::TRIAL_STATUS_UNSPECIFIED, "");
  run.outcomes[0].attempt = 0;
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  ASSERT_TRUE(merged.ok());
  ASSERT_NE(Find(*merged, 1, "NOT_RUN"), nullptr);
}

TEST(MergeRunsTest, ReplicasWithDifferentWeightsAreAFailure) {
  RunData run = Make(SmallOptions());
  run.results.at("lenet5-wfbp-n2-b16-r0")[1].set_weights_checksum(43);
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  ASSERT_TRUE(merged.ok());
  const MergedTrial* diverged = Find(*merged, 2, "REPLICAS_DIVERGED");
  ASSERT_NE(diverged, nullptr);
  EXPECT_TRUE(absl::StrContains(diverged->cause, "rank 1")) << diverged->cause;
}

TEST(MergeRunsTest, AMissingRankIsNotOk) {
  RunData run = Make(SmallOptions());
  run.results.at("lenet5-wfbp-n2-b16-r0").pop_back();
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(Find(*merged, 2), nullptr);
}

TEST(MergeRunsTest, NoIterationsGiveUnknownNumbersNotZeros) {
  RunData run = Make(SmallOptions());
  for (v1::TrialResult& rank : run.results.at("lenet5-wfbp-n2-b16-r0")) rank.clear_iterations();
  for (v1::TrialResult& rank : run.results.at("lenet5-wfbp-n1-b16-r0")) {
    for (v1::IterationSample& sample : *rank.mutable_iterations()) sample.set_duration_ns(0);
  }
  absl::StatusOr<MergedRuns> merged = MergeRuns({std::move(run)});
  ASSERT_TRUE(merged.ok());
  for (const MergedTrial& trial : merged->trials) {
    EXPECT_TRUE(trial.ok);
    EXPECT_FALSE(trial.samples_per_second.known());
    EXPECT_FALSE(trial.iteration_seconds.known());
    EXPECT_FALSE(trial.scaling_efficiency.known());
    EXPECT_FALSE(trial.cause.empty());
  }
}

TEST(MergeRunsTest, HostsWithPoorlyKnownClocksAreNotOrdered) {
  RunData run = Make(SmallOptions());
  v1::TrialResult& rank1 = run.results.at("lenet5-wfbp-n2-b16-r0")[1];
  rank1.mutable_machine()->set_host("node-b");
  rank1.mutable_clock()->set_offset_seconds(5);
  rank1.mutable_clock()->set_bound_seconds(1);
  absl::StatusOr<MergedRuns> merged = MergeRuns({run});
  ASSERT_TRUE(merged.ok());
  EXPECT_DOUBLE_EQ(Find(*merged, 2)->clock_bound_seconds, 2);
  EXPECT_TRUE(std::isnan(Find(*merged, 2)->lateness[1].median_seconds));

  // With a good bound the offset is taken out.
  v1::TrialResult& good = run.results.at("lenet5-wfbp-n2-b16-r0")[1];
  good.mutable_clock()->set_bound_seconds(1e-7);
  for (v1::IterationSample& sample : *good.mutable_iterations()) {
    sample.set_start_ns(sample.start_ns() + 5000000000LL);
  }
  merged = MergeRuns({run});
  ASSERT_TRUE(merged.ok());
  EXPECT_NEAR(Find(*merged, 2)->lateness[1].median_seconds, 2e-4, 1e-6);
}

TEST(LoadRunTest, ReadsWhatTheStoreHolds) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/merge_store");
  RunData run = Make(SmallOptions());
  FailTrial(&run, 1, v1::TRIAL_STATUS_OUT_OF_MEMORY, "rank 0: too big");
  ASSERT_TRUE(WriteSyntheticRun(run, dir).ok());
  absl::StatusOr<RunData> read = LoadRun(dir);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->trials.size(), 2u);
  absl::StatusOr<MergedRuns> merged = MergeRuns({*std::move(read)});
  ASSERT_TRUE(merged.ok());
  EXPECT_NE(Find(*merged, 1), nullptr);
  ASSERT_NE(Find(*merged, 2, "OUT_OF_MEMORY"), nullptr);
  EXPECT_EQ(Find(*merged, 2, "OUT_OF_MEMORY")->cause, "rank 0: too big");
}

TEST(LoadRunTest, FilesThatAreNoRunStoreGiveAClearError) {
  const std::string foreign = absl::StrCat(testing::TempDir(), "/foreign.sqlite");
  std::ofstream(foreign) << "this is not a database, but it is long enough to look like a file\n";
  for (const std::string& path : {foreign, absl::StrCat(testing::TempDir(), "/no/such/run")}) {
    const absl::StatusOr<RunData> run = LoadRun(path);
    ASSERT_FALSE(run.ok());
    EXPECT_TRUE(absl::StrContains(run.status().message(), path)) << run.status();
  }
}

TEST(LoadRunTest, ATruncatedStoreGivesAClearError) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/cut_store");
  ASSERT_TRUE(WriteSyntheticRun(Make(SmallOptions()), dir).ok());
  std::ifstream whole(dir + "/run.sqlite", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
  const std::string cut = absl::StrCat(testing::TempDir(), "/cut.sqlite");
  std::ofstream(cut, std::ios::binary) << bytes.substr(0, bytes.size() / 3);
  const absl::StatusOr<RunData> run = LoadRun(cut);
  ASSERT_FALSE(run.ok());
  EXPECT_TRUE(absl::StrContains(run.status().message(), cut)) << run.status();
}

TEST(NamesTest, AreWhatReportsShow) {
  EXPECT_EQ(EngineName(v1::ENGINE_TENSORFLOW), "tensorflow");
  EXPECT_EQ(PrecisionName(v1::PRECISION_BF16), "bf16");
  EXPECT_EQ(StatusName(v1::TRIAL_STATUS_OUT_OF_MEMORY), "OUT_OF_MEMORY");
  v1::InputSource input;
  EXPECT_EQ(InputName(input), "synthetic");
  input.set_lmdb("/data/train");
  EXPECT_EQ(InputName(input), "lmdb:/data/train");
}

}  // namespace
}  // namespace paceline
