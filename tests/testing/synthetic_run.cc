#include "tests/testing/synthetic_run.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/results/run_store.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/simulate/simulator.h"

namespace paceline {
namespace {

constexpr int64_t kStartUnixNs = 1511740800LL * 1000000000LL;  // Some day in 2017.

int64_t Ns(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

std::string OperationName(const Operation& operation, const ShapedNetwork& shaped) {
  const std::string kind(OperationKindName(operation.kind));
  if (operation.layer >= 0) {
    return absl::StrCat(kind, " ", shaped.layers[operation.layer].layer.name());
  }
  if (operation.group >= 0) return absl::StrCat(kind, " g", operation.group);
  return kind;
}

// The true cost of every operation on one rank.
std::vector<double> OperationCosts(const SyntheticRunOptions& options, const ShapedNetwork& shaped,
                                   const IterationSchedule& schedule, const v1::Trial& trial,
                                   int rank) {
  const int n = Devices(trial);
  const double batch = trial.batch_per_device();
  const double contention = n > 1 ? options.contention_ratio : 1;
  std::vector<double> costs;
  for (const Operation& operation : schedule.operations) {
    double seconds = 0;
    switch (operation.kind) {
      case OperationKind::kRead:
        seconds = options.photographs ? options.read_seconds_per_sample * batch : 0;
        break;
      case OperationKind::kCopyInput:
        seconds = options.copy_seconds_per_sample * batch;
        break;
      case OperationKind::kForward:
        seconds = contention *
                  (options.forward_fixed_seconds / shaped.layers.size() +
                   shaped.layers[operation.layer].forward_flops * batch / options.flops_per_second);
        break;
      case OperationKind::kBackward:
        seconds = contention * (options.backward_fixed_seconds / shaped.layers.size() +
                                shaped.layers[operation.layer].backward_flops * batch /
                                    options.flops_per_second);
        break;
      case OperationKind::kUpdate: {
        const int64_t bytes =
            operation.group < 0 ? shaped.gradient_bytes : schedule.groups[operation.group].bytes;
        const bool works =
            !operation.at_owner_only || schedule.groups[operation.group].owner == rank;
        seconds = works ? bytes * options.update_seconds_per_byte : 0;
        break;
      }
      case OperationKind::kPack:
      case OperationKind::kUnpack:
        seconds = 1e-6 + operation.bytes * options.beta_seconds_per_byte / 8;
        break;
      case OperationKind::kAllReduce:
        seconds = 2.0 * (n - 1) * options.alpha_seconds +
                  2.0 * (n - 1) / n * operation.bytes * options.beta_seconds_per_byte;
        break;
      default:
        seconds = options.alpha_seconds + operation.bytes * options.beta_seconds_per_byte;
    }
    costs.push_back(seconds);
  }
  return costs;
}

void FillResult(const SyntheticRunOptions& options, const ShapedNetwork& shaped,
                const IterationSchedule& schedule, const std::vector<double>& costs,
                const Timeline& timeline, double factor_of_run, std::mt19937_64* random,
                v1::TrialResult* result) {
  std::normal_distribution<double> normal(0, 1);
  double sums[5] = {};  // Read, copy, forward, backward, update.
  for (size_t i = 0; i < costs.size(); ++i) {
    switch (schedule.operations[i].kind) {
      case OperationKind::kRead:
        sums[0] += costs[i];
        break;
      case OperationKind::kCopyInput:
        sums[1] += costs[i];
        break;
      case OperationKind::kForward:
        sums[2] += costs[i];
        break;
      case OperationKind::kBackward:
        sums[3] += costs[i];
        break;
      case OperationKind::kUpdate:
        sums[4] += costs[i];
        break;
      default:
        break;
    }
  }
  int64_t now_ns = kStartUnixNs;
  double deviation = 0;
  const int count = options.warmup_iterations + options.iterations;
  for (int i = 0; i < count; ++i) {
    deviation = 0.4 * deviation + options.noise * normal(*random);
    const double warm = i < options.warmup_iterations ? 1.6 - 0.15 * i : 1;
    const double factor = factor_of_run * warm * std::exp(deviation);
    v1::IterationSample* sample = result->add_iterations();
    sample->set_start_ns(now_ns + Ns(result->rank() * 2e-4));
    sample->set_duration_ns(Ns(timeline.period_seconds * factor));
    now_ns += sample->duration_ns();
    sample->set_input_ns(Ns(sums[0] * factor));
    sample->set_copy_ns(Ns(sums[1] * factor));
    sample->set_forward_ns(Ns(sums[2] * factor));
    sample->set_backward_ns(Ns(sums[3] * factor));
    sample->set_update_ns(Ns(sums[4] * factor));
    sample->set_input_wait_ns(Ns(timeline.input_wait_seconds * factor));
    sample->set_communication_ns(Ns(timeline.communication_seconds * factor));
    sample->set_exposed_communication_ns(Ns(timeline.exposed_communication_seconds * factor));
    sample->set_loss(2.4 * std::exp(-0.01 * i));
  }
  for (size_t i = 0; i < costs.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    v1::OperationStatistics* statistics = result->add_operations();
    const double median =
        costs[i] * factor_of_run * std::exp(0.5 * options.noise * normal(*random));
    statistics->set_name(OperationName(operation, shaped));
    statistics->set_kind(std::string(OperationKindName(operation.kind)));
    statistics->set_layer(operation.layer);
    statistics->set_group(operation.group);
    statistics->set_bytes(operation.bytes);
    statistics->set_median_ns(Ns(median));
    statistics->set_p10_ns(Ns(median * (1 - options.noise)));
    statistics->set_p90_ns(Ns(median * (1 + options.noise)));
    statistics->set_min_ns(Ns(median * (1 - 2 * options.noise)));
    statistics->set_samples(options.iterations);
    v1::OperationSpan* span = result->add_trace();
    span->set_name(statistics->name());
    span->set_kind(statistics->kind());
    span->set_stream(schedule.streams[operation.stream].name);
    span->set_begin_ns(Ns(timeline.spans[i].begin_seconds));
    span->set_end_ns(Ns(timeline.spans[i].end_seconds));
  }
}

absl::Status AddTrial(const SyntheticRunOptions& options, const v1::Network& network,
                      const v1::FrameworkPolicy& policy, int devices, int batch, int repeat,
                      std::mt19937_64* random, RunData* run) {
  v1::Trial trial;
  trial.set_configuration_id(
      absl::StrFormat("%s-%s-n%d-b%d", network.name(), policy.name(), devices, batch));
  trial.set_trial_id(absl::StrCat(trial.configuration_id(), "-r", repeat));
  trial.set_plan_name("synthetic");
  trial.set_index(run->trials.size());
  trial.set_repeat(repeat);
  *trial.mutable_network() = network;
  *trial.mutable_policy() = policy;
  trial.mutable_cluster()->set_hosts(1);
  trial.mutable_cluster()->set_devices_per_host(devices);
  trial.set_batch_per_device(batch);
  trial.set_precision(v1::PRECISION_FP32);
  trial.set_engine(v1::ENGINE_NATIVE);
  if (options.photographs) {
    trial.mutable_input()->mutable_photographs()->set_images(512);
  } else {
    trial.mutable_input()->mutable_synthetic();
  }

  absl::StatusOr<ShapedNetwork> shaped = InferShapes(network);
  if (!shaped.ok()) return shaped.status();
  absl::StatusOr<IterationSchedule> schedule =
      CompileSchedule(*shaped, policy, trial.cluster(), batch);
  if (!schedule.ok()) return schedule.status();
  std::vector<v1::TrialResult>& results = run->results[trial.trial_id()];
  // Ranks of one gang share an iteration's fate.
  const uint64_t series_seed = (*random)();
  const double factor_of_run =
      std::exp(options.noise * std::normal_distribution<double>(0, 0.5)(*random));
  for (int rank = 0; rank < devices; ++rank) {
    const std::vector<double> costs = OperationCosts(options, *shaped, *schedule, trial, rank);
    absl::StatusOr<Timeline> timeline = Simulate(*schedule, costs);
    if (!timeline.ok()) return timeline.status();
    v1::TrialResult result;
    *result.mutable_trial() = trial;
    result.set_attempt(1);
    result.set_rank(rank);
    result.set_status(v1::TRIAL_STATUS_OK);
    result.set_worker_id(absl::StrCat("worker-", rank));
    result.set_warmup_iterations(options.warmup_iterations);
    result.set_stop_reason(v1::TrialResult::STOP_REASON_CONVERGED);
    result.set_weights_checksum(42);
    result.set_schedule_hash(ScheduleHash(*schedule));
    result.set_start_unix_ns(kStartUnixNs);
    result.set_end_unix_ns(kStartUnixNs + 5000000000LL);
    v1::MachineState* machine = result.mutable_machine();
    machine->set_host(options.host);
    machine->set_cpu_model("Synthetic CPU");
    machine->set_logical_cores(4);
    machine->set_compute_threads(1);
    machine->set_load_average_1m(0.3);
    machine->set_memory_bytes(16LL << 30);
    machine->set_kernel("6.1");
    machine->set_backend("cpu");
    machine->set_device("Synthetic CPU");
    (*machine->mutable_versions())["onednn"] = "2.6.3";
    (*machine->mutable_versions())["gloo"] = "2022-05";
    result.mutable_memory()->set_peak_resident_bytes(200000000 + 3 * shaped->gradient_bytes +
                                                     2 * batch * shaped->activation_bytes);
    std::mt19937_64 series(series_seed);
    FillResult(options, *shaped, *schedule, costs, *timeline, factor_of_run, &series, &result);
    results.push_back(std::move(result));
  }
  run->trials.push_back(trial);
  TrialOutcome outcome;
  outcome.trial_id = trial.trial_id();
  outcome.attempt = 1;
  outcome.final = true;
  outcome.status = v1::TRIAL_STATUS_OK;
  run->outcomes.push_back(outcome);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunData> MakeSyntheticRun(const SyntheticRunOptions& options) {
  RunData run;
  run.path = "synthetic";
  run.info.run_id = options.run_id;
  run.info.created_unix_ns = kStartUnixNs;
  run.info.paceline_version = "0.1";
  run.info.plan.set_name("synthetic");
  std::mt19937_64 random(options.seed);
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (const std::string& network_name : options.networks) {
      absl::StatusOr<v1::Network> network = LoadNetwork(network_name);
      if (!network.ok()) return network.status();
      for (const std::string& policy_name : options.policies) {
        absl::StatusOr<v1::FrameworkPolicy> policy = LoadPolicy(policy_name);
        if (!policy.ok()) return policy.status();
        for (int devices : options.devices) {
          for (int batch : options.batches) {
            const absl::Status added =
                AddTrial(options, *network, *policy, devices, batch, repeat, &random, &run);
            if (!added.ok()) return added;
          }
        }
      }
    }
  }
  return run;
}

absl::StatusOr<double> SyntheticForwardSeconds(const SyntheticRunOptions& options,
                                               const std::string& network, int batch) {
  absl::StatusOr<v1::Network> loaded = LoadNetwork(network);
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(*loaded);
  if (!shaped.ok()) return shaped.status();
  return options.forward_fixed_seconds + shaped->forward_flops * batch / options.flops_per_second;
}

void FailTrial(RunData* run, int index, v1::TrialStatus status, const std::string& cause) {
  TrialOutcome& outcome = run->outcomes[index];
  outcome.status = status;
  outcome.cause = cause;
  run->results.erase(outcome.trial_id);
}

absl::Status WriteSyntheticRun(const RunData& run, const std::string& run_dir) {
  absl::StatusOr<std::unique_ptr<RunStore>> store =
      RunStore::Create(run_dir, run.info.plan, run.trials);
  if (!store.ok()) return store.status();
  for (const TrialOutcome& outcome : run.outcomes) {
    const auto results = run.results.find(outcome.trial_id);
    if (results != run.results.end()) {
      for (const v1::TrialResult& result : results->second) {
        const absl::Status appended = (*store)->Append(result);
        if (!appended.ok()) return appended;
      }
    }
    if (outcome.attempt > 0) {
      const absl::Status finished = (*store)->FinishAttempt(outcome);
      if (!finished.ok()) return finished;
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
