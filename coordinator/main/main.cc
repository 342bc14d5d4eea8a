// The coordinator's command line.
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/report/report.h"
#include "coordinator/main/dry_run.h"
#include "coordinator/main/local_workers.h"
#include "coordinator/main/progress.h"
#include "coordinator/main/trial_summary.h"
#include "coordinator/plan/plan.h"
#include "coordinator/results/run_store.h"
#include "coordinator/scheduler/trial_scheduler.h"
#include "coordinator/service/coordinator_server.h"
#include "coordinator/service/rendezvous_store.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/command_line.h"
#include "proto/support/join_token.h"
#include "proto/support/text_proto.h"
#include "proto/support/version.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;         // The run could not go on; --resume continues it.
constexpr int kExitUsage = 2;          // Flags or plan are wrong.
constexpr int kExitInterrupted = 130;  // Ctrl-C, as shells have it.

constexpr absl::Duration kLoopInterval = absl::Milliseconds(100);
// How long workers may take to hear that the plan is over.
constexpr absl::Duration kDismissalTime = absl::Seconds(5);
// A gang cannot grow on this machine; after this long a worker that ended will not come back.
constexpr absl::Duration kLocalGangGrace = absl::Seconds(20);
constexpr int kMaxLocalWorkers = 256;

struct Flags {
  std::string plan = "builtin:default";
  std::string run_dir;
  bool dry_run = false;
  bool resume = false;
  std::string listen = "127.0.0.1:0";
  int workers_expected = 0;
  double join_timeout_seconds = 600;
  std::string token_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  bool insecure = false;
  bool report = true;
  bool version = false;
};

CommandLine MakeCommandLine(Flags* flags) {
  CommandLine line(
      "coordinator",
      "runs a benchmark plan: hands its trials to workers, stores what they measure, and writes a "
      "report.",
      {"bazel run coordinator",
       "bazel run coordinator -- --plan=builtin:quick --run_dir=runs/first",
       "bazel run coordinator -- --plan=scaling.textproto --dry_run",
       "bazel run coordinator -- --resume --run_dir=runs/first",
       "bazel run coordinator -- --plan=scaling.textproto --listen=0.0.0.0:7400 "
       "--workers_expected=8 --tls_cert=c.pem --tls_key=k.pem --token_file=token"});
  line.AddString("plan", &flags->plan, "FILE|builtin:NAME",
                 absl::StrCat("The plan to run (format: proto/paceline/v1/plan.proto). Built-in "
                              "plans: ",
                              absl::StrJoin(BuiltinPlanNames(), ", "), "."),
                 "--plan=builtin:quick");
  line.AddString("run_dir", &flags->run_dir, "DIR",
                 "Folder of the run: results (run.sqlite) and the workers' logs. By default "
                 "runs/TIME-PLAN below the current folder.",
                 "--run_dir=runs/first");
  line.AddBool("dry_run", &flags->dry_run,
               "Only prints the plan's trials with their predicted time and memory.", "--dry_run");
  line.AddBool("resume", &flags->resume,
               "Continues the run in --run_dir: finished trials are kept, the others run.",
               "--resume --run_dir=runs/first");
  line.AddString("listen", &flags->listen, "HOST:PORT",
                 "Address for workers; port 0 takes any free one. Beyond loopback it needs "
                 "--tls_cert, --tls_key and a token, or --insecure.",
                 "--listen=0.0.0.0:7400");
  line.AddInt("workers_expected", &flags->workers_expected, "N",
              "Waits for N workers that you start yourself (bazel run worker -- "
              "--coordinator=HOST:PORT). 0 starts workers on this machine, as many as the plan's "
              "largest trial has devices.",
              "--workers_expected=8");
  line.AddDouble("join_timeout_seconds", &flags->join_timeout_seconds, "SECONDS",
                 "Gives up if the expected workers have not joined by then.",
                 "--join_timeout_seconds=60");
  line.AddString("token_file", &flags->token_file, "FILE",
                 "File with the secret that workers must show; PACELINE_TOKEN in the environment "
                 "does the same.",
                 "--token_file=/etc/paceline/token");
  line.AddString("tls_cert", &flags->tls_cert, "FILE", "Certificate chain of this server, PEM.",
                 "--tls_cert=server.pem");
  line.AddString("tls_key", &flags->tls_key, "FILE", "Its private key, PEM.",
                 "--tls_key=server.key");
  line.AddString("tls_ca", &flags->tls_ca, "FILE",
                 "If given, workers must show a certificate signed by this authority, PEM.",
                 "--tls_ca=ca.pem");
  line.AddBool("insecure", &flags->insecure,
               "Listens beyond loopback without TLS or token, in a network that you trust.",
               "--insecure --listen=10.0.0.1:7400");
  line.AddBool("report", &flags->report,
               "Writes RUN_DIR/report at the end of the run (report.html, trials.csv and more).",
               "--noreport");
  line.AddBool("version", &flags->version, "Prints the version.", "--version");
  return line;
}

