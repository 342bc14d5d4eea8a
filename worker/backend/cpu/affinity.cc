#include "worker/backend/cpu/affinity.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace paceline {
namespace {

std::vector<int> ReadAvailableCores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

// Before main, hence before anything is pinned.
const std::vector<int>* const at_start = new std::vector<int>(ReadAvailableCores());

}  // namespace

const std::vector<int>& AvailableCores() { return *at_start; }

std::vector<int> ShareOfCores(absl::Span<const int> cores, int local_index, int local_count) {
  const int count = static_cast<int>(cores.size());
  if (count == 0 || local_count <= 1) return {cores.begin(), cores.end()};
  if (local_count >= count) return {cores[local_index % count]};
  const int share = count / local_count;
  const int larger = count % local_count;  // The first ranks get one more.
  const int first = local_index * share + std::min(local_index, larger);
  const int size = share + (local_index < larger ? 1 : 0);
  return {cores.begin() + first, cores.begin() + first + size};
}

absl::Status PinThisThread(absl::Span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  bool in_range = !cores.empty();
  for (int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) {
      in_range = false;
    } else {
      CPU_SET(core, &set);
    }
  }
  const int error = in_range ? pthread_setaffinity_np(pthread_self(), sizeof(set), &set) : EINVAL;
  if (error == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot pin to cores {", absl::StrJoin(cores, ", "), "}: ", strerror(error),
                   "; this process may use {", absl::StrJoin(AvailableCores(), ", "), "}"));
}

}  // namespace paceline
