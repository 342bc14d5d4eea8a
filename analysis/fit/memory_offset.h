// What a process holds beyond the tensors that models/simulate/default_costs.h counts: libraries,
// threads' stacks, workspaces. Measured peak less predicted, over trials.
//
//   MemoryOffset offset;
//   offset.Add(trial, shaped, schedule);
//   offset.bytes();   // Median, and 5 % and 95 % quantiles. Unknown before anything is added.
//
// Bytes. Thread-safe once everything is added.
#ifndef PACELINE_ANALYSIS_FIT_MEMORY_OFFSET_H_
#define PACELINE_ANALYSIS_FIT_MEMORY_OFFSET_H_

#include <vector>

#include "analysis/merge/merge.h"
#include "analysis/stats/statistics.h"
#include "models/networks/network.h"
#include "models/schedule/schedule.h"

namespace paceline {

class MemoryOffset {
 public:
  // Trials whose peak is not known are left out.
  void Add(const MergedTrial& trial, const ShapedNetwork& shaped,
           const IterationSchedule& schedule);
  Interval bytes() const;

 private:
  std::vector<double> offsets_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_MEMORY_OFFSET_H_
