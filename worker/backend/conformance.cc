#include "worker/backend/conformance.h"

#include <algorithm>
#include <atomic>
#include <cmath>
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
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "worker/backend/backend.h"
#include "worker/backend/memory_rendezvous.h"

namespace paceline {
namespace {

const int64_t kSizes[] = {0, 1, 2, 3, 17, 1000, 4096, 4097, 65'537, 1'000'000};

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// Small integers: sums are exact in any order.
float ValueOf(int rank, int64_t i) {
  return static_cast<float>((i * (rank + 2) + rank) % 101 - 50);
}

std::vector<float> ValuesOf(int rank, int64_t elements) {
  std::vector<float> values(elements);
  for (int64_t i = 0; i < elements; ++i) values[i] = ValueOf(rank, i);
  return values;
}

std::vector<float> SumOf(int ranks, int64_t elements) {
  std::vector<float> sum(elements);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int64_t i = 0; i < elements; ++i) sum[i] += ValueOf(rank, i);
  }
  return sum;
}

struct Rank {
  RankInfo info;
  Backend& backend;
  RendezvousStore& store;

  std::unique_ptr<Stream> NewStream(const std::string& name) const {
    return *backend.CreateStream(StreamKind::kCommunication, name);
  }
  std::unique_ptr<Communicator> NewCommunicator(const std::string& name) const {
    auto communicator = backend.CreateCommunicator(info, name, store);
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    return *std::move(communicator);
  }
};

void OnRanks(int ranks, const BackendMaker& maker, const std::function<void(const Rank&)>& body) {
  MemoryRendezvous store;
  const RankBackendMaker make = maker();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Backend> backend = make(rank, ranks);
      RankInfo info;
      info.rank = rank;
      info.ranks = ranks;
      info.data_address = "127.0.0.1";
      body({info, *backend, store});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(BackendConformanceTest, StreamsRunInOrderAndWaitForEachOther) {
  OnRanks(1, GetParam(), [](const Rank& rank) {
    auto first = rank.NewStream("first"), second = rank.NewStream("second");
    auto event = *rank.backend.CreateEvent();
    EXPECT_FALSE(rank.backend.EventUnixNs(*event).ok());
    std::atomic<int> value{0};
    int seen = 0;
    ASSERT_TRUE(first
                    ->RunOnHost([&] {
                      absl::SleepFor(absl::Milliseconds(5));
                      value = 1;
                      return absl::OkStatus();
                    })
                    .ok());
    ASSERT_TRUE(first->Record(*event).ok());
    ASSERT_TRUE(second->Wait(*event).ok());
    ASSERT_TRUE(second
                    ->RunOnHost([&] {
                      seen = value;
                      return absl::OkStatus();
                    })
                    .ok());
    EXPECT_EQ(second->Synchronize(Soon()), absl::OkStatus());
    EXPECT_EQ(seen, 1);
    EXPECT_TRUE(rank.backend.EventUnixNs(*event).ok());
  });
}

TEST_P(BackendConformanceTest, DescribesItself) {
  OnRanks(1, GetParam(), [](const Rank& rank) {
    v1::MachineState machine;
    ASSERT_EQ(rank.backend.Describe(machine), absl::OkStatus());
    EXPECT_EQ(machine.backend(), rank.backend.name());
    EXPECT_FALSE(machine.device().empty());
    EXPECT_GE(machine.compute_threads(), 1);
    const auto precisions = rank.backend.Precisions();
    EXPECT_NE(std::find(precisions.begin(), precisions.end(), v1::PRECISION_FP32),
              precisions.end());
  });
}

TEST_P(BackendConformanceTest, AllReduceSumsOnEveryRank) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    OnRanks(ranks, GetParam(), [&](const Rank& rank) {
      auto communicator = rank.NewCommunicator("c");
      auto stream = rank.NewStream("c");
      for (const int64_t elements : kSizes) {
        std::vector<float> values = ValuesOf(rank.info.rank, elements);
        communicator->AllReduceSum({values.data(), elements}, *stream).IgnoreError();
        ASSERT_EQ(stream->Synchronize(Soon()), absl::OkStatus()) << ranks << " " << elements;
        EXPECT_TRUE(values == SumOf(ranks, elements)) << ranks << " ranks, " << elements;
      }
    });
  }
}

TEST_P(BackendConformanceTest, ReduceSumsAtTheRootAlone) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    OnRanks(ranks, GetParam(), [&](const Rank& rank) {
      auto communicator = rank.NewCommunicator("c");
      auto stream = rank.NewStream("c");
      for (int root = 0; root < ranks; ++root) {
        for (const int64_t elements : kSizes) {
          std::vector<float> values = ValuesOf(rank.info.rank, elements);
          communicator->ReduceSum({values.data(), elements}, root, *stream).IgnoreError();
          ASSERT_EQ(stream->Synchronize(Soon()), absl::OkStatus());
          if (rank.info.rank == root) {
            EXPECT_TRUE(values == SumOf(ranks, elements)) << ranks << " ranks, " << elements;
          }
        }
      }
    });
  }
}

