// The worker: one process that offers one device to a coordinator.
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/worker.pb.h"
#include "proto/support/command_line.h"
#include "proto/support/join_token.h"
#include "proto/support/text_proto.h"
#include "proto/support/version.h"
#include "proto/support/working_directory.h"
#include "worker/agent/agent.h"
#include "worker/agent/coordinator_client.h"
#include "worker/agent/worker_service.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/runner/trial_runner.h"

namespace paceline {
namespace {

struct Flags {
  std::string coordinator;
  bool list_devices = false;
  int local_index = 0;
  int local_count = 1;
  int compute_threads = 0;
  std::string data_address;
  std::string token_file;
  std::string tls_ca;
  bool insecure = false;
  std::string listen = "127.0.0.1:0";
  double peer_timeout_seconds = 30;
  double coordinator_timeout_seconds = 60;
};

CommandLine MakeCommandLine(Flags& flags) {
  CommandLine line(
      "worker",
      "Offers this machine's device to a coordinator and trains what it is told. Start "
      "one worker per device on every host; docs/cluster.md says how.",
      {"bazel run worker -- --coordinator=head-node:7450 --tls_ca=ca.pem",
       "bazel run worker -- --list_devices"});
  line.AddString("coordinator", &flags.coordinator, "HOST:PORT", "The coordinator to join.",
                 "--coordinator=head-node:7450");
  line.AddBool("list_devices", &flags.list_devices,
               "Print this machine's device as Paceline sees it, and exit.", "--list_devices");
  line.AddInt("local_index", &flags.local_index, "I",
              "Position of this worker among those of this host; decides which cores it uses.",
              "--local_index=1 --local_count=2");
  line.AddInt("local_count", &flags.local_count, "N",
              "Workers on this host; they share its cores evenly.",
              "--local_index=0 --local_count=2");
  line.AddInt("compute_threads", &flags.compute_threads, "N",
              "Threads that compute; 0 means one per core of this worker.", "--compute_threads=4");
  line.AddString(
      "data_address", &flags.data_address, "ADDRESS",
      "Address of this host on which peers exchange gradients. Default: the one from which "
      "the coordinator is reached.",
      "--data_address=10.1.0.7");
  line.AddString("token_file", &flags.token_file, "FILE",
                 "File with the join token. Default: the environment variable PACELINE_TOKEN.",
                 "--token_file=/etc/paceline/token");
  line.AddString(
      "tls_ca", &flags.tls_ca, "FILE",
      "PEM file of the authority that signed the coordinator's certificate. Needed beyond "
      "loopback.",
      "--tls_ca=/etc/paceline/ca.pem");
  line.AddBool("insecure", &flags.insecure,
               "Join a coordinator beyond loopback without TLS. Only on a network you trust.",
               "--insecure");
  line.AddString("listen", &flags.listen, "ADDRESS:PORT",
                 "Loopback address of this worker's own inspection service (Describe, Echo).",
                 "--listen=127.0.0.1:7460");
  line.AddDouble("peer_timeout_seconds", &flags.peer_timeout_seconds, "S",
                 "How long a silent peer is waited for in a transfer.",
                 "--peer_timeout_seconds=10");
  line.AddDouble("coordinator_timeout_seconds", &flags.coordinator_timeout_seconds, "S",
                 "Give up when the coordinator cannot be reached for this long.",
                 "--coordinator_timeout_seconds=600");
  return line;
}

// Exit codes: what a launcher can act on.
constexpr int kExitUsage = 2;        // Wrong flags: fix the command.
constexpr int kExitRefused = 3;      // The coordinator refused this worker: fix token or version.
constexpr int kExitUnreachable = 4;  // No coordinator: start it, then this again.
constexpr int kExitFailed = 1;

int Fail(int exit_code, const absl::Status& status) {
  absl::FPrintF(stderr, "worker: %s\n", status.message());
  return exit_code;
}

absl::StatusOr<std::string> ReadFlagFile(const std::string& flag, const std::string& path) {
  absl::StatusOr<std::string> content = ReadFile(ResolveUserPath(path));
  if (content.ok()) return content;
  return absl::Status(content.status().code(),
                      absl::StrCat("--", flag, ": ", content.status().message()));
}

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || absl::StartsWith(host, "127.") || host == "[::1]" || host == "::1";
}

// Own address on the route to `host`: a connected UDP socket sends nothing, but knows its address.
absl::StatusOr<std::string> AddressTowards(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat("--coordinator: cannot resolve '", host, "': ", gai_strerror(error)));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST];
    const bool known = connect(fd, address->ai_addr, address->ai_addrlen) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
                       getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text),
                                   nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (known) return std::string(text);
  }
  return absl::UnavailableError(absl::StrCat("--coordinator: no route to ", host,
                                             "; set --data_address to this host's address"));
}

void PrintDevice(const v1::MachineState& machine, const Backend& backend) {
  std::vector<std::string> precisions;
  for (v1::Precision precision : backend.Precisions()) {
    precisions.push_back(
        std::string(absl::StripPrefix(v1::Precision_Name(precision), "PRECISION_")));
  }
  absl::PrintF("device      %s (%s)\n", machine.device(), machine.backend());
  absl::PrintF("cores       %s of %d, %d compute threads\n",
               absl::StrJoin(machine.pinned_cores(), ","), machine.logical_cores(),
               machine.compute_threads());
  absl::PrintF("memory      %.1f GiB\n", machine.memory_bytes() / (1024.0 * 1024 * 1024));
  absl::PrintF("precisions  %s\n", absl::StrJoin(precisions, " "));
  absl::PrintF("kernel      %s\n", machine.kernel());
  for (const auto& library : machine.versions()) {
    absl::PrintF("%-11s %s\n", library.first, library.second);
  }
}

