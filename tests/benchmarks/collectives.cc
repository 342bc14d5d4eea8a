// Collectives between two processes over TCP on this machine: through the communicator and its
// stream, with Gloo called directly, and with OpenMPI where it is installed.
//
//   bazel run //tests/benchmarks:collectives -- --json=collectives.json
//
// Each rank has a core of its own. A sample is a burst of operations that lasts about 20 ms, timed
// on the slower rank; ours and Gloo's alternate; the medians are compared. Up to 16 KiB the time of
// one operation is shown, above the bus bandwidth, bytes / seconds * 2 (n - 1) / n for an
// all-reduce. Gloo's side is the fastest of the algorithms that its API has for the operation.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT(build/c++11)
#include <cstdint>
#include <filesystem>  // NOLINT(build/c++17)
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "gloo/allreduce.h"
#include "gloo/allreduce_halving_doubling.h"
#include "gloo/broadcast.h"
#include "gloo/math.h"
#include "gloo/reduce.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/file_store.h"
#include "gloo/transport/tcp/device.h"
#include "proto/support/runfiles.h"
#include "tests/benchmarks/benchmark_report.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/affinity.h"
#include "worker/backend/cpu/gloo_communicator.h"
#include "worker/backend/cpu/host_stream.h"

ABSL_FLAG(std::string, json, "", "Write the rows to this file, too. Example: --json=rows.json");
ABSL_FLAG(int64_t, max_bytes, 256 << 20, "Largest message. Example: --max_bytes=1048576");