TEST_P(BackendConformanceTest, BroadcastCopiesTheRoots) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    OnRanks(ranks, GetParam(), [&](const Rank& rank) {
      auto communicator = rank.NewCommunicator("c");
      auto stream = rank.NewStream("c");
      for (int root = 0; root < ranks; ++root) {
        for (const int64_t elements : kSizes) {
          std::vector<float> values = ValuesOf(rank.info.rank, elements);
          communicator->Broadcast({values.data(), elements}, root, *stream).IgnoreError();
          ASSERT_EQ(stream->Synchronize(Soon()), absl::OkStatus());
          EXPECT_TRUE(values == ValuesOf(root, elements)) << ranks << " ranks, " << elements;
        }
      }
    });
  }
}

TEST_P(BackendConformanceTest, SendReachesThePeer) {
  OnRanks(3, GetParam(), [&](const Rank& rank) {
    auto communicator = rank.NewCommunicator("c");
    auto stream = rank.NewStream("c");
    for (const int64_t elements : kSizes) {
      std::vector<float> values = ValuesOf(rank.info.rank, elements);
      if (rank.info.rank == 2) {
        communicator->Send({values.data(), elements}, 0, *stream).IgnoreError();
      } else if (rank.info.rank == 0) {
        communicator->Receive({values.data(), elements}, 2, *stream).IgnoreError();
      }
      ASSERT_EQ(stream->Synchronize(Soon()), absl::OkStatus());
      if (rank.info.rank == 0) EXPECT_TRUE(values == ValuesOf(2, elements)) << elements;
    }
  });
}

TEST_P(BackendConformanceTest, TwoCommunicatorsWorkSideBySide) {
  OnRanks(2, GetParam(), [&](const Rank& rank) {
    auto a = rank.NewCommunicator("a"), b = rank.NewCommunicator("b");
    auto stream_a = rank.NewStream("a"), stream_b = rank.NewStream("b");
    constexpr int64_t kElements = 200'000;
    std::vector<float> values_a = ValuesOf(rank.info.rank, kElements), values_b = values_a;
    // The ranks enqueue in different orders.
    for (int i = 0; i < 2; ++i) {
      const bool first = (i == 0) == (rank.info.rank == 0);
      (first ? *a : *b)
          .AllReduceSum({(first ? values_a : values_b).data(), kElements},
                        first ? *stream_a : *stream_b)
          .IgnoreError();
    }
    EXPECT_EQ(stream_a->Synchronize(Soon()), absl::OkStatus());
    EXPECT_EQ(stream_b->Synchronize(Soon()), absl::OkStatus());
    EXPECT_TRUE(values_a == SumOf(2, kElements));
    EXPECT_TRUE(values_b == SumOf(2, kElements));
  });
}

TEST_P(BackendConformanceTest, AbortEndsABlockedCollective) {
  std::atomic<bool> checked{false};
  OnRanks(2, GetParam(), [&](const Rank& rank) {
    auto communicator = rank.NewCommunicator("c");
    auto stream = rank.NewStream("c");
    if (rank.info.rank == 1) {  // Never comes.
      while (!checked) absl::SleepFor(absl::Milliseconds(1));
      return;
    }
    std::vector<float> values(10);
    communicator->AllReduceSum({values.data(), 10}, *stream).IgnoreError();
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(stream->Synchronize(absl::Now() + absl::Milliseconds(20))));
    communicator->Abort(absl::AbortedError("the attempt has ended"));
    EXPECT_EQ(stream->Synchronize(Soon()), absl::AbortedError("the attempt has ended"));
    auto fresh = rank.NewStream("c2");
    communicator->AllReduceSum({values.data(), 10}, *fresh).IgnoreError();
    EXPECT_EQ(fresh->Synchronize(Soon()), absl::AbortedError("the attempt has ended"));
    checked = true;
  });
}

