#include "worker/backend/cpu/engine_memory.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(PlanArenaTest, BuffersThatAreDisjointInTimeShareMemory) {
  std::vector<BufferLifetime> buffers = {{4096, 0, 3}, {8192, 4, 9}};
  EXPECT_EQ(PlanArena(buffers, true), 8192);
}

TEST(PlanArenaTest, BuffersAliveAtTheSameStepDoNotOverlap) {
  // Pseudo-random lifetimes and sizes.
  std::vector<BufferLifetime> buffers;
  uint32_t random = 1;
  auto next = [&](uint32_t below) {
    random = random * 1664525u + 1013904223u;
    return static_cast<int>((random >> 8) % below);
  };
  for (int i = 0; i < 200; ++i) {
    int first = next(100);
    buffers.push_back({next(100000) + 1, first, first + next(20)});
  }
  const int64_t total = PlanArena(buffers, true);
  int64_t sum = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    sum += buffers[i].bytes;
    EXPECT_LE(buffers[i].offset + buffers[i].bytes, total);
    for (size_t j = 0; j < i; ++j) {
      const BufferLifetime &a = buffers[i], &b = buffers[j];
      if (a.last_step < b.first_step || b.last_step < a.first_step) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
          << i << " " << j;
    }
  }
  EXPECT_LT(total, sum / 3);
}

TEST(PlanArenaTest, WithoutReuseEveryBufferHasItsOwnMemory) {
  std::vector<BufferLifetime> buffers = {{4096, 0, 3}, {8192, 4, 9}, {1, 5, 5}};
  EXPECT_EQ(PlanArena(buffers, false), 4096 + 8192 + 4096);
}

TEST(ArenaTest, MemoryIsZeroAndAligned) {
  auto arena = Arena::Create(3 << 20);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_GE(arena->bytes(), 3 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % (2 << 20), 0u);
  for (int64_t i = 0; i < arena->bytes(); i += 4096) ASSERT_EQ(arena->data()[i], 0);
}

TEST(AvailableMemoryTest, IsPositive) { EXPECT_GT(AvailableMemoryBytes(), 1 << 20); }

}  // namespace
}  // namespace paceline
