#include "analysis/main/command_line.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/fit/fit.h"
#include "analysis/main/advise_command.h"
#include "analysis/main/compare_command.h"
#include "analysis/main/explain_command.h"
#include "analysis/main/predict_command.h"
#include "analysis/merge/merge.h"
#include "analysis/report/report.h"
#include "analysis/report/words.h"
#include "proto/support/closest_name.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

constexpr char kHelp[] = R"(Paceline analysis: reads the run stores that the coordinator wrote.

usage: bazel run analysis -- COMMAND RUN... [FLAGS]

RUN is a run's folder (the coordinator's --run_dir) or its run.sqlite. Any number of them, from any
number of hosts, are merged: repeats of a configuration on the same kind of machine are pooled, a run
given twice counts once. Relative paths are relative to where you stand.

commands:
  report RUN... [--out=DIR]   Writes DIR/report.html (open it in a browser; it needs no network) and,
                              for programs, trials.csv, repeats.csv, iterations.csv, layers.csv, fits.csv,
                              report.json and timeline.json (open it in https://ui.perfetto.dev).
  replay RUN... [--limit=F]   Simulates every trial's own schedule with its own measured operation
                              times and prints how far that is from the measured iteration. Exits
                              with 1 if one is further off than the limit, or cannot be replayed.
  compare A B                 What became slower or faster from run A to run B, and in which phase.
                              Exits with 0, 1 (something slower, or failing now) or 2.
  predict --from RUN... ...   Time, throughput, efficiency and memory of configurations that were not
                              measured, with 90 % intervals.
  explain RUN...              Where the time of an iteration goes, by cause, what it would be without
                              each cause, and the gap between two frameworks by cause.
  advise RUN...               Settings that are predicted to be faster, as a plan to run; then
                              promised against delivered.
  help [COMMAND]              This text, or all about one of: compare, predict, explain, advise.

flags:
  --out=DIR     Folder of the report; created if it is missing, files of an earlier report there are
                replaced. Default: paceline_report.      Example: --out=reports/monday
  --limit=F     replay: largest difference accepted, as a share of the measured iteration.
                Default: 0.05.                           Example: --limit=0.1
  --help        This text.

examples:
  bazel run analysis -- report paceline_run --out=report
  bazel run analysis -- report runs/node-a runs/node-b/run.sqlite --out=merged
  bazel run analysis -- replay paceline_run --limit=0.05
)";

struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);
};
// Commands with flags of their own.
constexpr Command kCommands[] = {
    {"advise", RunAdvise},
    {"compare", RunCompare},
    {"explain", RunExplain},
    {"predict", RunPredict},
};

int BadUsage(const std::string& problem, std::ostream& error) {
  error << "analysis: " << problem << "\nTry: bazel run analysis -- --help\n";
  return 2;
}

int Failed(const absl::Status& status, std::ostream& error) {
  error << "analysis: " << std::string(status.message()) << "\n";
  return 1;
}

int Report(const std::vector<std::string>& runs, const std::string& out_dir, std::ostream& out,
           std::ostream& error) {
  absl::StatusOr<ReportSummary> report = WriteReport(runs, out_dir);
  if (!report.ok()) return Failed(report.status(), error);
  for (const std::string& headline : report->headlines) out << headline << "\n";
  if (!report->headlines.empty()) out << "\n";
  out << report->measured << " configurations measured, " << report->failed
      << " failed or not run.\nReport: " << report->html_path << "\n";
  return 0;
}

int Replay(const std::vector<std::string>& paths, double limit, std::ostream& out,
           std::ostream& error) {
  absl::StatusOr<MergedRuns> runs = LoadAndMerge(paths);
  if (!runs.ok()) return Failed(runs.status(), error);
  out << absl::StrFormat("%12s %12s %8s  %s\n", "measured", "replayed", "error", "trial");
  int outside = 0, missing = 0, replayed_count = 0;
  for (const MergedTrial& trial : runs->trials) {
    if (!trial.ok || !trial.iteration_seconds.known()) continue;
    for (const MergedRepeat& repeat : trial.repeats) {
      const absl::StatusOr<double> replayed = ReplayIterationSeconds(repeat);
      const std::string name = absl::StrCat(TrialLabel(trial), ", repeat ", repeat.repeat);
      if (!replayed.ok()) {
        ++missing;
        out << absl::StrFormat("%12s %12s %8s  %s: %s\n", "", "", "", name,
                               replayed.status().message());
        continue;
      }
      const double measured = MedianInterval({repeat.iteration_seconds}).value;
      const double difference = *replayed / measured - 1;
      ++replayed_count;
      const bool far = !(std::abs(difference) <= limit);
      outside += far;
      out << absl::StrFormat("%12s %12s %+7.1f%%%s %s\n", HumanSeconds(measured),
                             HumanSeconds(*replayed), difference * 100, far ? "!" : " ", name);
    }
  }
  out << replayed_count << " replayed, " << outside << " further off than " << HumanPercent(limit)
      << ", " << missing << " without operation times.\n";
  return outside + missing > 0 ? 1 : 0;
}

}  // namespace

int RunAnalysis(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  for (const Command& command : kCommands) {
    if (arguments.empty()) break;
    if (arguments[0] == command.name) {
      return command.run({arguments.begin() + 1, arguments.end()}, out, error);
    }
    if (arguments.size() == 2 && arguments[0] == "help" && arguments[1] == command.name) {
      return command.run({"--help"}, out, error);
    }
  }
  std::vector<std::string> positional;
  std::string out_dir = "paceline_report";
  double limit = 0.05;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "-") || argument == "-") {
      positional.push_back(argument);
      continue;
    }
    std::string name = argument.substr(0, argument.find('='));
    name =
        name.substr(name.find_first_not_of('-') == std::string::npos ? name.size()
                                                                     : name.find_first_not_of('-'));
    if (name == "help" || name == "h") {
      out << kHelp;
      return 0;
    }
    if (name != "out" && name != "limit") {
      return BadUsage(
          absl::StrCat("unknown flag '", argument, "'", DidYouMean(name, {"out", "limit", "help"})),
          error);
    }
    std::string value;
    if (argument.find('=') != std::string::npos) {
      value = argument.substr(argument.find('=') + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (value.empty()) return BadUsage(absl::StrCat("--", name, " needs a value"), error);
    if (name == "out") out_dir = value;
    if (name == "limit" && (!absl::SimpleAtod(value, &limit) || !(limit > 0))) {
      return BadUsage(
          absl::StrCat("--limit: expected a positive number like 0.05, got '", value, "'"), error);
    }
  }
  if (positional.empty() || positional[0] == "help") {
    (positional.empty() ? error : out) << kHelp;
    return positional.empty() ? 2 : 0;
  }
  const std::string command = positional[0];
  if (command != "report" && command != "replay") {
    return BadUsage(absl::StrCat("unknown command '", command, "'",
                                 DidYouMean(command, {"report", "replay", "compare", "predict",
                                                      "explain", "advise", "help"})),
                    error);
  }
  std::vector<std::string> runs;
  for (size_t i = 1; i < positional.size(); ++i) runs.push_back(ResolveUserPath(positional[i]));
  if (runs.empty()) {
    return BadUsage(absl::StrCat(command, " needs at least one run folder, for example: ", command,
                                 " paceline_run"),
                    error);
  }
  if (command == "report") return Report(runs, ResolveUserPath(out_dir), out, error);
  return Replay(runs, limit, out, error);
}

}  // namespace paceline
