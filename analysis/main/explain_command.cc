#include "analysis/main/explain_command.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/explain/explain.h"
#include "analysis/main/flags.h"
#include "analysis/merge/merge.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

constexpr char kHelp[] =
    R"(analysis explain: where the time of an iteration goes, and what it would be without each cause.

usage: bazel run analysis -- explain RUN... [FLAGS]

Per configuration: computing, exposed communication (latency, bandwidth, packing, waiting for ranks
that come late), waiting for input, copies, update and overhead. They sum to the iteration exactly.
"without it" is the iteration if that cause cost nothing, by simulation of the same schedule: what
hides behind something else gains nothing. With --a and --b, the gap between two policies by cause.

flags:
  --network=NAME          Only this network.                    Default: all.
  --a=POLICY, --b=POLICY  Only these, and the gap from A to B.  Default: all policies.

examples:
  bazel run analysis -- explain runs/today
  bazel run analysis -- explain runs/today --network=resnet50_v1.5 --a=caffe_mpi --b=mxnet_device
)";

int Fail(const absl::Status& status, int code, std::ostream& error) {
  error << "analysis explain: " << std::string(status.message())
        << "\nTry: bazel run analysis -- help explain\n";
  return code;
}

}  // namespace

int RunExplain(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  absl::StatusOr<Flags> flags = Flags::Parse(arguments, {"network", "a", "b"}, {"help", "h"});
  if (!flags.ok()) return Fail(flags.status(), 2, error);
  if (flags->Has("help") || flags->Has("h")) {
    out << kHelp;
    return 0;
  }
  std::vector<std::string> paths;
  for (const std::string& path : flags->positional()) paths.push_back(ResolveUserPath(path));
  if (paths.empty()) return Fail(absl::InvalidArgumentError("needs at least one run"), 2, error);
  absl::StatusOr<MergedRuns> runs = LoadAndMerge(paths);
  if (!runs.ok()) return Fail(runs.status(), 1, error);
  ExplainOptions options;
  options.network = flags->Text("network");
  options.policy_a = flags->Text("a");
  options.policy_b = flags->Text("b");
  absl::StatusOr<std::string> text = ExplainText(*runs, options);
  if (!text.ok()) {
    return Fail(text.status(), absl::IsInvalidArgument(text.status()) ? 2 : 1, error);
  }
  out << *text;
  return 0;
}

}  // namespace paceline