int Complain(const absl::Status& status, int exit_code) {
  absl::FPrintF(stderr, "coordinator: %s\n", status.message());
  return exit_code;
}

absl::StatusOr<std::string> ReadOptionalFile(const std::string& path) {
  if (path.empty()) return std::string();
  return ReadFile(ResolveUserPath(path));
}

absl::StatusOr<ServerOptions> MakeServerOptions(const Flags& flags) {
  ServerOptions options;
  options.listen = flags.listen;
  options.insecure = flags.insecure;
  absl::StatusOr<std::string> token = ReadJoinToken(ResolveUserPath(flags.token_file));
  if (!token.ok()) return token.status();
  options.join_token = *token;
  const std::pair<const std::string*, std::string*> files[] = {
      {&flags.tls_cert, &options.tls_certificate},
      {&flags.tls_key, &options.tls_key},
      {&flags.tls_ca, &options.tls_client_ca}};
  for (const auto& [path, content] : files) {
    absl::StatusOr<std::string> read = ReadOptionalFile(*path);
    if (!read.ok()) return read.status();
    *content = *std::move(read);
  }
  absl::Status valid = options.Validate();
  if (!valid.ok()) return valid;
  return options;
}

int Devices(const v1::Trial& trial) {
  return trial.cluster().hosts() * trial.cluster().devices_per_host();
}

int LargestGang(const std::vector<v1::Trial>& trials) {
  int largest = 1;
  for (const v1::Trial& trial : trials) largest = std::max(largest, Devices(trial));
  return largest;
}

double Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

int64_t MemoryBytes() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.totalram) * info.mem_unit : 0;
}

// A run to do: its store, and the trials in plan order.
struct Run {
  std::string dir;
  std::unique_ptr<RunStore> store;
  std::vector<v1::Trial> trials;
  std::vector<TrialOutcome> outcomes;
};

absl::StatusOr<Run> CreateRun(const Flags& flags, const v1::BenchmarkPlan& plan,
                              std::vector<v1::Trial> trials) {
  Run run;
  const std::string name = absl::StrCat(
      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()), "-", plan.name());
  run.dir = flags.run_dir.empty() ? absl::StrCat(UserDirectory(), "/runs/", name)
                                  : ResolveUserPath(flags.run_dir);
  absl::StatusOr<std::unique_ptr<RunStore>> store = RunStore::Create(run.dir, plan, trials);
  if (!store.ok()) return store.status();
  run.store = *std::move(store);
  run.trials = std::move(trials);
  return run;
}

absl::StatusOr<Run> ResumeRun(const Flags& flags, bool plan_given) {
  if (flags.run_dir.empty()) {
    return absl::InvalidArgumentError("--resume: say which run by --run_dir=DIR");
  }
  Run run;
  run.dir = ResolveUserPath(flags.run_dir);
  absl::StatusOr<std::unique_ptr<RunStore>> store = RunStore::Open(run.dir, /*read_only=*/false);
  if (!store.ok()) return store.status();
  run.store = *std::move(store);
  absl::StatusOr<std::vector<v1::Trial>> trials = run.store->Trials();
  if (!trials.ok()) return trials.status();
  absl::StatusOr<std::vector<TrialOutcome>> outcomes = run.store->Outcomes();
  if (!outcomes.ok()) return outcomes.status();
  run.trials = *std::move(trials);
  run.outcomes = *std::move(outcomes);
  if (!plan_given) return run;
  // A plan given again must be the run's own.
  absl::StatusOr<v1::BenchmarkPlan> plan = LoadPlan(flags.plan);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::vector<v1::Trial>> expanded = ExpandPlan(*plan);
  if (!expanded.ok()) return expanded.status();
  bool equal = expanded->size() == run.trials.size();
  for (size_t i = 0; equal && i < run.trials.size(); ++i) {
    equal = (*expanded)[i].trial_id() == run.trials[i].trial_id();
  }
  if (!equal) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: the run in ", run.dir, " is of another plan ('", run.store->info().plan.name(),
        "') than --plan=", flags.plan,
        ": leave --plan out to continue it, or choose another --run_dir for the new plan"));
  }
  return run;
}

