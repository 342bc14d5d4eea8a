// Accuracy of scale-out prediction, trace replay, new networks, ranking and intervals (targets 3 to
// 6, 10 and 11) on the throughput tables and traces of the shared data.
#ifndef PACELINE_TESTS_BENCHMARKS_ACCURACY_SCALING_H_
#define PACELINE_TESTS_BENCHMARKS_ACCURACY_SCALING_H_

#include "absl/status/status.h"
#include "tests/benchmarks/accuracy/accuracy.h"

namespace paceline {

absl::Status EvaluateScaling(const AccuracyData& data, AccuracyReport& report);

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_ACCURACY_SCALING_H_
