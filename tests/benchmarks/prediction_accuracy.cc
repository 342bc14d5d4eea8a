// How well the performance models predict public measurements: one row per target, beside
// baselines.
//
//   bazel run //tests/benchmarks:prediction_accuracy -- --data=../shared/data --json=rows.json
//
// Without --heldout, points are held out within the data. With it, the rows of the files of the
// same names in that folder are scored too, and never fitted.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/command_line.h"
#include "proto/support/working_directory.h"
#include "tests/benchmarks/accuracy/accuracy.h"
#include "tests/benchmarks/accuracy/collectives.h"
#include "tests/benchmarks/accuracy/contention.h"
#include "tests/benchmarks/accuracy/intervals.h"
#include "tests/benchmarks/accuracy/scaling.h"
#include "tests/benchmarks/benchmark_report.h"

namespace paceline {
namespace {

struct Area {
  const char* name;
  absl::Status (*evaluate)(const AccuracyData& data, AccuracyReport& report);
};

constexpr Area kAreas[] = {
    {"collectives", &EvaluateCollectives},
    {"contention", &EvaluateContention},
    {"intervals", &EvaluateIntervals},
    {"scaling", &EvaluateScaling},
};

int Main(int argc, char** argv) {
  std::string data_dir = "../shared/data", heldout_dir, json;
  CommandLine line("prediction_accuracy",
                   "measures how well the performance models predict what they did not see.",
                   {"bazel run //tests/benchmarks:prediction_accuracy -- --data=../shared/data"});
  line.AddString("data", &data_dir, "DIR", "Measurements to fit.", "--data=../shared/data");
  line.AddString("heldout", &heldout_dir, "DIR",
                 "Files of the same names and columns whose rows are only scored, never fitted.",
                 "--heldout=/data/heldout");
  line.AddString("json", &json, "FILE", "Write the rows to this file, too.", "--json=rows.json");
  const absl::StatusOr<std::vector<std::string>> rest = line.Parse(argc, argv);
  if (!rest.ok() || !rest->empty()) {
    absl::FPrintF(stderr, "%s\n",
                  rest.ok() ? absl::StrCat("unexpected argument: ", (*rest)[0])
                            : std::string(rest.status().message()));
    return 2;
  }
  if (line.help_wanted()) {
    absl::PrintF("%s", line.Help());
    return 0;
  }
  AccuracyData data;
  data.data_dir = ResolveUserPath(data_dir);
  data.heldout_dir = ResolveUserPath(heldout_dir);
  AccuracyReport accuracy;
  bool failed = false;
  for (const Area& area : kAreas) {
    const absl::Status status = area.evaluate(data, accuracy);
    if (status.ok()) continue;
    failed = true;
    accuracy.Skip(absl::StrCat(area.name, " stopped: ", status.ToString()));
  }
  std::fputs(accuracy.Table().c_str(), stdout);
  BenchmarkReport report("prediction_accuracy");
  for (const AccuracyRow& row : accuracy.rows()) {
    BenchmarkRow out;
    out.name = absl::StrCat(row.target > 0 ? absl::StrCat("target ", row.target, ": ") : "",
                            row.task, ", ", row.split);
    out.value = 100 * row.ours.mean;
    out.unit = "% mean error";
    out.lower_is_better = true;
    if (row.goal_mean.has_value()) out.goal = 100 * *row.goal_mean;
    if (row.goal_coverage.has_value()) {
      out.value = 100 * row.ours.coverage.value_or(0);
      out.unit = "% covered by the intervals";
      out.lower_is_better = false;
      out.goal = 100 * row.goal_coverage->first;
    }
    report.Add(std::move(out));
  }
  for (const std::string& what : accuracy.skipped()) report.Note(what);
  const int code = report.Finish(ResolveUserPath(json));
  return failed ? 1 : code;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
