#include "analysis/report/report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/fit/fit.h"
#include "analysis/report/html.h"
#include "analysis/report/tables.h"
#include "analysis/report/words.h"

namespace paceline {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  errno = 0;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(text.data(), text.size());
  file.close();
  if (!file) {
    const std::string cause = errno != 0 ? std::strerror(errno) : "write failed";
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", cause));
  }
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReportSummary> WriteReport(const MergedRuns& runs, const std::string& out_dir) {
  std::error_code error;
  std::filesystem::create_directories(out_dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot create the report's folder ", out_dir, ": ", error.message()));
  }
  const FitResult fit = FitFrameworks(runs);
  ReportSummary summary;
  // The page last: whoever finds it finds the rest.
  const std::pair<const char*, std::string> files[] = {
      {"trials.csv", TrialsCsv(runs, fit)},
      {"repeats.csv", RepeatsCsv(runs)},
      {"iterations.csv", IterationsCsv(runs)},
      {"layers.csv", LayersCsv(runs)},
      {"fits.csv", FitsCsv(fit)},
      {"report.json", ReportJson(runs, fit)},
      {"timeline.json", TimelineJson(runs)},
      {"report.html", ReportHtml(runs, fit)},
  };
  for (const auto& file : files) {
    const std::string path = absl::StrCat(out_dir, "/", file.first);
    const absl::Status written = WriteFile(path, file.second);
    if (!written.ok()) return written;
    summary.files.push_back(path);
  }
  summary.html_path = summary.files.back();
  summary.headlines = Headlines(runs);
  for (const MergedTrial& trial : runs.trials) (trial.ok ? summary.measured : summary.failed) += 1;
  return summary;
}

absl::StatusOr<ReportSummary> WriteReport(const std::vector<std::string>& run_paths,
                                          const std::string& out_dir) {
  absl::StatusOr<MergedRuns> runs = LoadAndMerge(run_paths);
  if (!runs.ok()) return runs.status();
  return WriteReport(*runs, out_dir);
}

}  // namespace paceline
