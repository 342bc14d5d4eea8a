// Prints the schedule a policy compiles to: a summary with a rough prediction, and the text form.
//
//   bazel run //models/schedule:show -- --network=alexnet_caffe --policy=caffe_mpi --devices=4
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/schedule/schedule.h"
#include "models/simulate/default_costs.h"
#include "models/simulate/simulator.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"
#include "proto/support/command_line.h"

namespace paceline {
namespace {

absl::Status Predict(const ShapedNetwork& network, const IterationSchedule& schedule, int batch,
                     const DeviceSpeed& speed) {
  if (absl::Status valid = speed.Validate(); !valid.ok()) return valid;
  absl::StatusOr<Timeline> timeline =
      Simulate(schedule, PredictOperationSeconds(schedule, network, batch, v1::PRECISION_FP32,
                                                 /*reads_input=*/true, speed));
  if (!timeline.ok()) return timeline.status();
  const auto ms = [](double seconds) { return absl::StrFormat("%.1f ms", 1e3 * seconds); };
  std::cout << "  predicted on CPUs, roughly: iteration " << ms(timeline->period_seconds)
            << " (forward and backward " << ms(timeline->compute_seconds) << ", update "
            << ms(timeline->update_on_compute_seconds) << ", input "
            << ms(timeline->input_wait_seconds + timeline->copy_on_compute_seconds)
            << ", exposed communication " << ms(timeline->exposed_communication_seconds)
            << "), hidden communication " << ms(timeline->hidden_communication_seconds) << "\n";
  return absl::OkStatus();
}

absl::Status Show(int argc, char** argv) {
  std::string network_name = "alexnet_caffe", policy_name = "caffe_mpi";
  int devices = 4, hosts = 1, batch = 32;
  bool summary_only = false;
  double cores = 1;
  CommandLine line("show", "Prints the schedule that a network and a policy compile to.",
                   {"bazel run //models/schedule:show -- --network=alexnet_caffe "
                    "--policy=caffe_mpi --devices=4",
                    "bazel run //models/schedule:show -- --policy=mine.textproto --summary_only"});
  line.AddString("network", &network_name, "NAME|FILE", "Built-in network, or a .textproto file.",
                 "--network=googlenet_bvlc+aux");
  line.AddString("policy", &policy_name, "NAME|FILE", "Built-in policy, or a .textproto file.",
                 "--policy=mxnet_dist_sync");
  line.AddInt("devices", &devices, "N", "Devices (ranks) in all, a multiple of --hosts.",
              "--devices=8");
  line.AddInt("hosts", &hosts, "N", "Hosts they are spread over.", "--hosts=2");
  line.AddInt("batch", &batch, "N", "Samples per device; matters to rules that follow time.",
              "--batch=16");
  line.AddBool("summary_only", &summary_only, "Leave out the list of operations.",
               "--summary_only");
  line.AddDouble("cores", &cores, "X", "CPU cores per device, for the rough prediction.",
                 "--cores=8");
  absl::StatusOr<std::vector<std::string>> rest = line.Parse(argc, argv);
  if (!rest.ok()) return rest.status();
  if (line.help_wanted()) {
    std::cout << line.Help();
    return absl::OkStatus();
  }
  if (!rest->empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", rest->front(), "'"));
  }
  if (hosts < 1 || devices < 1 || devices % hosts != 0) {
    return absl::InvalidArgumentError("--devices: must be a positive multiple of --hosts");
  }
  absl::StatusOr<v1::Network> network = LoadNetwork(network_name);
  if (!network.ok()) return network.status();
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<v1::FrameworkPolicy> policy = LoadPolicy(policy_name);
  if (!policy.ok()) return policy.status();
  v1::ClusterShape cluster;
  cluster.set_hosts(hosts);
  cluster.set_devices_per_host(devices / hosts);
  absl::StatusOr<IterationSchedule> schedule = CompileSchedule(*shaped, *policy, cluster, batch);
  if (!schedule.ok()) return schedule.status();
  std::cout << ScheduleSummary(*schedule);
  if (absl::Status predicted = Predict(*shaped, *schedule, batch, CpuSpeed(cores));
      !predicted.ok()) {
    return predicted;
  }
  if (!summary_only) std::cout << "\n" << ScheduleToText(*schedule);
  return absl::OkStatus();
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  const absl::Status status = paceline::Show(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "show: " << status.message() << "\n";
  return 1;
}
