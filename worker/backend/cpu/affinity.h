// Which cores a rank uses, and pinning threads to them.
//
//   std::vector<int> mine = ShareOfCores(AvailableCores(), local_index, local_count);
//   absl::Status status = PinThisThread(mine);   // Threads started from now on inherit it.
//
// Cores are the kernel's logical CPU numbers. Thread-safe.
#ifndef PACELINE_WORKER_BACKEND_CPU_AFFINITY_H_
#define PACELINE_WORKER_BACKEND_CPU_AFFINITY_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace paceline {

// Cores this process was started on (a container's or scheduler's mask included), ascending. Read
// once, so that pinning later does not change it.
const std::vector<int>& AvailableCores();

// Even, contiguous shares, so that neighbours in numbering (which share caches) stay together:
// 10 cores among 4 ranks are 3, 3, 2, 2. With more ranks than cores, ranks take turns on single
// ones.
std::vector<int> ShareOfCores(absl::Span<const int> cores, int local_index, int local_count);

// INVALID_ARGUMENT names the cores if the kernel refuses them.
absl::Status PinThisThread(absl::Span<const int> cores);

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_AFFINITY_H_
