#include "coordinator/main/local_workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/support/runfiles.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

constexpr size_t kTailLines = 5;

std::string Tail(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return "";
  std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipWhitespace());
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  return absl::StrJoin(lines, "\n");
}

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

LocalWorkers::LocalWorkers(LocalWorkersOptions options) : options_(std::move(options)) {
  processes_.resize(std::max(0, options_.count));
}

LocalWorkers::~LocalWorkers() { Stop(absl::Seconds(2)); }

std::string LocalWorkers::LogPath(int local_index) const {
  return absl::StrCat(options_.log_dir, "/worker-", local_index, ".log");
}

absl::Status LocalWorkers::Start() {
  for (int i = 0; i < options_.count; ++i) {
    absl::StatusOr<pid_t> pid = Spawn(i);
    if (!pid.ok()) return pid.status();
    processes_[i].pid = *pid;
  }
  return absl::OkStatus();
}

absl::StatusOr<pid_t> LocalWorkers::Spawn(int local_index) {
  std::vector<std::string> words = {options_.program};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  words.push_back(absl::StrCat("--local_index=", local_index));
  words.push_back(absl::StrCat("--local_count=", options_.count));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = LogPath(local_index);
  const int log_file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_file < 0) {
    return absl::InternalError(absl::StrCat("cannot write ", log, ": ", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // Only async-signal-safe calls between fork and exec: other threads may hold any lock.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    // A group of its own, so that Ctrl-C reaches the coordinator only, which then ends its workers
    // in good order; and no life without the coordinator.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(log_file, STDOUT_FILENO);
    dup2(log_file, STDERR_FILENO);
    const int null_file = open("/dev/null", O_RDONLY);
    if (null_file >= 0) dup2(null_file, STDIN_FILENO);
    execv(argv[0], argv.data());
    const char message[] = "cannot start the worker program\n";
    (void)!write(STDERR_FILENO, message, sizeof(message) - 1);
    _exit(2);
  }
  const int error = errno;
  close(log_file);
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start worker ", local_index, ": ", strerror(error)));
  }
  return pid;
}

std::vector<LocalWorkers::Ended> LocalWorkers::Poll(bool restart) {
  std::vector<Ended> all_ended;
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    int status = 0;
    if (process.pid < 0 || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.pid = -1;
    Ended& ended = all_ended.emplace_back();
    ended.local_index = static_cast<int>(i);
    ended.cause = DescribeExit(status);
    ended.log = LogPath(ended.local_index);
    ended.log_tail = Tail(ended.log);
    const bool hopeless =
        WIFEXITED(status) && std::count(options_.hopeless_exit_codes.begin(),
                                        options_.hopeless_exit_codes.end(), WEXITSTATUS(status));
    if (!restart || hopeless || process.restarts >= options_.max_restarts) continue;
    ++process.restarts;
    absl::StatusOr<pid_t> pid = Spawn(ended.local_index);
    if (!pid.ok()) continue;
    process.pid = *pid;
    ended.restarted = true;
  }
  return all_ended;
}

int LocalWorkers::running() const {
  return static_cast<int>(std::count_if(processes_.begin(), processes_.end(),
                                        [](const Process& process) { return process.pid >= 0; }));
}

void LocalWorkers::Stop(absl::Duration patience) {
  for (const Process& process : processes_) {
    if (process.pid >= 0) kill(process.pid, SIGTERM);
  }
  const absl::Time deadline = absl::Now() + patience;
  while (running() > 0 && absl::Now() < deadline) {
    Poll(/*restart=*/false);
    if (running() > 0) absl::SleepFor(absl::Milliseconds(10));
  }
  Kill();
}

void LocalWorkers::Kill() {
  for (Process& process : processes_) {
    if (process.pid < 0) continue;
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    process.pid = -1;
  }
}

absl::StatusOr<std::string> FindWorkerProgram() {
  absl::StatusOr<std::string> runfile = FindRunfile("worker/main/worker");
  if (runfile.ok()) return runfile;
  absl::StatusOr<std::string> self = ExecutablePath();
  if (self.ok()) {
    const std::string beside = absl::StrCat(self->substr(0, self->rfind('/')), "/worker");
    if (access(beside.c_str(), X_OK) == 0) return beside;
  }
  return absl::NotFoundError(
      "the worker program is neither in the coordinator's runfiles nor beside it: build it with "
      "`bazel build //worker` and copy it there, or start workers yourself and give "
      "--workers_expected=N");
}

}  // namespace paceline
