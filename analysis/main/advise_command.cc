#include "analysis/main/advise_command.h"

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/advise/advise.h"
#include "analysis/main/flags.h"
#include "analysis/merge/merge.h"
#include "google/protobuf/text_format.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

constexpr char kHelp[] =
    R"(analysis advise: settings that are predicted to be faster, and what became of earlier advice.

usage: bazel run analysis -- advise RUN... [--plan=FILE] [FLAGS]
       bazel run analysis -- advise --check RUN...

Turns the knobs that the framework really has (bucket sizes, thresholds, numbers of servers, MG-WFBP
merging, prefetch depth, overlap of copies), simulates each setting with the costs fitted to the runs,
and proposes the best. Nothing is advised whose gain is below 2 %, below the noise of the measured
baseline, or whose 90 % interval holds zero. --plan writes the advised settings beside their baselines
as a plan; the run of that plan remembers the promises, and --check compares them with what came.

flags:
  --plan=FILE      Writes the plan, for coordinator --plan=FILE.
  --network=NAME   Only this network.               Default: all.
  --policy=NAME    Only this policy.                Default: all.
  --devices=N      With this many devices.          Default: the largest number measured of each.
  --check          Promised against delivered.

examples:
  bazel run analysis -- advise runs/today --plan=advice.textproto
  bazel run coordinator -- --plan=advice.textproto --run_dir=runs/advice
  bazel run analysis -- advise --check runs/advice
)";

int Fail(const absl::Status& status, int code, std::ostream& error) {
  error << "analysis advise: " << std::string(status.message())
        << "\nTry: bazel run analysis -- help advise\n";
  return code;
}

}  // namespace

int RunAdvise(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  absl::StatusOr<Flags> flags =
      Flags::Parse(arguments, {"plan", "network", "policy", "devices"}, {"check", "help", "h"});
  if (!flags.ok()) return Fail(flags.status(), 2, error);
  if (flags->Has("help") || flags->Has("h")) {
    out << kHelp;
    return 0;
  }
  absl::StatusOr<std::vector<int>> devices = flags->Counts("devices", {0});
  if (!devices.ok()) return Fail(devices.status(), 2, error);
  if (devices->size() != 1) {
    return Fail(absl::InvalidArgumentError("--devices: expected one number"), 2, error);
  }
  std::vector<std::string> paths;
  for (const std::string& path : flags->positional()) paths.push_back(ResolveUserPath(path));
  if (paths.empty()) return Fail(absl::InvalidArgumentError("needs at least one run"), 2, error);
  absl::StatusOr<MergedRuns> runs = LoadAndMerge(paths);
  if (!runs.ok()) return Fail(runs.status(), 1, error);
  if (flags->Has("check")) {
    absl::StatusOr<std::vector<Delivered>> delivered = CheckAdvice(*runs);
    if (!delivered.ok()) return Fail(delivered.status(), 1, error);
    out << DeliveredText(*delivered);
    return 0;
  }
  AdviseOptions options;
  options.network = flags->Text("network");
  options.policy = flags->Text("policy");
  options.devices = devices->front();
  absl::StatusOr<std::vector<Advice>> advice = Advise(*runs, options);
  if (!advice.ok()) return Fail(advice.status(), 1, error);
  out << AdviceText(*advice);
  const bool any =
      std::any_of(advice->begin(), advice->end(), [](const Advice& one) { return one.worth_it; });
  if (!any) {
    out << "Nothing is worth changing" << (flags->Has("plan") ? "; no plan was written" : "")
        << ".\n";
    return 0;
  }
  if (!flags->Has("plan")) {
    out << "To measure it: --plan=advice.textproto\n";
    return 0;
  }
  const std::string path = ResolveUserPath(flags->Text("plan"));
  std::string text;
  google::protobuf::TextFormat::PrintToString(AdvicePlan(*advice), &text);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Fail(absl::UnavailableError("cannot write " + path), 1, error);
  out << "Plan: " << path << "\nRun it: bazel run coordinator -- --plan=" << path << "\n";
  return 0;
}

}  // namespace paceline
