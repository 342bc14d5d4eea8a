// Memory of the CPU layer engine: how much there is, where buffers lie in one arena, the arena.
//
//   std::vector<BufferLifetime> buffers = {{4096, 0, 3}, {8192, 4, 9}};   // Disjoint in time:
//   int64_t bytes = PlanArena(buffers, /*reuse=*/true);                   // they share memory.
//   absl::StatusOr<Arena> arena = Arena::Create(bytes);
//
// Sizes are bytes. PlanArena and AvailableMemoryBytes are thread-safe; an Arena is plain memory.
#ifndef PACELINE_WORKER_BACKEND_CPU_ENGINE_MEMORY_H_
#define PACELINE_WORKER_BACKEND_CPU_ENGINE_MEMORY_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline {

// A buffer that holds a value from step `first_step` to step `last_step`, both included.
struct BufferLifetime {
  int64_t bytes = 0;
  int first_step = 0;
  int last_step = 0;
  int64_t offset = 0;  // Set by PlanArena. A multiple of 4096.
};

// Places the buffers so that those alive at the same step do not overlap (greedy by size: the usual
// heuristic for this NP-hard problem, within a few percent of the lower bound on our networks).
// Without `reuse` every buffer gets its own memory. Returns the bytes needed.
int64_t PlanArena(std::vector<BufferLifetime>& buffers, bool reuse);

// What this process may still allocate: the kernel's MemAvailable, or what is left of the memory
// cgroup's limit if that is less.
int64_t AvailableMemoryBytes();

// Zeroed anonymous memory, 2 MiB aligned, on huge pages where the kernel grants them: page faults
// and TLB misses cost PyTorch 20 to 30 % of a step. Move-only.
class Arena {
 public:
  Arena() = default;
  static absl::StatusOr<Arena> Create(int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_ENGINE_MEMORY_H_
