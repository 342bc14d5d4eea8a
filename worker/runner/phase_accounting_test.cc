#include "worker/runner/phase_accounting.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

// read -> copy -> forward -> backward -> all_reduce -> update, with the next read prefetched.
IterationSchedule SmallSchedule() {
  IterationSchedule schedule;
  schedule.streams = {{StreamKind::kInput, "input"},
                      {StreamKind::kCopy, "copy"},
                      {StreamKind::kCompute, "compute"},
                      {StreamKind::kCommunication, "communication_0"}};
  auto add = [&](OperationKind kind, int stream, std::vector<Dependency> dependencies) {
    Operation op;
    op.kind = kind;
    op.stream = stream;
    op.dependencies = std::move(dependencies);
    if (kind == OperationKind::kForward || kind == OperationKind::kBackward) op.layer = 0;
    if (kind == OperationKind::kAllReduce) op.group = 0;
    schedule.operations.push_back(op);
  };
  add(OperationKind::kRead, 0, {{1, 2}});
  add(OperationKind::kCopyInput, 1, {{0, 0}, {2, 1}});
  add(OperationKind::kForward, 2, {{1, 0}});
  add(OperationKind::kBackward, 2, {{2, 0}});
  add(OperationKind::kAllReduce, 3, {{3, 0}});
  add(OperationKind::kUpdate, 2, {{4, 0}});
  return schedule;
}

IterationTimes Shifted(IterationTimes times, int64_t by_ns) {
  for (OperationTime& time : times.operations) {
    time.begin_unix_ns += by_ns;
    time.end_unix_ns += by_ns;
  }
  return times;
}

TEST(PhaseAccountingTest, PhasesAndWaitsAddUpToThePeriod) {
  const IterationSchedule schedule = SmallSchedule();
  IterationTimes times;
  //                  read       copy        forward       backward      all_reduce    update
  times.operations = {{0, 90}, {90, 100}, {1000, 1100}, {1100, 1300}, {1305, 1500}, {1500, 1520}};
  times.input_busy_ns = 80;
  times.loss = 2.5;
  IterationTimes next = Shifted(times, 600);
  // The next batch is late: its copy ends 40 ns after this update.
  next.operations[1] = {1550, 1560};
  next.operations[2] = {1565, 1665};
  const std::vector<v1::IterationSample> samples = AccountPhases(schedule, {times, next});
  ASSERT_EQ(samples.size(), 1u);
  const v1::IterationSample& sample = samples[0];
  EXPECT_EQ(sample.start_ns(), 1000);
  EXPECT_EQ(sample.duration_ns(), 565);
  EXPECT_EQ(sample.input_ns(), 80);
  EXPECT_EQ(sample.copy_ns(), 10);
  EXPECT_EQ(sample.forward_ns(), 100);
  EXPECT_EQ(sample.backward_ns(), 200);
  EXPECT_EQ(sample.communication_ns(), 195);
  EXPECT_EQ(sample.exposed_communication_ns(), 200);  // From 1300 to 1500, queueing included.
  EXPECT_EQ(sample.update_ns(), 20);
  EXPECT_EQ(sample.input_wait_ns(), 40);  // From 1520 to 1560; 5 ns are overhead.
  EXPECT_DOUBLE_EQ(sample.loss(), 2.5);
}

TEST(PhaseAccountingTest, HiddenCommunicationIsNotExposed) {
  IterationSchedule schedule = SmallSchedule();
  schedule.operations[4].dependencies.clear();  // The all-reduce overlaps backward.
  IterationTimes times;
  times.operations = {{0, 90}, {90, 100}, {1000, 1100}, {1100, 1300}, {1150, 1280}, {1300, 1320}};
  const auto samples = AccountPhases(schedule, {times, Shifted(times, 320)});
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].communication_ns(), 130);
  EXPECT_EQ(samples[0].exposed_communication_ns(), 0);
  EXPECT_EQ(samples[0].input_wait_ns(), 0);
}

TEST(PhaseAccountingTest, OverlappingTransfersCountOnce) {
  IterationSchedule schedule = SmallSchedule();
  schedule.streams.push_back({StreamKind::kCommunication, "communication_1"});
  Operation second = schedule.operations[4];
  second.stream = 4;
  schedule.operations.push_back(second);
  IterationTimes times;
  times.operations = {{0, 90},      {90, 100},    {1000, 1100}, {1100, 1300},
                      {1300, 1500}, {1600, 1620}, {1400, 1600}};
  const auto samples = AccountPhases(schedule, {times, Shifted(times, 1000)});
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].communication_ns(), 300);
}

TEST(PhaseAccountingTest, LastIterationHasNoPeriod) {
  const IterationSchedule schedule = SmallSchedule();
  IterationTimes times;
  times.operations.resize(6);
  EXPECT_TRUE(AccountPhases(schedule, {times}).empty());
  EXPECT_TRUE(AccountPhases(schedule, {}).empty());
}

TEST(PhaseAccountingTest, StatisticsAndTraceNameTheOperations) {
  const IterationSchedule schedule = SmallSchedule();
  IterationTimes times;
  times.operations = {{0, 90}, {90, 100}, {1000, 1100}, {1100, 1300}, {1305, 1500}, {1500, 1520}};
  IterationTimes slow = Shifted(times, 1000);
  slow.operations[2].end_unix_ns += 50;
  IterationTimes slowest = Shifted(times, 2000);
  slowest.operations[2].end_unix_ns += 100;
  const std::vector<std::string> layers = {"conv1"};
  const auto statistics = SummarizeOperations(schedule, layers, {times, slow, slowest}, 0, 3);
  ASSERT_EQ(statistics.size(), 6u);
  EXPECT_EQ(statistics[2].name(), "forward conv1");
  EXPECT_EQ(statistics[2].median_ns(), 150);
  EXPECT_EQ(statistics[2].min_ns(), 100);
  EXPECT_EQ(statistics[2].mean_ns(), 150);
  EXPECT_EQ(statistics[4].name(), "all_reduce g0");
  const auto trace = TraceIteration(schedule, layers, times);
  EXPECT_EQ(trace[0].begin_ns(), -1000);  // Prefetched.
  EXPECT_EQ(trace[0].stream(), "input");
  EXPECT_EQ(trace[4].end_ns(), 500);
}

}  // namespace
}  // namespace paceline
