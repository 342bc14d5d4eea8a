#include "worker/runner/stopping_rule.h"

#include <algorithm>
#include <cmath>

#include "models/stats/stats.h"

namespace paceline {

int StoppingRule::FirstBlock() const {
  return settings_.min_warmup_iterations() + settings_.min_iterations() + 1;
}

int StoppingRule::MaxIterations() const {
  return settings_.min_warmup_iterations() +
         std::max(settings_.min_iterations(), settings_.max_iterations()) + 1;
}

StopDecision StoppingRule::Decide(absl::Span<const double> durations_seconds, int enqueued,
                                  double measuring_seconds) const {
  StopDecision decision;
  const size_t warmup = settings_.min_warmup_iterations();
  if (durations_seconds.size() > warmup) {
    const absl::Span<const double> measured = durations_seconds.subspan(warmup);
    const double median = Median(measured);
    if (MedianHalfWidth(measured) <= settings_.target_half_width() * median) {
      decision.stop = true;
      decision.reason = v1::TrialResult::STOP_REASON_CONVERGED;
      return decision;
    }
  }
  if (measuring_seconds >= settings_.max_measure_seconds()) {
    decision.stop = true;
    decision.reason = v1::TrialResult::STOP_REASON_MAX_SECONDS;
    return decision;
  }
  if (enqueued >= MaxIterations()) {
    decision.stop = true;
    decision.reason = v1::TrialResult::STOP_REASON_MAX_ITERATIONS;
    return decision;
  }
  // Half as many again, but not far beyond the time limit.
  const int measured = std::max(1, enqueued - static_cast<int>(warmup));
  int more = std::max(2, measured / 2);
  if (measuring_seconds > 0 && !durations_seconds.empty()) {
    const double left_seconds = settings_.max_measure_seconds() - measuring_seconds;
    const double typical_seconds = Median(durations_seconds);
    if (typical_seconds > 0 && more * typical_seconds > left_seconds) {
      more = std::max(1, static_cast<int>(std::ceil(left_seconds / typical_seconds)));
    }
  }
  decision.run_until = std::min(MaxIterations(), enqueued + more);
  return decision;
}

}  // namespace paceline
