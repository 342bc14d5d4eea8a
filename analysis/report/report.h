// Writes the report folder of any number of run stores.
//
//   absl::StatusOr<ReportSummary> report = WriteReport({run_dir}, run_dir + "/report");
//   if (report.ok()) printf("%s\n", report->html_path.c_str());
//
// The folder gets report.html (self-contained), trials.csv, repeats.csv, iterations.csv,
// layers.csv, fits.csv, report.json and timeline.json (Chrome trace). Files of an earlier report
// there are replaced, each at once (written beside and renamed). Thread-safe for different folders.
#ifndef PACELINE_ANALYSIS_REPORT_REPORT_H_
#define PACELINE_ANALYSIS_REPORT_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/merge/merge.h"

namespace paceline {

struct ReportSummary {
  std::string html_path;
  std::vector<std::string> files;      // All, absolute or relative as `out_dir` was.
  std::vector<std::string> headlines;  // What was found, in words.
  int measured = 0;                    // Configurations with status OK.
  int failed = 0;                      // Failed, or not run.
};

// `run_paths`: run folders or run.sqlite files. Creates `out_dir`. Errors name the path.
absl::StatusOr<ReportSummary> WriteReport(const std::vector<std::string>& run_paths,
                                          const std::string& out_dir);
// The same of runs already read.
absl::StatusOr<ReportSummary> WriteReport(const MergedRuns& runs, const std::string& out_dir);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_REPORT_H_
