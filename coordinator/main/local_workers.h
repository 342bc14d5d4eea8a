// Worker processes on this machine: started, watched, restarted a few times, stopped.
//
//   LocalWorkers workers(options);
//   workers.Start();
//   for (const LocalWorkers::Ended& ended : workers.Poll()) ...   // A few times a second.
//   workers.Stop(absl::Seconds(5));
//
// The workers are children of the thread that calls Start() and Poll(), and die with it; call all
// methods from one thread, which lives as long as they should. Not thread-safe.
#ifndef PACELINE_COORDINATOR_MAIN_LOCAL_WORKERS_H_
#define PACELINE_COORDINATOR_MAIN_LOCAL_WORKERS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace paceline {

struct LocalWorkersOptions {
  std::string program;                 // Path of the worker.
  std::vector<std::string> arguments;  // Besides --local_index and --local_count.
  int count = 1;
  std::string log_dir;  // Output goes to LOG_DIR/worker-I.log, appended.
  // Restarts of one worker at most; its trial is what is wrong then, or the machine.
  int max_restarts = 10;
  // Exit codes behind which a restart would give the same (wrong flags, refused).
  std::vector<int> hopeless_exit_codes = {2, 3};
};

class LocalWorkers {
 public:
  struct Ended {
    int local_index = 0;
    std::string cause;  // "was killed by signal 9 (Killed)", "ended with exit code 1".
    bool restarted = false;
    std::string log;  // Path, and the last lines of what it wrote.
    std::string log_tail;
  };

  explicit LocalWorkers(LocalWorkersOptions options);
  ~LocalWorkers();  // Stops what still runs.
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  absl::Status Start();
  // Workers that have ended since the last call; those that may are started again, unless
  // `restart` is false.
  std::vector<Ended> Poll(bool restart = true);
  int running() const;
  // Asks all to end (SIGTERM), waits, and kills those that do not.
  void Stop(absl::Duration patience);
  void Kill();  // At once.

 private:
  struct Process {
    pid_t pid = -1;
    int restarts = 0;
  };

  absl::StatusOr<pid_t> Spawn(int local_index);
  std::string LogPath(int local_index) const;

  const LocalWorkersOptions options_;
  std::vector<Process> processes_;  // By local index.
};

// Path of the worker program that belongs to this coordinator: in its runfiles, or beside it.
absl::StatusOr<std::string> FindWorkerProgram();

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_MAIN_LOCAL_WORKERS_H_
