#include "worker/backend/cpu/gloo_communicator.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/host_stream.h"
#include "worker/backend/memory_rendezvous.h"

namespace paceline {
namespace {

RankInfo Info(int rank, int ranks) {
  RankInfo info;
  info.rank = rank;
  info.ranks = ranks;
  info.data_address = "127.0.0.1";
  return info;
}

// Runs each rank on a thread with a communicator and a stream of its own.
void OnRanks(int ranks, const std::function<void(Communicator&, HostStream&)>& body) {
  MemoryRendezvous store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto communicator = GlooCommunicator::Create(Info(rank, ranks), "test", store);
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      HostStream stream({absl::StrCat("comm ", rank)});
      body(**communicator, stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GlooCommunicatorTest, RanksEndWithTheSameBits) {
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> results(kRanks);
  OnRanks(kRanks, [&](Communicator& communicator, HostStream& stream) {
    std::vector<float> values(100'003);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0f / static_cast<float>(1 + i * (communicator.rank() + 1));
    }
    communicator.AllReduceSum({values.data(), 1000}, stream).IgnoreError();
    communicator.AllReduceSum({values.data(), 100'003}, stream).IgnoreError();
    EXPECT_EQ(stream.Synchronize(absl::Now() + absl::Seconds(30)), absl::OkStatus());
    results[communicator.rank()] = values;
  });
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(GlooCommunicatorTest, DestroyingTheSenderLosesNothing) {
  std::atomic<bool> sent{false};
  OnRanks(2, [&](Communicator& communicator, HostStream& stream) {
    std::vector<float> values(10'000, 7.0f * (1 - communicator.rank()));
    if (communicator.rank() == 0) {
      communicator.Broadcast({values.data(), 10'000}, 0, stream).IgnoreError();
      EXPECT_EQ(stream.Synchronize(absl::Now() + absl::Seconds(30)), absl::OkStatus());
      sent = true;  // And this rank leaves.
      return;
    }
    while (!sent) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(20));
    communicator.Broadcast({values.data(), 10'000}, 0, stream).IgnoreError();
    EXPECT_EQ(stream.Synchronize(absl::Now() + absl::Seconds(30)), absl::OkStatus());
    EXPECT_EQ(values, std::vector<float>(10'000, 7.0f));
  });
}

TEST(GlooCommunicatorTest, MissingRankIsNamedAtTheDeadline) {
  MemoryRendezvous store;
  RankInfo info = Info(0, 2);
  info.timeout = absl::Milliseconds(50);
  const absl::Status status = GlooCommunicator::Create(info, "test", store).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("no address of rank 1"), status.message().npos) << status;
}

TEST(GlooCommunicatorTest, SilentPeerIsADeadline) {
  MemoryRendezvous store;
  std::atomic<bool> done{false};
  std::thread silent([&] {
    auto communicator = GlooCommunicator::Create(Info(1, 2), "test", store);
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    while (!done) absl::SleepFor(absl::Milliseconds(1));
  });
  RankInfo info = Info(0, 2);
  info.timeout = absl::Seconds(2);
  auto communicator = GlooCommunicator::Create(info, "test", store);
  absl::Status status = communicator.status();
  if (status.ok()) {
    HostStream stream({"comm"});
    std::vector<float> values(4);
    (*communicator)->AllReduceSum({values.data(), 4}, stream).IgnoreError();
    status = stream.Synchronize(absl::Now() + absl::Seconds(60));
  }
  done = true;
  silent.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(status.message().find("rank 0: gloo all-reduce (test)"), 0u) << status;
}

TEST(GlooCommunicatorTest, PeerOutOfRangeIsInvalid) {
  OnRanks(2, [&](Communicator& communicator, HostStream& stream) {
    float value = 0;
    EXPECT_TRUE(absl::IsInvalidArgument(communicator.Broadcast({&value, 1}, 2, stream)));
    EXPECT_TRUE(
        absl::IsInvalidArgument(communicator.Send({&value, 1}, communicator.rank(), stream)));
  });
}

}  // namespace
}  // namespace paceline