int Main(const Flags& flags) {
  CpuBackendOptions backend_options;
  backend_options.local_index = flags.local_index;
  backend_options.local_count = flags.local_count;
  backend_options.compute_threads = flags.compute_threads;
  auto backend = CreateCpuBackend(backend_options);
  if (!backend.ok()) return Fail(kExitUsage, backend.status());
  v1::MachineState machine;
  absl::Status status = (*backend)->Describe(machine);
  if (!status.ok()) return Fail(kExitFailed, status);
  if (flags.list_devices) {
    PrintDevice(machine, **backend);
    return 0;
  }

  const std::string address = flags.coordinator;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return Fail(
        kExitUsage,
        absl::InvalidArgumentError(absl::StrCat(
            "--coordinator: expected HOST:PORT, for example head-node:7450; got '", address, "'")));
  }
  const std::string host = address.substr(0, colon);

  CoordinatorClientOptions client_options;
  client_options.address = address;
  auto token = ReadJoinToken(ResolveUserPath(flags.token_file));
  if (!token.ok()) return Fail(kExitUsage, token.status());
  client_options.token = *token;
  if (!flags.tls_ca.empty()) {
    auto ca = ReadFlagFile("tls_ca", flags.tls_ca);
    if (!ca.ok()) return Fail(kExitUsage, ca.status());
    client_options.tls_ca = *ca;
  } else if (!IsLoopback(host) && !flags.insecure) {
    return Fail(kExitUsage,
                absl::InvalidArgumentError(absl::StrCat("--coordinator=", address,
                                                        " is beyond loopback: give --tls_ca, or "
                                                        "--insecure on a network you trust")));
  }

  std::string data_address = flags.data_address;
  if (data_address.empty()) {
    auto own = AddressTowards(host, address.substr(colon + 1));
    if (!own.ok()) return Fail(kExitUsage, own.status());
    data_address = *own;
  }

  v1::WorkerDescription description;
  description.set_worker_id(
      absl::StrFormat("%s-%d-%08x", machine.host(), getpid(), std::random_device()()));
  description.set_host(machine.host());
  description.set_data_address(data_address);
  description.set_backend((*backend)->name());
  description.set_device(machine.device());
  description.set_device_memory_bytes(machine.memory_bytes());
  for (v1::Precision precision : (*backend)->Precisions()) description.add_precisions(precision);
  description.set_version(kPacelineVersion);
  description.set_local_index(flags.local_index);
  *description.mutable_machine() = machine;

  std::unique_ptr<CoordinatorClient> client = MakeGrpcCoordinatorClient(client_options);
  TrialRunnerOptions runner_options;
  runner_options.worker_id = description.worker_id();
  runner_options.peer_timeout = absl::Seconds(flags.peer_timeout_seconds);
  runner_options.decode_threads = machine.compute_threads();
  TrialRunner runner(**backend, runner_options);
  AgentOptions agent_options;
  agent_options.coordinator_timeout = absl::Seconds(flags.coordinator_timeout_seconds);
  auto server = StartWorkerServer(flags.listen);
  if (!server.ok()) return Fail(kExitUsage, server.status());
  description.set_service_address((*server)->address());
  Agent agent(
      *client, description,
      [&runner](const v1::RankAssignment& assignment, RendezvousStore& store, CancelToken& cancel,
                const ProgressSink& progress) {
        return runner.Run(assignment, store, cancel, progress);
      },
      agent_options);
  (*server)->SetDescribe([&agent] { return agent.Describe(); });

  // SIGINT and SIGTERM end the worker cleanly: taken by a thread, since a handler may not lock.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  std::thread([&agent, signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    agent.Stop();
    sigwait(&signals, &signal);  // The user insists.
    _exit(128 + signal);
  }).detach();

  absl::FPrintF(stderr, "worker %s: %s, data on %s, joining %s\n", description.worker_id(),
                machine.device(), data_address, address);
  status = agent.Run();
  server->reset();  // It describes the agent.
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "worker: %s\n", status.message());
  // A hanging trial would hang the destructors as well.
  if (absl::IsInternal(status)) _exit(kExitFailed);
  if (absl::IsUnavailable(status)) return kExitUnreachable;
  return kExitRefused;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  paceline::Flags flags;
  paceline::CommandLine line = paceline::MakeCommandLine(flags);
  auto rest = line.Parse(argc, argv);
  if (line.help_wanted()) {
    absl::PrintF("%s", line.Help());
    return 0;
  }
  if (!rest.ok()) return paceline::Fail(paceline::kExitUsage, rest.status());
  if (!rest->empty()) {
    return paceline::Fail(paceline::kExitUsage,
                          absl::InvalidArgumentError(absl::StrCat("unexpected argument '",
                                                                  rest->front(), "'; see --help")));
  }
  // Before any thread starts, so that all inherit it: signals go to the thread that waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return paceline::Main(flags);
}
