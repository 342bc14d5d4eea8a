#include "analysis/main/predict_command.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "analysis/main/flags.h"
#include "analysis/merge/merge.h"
#include "analysis/predict/cost_model.h"
#include "analysis/predict/predict.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

constexpr char kHelp[] =
    R"(analysis predict: configurations that were not measured, from runs that were, with 90 % intervals.

usage: bazel run analysis -- predict --from RUN[,RUN...] [FLAGS]

Costs of computing, messages, updates and input are learned from the runs with their uncertainty, and
the policy's own schedule is simulated with them. Comma lists give a table over all combinations.
What a number rests on beyond measurements is marked [1], [2], ... and explained below the table, with
the measurement to take next. What cannot be known from the runs is an error, not a number.

flags:
  --from=RUN,...      Run folders. Positional arguments count as well.
  --network=N,...     Measured, built in or a .textproto file.     Default: those measured.
  --policy=P,...      Measured or built in.                        Default: those measured.
  --devices=N,...     Devices of all hosts together.               Default: 1.
  --hosts=N,...       Hosts that share them evenly.                Default: 1.
  --batch=N,...       Samples per device.      Default: as measured for the network, else 16.
  --precision=NAME    fp32, bf16 or fp16.                          Default: fp32.
  --input=synthetic   Without reading and decoding.                Default: as measured.
  --network_gbps=F    Link of each host, Gbit/s, and
  --latency_us=F      its latency, for more hosts than were measured. Your word for it: flagged.
  --csv=FILE          Writes the table for programs as well.

examples:
  bazel run analysis -- predict --from runs/today --network=resnet50_v1.5 --policy=caffe_mpi \
      --devices=64 --hosts=16 --network_gbps=100 --latency_us=20 --batch=64
  bazel run analysis -- predict --from runs/today --devices=1,2,4,8 --csv=scaling.csv
)";

int Fail(const absl::Status& status, std::ostream& error) {
  error << "analysis predict: " << std::string(status.message())
        << "\nTry: bazel run analysis -- help predict\n";
  return 2;
}

}  // namespace

int RunPredict(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error) {
  absl::StatusOr<Flags> flags =
      Flags::Parse(arguments,
                   {"from", "network", "policy", "devices", "hosts", "batch", "precision", "input",
                    "network_gbps", "latency_us", "csv"},
                   {"help", "h"});
  if (!flags.ok()) return Fail(flags.status(), error);
  if (flags->Has("help") || flags->Has("h")) {
    out << kHelp;
    return 0;
  }
  std::vector<std::string> paths;
  for (const std::string& path : flags->List("from")) paths.push_back(ResolveUserPath(path));
  for (const std::string& path : flags->positional()) paths.push_back(ResolveUserPath(path));
  if (paths.empty())
    return Fail(absl::InvalidArgumentError("--from needs at least one run"), error);

  PredictionRequest base;
  const std::string precision = absl::AsciiStrToUpper(flags->Text("precision", "fp32"));
  if (!v1::Precision_Parse("PRECISION_" + precision, &base.precision)) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--precision: expected fp32, bf16 or fp16, "
                                                        "got '",
                                                        flags->Text("precision"), "'")),
                error);
  }
  if (flags->Has("input") && flags->Text("input") != "synthetic") {
    return Fail(
        absl::InvalidArgumentError(
            "--input: only 'synthetic' can be asked for; without the flag it is as measured"),
        error);
  }
  base.synthetic_input = flags->Has("input");
  absl::StatusOr<std::vector<int>> devices = flags->Counts("devices", {1});
  absl::StatusOr<std::vector<int>> hosts = flags->Counts("hosts", {1});
  absl::StatusOr<std::vector<int>> batches = flags->Counts("batch", {});
  absl::StatusOr<double> gbps = flags->Number("network_gbps", 0, 0);
  absl::StatusOr<double> latency_us = flags->Number("latency_us", 0, 0);
  for (const absl::Status& status :
       {devices.status(), hosts.status(), batches.status(), gbps.status(), latency_us.status()}) {
    if (!status.ok()) return Fail(status, error);
  }
  if (flags->Has("network_gbps") != flags->Has("latency_us")) {
    return Fail(absl::InvalidArgumentError("--network_gbps and --latency_us go together"), error);
  }
  LinkAssumption link;
  link.bytes_per_second = *gbps * 1e9 / 8;
  link.latency_seconds = *latency_us * 1e-6;

  absl::StatusOr<MergedRuns> runs = LoadAndMerge(paths);
  if (!runs.ok()) return Fail(runs.status(), error);
  std::vector<std::string> networks = flags->List("network"), policies = flags->List("policy");
  const auto add = [](const std::string& name, std::vector<std::string>* names) {
    if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
  };
  for (const MergedTrial& trial : runs->trials) {
    if (!trial.ok) continue;
    if (!flags->Has("network")) add(trial.trial.network().name(), &networks);
    if (!flags->Has("policy")) add(trial.trial.policy().name(), &policies);
  }
  if (policies.empty()) {
    return Fail(absl::FailedPreconditionError("the runs hold no measured trial"), error);
  }

  std::vector<Prediction> predictions;
  std::set<std::string> failures;
  for (const std::string& policy : policies) {
    absl::StatusOr<CostModel> model = CostModel::Fit(*runs, policy);
    if (!model.ok()) return Fail(model.status(), error);
    for (const std::string& network : networks) {
      std::vector<int> network_batches = *batches;
      if (network_batches.empty()) {
        const MergedTrial* example = model->Example(network, base.precision);
        network_batches = {example == nullptr ? 16 : example->trial.batch_per_device()};
      }
      for (int host_count : *hosts) {
        for (int device_count : *devices) {
          // In a sweep over both, only shapes that exist.
          if (hosts->size() * devices->size() > 1 && device_count % host_count != 0) continue;
          for (int batch : network_batches) {
            PredictionRequest request = base;
            request.network = network;
            request.devices = device_count;
            request.hosts = host_count;
            request.batch = batch;
            absl::StatusOr<Prediction> prediction = Predict(*model, request, link);
            if (prediction.ok()) {
              predictions.push_back(*std::move(prediction));
            } else {
              failures.insert(absl::StrCat(network, ", ", policy, ", ", device_count,
                                           " devices: ", prediction.status().message()));
            }
          }
        }
      }
    }
  }
  if (!predictions.empty()) out << PredictionsText(predictions);
  if (flags->Has("csv")) {
    const std::string path = ResolveUserPath(flags->Text("csv"));
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << PredictionsCsv(predictions);
    file.close();
    if (!file) {
      error << "analysis predict: cannot write " << path << "\n";
      return 1;
    }
    out << "Table: " << path << "\n";
  }
  for (const std::string& failure : failures) error << "analysis predict: " << failure << "\n";
  return failures.empty() ? 0 : 1;
}

}  // namespace paceline
