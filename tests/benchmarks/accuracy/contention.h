// Targets 9 and 10 on public measurements of jobs that share a network
// (dl_scheduling_contention.csv, osu_allreduce_iterations_summary.csv).
#ifndef PACELINE_TESTS_BENCHMARKS_ACCURACY_CONTENTION_H_
#define PACELINE_TESTS_BENCHMARKS_ACCURACY_CONTENTION_H_

#include "absl/status/status.h"
#include "tests/benchmarks/accuracy/accuracy.h"

namespace paceline {

absl::Status EvaluateContention(const AccuracyData& data, AccuracyReport& report);

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_ACCURACY_CONTENTION_H_