// The signals that end the program; blocked in all threads and taken from the queue by the main
// loop, so that no code runs in a handler.
sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Waits for one of them; returns it, or 0 after `timeout`.
int WaitForSignal(absl::Duration timeout) {
  const sigset_t signals = EndingSignals();
  const timespec spec = absl::ToTimespec(timeout);
  const int signal_number = sigtimedwait(&signals, nullptr, &spec);
  return signal_number < 0 ? 0 : signal_number;
}

int TerminalColumns() {
  winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

class Coordinator {
 public:
  Coordinator(const Flags& flags, ServerOptions server_options, std::string worker_program, Run run)
      : flags_(flags),
        server_options_(std::move(server_options)),
        worker_program_(std::move(worker_program)),
        run_(std::move(run)),
        display_(stdout, isatty(STDOUT_FILENO), TerminalColumns()) {}

  int Execute() {
    server_options_.run_dir = run_.dir;
    // Workers are needed for what is left to do.
    std::vector<v1::Trial> left;
    for (size_t i = 0; i < run_.trials.size(); ++i) {
      if (run_.outcomes.empty() || !run_.outcomes[i].final) left.push_back(run_.trials[i]);
    }
    const bool local = flags_.workers_expected <= 0;
    const int workers = local ? LargestGang(left) : flags_.workers_expected;
    if (local && workers > kMaxLocalWorkers) {
      return Complain(
          absl::InvalidArgumentError(absl::StrCat(
              "the plan wants ", workers, " devices; this machine gets at most ", kMaxLocalWorkers,
              " workers. Start them elsewhere and give "
              "--workers_expected=",
              workers)),
          kExitUsage);
    }

    SchedulerOptions scheduler_options;
    scheduler_options.version = kPacelineVersion;
    scheduler_options.workers_expected = workers;
    scheduler_options.join_timeout = absl::Seconds(flags_.join_timeout_seconds);
    if (local) scheduler_options.gang_grace = kLocalGangGrace;
    scheduler_ = std::make_unique<TrialScheduler>(scheduler_options, run_.trials, run_.outcomes,
                                                  run_.store.get(), &rendezvous_, absl::Now());
    std::vector<double> expected_seconds;
    for (const TrialEstimate& estimate :
         EstimateTrials(run_.trials, Cores(), local ? workers : 1)) {
      expected_seconds.push_back(estimate.prediction.ok() ? estimate.seconds : 1);
    }
    scheduler_->SetExpectedSeconds(std::move(expected_seconds));

    absl::StatusOr<std::unique_ptr<CoordinatorServer>> server =
        CoordinatorServer::Start(server_options_, scheduler_.get(), &rendezvous_);
    if (!server.ok()) return Complain(server.status(), kExitUsage);
    server_ = *std::move(server);
    absl::PrintF("Run of plan '%s', %d trials (%d to do), results in %s\n",
                 run_.store->info().plan.name(), run_.trials.size(), left.size(), run_.dir);
    if (!left.empty()) {
      if (local) {
        absl::Status started = StartLocalWorkers(workers);
        if (!started.ok()) return Complain(started, kExitFailed);
      } else {
        absl::PrintF(
            "Waiting for %d workers on %s; start each with:\n  bazel run worker -- "
            "--coordinator=%s%s%s\n",
            workers, server_->address(), server_->address(),
            server_options_.tls_certificate.empty()
                ? (IsLoopback(flags_.listen) ? "" : " --insecure")
                : " --tls_ca=CA.pem",
            server_options_.join_token.empty() ? "" : " --token_file=FILE");
      }
    }
    std::fflush(stdout);
    Loop();
    return Finish();
  }

 private:
  absl::Status StartLocalWorkers(int workers) {
    LocalWorkersOptions options;
    options.program = worker_program_;
    options.count = workers;
    options.log_dir = run_.dir;
    const std::string host = IsLoopback(server_->address())
                                 ? server_->address()
                                 : absl::StrCat("127.0.0.1:", server_->port());
    options.arguments = {absl::StrCat("--coordinator=", host)};
    if (!flags_.token_file.empty()) {
      options.arguments.push_back(
          absl::StrCat("--token_file=", ResolveUserPath(flags_.token_file)));
    }
    if (workers > Cores()) {
      absl::PrintF("Note: %d workers share %d cores; scaling cannot show here.\n", workers,
                   static_cast<int>(Cores()));
    }
    workers_ = std::make_unique<LocalWorkers>(std::move(options));
    return workers_->Start();
  }

  void Loop() {
    absl::Time dismissal_deadline = absl::InfiniteFuture();
    while (true) {
      const int signal_number = WaitForSignal(kLoopInterval);
      const absl::Time now = absl::Now();
      if (signal_number != 0) Interrupt(now);
      scheduler_->Tick(now);
      if (workers_ != nullptr) WatchLocalWorkers(now);
      ShowEvents();
      const RunState state = scheduler_->state();
      if (!state.over) {
        display_.Update(scheduler_->Snapshot(now), now);
        continue;
      }
      dismissal_deadline = std::min(dismissal_deadline, now + kDismissalTime);
      if (state.workers_to_dismiss == 0 || now >= dismissal_deadline) return;
    }
  }

  void Interrupt(absl::Time now) {
    if (interrupted_) {
      display_.Clear();
      if (workers_ != nullptr) workers_->Kill();
      absl::PrintF("Stopped at once. Everything stored is safe; continue with:\n%s\n",
                   ResumeCommand());
      std::fflush(stdout);
      _exit(kExitInterrupted);
    }
    interrupted_ = true;
    display_.Line(
        "Stopping: the running trial is ended and what was measured is kept. Again "
        "Ctrl-C stops at once.");
    scheduler_->Cancel(now);
  }

  void WatchLocalWorkers(absl::Time now) {
    const bool over = scheduler_->state().over;
    for (const LocalWorkers::Ended& ended : workers_->Poll(/*restart=*/!over && !interrupted_)) {
      if (over || interrupted_) continue;
      display_.Line(absl::StrCat("worker ", ended.local_index, " ", ended.cause,
                                 ended.restarted ? "; started again" : "", " (log: ", ended.log,
                                 ")"));
      scheduler_->WorkersGone(
          [&ended](const v1::WorkerDescription& worker) {
            return worker.local_index() == ended.local_index;
          },
          ended.cause, now);
      if (!ended.restarted && !ended.log_tail.empty()) display_.Line(ended.log_tail);
    }
    if (workers_->running() == 0 && !over && !interrupted_ && !gave_up_) {
      gave_up_ = true;
      display_.Line("No worker is left on this machine.");
      scheduler_->Cancel(now);
    }
  }

  void ShowEvents() {
    for (const SchedulerEvent& event : scheduler_->TakeEvents()) {
      switch (event.kind) {
        case SchedulerEvent::kWorkerJoined:
        case SchedulerEvent::kWorkerLost:
          display_.Line(event.text);
          break;
        case SchedulerEvent::kAttemptStarted:
          break;
        case SchedulerEvent::kAttemptEnded:
          display_.Line(DescribeEnd(event));
          break;
      }
    }
  }

  std::string DescribeEnd(const SchedulerEvent& event) {
    std::string line =
        absl::StrCat("[", event.trial_index + 1, "/", run_.trials.size(), "] ", event.text);
    if (event.outcome.status != v1::TRIAL_STATUS_OK) return line;
    absl::StatusOr<std::vector<v1::TrialResult>> results =
        run_.store->Results(event.outcome.trial_id, event.outcome.attempt);
    if (!results.ok()) return line;
    const std::string throughput =
        FormatThroughput(SummarizeTrial(run_.trials[event.trial_index], event.outcome, *results));
    return throughput.empty() ? line : absl::StrCat(line, ", ", throughput);
  }

  std::string ResumeCommand() const {
    return absl::StrCat("  bazel run coordinator -- --resume --run_dir=", run_.dir,
                        flags_.workers_expected > 0
                            ? absl::StrCat(" --workers_expected=", flags_.workers_expected,
                                           " --listen=", flags_.listen)
                            : "");
  }

  // The run is stored whatever becomes of its report.
  void Report() const {
    const std::string folder = absl::StrCat(run_.dir, "/report");
    if (flags_.report) {
      absl::StatusOr<ReportSummary> report = WriteReport({run_.dir}, folder);
      if (report.ok()) {
        for (const std::string& headline : report->headlines) absl::PrintF("- %s\n", headline);
        absl::PrintF("Report: %s\n", report->html_path);
        return;
      }
      absl::FPrintF(stderr, "coordinator: no report: %s\n", report.status().message());
    }
    absl::PrintF("Make the report with:\n  bazel run analysis -- report %s --out=%s\n", run_.dir,
                 folder);
  }

  int Finish() {
    display_.Clear();
    const RunState state = scheduler_->state();
    if (workers_ != nullptr) workers_->Stop(absl::Seconds(5));
    server_->Shutdown();
    const v1::GetStatusResponse status = scheduler_->Snapshot(absl::Now());
    absl::StatusOr<std::vector<TrialSummary>> summaries = SummarizeRun(*run_.store);
    run_.store.reset();
    if (summaries.ok()) absl::PrintF("\n%s\n", FormatSummaries(*summaries));
    absl::PrintF("%d of %d trials done, %d of them failed. Results: %s/run.sqlite\n",
                 status.trials_done(), status.trials_total(), status.trials_failed(), run_.dir);
    if (status.trials_done() > 0) Report();
    const bool complete = status.trials_done() == status.trials_total();
    if (!complete) absl::PrintF("Continue the run with:\n%s\n", ResumeCommand());
    std::fflush(stdout);
    if (!state.failure.ok()) return Complain(state.failure, kExitFailed);
    if (!state.stalled.empty()) {
      return Complain(absl::UnavailableError(absl::StrCat("the run cannot go on: ", state.stalled)),
                      kExitFailed);
    }
    if (complete) return kExitOk;
    return interrupted_ ? kExitInterrupted : kExitFailed;
  }

  const Flags flags_;
  ServerOptions server_options_;
  const std::string worker_program_;
  Run run_;
  ProgressDisplay display_;
  RendezvousStore rendezvous_;
  std::unique_ptr<TrialScheduler> scheduler_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<LocalWorkers> workers_;
  bool interrupted_ = false;
  bool gave_up_ = false;
};

int Main(int argc, char** argv) {
  Flags flags;
  CommandLine line = MakeCommandLine(&flags);
  absl::StatusOr<std::vector<std::string>> rest = line.Parse(argc, argv);
  if (line.help_wanted()) {
    absl::PrintF("%s", line.Help());
    return kExitOk;
  }
  if (!rest.ok()) return Complain(rest.status(), kExitUsage);
  if (!rest->empty()) {
    return Complain(absl::InvalidArgumentError(
                        absl::StrCat("unexpected argument '", rest->front(), "'; see --help")),
                    kExitUsage);
  }
  if (flags.version) {
    absl::PrintF("paceline %s\n", kPacelineVersion);
    return kExitOk;
  }

  absl::StatusOr<ServerOptions> server_options = MakeServerOptions(flags);
  if (!server_options.ok()) return Complain(server_options.status(), kExitUsage);
  if (flags.workers_expected <= 0 && !server_options->tls_certificate.empty()) {
    return Complain(absl::InvalidArgumentError(
                        "--tls_cert is for workers on other machines: say how many will join by "
                        "--workers_expected=N (without it, workers are started on this machine)"),
                    kExitUsage);
  }
  // Before a folder is made for a run that cannot start.
  std::string worker_program;
  if (flags.workers_expected <= 0 && !flags.dry_run) {
    absl::StatusOr<std::string> found = FindWorkerProgram();
    if (!found.ok()) return Complain(found.status(), kExitUsage);
    worker_program = *found;
  }
  absl::StatusOr<Run> run;
  if (flags.resume) {
    const bool plan_given = std::any_of(argv + 1, argv + argc, [](absl::string_view argument) {
      return absl::StartsWith(argument, "--plan") || absl::StartsWith(argument, "-plan");
    });
    run = ResumeRun(flags, plan_given);
    if (run.ok() && flags.dry_run) {
      std::vector<v1::Trial> left;
      for (size_t i = 0; i < run->trials.size(); ++i) {
        if (!run->outcomes[i].final) left.push_back(run->trials[i]);
      }
      absl::PrintF("%s", FormatDryRun(left, EstimateTrials(left, Cores(), LargestGang(left)),
                                      MemoryBytes()));
      return kExitOk;
    }
  } else {
    absl::StatusOr<v1::BenchmarkPlan> plan = LoadPlan(flags.plan);
    if (!plan.ok()) return Complain(plan.status(), kExitUsage);
    absl::StatusOr<std::vector<v1::Trial>> trials = ExpandPlan(*plan);
    if (!trials.ok()) return Complain(trials.status(), kExitUsage);
    if (flags.dry_run) {
      absl::PrintF("%s",
                   FormatDryRun(*trials, EstimateTrials(*trials, Cores(), LargestGang(*trials)),
                                MemoryBytes()));
      return kExitOk;
    }
    run = CreateRun(flags, *plan, *std::move(trials));
  }
  if (!run.ok()) {
    return Complain(run.status(),
                    absl::IsResourceExhausted(run.status()) ? kExitFailed : kExitUsage);
  }
  return Coordinator(flags, *std::move(server_options), worker_program, *std::move(run)).Execute();
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  // Before any thread starts, so that all inherit it.
  const sigset_t signals = paceline::EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // gRPC's own log lines (a stranger's failed handshake) would tear the progress bars; failures
  // that matter come back as statuses.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  return paceline::Main(argc, argv);
}
