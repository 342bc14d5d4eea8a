// Whether the 95 % intervals of analysis/stats hold what they promise: coverage on series with a
// known truth and on public logs of correlated iterations (osu_allreduce_iterations_raw.csv), and
// how often two runs of the same thing are called different.
#ifndef PACELINE_TESTS_BENCHMARKS_ACCURACY_INTERVALS_H_
#define PACELINE_TESTS_BENCHMARKS_ACCURACY_INTERVALS_H_

#include "absl/status/status.h"
#include "tests/benchmarks/accuracy/accuracy.h"

namespace paceline {

absl::Status EvaluateIntervals(const AccuracyData& data, AccuracyReport& report);

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_ACCURACY_INTERVALS_H_
