// What measuring costs: iterations through the executor, which records the begin and end of every
// operation and accounts for the phases, beside the same engine driven by a bare loop that records
// nothing. Blocks of both are interleaved in one run.
//
//   bazel run //tests/benchmarks:recording_overhead -- --json=overhead.json
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "models/schedule/compiler.h"
#include "models/stats/stats.h"
#include "proto/support/command_line.h"
#include "tests/benchmarks/benchmark_report.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/input/input_pipeline.h"
#include "worker/runner/iteration_executor.h"
#include "worker/runner/phase_accounting.h"

namespace paceline {
namespace {

struct Settings {
  std::string network = "resnet50_v1.5";
  int batch = 4;
  int blocks = 25;
  int iterations = 4;  // Per block.
  std::string json;
};

// Throws nothing away: a benchmark that cannot set itself up ends with the reason.
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    absl::FPrintF(stderr, "recording_overhead: %s\n", value.status().message());
    exit(1);
  }
  return *std::move(value);
}
void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  absl::FPrintF(stderr, "recording_overhead: %s\n", status.message());
  exit(1);
}

// Nanoseconds of one Record on a stream, amortised over many.
double RecordNs(Backend& backend) {
  constexpr int kRecords = 100000;
  auto stream = OrDie(backend.CreateStream(StreamKind::kCompute, "record"));
  auto event = OrDie(backend.CreateEvent());
  const absl::Time begin = absl::Now();
  for (int i = 0; i < kRecords; ++i) OrDie(stream->Record(*event));
  OrDie(stream->Synchronize(absl::Now() + absl::Seconds(60)));
  return absl::ToDoubleNanoseconds(absl::Now() - begin) / kRecords;
}

