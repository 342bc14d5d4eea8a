// Training speed of the oneDNN engine on this machine's cores, beside PyTorch on the same network,
// batch and threads: as installed, and tuned (huge pages, malloc thresholds, multi-tensor SGD,
// channels_last or not; bf16 by autocast). All take turns, one step each a round, so that a busy
// neighbour hits all of them; the reference is PyTorch's best.
//
//   bazel run //tests/benchmarks:training_cpu -- --json=training_cpu.json
//   bazel run //tests/benchmarks:training_cpu -- --networks=resnet50_v1.5 --precisions=fp32
//   bazel run //tests/benchmarks:training_cpu -- --networks=googlenet_bn --profile --pytorch=false
//
// Without PyTorch the rows come without a reference. Debian: python3-torch and libopenblas0-openmp
// (with the reference BLAS, PyTorch needs seconds for the fully connected layers of AlexNet).
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT(build/c++11)
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "models/networks/network.h"
#include "proto/support/runfiles.h"
#include "tests/benchmarks/benchmark_report.h"
#include "worker/backend/cpu/engine_testing.h"
#include "worker/backend/cpu/onednn_engine.h"

ABSL_FLAG(std::string, json, "", "Writes the rows as JSON to this file. Example: --json=rows.json");
ABSL_FLAG(std::vector<std::string>, networks,
          std::vector<std::string>({"alexnet_owt", "googlenet_bn", "resnet50_v1.5"}),
          "Networks to train. Example: --networks=vgg16,lenet5");
ABSL_FLAG(std::vector<std::string>, precisions, std::vector<std::string>({"fp32", "bf16"}),
          "fp32, bf16. Example: --precisions=fp32");
ABSL_FLAG(int, batch, 16, "Samples of a step. Example: --batch=32");
ABSL_FLAG(int, threads, 2, "Threads of every program compared. Example: --threads=4");
ABSL_FLAG(int, warmups, 2, "Rounds that do not count. Example: --warmups=3");
ABSL_FLAG(int, rounds, 9, "Rounds; figures are medians of one step a round. Example: --rounds=21");
ABSL_FLAG(std::string, python, "/usr/bin/python3",
          "The Python that has PyTorch. Example: --python=$HOME/venv/bin/python");
ABSL_FLAG(bool, pytorch, true, "Compare with PyTorch. Example: --nopytorch");
ABSL_FLAG(bool, profile, false,
          "Print where the engine's time goes, by kind of work. Example: --profile");

