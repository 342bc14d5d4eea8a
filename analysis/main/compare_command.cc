#include "analysis/main/compare_command.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/compare/compare.h"
#include "analysis/main/flags.h"
#include "analysis/merge/merge.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

constexpr char kHelp[] =
    R"(analysis compare: what became slower or faster from run A to run B, and in which phase.

usage: bazel run analysis -- compare A B [FLAGS]
       bazel run analysis -- compare RUN --a=POLICY --b=POLICY

Configurations are matched by network, policy, engine, devices, hosts, batch, precision and input. One
counts as slower if its median iteration grew by more than the threshold and the whole 95 % interval
of the ratio B/A lies above 1; the intervals hold for all configurations together. Under each changed
one stand the phases that changed; they sum to the change. Exits with 0 if nothing is slower, 1 if
something is or fails now, 2 on bad usage or if there is nothing to compare.

flags:
  --threshold=F   Share of the iteration below which a change does not count. Default: 0.02.
  --a=POLICY, --b=POLICY
                  Compare policy A of the first run with policy B of the second (or of the same one).

examples:
  bazel run analysis -- compare runs/monday runs/tuesday
  bazel run analysis -- compare runs/old runs/new --threshold=0.05
  bazel run analysis -- compare runs/monday --a=caffe_mpi --b=mxnet_device
)";

int Fail(const absl::Status& status, std::ostream& error) {
  error << "analysis compare: " << std::string(status.message())
        << "\nTry: bazel run analysis -- help compare\n";
  return 2;
}

}  // namespace

int RunCompare(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  absl::StatusOr<Flags> flags = Flags::Parse(arguments, {"threshold", "a", "b"}, {"help", "h"});
  if (!flags.ok()) return Fail(flags.status(), error);
  if (flags->Has("help") || flags->Has("h")) {
    out << kHelp;
    return 0;
  }
  CompareOptions options;
  absl::StatusOr<double> threshold = flags->Number("threshold", options.threshold, 0);
  if (!threshold.ok()) return Fail(threshold.status(), error);
  options.threshold = *threshold;
  options.policy_a = flags->Text("a");
  options.policy_b = flags->Text("b");
  const std::vector<std::string>& paths = flags->positional();
  const bool one_run = paths.size() == 1 && !options.policy_a.empty();
  if (paths.size() != 2 && !one_run) {
    return Fail(absl::InvalidArgumentError("expected two runs, A and B"), error);
  }
  absl::StatusOr<MergedRuns> a = LoadAndMerge({ResolveUserPath(paths.front())});
  if (!a.ok()) return Fail(a.status(), error);
  absl::StatusOr<MergedRuns> b = LoadAndMerge({ResolveUserPath(paths.back())});
  if (!b.ok()) return Fail(b.status(), error);
  absl::StatusOr<Comparison> comparison = CompareRuns(*a, *b, options);
  if (!comparison.ok()) return Fail(comparison.status(), error);
  out << ComparisonText(*comparison);
  if (!one_run && a->runs[0].run_id == b->runs[0].run_id) {
    out << "A and B are the same run.\n";
  }
  return comparison->regressions > 0 ? 1 : 0;
}

}  // namespace paceline
