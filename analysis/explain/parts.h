// How one configuration's iteration divides into phases that sum to it.
//
//   IterationParts parts = MeasuredParts(trial);
//   parts.forward_seconds + ... + parts.other_seconds == parts.iteration_seconds;
//
// As the compute stream sees it: work that runs beside computing (a copy or an update on another
// stream, hidden communication) is no part of the sum. Seconds. Thread-safe.
#ifndef PACELINE_ANALYSIS_EXPLAIN_PARTS_H_
#define PACELINE_ANALYSIS_EXPLAIN_PARTS_H_

#include <utility>
#include <vector>

#include "analysis/merge/merge.h"
#include "analysis/stats/statistics.h"

namespace paceline {

struct IterationParts {
  double iteration_seconds = kUnknown;  // The median.
  double forward_seconds = 0;
  double backward_seconds = 0;
  double exposed_communication_seconds = 0;
  double input_wait_seconds = 0;
  double copy_seconds = 0;    // On the compute stream only.
  double update_seconds = 0;  // On the compute stream only.
  double other_seconds = 0;   // The rest: launching, waiting between operations. May be negative.

  bool known() const { return std::isfinite(iteration_seconds); }
  // Name and seconds of the seven, in this order.
  std::vector<std::pair<const char*, double>> List() const;
};

// Unknown if the trial was not measured. The phases are means over the half of the iterations in
// the middle, so that what delays a few iterations does not change them.
IterationParts MeasuredParts(const MergedTrial& trial);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_EXPLAIN_PARTS_H_
