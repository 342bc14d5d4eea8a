// Reads the text output of the two common collective benchmarks, and tidy CSV, into
// CollectiveMeasurement records.
//
//   mpirun -n 4 osu_allreduce -f > allreduce4.log
//   absl::StatusOr<ImportedCollectives> osu = ParseOsuCollective(text, "allreduce4.log", {4, 4});
//
//   all_reduce_perf -b 8 -e 128M -f 2 -g 8 > nccl.log
//   absl::StatusOr<ImportedCollectives> nccl = ParseNcclTests(text, "nccl.log", {});
//
// Zero and negative times, unknown units, sizes that go backwards and lines that are cut off are
// errors that name file and line. A log that ends too early but whose lines are whole is read and
// flagged. Stateless and thread-safe.
#ifndef PACELINE_ANALYSIS_IMPORT_COLLECTIVE_LOGS_H_
#define PACELINE_ANALYSIS_IMPORT_COLLECTIVE_LOGS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/import/collective_measurement.h"
#include "analysis/import/csv_table.h"

namespace paceline {

// What the log itself does not say. 0: unknown.
struct CollectiveLogContext {
  int ranks = 0;  // Required for OSU output; for nccl-tests it must agree with the log.
  int nodes = 0;
};

absl::StatusOr<ImportedCollectives> ParseOsuCollective(absl::string_view text,
                                                       absl::string_view file,
                                                       const CollectiveLogContext& context);

// Takes the out-of-place columns.
absl::StatusOr<ImportedCollectives> ParseNcclTests(absl::string_view text, absl::string_view file,
                                                   const CollectiveLogContext& context);

// Columns bytes, ranks and exactly one of seconds, milliseconds, microseconds; optional: nodes,
// collective, library.
absl::StatusOr<ImportedCollectives> ImportCollectiveCsv(const CsvTable& table);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_IMPORT_COLLECTIVE_LOGS_H_
