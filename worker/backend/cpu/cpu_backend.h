// The CPU backend: streams are threads, layers run in oneDNN, ranks talk through Gloo.
//
//   CpuBackendOptions options;
//   options.local_index = 1;  // Of the ranks on this machine ...
//   options.local_count = 2;  // ... which share its cores evenly.
//   absl::StatusOr<std::unique_ptr<Backend>> backend = CreateCpuBackend(options);
//
// Thread-safety: as Backend.
#ifndef PACELINE_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define PACELINE_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace paceline {

struct CpuBackendOptions {
  // Cores this rank may use. Empty: its share of the process's cores by local_index of local_count.
  std::vector<int> cores;
  int local_index = 0;
  int local_count = 1;
  // Threads of a layer's work. 0: one per core of the rank.
  int compute_threads = 0;
};

// INVALID_ARGUMENT: cores that do not exist, local_index outside [0, local_count).
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace paceline

#endif  // PACELINE_WORKER_BACKEND_CPU_CPU_BACKEND_H_
