// One measured collective, whatever tool measured it: what the importers make and the cost models
// fit. Units: bytes per rank, seconds.
#ifndef PACELINE_ANALYSIS_IMPORT_COLLECTIVE_MEASUREMENT_H_
#define PACELINE_ANALYSIS_IMPORT_COLLECTIVE_MEASUREMENT_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"

namespace paceline {

struct CollectiveMeasurement {
  double bytes = 0;  // Of the buffer on each rank.
  int ranks = 0;
  int nodes = 0;  // 0: unknown.
  double seconds = 0;
  absl::optional<double> standard_deviation_seconds;
  int iterations = 0;  // That `seconds` is the mean of; 0: unknown.

  std::string collective;  // "allreduce", "bcast", ...
  std::string tool;        // "OSU MPI Allreduce Latency Test v5.4", "nccl-tests", a CSV's source.
  std::string library;     // "NCCL", "MPI"; empty: unknown.
  std::string place;       // "file:line" it was read from.
};

// What an importer found. `flags` are doubts a person should see: a truncated log, failed checks.
struct ImportedCollectives {
  std::vector<CollectiveMeasurement> measurements;
  std::vector<std::string> flags;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_IMPORT_COLLECTIVE_MEASUREMENT_H_
