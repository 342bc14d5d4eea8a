#include "worker/backend/cpu/cpu_backend.h"

#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gloo/config.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/affinity.h"
#include "worker/backend/cpu/gloo_communicator.h"
#include "worker/backend/cpu/host_stream.h"
#include "worker/backend/cpu/onednn_engine.h"
#include "worker/backend/cpu/parameter_server.h"

namespace paceline {
namespace {

// First line of a file; empty if there is none.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name") && absl::StrContains(line, ':')) {
      return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
    }
  }
  return "unknown CPU";
}

class CpuBackend : public Backend {
 public:
  CpuBackend(std::vector<int> cores, int compute_threads)
      : cores_(std::move(cores)), compute_threads_(compute_threads) {}

  std::string name() const override { return "cpu"; }

  absl::Status Describe(v1::MachineState& machine) const override {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    machine.set_host(host);
    machine.set_cpu_model(CpuModel());
    machine.set_logical_cores(static_cast<int>(AvailableCores().size()));
    for (const int core : cores_) machine.add_pinned_cores(core);
    machine.set_compute_threads(compute_threads_);
    machine.set_governor(FirstLine(
        absl::StrCat("/sys/devices/system/cpu/cpu", cores_.front(), "/cpufreq/scaling_governor")));
    double load = 0;
    if (getloadavg(&load, 1) == 1) machine.set_load_average_1m(load);
    machine.set_memory_bytes(static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                             sysconf(_SC_PAGE_SIZE));
    utsname kernel;
    if (uname(&kernel) == 0) machine.set_kernel(absl::StrCat(kernel.sysname, " ", kernel.release));
    machine.set_backend(name());
    machine.set_device(machine.cpu_model());
    auto& versions = *machine.mutable_versions();
    versions["onednn"] = OneDnnVersion();
    versions["gloo"] =
        absl::StrCat(GLOO_VERSION_MAJOR, ".", GLOO_VERSION_MINOR, ".", GLOO_VERSION_PATCH);
    return absl::OkStatus();
  }

  std::vector<v1::Precision> Precisions() const override {
    std::vector<v1::Precision> precisions = {v1::PRECISION_FP32};
    if (CpuHasBf16()) precisions.push_back(v1::PRECISION_BF16);
    return precisions;
  }

  // All streams run on the rank's cores. The compute stream's OpenMP threads inherit its mask.
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamKind kind, std::string name) override {
    HostStreamOptions options;
    options.name = std::move(name);
    options.cores = cores_;
    return std::make_unique<HostStream>(std::move(options));
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<HostEvent>();
  }

  absl::StatusOr<int64_t> EventUnixNs(const Event& event) const override {
    const HostEvent* host_event = dynamic_cast<const HostEvent*>(&event);
    if (host_event == nullptr) {
      return absl::InvalidArgumentError("the event was not created by the CPU backend");
    }
    return host_event->UnixNs();
  }

  absl::StatusOr<std::unique_ptr<LayerEngine>> CreateEngine(const ShapedNetwork& network,
                                                            const EngineOptions& options) override {
    OneDnnOptions cpu;
    cpu.threads = compute_threads_;
    // On a thread of the rank's cores: memory is touched, hence placed, where it will be used.
    absl::StatusOr<std::unique_ptr<LayerEngine>> engine =
        absl::InternalError("the engine was not created");
    std::thread creator([&] {
      absl::Status pinned = PinThisThread(cores_);
      engine = pinned.ok() ? CreateOneDnnEngine(network, options, cpu) : pinned;
    });
    creator.join();
    return engine;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const RankInfo& rank, absl::string_view name, RendezvousStore& store) override {
    return GlooCommunicator::Create(rank, name, store);
  }

  absl::StatusOr<std::unique_ptr<ParameterServer>> CreateParameterServer(
      const RankInfo& rank, const IterationSchedule& schedule,
      const std::vector<DeviceSpan>& initial_weights, const v1::TrainingSettings& training,
      absl::string_view name, RendezvousStore& store) override {
    return HostParameterServer::Create(rank, schedule, initial_weights, training, name, store);
  }

 private:
  const std::vector<int> cores_;
  const int compute_threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  if (options.local_count < 1 || options.local_index < 0 ||
      options.local_index >= options.local_count) {
    return absl::InvalidArgumentError(absl::StrCat("CPU backend: local_index ", options.local_index,
                                                   " is not in 0..", options.local_count - 1));
  }
  std::vector<int> cores = options.cores;
  if (cores.empty()) {
    cores = ShareOfCores(AvailableCores(), options.local_index, options.local_count);
  }
  for (const int core : cores) {
    if (std::find(AvailableCores().begin(), AvailableCores().end(), core) ==
        AvailableCores().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("CPU backend: this process may not use core ", core));
    }
  }
  const int threads =
      options.compute_threads > 0 ? options.compute_threads : static_cast<int>(cores.size());
  return std::make_unique<CpuBackend>(std::move(cores), threads);
}

}  // namespace paceline
