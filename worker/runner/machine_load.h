// Share of the machine's CPU time that went to others while we measured: other processes, and what
// the hypervisor took (steal). From /proc/stat and this process's own CPU time.
#ifndef PACELINE_WORKER_RUNNER_MACHINE_LOAD_H_
#define PACELINE_WORKER_RUNNER_MACHINE_LOAD_H_

namespace paceline {

class MachineLoad {
 public:
  void Start();
  // 0..1 of all cores since Start; 0 if it was never started or the kernel does not tell. Includes
  // the other ranks of the trial on this host.
  double OtherLoad() const;

 private:
  struct Sample {
    double busy_seconds = 0;   // All cores, steal included.
    double total_seconds = 0;  // All cores, idle included.
    double own_seconds = 0;    // This process.
    bool valid = false;
  };
  static Sample Read();
  Sample begin_;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_MACHINE_LOAD_H_