TEST_P(BackendConformanceTest, LostPeerIsUnavailable) {
  OnRanks(3, GetParam(), [&](const Rank& rank) {
    auto communicator = rank.NewCommunicator("c");
    if (rank.info.rank == 2) return;  // Dies: its connections close.
    auto stream = rank.NewStream("c");
    std::vector<float> values(100'000);
    communicator->AllReduceSum({values.data(), 100'000}, *stream).IgnoreError();
    const absl::Status status = stream->Synchronize(Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  });
}

// Two groups; the first is split over all servers.
IterationSchedule TwoGroups(int ranks, int servers, bool servers_update) {
  IterationSchedule schedule;
  schedule.ranks = ranks;
  schedule.servers = servers;
  schedule.servers_update = servers_update;
  schedule.gradient_divisor = ranks;
  schedule.groups.resize(2);
  Group& large = schedule.groups[0];
  large.bytes = 300'000;
  for (int server = 0; server < servers; ++server) {
    const int64_t begin = large.bytes / 4 * server / servers * 4;
    const int64_t end = large.bytes / 4 * (server + 1) / servers * 4;
    large.shards.push_back({server, begin, end - begin});
  }
  schedule.groups[1].bytes = 20;
  schedule.groups[1].shards.push_back({servers - 1, 0, 20});
  return schedule;
}

TEST_P(BackendConformanceTest, ParameterServerEqualsSerialSgd) {
  const std::vector<int64_t> elements = {75'008, 16};  // Padded beyond the schedule's bytes.
  v1::TrainingSettings training;
  training.set_learning_rate(0.1);
  training.set_momentum(0.9);
  training.set_weight_decay(0.01);
  constexpr int kIterations = 4;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const bool servers_update : {true, false}) {
      for (const int servers : {1, ranks}) {
        const IterationSchedule schedule = TwoGroups(ranks, servers, servers_update);
        OnRanks(ranks, GetParam(), [&](const Rank& rank) {
          std::vector<std::vector<float>> weights;
          std::vector<DeviceSpan> spans;
          for (const int64_t count : elements) weights.push_back(ValuesOf(9, count));
          for (auto& w : weights) spans.push_back({w.data(), static_cast<int64_t>(w.size())});
          auto server = rank.backend.CreateParameterServer(rank.info, schedule, spans, training,
                                                           "ps", rank.store);
          ASSERT_TRUE(server.ok()) << server.status();
          // A stream each: the groups' pushes and pulls overtake each other.
          auto stream_0 = rank.NewStream("s0"), stream_1 = rank.NewStream("s1");
          std::vector<std::vector<double>> expected, velocity;
          for (auto& w : weights) expected.emplace_back(w.begin(), w.end());
          for (auto& w : weights) velocity.emplace_back(w.size(), 0.0);
          for (int k = 0; k < kIterations; ++k) {
            std::vector<std::vector<float>> gradients;
            for (size_t g = 0; g < elements.size(); ++g) {
              gradients.push_back(
                  ValuesOf(rank.info.rank + 7 * k + static_cast<int>(g), elements[g]));
              Stream& stream = g == 0 ? *stream_0 : *stream_1;
              (*server)
                  ->Push(static_cast<int>(g), {gradients[g].data(), elements[g]}, stream)
                  .IgnoreError();
              (*server)->Pull(static_cast<int>(g), spans[g], stream).IgnoreError();
            }
            ASSERT_EQ(stream_0->Synchronize(Soon()), absl::OkStatus());
            ASSERT_EQ(stream_1->Synchronize(Soon()), absl::OkStatus());
            for (size_t g = 0; g < elements.size(); ++g) {
              double worst = 0;
              for (int64_t i = 0; i < elements[g]; ++i) {
                double sum = 0;
                for (int r = 0; r < ranks; ++r) sum += ValueOf(r + 7 * k + static_cast<int>(g), i);
                if (servers_update) {
                  velocity[g][i] =
                      0.9 * velocity[g][i] + 0.1 * (sum / ranks + 0.01 * expected[g][i]);
                  expected[g][i] -= velocity[g][i];
                } else {
                  expected[g][i] = sum;
                }
                worst = std::max(worst, std::abs(expected[g][i] - weights[g][i]));
              }
              EXPECT_LT(worst, 1e-4) << ranks << " ranks, " << servers << " servers, group " << g
                                     << ", iteration " << k;
            }
          }
        });
      }
    }
  }
}

TEST_P(BackendConformanceTest, AbortEndsABlockedPull) {
  std::atomic<int> checked{0};
  const IterationSchedule schedule = TwoGroups(3, 2, true);
  OnRanks(3, GetParam(), [&](const Rank& rank) {
    std::vector<float> large(75'000), small(5);
    auto server = rank.backend.CreateParameterServer(
        rank.info, schedule, {{large.data(), 75'000}, {small.data(), 5}}, {}, "ps", rank.store);
    ASSERT_TRUE(server.ok()) << server.status();
    if (rank.info.rank == 1) {  // Never pushes.
      while (checked < 2) absl::SleepFor(absl::Milliseconds(1));
      (*server)->Abort(absl::AbortedError("the attempt has ended"));
      return;
    }
    auto stream = rank.NewStream("s");
    (*server)->Push(0, {large.data(), 75'000}, *stream).IgnoreError();
    (*server)->Pull(0, {large.data(), 75'000}, *stream).IgnoreError();
    absl::SleepFor(absl::Milliseconds(20));
    (*server)->Abort(absl::AbortedError("the attempt has ended"));
    // Or a peer's abort was quicker, which this rank sees as a closed connection.
    const absl::Status status = stream->Synchronize(Soon());
    EXPECT_TRUE(absl::IsAborted(status) || absl::IsUnavailable(status)) << status;
    ++checked;
  });
}

}  // namespace
}  // namespace paceline