int Run(const Settings& settings) {
  CpuBackendOptions backend_options;
  auto backend = OrDie(CreateCpuBackend(backend_options));
  const ShapedNetwork network = OrDie(InferShapes(OrDie(LoadNetwork(settings.network))));
  v1::ClusterShape cluster;
  cluster.set_hosts(1);
  cluster.set_devices_per_host(1);
  const IterationSchedule schedule =
      OrDie(CompileSchedule(network, OrDie(LoadPolicy("bsp")), cluster, settings.batch));
  EngineOptions engine_options;
  engine_options.batch = settings.batch;
  engine_options.tensor_order = schedule.tensor_order;
  engine_options.training.set_learning_rate(1e-4);
  engine_options.training.set_momentum(0.9);
  engine_options.training.set_seed(1);
  auto engine = OrDie(backend->CreateEngine(network, engine_options));
  InputOptions input_options;
  input_options.image = network.network.input();
  input_options.classes = network.network.classes();
  input_options.batch = settings.batch;
  v1::InputSource source;
  source.mutable_synthetic();
  auto input = OrDie(CreateInputPipeline(source, input_options));

  ExecutorParts parts;
  parts.backend = backend.get();
  parts.schedule = &schedule;
  parts.engine = engine.get();
  parts.input = input.get();
  auto executor = OrDie(IterationExecutor::Create(parts));
  const absl::Time deadline = absl::Now() + absl::Minutes(10);

  auto recorded_block = [&] {
    std::vector<IterationTimes> times;
    for (int i = 0; i < settings.iterations; ++i) {
      OrDie(executor->Enqueue());
      if (executor->in_flight() == IterationExecutor::kMaxInFlight) {
        times.push_back(OrDie(executor->Collect(deadline)));
      }
    }
    while (executor->in_flight() > 0) times.push_back(OrDie(executor->Collect(deadline)));
    AccountPhases(schedule, times);
  };
  auto stream = OrDie(backend->CreateStream(StreamKind::kCompute, "bare"));
  HostBatch batch;
  OrDie(input->Next(batch, deadline));
  auto bare_block = [&] {
    for (int i = 0; i < settings.iterations; ++i) {
      for (const Operation& op : schedule.operations) {
        switch (op.kind) {
          case OperationKind::kCopyInput:
            OrDie(engine->LoadInput(batch, *stream));
            break;
          case OperationKind::kForward:
            OrDie(engine->Forward(op.layer, *stream));
            break;
          case OperationKind::kBackward:
            OrDie(engine->Backward(op.layer, *stream));
            break;
          case OperationKind::kUpdate:
            OrDie(engine->Update(schedule.tensor_order, 1.0f, *stream));
            break;
          default:
            break;
        }
      }
    }
    OrDie(stream->Synchronize(deadline));
  };

  std::vector<double> recorded_seconds;
  std::vector<double> bare_seconds;
  std::vector<double> ratios;
  for (int block = 0; block <= settings.blocks; ++block) {
    auto timed = [&](auto&& work) {
      const absl::Time begin = absl::Now();
      work();
      return absl::ToDoubleSeconds(absl::Now() - begin) / settings.iterations;
    };
    // Alternating order, so that a drift favours neither.
    double recorded = 0;
    double bare = 0;
    if (block % 2 == 0) {
      recorded = timed(recorded_block);
      bare = timed(bare_block);
    } else {
      bare = timed(bare_block);
      recorded = timed(recorded_block);
    }
    if (block == 0) continue;  // Warm-up.
    recorded_seconds.push_back(recorded);
    bare_seconds.push_back(bare);
    ratios.push_back(recorded / bare - 1);
  }

  const double record_ns = RecordNs(*backend);
  const double records = 2.0 * schedule.operations.size();
  BenchmarkReport report("recording_overhead");
  BenchmarkRow row;
  row.name = absl::StrCat(settings.network, " batch ", settings.batch, ", recorded iteration");
  row.value = Median(recorded_seconds);
  row.unit = "s";
  row.reference = "bare loop";
  row.reference_value = Median(bare_seconds);
  row.lower_is_better = true;
  // No goal: half a per cent is far below what two blocks on a shared machine differ by. The cost
  // of the records themselves, below, is what can be held to it.
  report.Add(row);
  BenchmarkRow cost;
  cost.name = "cost of the records alone, share of an iteration";
  cost.value = records * record_ns * 1e-9 / Median(bare_seconds);
  cost.unit = "fraction";
  cost.goal = 0.005;
  cost.lower_is_better = true;
  report.Add(cost);
  BenchmarkRow record;
  record.name = "one record";
  record.value = record_ns;
  record.unit = "ns";
  report.Add(record);
  report.Note(absl::StrFormat(
      "%d blocks of %d iterations each; recorded / bare - 1 per pair: median %+.2f %%, from %+.2f "
      "to "
      "%+.2f %%. %d records an iteration.",
      settings.blocks, settings.iterations, 100 * Median(ratios),
      100 * *std::min_element(ratios.begin(), ratios.end()),
      100 * *std::max_element(ratios.begin(), ratios.end()), static_cast<int>(records)));
  return report.Finish(settings.json);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  paceline::Settings settings;
  paceline::CommandLine line("recording_overhead", "What recording costs, beside a bare loop.",
                             {"bazel run //tests/benchmarks:recording_overhead"});
  line.AddString("network", &settings.network, "NAME", "Network to train.", "--network=lenet5");
  line.AddInt("batch", &settings.batch, "N", "Batch.", "--batch=16");
  line.AddInt("blocks", &settings.blocks, "N", "Interleaved blocks of each kind.", "--blocks=21");
  line.AddInt("iterations", &settings.iterations, "N", "Iterations per block.", "--iterations=8");
  line.AddString("json", &settings.json, "FILE", "Write the rows here.", "--json=overhead.json");
  auto rest = line.Parse(argc, argv);
  if (line.help_wanted()) {
    absl::PrintF("%s", line.Help());
    return 0;
  }
  if (!rest.ok()) {
    absl::FPrintF(stderr, "%s\n", rest.status().message());
    return 2;
  }
  return paceline::Run(settings);
}