namespace paceline {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// A PyTorch process that makes a step when told to.
class PyTorch {
 public:
  static absl::StatusOr<std::unique_ptr<PyTorch>> Start(const std::string& network,
                                                        const std::string& precision,
                                                        const std::string& mode) {
    absl::StatusOr<std::string> script = FindRunfile("tests/benchmarks/training_cpu_pytorch.py");
    absl::StatusOr<std::string> module = FindRunfile("tests/golden/pytorch/network.py");
    absl::StatusOr<std::string> file =
        FindRunfile(absl::StrCat("models/networks/", network, ".textproto"));
    for (const auto* found : {&script, &module, &file}) {
      if (!found->ok()) return found->status();
    }
    std::vector<std::string> words = {absl::GetFlag(FLAGS_python),
                                      *script,
                                      *file,
                                      module->substr(0, module->rfind('/')),
                                      precision,
                                      mode,
                                      absl::StrCat(absl::GetFlag(FLAGS_batch)),
                                      absl::StrCat(absl::GetFlag(FLAGS_threads))};
    std::vector<std::string> environment = {
        "PATH=/usr/bin:/bin", absl::StrCat("OMP_NUM_THREADS=", absl::GetFlag(FLAGS_threads))};
    if (mode != "default") {
      // Freed memory stays with the process, on huge pages.
      environment.push_back("GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
      environment.push_back("MALLOC_MMAP_THRESHOLD_=4294967296");
      environment.push_back("MALLOC_TRIM_THRESHOLD_=17179869184");
      environment.push_back("MALLOC_TOP_PAD_=67108864");
    }
    auto process = std::make_unique<PyTorch>();
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
      return absl::InternalError("pipe2 failed");
    }
    process->write_ = to[1];
    process->read_ = from[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(&word[0]);
    for (std::string& word : environment) envp.push_back(&word[0]);
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int error =
        posix_spawn(&process->pid_, argv[0], &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (error != 0) {
      process->pid_ = 0;
      return absl::NotFoundError(absl::StrCat("cannot start ", argv[0]));
    }
    absl::StatusOr<std::string> line = process->ReadLine();
    if (!line.ok()) return line.status();
    if (!absl::StartsWith(*line, "ready ")) return absl::NotFoundError(*line);
    process->version_ = line->substr(6);
    return process;
  }

  ~PyTorch() {
    if (write_ >= 0) close(write_);  // End of input: it leaves by itself.
    if (read_ >= 0) close(read_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  absl::StatusOr<double> StepSeconds() {
    if (write(write_, "step\n", 5) != 5) return absl::InternalError("PyTorch process has ended");
    absl::StatusOr<std::string> line = ReadLine();
    if (!line.ok()) return line.status();
    double seconds = 0;
    if (!absl::SimpleAtod(*line, &seconds)) return absl::InternalError(*line);
    return seconds;
  }

  const std::string& version() const { return version_; }

 private:
  absl::StatusOr<std::string> ReadLine() {
    std::string line;
    char c = 0;
    while (true) {
      pollfd waiting = {read_, POLLIN, 0};
      if (poll(&waiting, 1, 120000) <= 0) {
        return absl::DeadlineExceededError("PyTorch process: no answer in two minutes");
      }
      if (read(read_, &c, 1) != 1) return absl::InternalError("PyTorch process has ended");
      if (c == '\n') return line;
      line += c;
    }
  }

  int write_ = -1, read_ = -1;
  pid_t pid_ = 0;
  std::string version_;
};

void PrintProfile(const LayerEngine& engine, int steps) {
  std::map<std::string, double> by_work;
  double total = 0;
  for (const EngineStepTime& step : OneDnnStepTimes(engine)) {
    const double milliseconds = static_cast<double>(step.total_ns) / 1e6 / steps;
    // Without the layer's name: "forward convolution jit:avx512_core".
    by_work[step.name.substr(step.name.find(' ') + 1)] += milliseconds;
    total += milliseconds;
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& entry : by_work) sorted.push_back({entry.second, entry.first});
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& entry : sorted) absl::PrintF("%9.2f ms  %s\n", entry.first, entry.second);
  absl::PrintF("%9.2f ms  forward and backward together\n", total);
}

absl::optional<double> Goal(const std::string& network) {
  if (network == "resnet50_v1.5") return 1.15;
  if (network == "googlenet_bn") return 1.2;
  if (network == "alexnet_owt") return 1.45;
  return absl::nullopt;
}

absl::Status Measure(const std::string& name, const std::string& precision,
                     BenchmarkReport& report) {
  absl::StatusOr<v1::Network> network = LoadNetwork(name);
  if (!network.ok()) return network.status();
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(*network);
  if (!shaped.ok()) return shaped.status();
  const int batch = absl::GetFlag(FLAGS_batch);
  EngineOptions options = TestOptions(*shaped, batch);
  options.precision = precision == "bf16" ? v1::PRECISION_BF16 : v1::PRECISION_FP32;
  options.training.set_learning_rate(0.001);
  OneDnnOptions cpu;
  cpu.threads = absl::GetFlag(FLAGS_threads);
  cpu.profile = absl::GetFlag(FLAGS_profile);
  absl::StatusOr<std::unique_ptr<LayerEngine>> checked = CreateOneDnnEngine(*shaped, options, cpu);
  if (!checked.ok()) return checked.status();
  checked->reset();
  std::unique_ptr<TestEngine> ours = TestEngine::Create(*shaped, options, cpu);

  std::vector<std::string> modes;
  std::vector<std::unique_ptr<PyTorch>> references;
  if (absl::GetFlag(FLAGS_pytorch)) {
    for (const char* mode : {"default", "tuned", "tuned_nchw"}) {
      absl::StatusOr<std::unique_ptr<PyTorch>> started = PyTorch::Start(name, precision, mode);
      if (!started.ok()) {
        report.Note(
            absl::StrCat("No comparison with PyTorch (apt-get install "
                         "python3-torch libopenblas0-openmp): ",
                         started.status().message()));
        break;
      }
      modes.push_back(mode);
      references.push_back(*std::move(started));
    }
  }
  const int warmups = absl::GetFlag(FLAGS_warmups), rounds = absl::GetFlag(FLAGS_rounds);
  std::vector<double> own_seconds;
  std::vector<std::vector<double>> reference_seconds(references.size());
  for (int round = 0; round < warmups + rounds; ++round) {
    // Between turns, time for the last one's threads to stop spinning and sleep.
    const auto pause = std::chrono::milliseconds(30);
    std::this_thread::sleep_for(pause);
    const auto begin = std::chrono::steady_clock::now();
    ours->Iterate();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round >= warmups) own_seconds.push_back(seconds);
    for (size_t r = 0; r < references.size(); ++r) {
      std::this_thread::sleep_for(pause);
      absl::StatusOr<double> step = references[r]->StepSeconds();
      if (!step.ok()) return step.status();
      if (round >= warmups) reference_seconds[r].push_back(*step);
    }
  }
  BenchmarkRow row;
  row.name = absl::StrCat(name, ", ", precision, ", batch ", batch, ", ",
                          absl::GetFlag(FLAGS_threads), " threads");
  row.unit = "images/s";
  row.value = batch / Median(own_seconds);
  std::vector<std::string> others;
  for (size_t r = 0; r < references.size(); ++r) {
    const double rate = batch / Median(reference_seconds[r]);
    others.push_back(absl::StrFormat("%s %.1f", modes[r], rate));
    if (rate > row.reference_value) {
      row.reference_value = rate;
      row.reference = absl::StrCat("PyTorch ", references[r]->version(), " ", modes[r]);
      row.goal = Goal(name);
    }
  }
  report.Add(row);
  if (!others.empty()) {
    report.Note(absl::StrCat(row.name, ": PyTorch ", absl::StrJoin(others, ", "), " images/s"));
  }
  const auto [least, most] = std::minmax_element(own_seconds.begin(), own_seconds.end());
  report.Note(absl::StrFormat("%s: ours %.1f ms a step, from %.1f to %.1f in %d rounds", row.name,
                              Median(own_seconds) * 1e3, *least * 1e3, *most * 1e3, rounds));
  if (cpu.profile) {
    absl::PrintF("%s\n", row.name);
    PrintProfile(*ours->engine, warmups + rounds);
  }
  return absl::OkStatus();
}

int Main() {
  signal(SIGPIPE, SIG_IGN);  // A reference process that died is an error of its row.
  BenchmarkReport report("training_cpu");
  for (const std::string& network : absl::GetFlag(FLAGS_networks)) {
    for (const std::string& precision : absl::GetFlag(FLAGS_precisions)) {
      absl::Status status = Measure(network, precision, report);
      if (!status.ok()) {
        report.Note(absl::StrCat(network, ", ", precision, ": ", status.ToString()));
      }
    }
  }
  return report.Finish(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Training speed of the oneDNN engine beside PyTorch.\n"
      "  bazel run //tests/benchmarks:training_cpu -- --json=training_cpu.json");
  absl::ParseCommandLine(argc, argv);
  return paceline::Main();
}
