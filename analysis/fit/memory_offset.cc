#include "analysis/fit/memory_offset.h"

#include "models/simulate/default_costs.h"
#include "models/stats/stats.h"

namespace paceline {

void MemoryOffset::Add(const MergedTrial& trial, const ShapedNetwork& shaped,
                       const IterationSchedule& schedule) {
  if (!(trial.peak_memory_bytes > 0)) return;
  const MemoryPrediction predicted =
      PredictMemory(shaped, schedule, trial.trial.batch_per_device(), trial.trial.precision());
  offsets_.push_back(trial.peak_memory_bytes - predicted.total_bytes);
}

Interval MemoryOffset::bytes() const {
  if (offsets_.empty()) return {};
  return {Median(offsets_), Quantile(offsets_, 0.05), Quantile(offsets_, 0.95)};
}

}  // namespace paceline