namespace paceline {
namespace {

constexpr int kRanks = 2;
constexpr int kSamples = 5;
constexpr int64_t kLatencyBytes = 16 * 1024;  // Up to here, the time is shown.

// Keys are files of a folder.
class FileRendezvous : public RendezvousStore {
 public:
  explicit FileRendezvous(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Put(absl::string_view key, absl::string_view value) override {
    const std::string path = Path(key), unfinished = absl::StrCat(path, ".", getpid());
    std::ofstream(unfinished, std::ios::binary).write(value.data(), value.size());
    if (rename(unfinished.c_str(), path.c_str()) == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cannot write ", path));
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    while (absl::Now() < deadline) {
      std::ifstream file(Path(key), std::ios::binary);
      if (file) return std::string(std::istreambuf_iterator<char>(file), {});
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::DeadlineExceededError(absl::StrCat("nobody put ", key));
  }

 private:
  std::string Path(absl::string_view key) const {
    return absl::StrCat(folder_, "/", absl::StrReplaceAll(key, {{"/", "_"}}));
  }
  const std::string folder_;
};

// One rank's two ways to communicate.
class Rank {
 public:
  Rank(int rank, const std::string& folder) : rank_(rank), stream_({"communication"}) {
    FileRendezvous store(folder);
    RankInfo info;
    info.rank = rank;
    info.ranks = kRanks;
    info.data_address = "127.0.0.1";
    auto communicator = GlooCommunicator::Create(info, "benchmark", store);
    if (!communicator.ok()) Fail(communicator.status());
    ours_ = *std::move(communicator);
    const std::string gloo_folder = folder + "/gloo";
    mkdir(gloo_folder.c_str(), 0700);
    gloo::rendezvous::FileStore gloo_store(gloo_folder);
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    gloo_ = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
    gloo_->setTimeout(std::chrono::seconds(30));
    gloo_->connectFullMesh(gloo_store, device);
  }

  // The slower rank's seconds of one operation; equal on both ranks.
  double Measure(int64_t repeats, const std::function<void()>& operation,
                 const std::function<void()>& finish) {
    float meet = 0;
    ours_->AllReduceSum({&meet, 1}, stream_).IgnoreError();
    Wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) operation();
    finish();
    float seconds[kRanks] = {0, 0};
    seconds[rank_] = static_cast<float>(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repeats);
    ours_->AllReduceSum({seconds, kRanks}, stream_).IgnoreError();
    Wait();
    return std::max(seconds[0], seconds[1]);
  }

  struct Method {
    std::string name;
    std::function<void()> operation;
    std::function<void()> finish;
  };

  // Median of each method, measured in turns.
  std::vector<double> Medians(const std::vector<Method>& methods) {
    std::vector<std::vector<double>> seconds(methods.size());
    std::vector<int64_t> repeats(methods.size());
    for (int sample = -2; sample < kSamples; ++sample) {
      for (size_t m = 0; m < methods.size(); ++m) {
        const int64_t now = sample == -2 ? 1 : sample == -1 ? 3 : repeats[m];
        const double took = Measure(now, methods[m].operation, methods[m].finish);
        repeats[m] = sample < 0 ? std::clamp<int64_t>(0.02 / took, 1, 1000) : repeats[m];
        if (sample >= 0) seconds[m].push_back(took);
      }
    }
    std::vector<double> medians;
    for (auto& values : seconds) {
      std::sort(values.begin(), values.end());
      medians.push_back(values[values.size() / 2]);
    }
    return medians;
  }

  std::vector<Method> Methods(const std::string& operation, std::vector<float>& values) {
    const int64_t elements = static_cast<int64_t>(values.size());
    const DeviceSpan span = {values.data(), elements};
    const auto wait = [this] { Wait(); };
    const auto nothing = [] {};
    const auto sum = [](void* out, const void* a, const void* b, size_t n) {
      gloo::sum<float>(out, a, b, n);
    };
    std::vector<Method> methods;
    if (operation == "all-reduce") {
      methods.push_back({"ours", [=] { ours_->AllReduceSum(span, stream_).IgnoreError(); }, wait});
      using Algorithm = gloo::AllreduceOptions::Algorithm;
      for (const auto algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
        methods.push_back({"gloo",
                           [=] {
                             gloo::AllreduceOptions options(gloo_);
                             options.setAlgorithm(algorithm);
                             options.setOutput(span.data, elements);
                             options.setReduceFunction(sum);
                             gloo::allreduce(options);
                           },
                           nothing});
      }
      auto halving = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
          gloo_, std::vector<float*>{span.data}, static_cast<int>(elements));
      methods.push_back({"gloo halving-doubling", [halving] { halving->run(); }, nothing});
    } else if (operation == "broadcast") {
      methods.push_back({"ours", [=] { ours_->Broadcast(span, 0, stream_).IgnoreError(); }, wait});
      methods.push_back({"gloo",
                         [=] {
                           gloo::BroadcastOptions options(gloo_);
                           options.setOutput(span.data, elements);
                           options.setRoot(0);
                           gloo::broadcast(options);
                         },
                         nothing});
    } else {
      methods.push_back({"ours", [=] { ours_->ReduceSum(span, 0, stream_).IgnoreError(); }, wait});
      methods.push_back({"gloo",
                         [=] {
                           gloo::ReduceOptions options(gloo_);
                           options.setOutput(span.data, elements);
                           options.setRoot(0);
                           options.setReduceFunction(sum);
                           gloo::reduce(options);
                         },
                         nothing});
    }
    return methods;
  }

 private:
  static void Fail(const absl::Status& status) {
    fprintf(stderr, "collectives: %s\n", status.ToString().c_str());
    _exit(1);
  }
  void Wait() {
    absl::Status status = stream_.Synchronize(absl::Now() + absl::Seconds(60));
    if (!status.ok()) Fail(status);
  }

  const int rank_;
  HostStream stream_;
  std::unique_ptr<Communicator> ours_;
  std::shared_ptr<gloo::rendezvous::Context> gloo_;
};

// Seconds by "operation bytes"; empty where OpenMPI is not installed (and a note says so).
std::map<std::string, double> RunOpenMpi(const std::string& folder,
                                         const std::vector<int64_t>& sizes,
                                         BenchmarkReport& report) {
  std::map<std::string, double> seconds;
  auto source = FindRunfile("tests/benchmarks/collectives_mpi.c");
  if (system("command -v mpicc mpirun > /dev/null 2>&1") != 0 || !source.ok()) {
    report.Note(
        "OpenMPI is not installed: no comparison (Debian: openmpi-bin and libopenmpi-dev).");
    return seconds;
  }
  std::string command = absl::StrCat(
      "mpicc -O3 -o ", folder, "/mpi '", *source,
      "' && mpirun --allow-run-as-root -n 2 --bind-to core --mca btl tcp,self ", folder, "/mpi");
  for (const int64_t bytes : sizes) absl::StrAppend(&command, " ", bytes);
  FILE* pipe = popen((command + " 2>" + folder + "/mpi.log").c_str(), "r");
  char operation[32];
  long bytes;
  double value;
  while (pipe != nullptr && fscanf(pipe, "%31s %ld %lf", operation, &bytes, &value) == 3) {
    seconds[absl::StrCat(operation, " ", bytes)] = value;
  }
  if (pipe != nullptr) pclose(pipe);
  if (seconds.empty()) report.Note("OpenMPI is installed, but did not run.");
  return seconds;
}

std::string SizeName(int64_t bytes) {
  if (bytes >= 1 << 20) return absl::StrCat(bytes >> 20, " MiB");
  if (bytes >= 1 << 10) return absl::StrCat(bytes >> 10, " KiB");
  return absl::StrCat(bytes, " B");
}

int Main() {
  std::vector<int64_t> sizes;
  for (const int64_t bytes :
       {4, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}) {
    if (bytes <= absl::GetFlag(FLAGS_max_bytes)) sizes.push_back(bytes);
  }
  char folder[] = "/tmp/collectives.XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    perror("collectives: mkdtemp");
    return 1;
  }
  // Before any thread exists.
  const pid_t parent = getpid();
  const pid_t child = fork();
  const int rank = child == 0 ? 1 : 0;
  if (rank == 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
  }
  BenchmarkReport report("collectives");
  std::vector<std::pair<std::string, std::vector<double>>> measured;
  const std::vector<std::string> operations = {"all-reduce", "broadcast", "reduce"};
  const std::vector<int>& all_cores = AvailableCores();
  PinThisThread(ShareOfCores(all_cores, rank, kRanks)).IgnoreError();
  {
    Rank self(rank, folder);
    for (const std::string& operation : operations) {
      for (const int64_t bytes : sizes) {
        std::vector<float> values(bytes / 4, 0.0f);
        measured.push_back(
            {absl::StrCat(operation, " ", bytes), self.Medians(self.Methods(operation, values))});
      }
    }
    if (rank == 1) _exit(0);
    waitpid(child, nullptr, 0);
  }
  PinThisThread(all_cores).IgnoreError();
  const std::map<std::string, double> mpi = RunOpenMpi(folder, sizes, report);
  size_t next = 0;
  for (const std::string& operation : operations) {
    for (const int64_t bytes : sizes) {
      const auto& [key, seconds] = measured[next++];
      const double ours = seconds[0];
      const double gloo = *std::min_element(seconds.begin() + 1, seconds.end());
      const bool latency = bytes <= kLatencyBytes;
      const auto shown = [&](double s) { return latency ? s * 1e6 : bytes / s / 1e9; };
      BenchmarkRow row;
      row.name = absl::StrCat(operation, " ", SizeName(bytes));
      row.value = shown(ours);
      row.unit = latency ? "us" : "GB/s";
      row.lower_is_better = latency;
      row.reference = "Gloo called directly";
      row.reference_value = shown(gloo);
      row.goal = latency ? 1 / 0.95 : 0.95;
      report.Add(row);
      const auto found = mpi.find(key);
      if (found == mpi.end()) continue;
      row.reference = "OpenMPI over TCP";
      row.reference_value = shown(found->second);
      row.goal = absl::nullopt;
      report.Add(row);
    }
  }
  BenchmarkRow small;
  small.name = "all-reduce 4 B, against busy-polling pairs (25 us)";
  small.value = measured[0].second[0] * 1e6;
  small.unit = "us";
  small.lower_is_better = true;
  small.goal = 25;
  report.Add(small);
  report.Note("Two ranks, one core each, TCP over loopback; bus bandwidth above 16 KiB.");
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return report.Finish(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times all-reduce, broadcast and reduce between two processes.\n"
      "Example: bazel run //tests/benchmarks:collectives -- --json=collectives.json");
  absl::ParseCommandLine(argc, argv);
  return paceline::Main();
}
