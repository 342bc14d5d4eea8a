// Targets 1, 2 and 10 of the performance models on public all-reduce measurements
// (bcaffe_osu_allreduce.csv, deepbench_allreduce.csv), and NCCL's own constants as a sanity check.
#ifndef PACELINE_TESTS_BENCHMARKS_ACCURACY_COLLECTIVES_H_
#define PACELINE_TESTS_BENCHMARKS_ACCURACY_COLLECTIVES_H_

#include "absl/status/status.h"
#include "tests/benchmarks/accuracy/accuracy.h"

namespace paceline {

absl::Status EvaluateCollectives(const AccuracyData& data, AccuracyReport& report);

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_ACCURACY_COLLECTIVES_H_
