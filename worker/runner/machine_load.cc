#include "worker/runner/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace paceline {

MachineLoad::Sample MachineLoad::Read() {
  Sample sample;
  std::ifstream stat("/proc/stat");
  std::string label;
  // cpu user nice system idle iowait irq softirq steal (proc(5)), in clock ticks.
  double ticks[8] = {};
  if (!(stat >> label) || label != "cpu") return sample;
  double total_ticks = 0;
  for (double& value : ticks) {
    if (!(stat >> value)) return sample;
    total_ticks += value;
  }
  const double ticks_per_second = sysconf(_SC_CLK_TCK);
  const double idle_ticks = ticks[3] + ticks[4];
  sample.total_seconds = total_ticks / ticks_per_second;
  sample.busy_seconds = (total_ticks - idle_ticks) / ticks_per_second;
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return sample;
  sample.own_seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                       1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  sample.valid = true;
  return sample;
}

void MachineLoad::Start() { begin_ = Read(); }

double MachineLoad::OtherLoad() const {
  const Sample end = Read();
  if (!begin_.valid || !end.valid) return 0;
  const double total_seconds = end.total_seconds - begin_.total_seconds;
  if (total_seconds <= 0) return 0;
  const double other_seconds =
      (end.busy_seconds - begin_.busy_seconds) - (end.own_seconds - begin_.own_seconds);
  return std::min(1.0, std::max(0.0, other_seconds / total_seconds));
}

}  // namespace paceline
