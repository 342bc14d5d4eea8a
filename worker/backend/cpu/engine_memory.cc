#include "worker/backend/cpu/engine_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

constexpr int64_t kAlignment = 4096;
constexpr int64_t kHugePage = 2 << 20;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// First number in the file, or -1 ("max" in a cgroup file means no limit).
int64_t NumberInFile(const char* path) {
  std::ifstream file(path);
  std::string word;
  int64_t value = -1;
  if (!(file >> word) || !absl::SimpleAtoi(word, &value)) return -1;
  return value;
}

}  // namespace

int64_t PlanArena(std::vector<BufferLifetime>& buffers, bool reuse) {
  std::vector<int> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<int> placed;  // Sorted by offset.
  int64_t total = 0;
  for (int index : order) {
    BufferLifetime& buffer = buffers[index];
    // The smallest gap that fits between the placed buffers alive at the same time.
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), end = 0;
    for (int other_index : placed) {
      const BufferLifetime& other = buffers[other_index];
      if (reuse && (other.last_step < buffer.first_step || buffer.last_step < other.first_step)) {
        continue;
      }
      int64_t gap = other.offset - end;
      if (gap >= buffer.bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, RoundUp(other.offset + other.bytes, kAlignment));
    }
    buffer.offset = best >= 0 ? best : end;
    total = std::max(total, RoundUp(buffer.offset + buffer.bytes, kAlignment));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), index,
                         [&](int a, int b) { return buffers[a].offset < buffers[b].offset; }),
        index);
  }
  return total;
}

int64_t AvailableMemoryBytes() {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  int64_t kibibytes = 0;
  while (meminfo >> key >> kibibytes) {
    if (key == "MemAvailable:") available = kibibytes * 1024;
    std::getline(meminfo, unit);
  }
  // cgroup v2, then v1. A v1 "no limit" is a huge number, which the minimum ignores.
  for (auto [limit_file, use_file] :
       {std::make_pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        std::make_pair("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                       "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
    int64_t limit = NumberInFile(limit_file), use = NumberInFile(use_file);
    if (limit >= 0 && use >= 0) available = std::min(available, std::max<int64_t>(limit - use, 0));
  }
  return available;
}

absl::StatusOr<Arena> Arena::Create(int64_t bytes) {
  Arena arena;
  if (bytes == 0) return arena;
  arena.bytes_ = RoundUp(bytes, kHugePage);
  // One huge page more than needed, so that an aligned range lies inside.
  void* mapping = mmap(nullptr, arena.bytes_ + kHugePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    arena.bytes_ = 0;
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: ", std::strerror(errno)));
  }
  char* start = static_cast<char*>(mapping);
  char* aligned = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(start), kHugePage));
  if (aligned != start) munmap(start, aligned - start);
  munmap(aligned + arena.bytes_, start + kHugePage - aligned);
  madvise(aligned, arena.bytes_, MADV_HUGEPAGE);  // Only a wish: without it everything still works.
  arena.data_ = aligned;
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace paceline
