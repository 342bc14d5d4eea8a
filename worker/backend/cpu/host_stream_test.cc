#include "worker/backend/cpu/host_stream.h"

#include <atomic>
#include <chrono>  // NOLINT(build/c++11)
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/backend/backend.h"

namespace paceline {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

// A task that holds its stream until opened (or given up on).
class Gate {
 public:
  std::function<absl::Status()> Task() {
    return [this] {
      while (!open_) std::this_thread::sleep_for(std::chrono::microseconds(100));
      return absl::OkStatus();
    };
  }
  void Open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

TEST(HostStreamTest, RunsTasksInOrder) {
  HostStream stream({"compute"});
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(stream
                    .RunOnHost([&seen, i] {
                      seen.push_back(i);
                      return absl::OkStatus();
                    })
                    .ok());
  }
  ASSERT_TRUE(stream.Synchronize(Soon()).ok());
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
}

TEST(HostStreamTest, WaitOrdersTwoStreams) {
  HostStream compute({"compute"}), communication({"communication"});
  HostEvent ready;
  Gate gate;
  std::atomic<int> value{0};
  int seen = -1;
  compute.RunOnHost(gate.Task()).IgnoreError();
  compute
      .RunOnHost([&] {
        value = 42;
        return absl::OkStatus();
      })
      .IgnoreError();
  ASSERT_TRUE(compute.Record(ready).ok());
  ASSERT_TRUE(communication.Wait(ready).ok());
  communication
      .RunOnHost([&] {
        seen = value;
        return absl::OkStatus();
      })
      .IgnoreError();
  EXPECT_TRUE(absl::IsDeadlineExceeded(communication.Synchronize(absl::Now())));
  gate.Open();
  ASSERT_TRUE(communication.Synchronize(Soon()).ok());
  EXPECT_EQ(seen, 42);
}

TEST(HostStreamTest, WaitBindsToTheLatestRecordAtTheTimeOfTheCall) {
  HostStream a({"a"}), b({"b"});
  HostEvent event;
  Gate later;
  ASSERT_TRUE(b.Wait(event).ok());  // Never recorded: does not block.
  ASSERT_TRUE(a.Record(event).ok());
  ASSERT_TRUE(b.Wait(event).ok());
  a.RunOnHost(later.Task()).IgnoreError();
  ASSERT_TRUE(a.Record(event).ok());  // Held back, and no concern of b's.
  EXPECT_TRUE(b.Synchronize(Soon()).ok());
  EXPECT_FALSE(event.UnixNs().ok());
  later.Open();
  EXPECT_TRUE(event.WaitReached(Soon()).ok());
  EXPECT_TRUE(event.UnixNs().ok());
}

TEST(HostStreamTest, AnEarlierRecordReachedLateStillHoldsItsWaiters) {
  HostStream slow({"slow"}), quick({"quick"}), waiter({"waiter"});
  HostEvent event;
  Gate gate;
  slow.RunOnHost(gate.Task()).IgnoreError();
  ASSERT_TRUE(slow.Record(event).ok());
  ASSERT_TRUE(waiter.Wait(event).ok());
  ASSERT_TRUE(quick.Record(event).ok());
  ASSERT_TRUE(quick.Synchronize(Soon()).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiter.Synchronize(absl::Now())));
  gate.Open();
  EXPECT_TRUE(waiter.Synchronize(Soon()).ok());
}

TEST(HostStreamTest, FailureIsStickyAndSpreadsToWaitingStreams) {
  HostStream compute({"compute"}), communication({"communication"});
  HostEvent ready;
  bool ran = false;
  const auto mark = [&ran] {
    ran = true;
    return absl::OkStatus();
  };
  compute.RunOnHost([] { return absl::DataLossError("layer 7"); }).IgnoreError();
  compute.RunOnHost(mark).IgnoreError();
  compute.Record(ready).IgnoreError();
  communication.Wait(ready).IgnoreError();
  communication.RunOnHost(mark).IgnoreError();
  EXPECT_EQ(communication.Synchronize(Soon()), absl::DataLossError("layer 7"));
  EXPECT_EQ(compute.Synchronize(Soon()), absl::DataLossError("layer 7"));
  EXPECT_EQ(compute.RunOnHost(mark), absl::DataLossError("layer 7"));
  EXPECT_FALSE(ran);
}

TEST(HostStreamTest, AnExceptionBecomesAStatus) {
  HostStream stream({"compute"});
  stream.RunOnHost([]() -> absl::Status { throw std::runtime_error("no such primitive"); })
      .IgnoreError();
  const absl::Status status = stream.Synchronize(Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("no such primitive"), status.message().npos);
}

TEST(HostStreamTest, AbortWakesAStreamThatWaitsForAnEvent) {
  HostStream blocked({"blocked"}), waiter({"waiter"});
  HostEvent event;
  Gate gate;
  blocked.RunOnHost(gate.Task()).IgnoreError();
  blocked.Record(event).IgnoreError();
  waiter.Wait(event).IgnoreError();
  waiter.Abort(absl::AbortedError("peer lost"));
  EXPECT_EQ(waiter.Synchronize(Soon()), absl::AbortedError("peer lost"));
  gate.Open();
  EXPECT_TRUE(blocked.Synchronize(Soon()).ok());
}

TEST(HostStreamTest, SynchronizeNamesTheStreamThatIsLate) {
  HostStream stream({"communication_0"});
  Gate gate;
  stream.RunOnHost(gate.Task()).IgnoreError();
  const absl::Status status = stream.Synchronize(absl::Now() + absl::Milliseconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("communication_0"), status.message().npos);
  gate.Open();
}

TEST(HostStreamTest, DestroyedStreamReleasesItsWaiters) {
  HostStream waiter({"waiter"});
  HostEvent event;
  Gate gate;
  auto doomed = std::make_unique<HostStream>(HostStreamOptions{"doomed"});
  doomed->RunOnHost(gate.Task()).IgnoreError();
  doomed->Record(event).IgnoreError();
  waiter.Wait(event).IgnoreError();
  gate.Open();
  doomed.reset();
  // The Record was reached either in time or with the stream's end; the waiter does not hang.
  const absl::Status status = waiter.Synchronize(Soon());
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
}

TEST(HostStreamTest, EventTimesAreUnixTimeAndOrdered) {
  HostStream stream({"compute"});
  HostEvent begin, end;
  const int64_t before_ns = absl::ToUnixNanos(absl::Now());
  stream.Record(begin).IgnoreError();
  stream
      .RunOnHost([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return absl::OkStatus();
      })
      .IgnoreError();
  stream.Record(end).IgnoreError();
  ASSERT_TRUE(stream.Synchronize(Soon()).ok());
  EXPECT_GE(*end.UnixNs() - *begin.UnixNs(), 2'000'000);
  // Half a second of slack: the two clocks may drift apart, the test machine may be adjusted.
  EXPECT_GE(*begin.UnixNs(), before_ns - 500'000'000);
  EXPECT_LE(*end.UnixNs(), absl::ToUnixNanos(absl::Now()) + 500'000'000);
}

}  // namespace
}  // namespace paceline
