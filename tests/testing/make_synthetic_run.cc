// Writes a run store that nobody measured, to look at a report without a cluster:
//   bazel run //tests/testing:make_synthetic_run -- /tmp/run && \
//     bazel run analysis -- report /tmp/run --out=/tmp/report
#include <iostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/merge/merge.h"
#include "proto/paceline/v1/result.pb.h"
#include "proto/support/working_directory.h"
#include "tests/testing/synthetic_run.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_synthetic_run NEW_FOLDER\n";
    return 2;
  }
  paceline::SyntheticRunOptions options;
  options.networks = {"alexnet_caffe", "googlenet_bvlc", "resnet50_v1.5"};
  options.policies = {
      "caffe_mpi",  "cntk", "mxnet_device", "mxnet_dist_sync", "tensorflow_replicated",
      "pytorch_ddp"};
  options.photographs = true;
  options.repeats = 2;
  options.noise = 0.015;
  options.flops_per_second = 60e9;
  options.forward_fixed_seconds = 4e-3;
  absl::StatusOr<paceline::RunData> run = paceline::MakeSyntheticRun(options);
  absl::Status status = run.status();
  if (status.ok()) {
    paceline::FailTrial(&*run, 3, paceline::v1::TRIAL_STATUS_RANK_LOST,
                        "rank 1: gloo all-reduce: Connection closed by peer <127.0.0.1>");
    paceline::FailTrial(&*run, 8, paceline::v1::TRIAL_STATUS_OUT_OF_MEMORY,
                        "rank 0: 3.2 GB asked for, 1.1 GB free");
    status = paceline::WriteSyntheticRun(*run, paceline::ResolveUserPath(argv[1]));
  }
  if (!status.ok()) {
    std::cerr << status.message() << "\n";
    return 1;
  }
  return 0;
}
