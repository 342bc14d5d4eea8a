// What a benchmark prints and writes: a table for people, and with --json=FILE a list of rows.
//
//   BenchmarkReport report("input_pipeline");
//   BenchmarkRow row;
//   row.name = "decode, 1 thread";  row.value = 1400;  row.unit = "images/s";
//   row.reference = "torchvision DataLoader";  row.reference_value = 300;  row.goal = 2;
//   report.Add(row);
//   return report.Finish(absl::GetFlag(FLAGS_json));
//
// Not thread-safe.
#ifndef PACELINE_TESTS_BENCHMARKS_BENCHMARK_REPORT_H_
#define PACELINE_TESTS_BENCHMARKS_BENCHMARK_REPORT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace paceline {

struct BenchmarkRow {
  std::string name;
  double value = 0;
  std::string unit;
  // What the value is compared with, measured in the same run; empty: nothing.
  std::string reference;
  double reference_value = 0;
  // For value / reference_value, or for the value itself where there is no reference. At least
  // this much, or at most where lower_is_better.
  absl::optional<double> goal;
  bool lower_is_better = false;

  absl::optional<double> ratio() const;  // value / reference_value.
  absl::optional<bool> met() const;      // Where there is a goal.
};

class BenchmarkReport {
 public:
  explicit BenchmarkReport(std::string title);
  void Add(BenchmarkRow row);
  // A line below the table: conditions, what is missing.
  void Note(std::string text);
  std::string Table() const;
  // A list of objects {name, value, unit, reference, reference_value, ratio, goal, met}; null where
  // there is nothing.
  std::string Json() const;
  // Prints the table; writes the JSON unless `json_path` is empty. The exit code of main: 0, or 1
  // if the file cannot be written. A goal that is not met does not change it.
  int Finish(absl::string_view json_path) const;

 private:
  const std::string title_;
  std::vector<BenchmarkRow> rows_;
  std::vector<std::string> notes_;
};

}  // namespace paceline

#endif  // PACELINE_TESTS_BENCHMARKS_BENCHMARK_REPORT_H_
