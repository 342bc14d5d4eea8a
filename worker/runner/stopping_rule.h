// How many iterations to measure: at least a minimum, at most a maximum, until the confidence
// interval of the median is narrow enough. Looks on a geometric schedule, so that the number of
// looks (and with it the chance of stopping on a lucky interval) stays small.
//
//   StoppingRule rule(settings);
//   int until = rule.FirstBlock();                       // Warm-up and the minimum.
//   while (!decision.stop) decision = rule.Decide(durations_seconds, elapsed_seconds);
#ifndef PACELINE_WORKER_RUNNER_STOPPING_RULE_H_
#define PACELINE_WORKER_RUNNER_STOPPING_RULE_H_

#include <vector>

#include "absl/types/span.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"

namespace paceline {

struct StopDecision {
  bool stop = false;
  v1::TrialResult::StopReason reason = v1::TrialResult::STOP_REASON_UNSPECIFIED;
  int run_until = 0;  // Total iterations, warm-up included, before the next look.
};

class StoppingRule {
 public:
  explicit StoppingRule(const v1::MeasurementSettings& settings) : settings_(settings) {}

  // Iterations before the first look. One more than measured: the last has no period.
  int FirstBlock() const;
  // Largest total the rule can ask for.
  int MaxIterations() const;
  // `durations_seconds`: periods of all finished iterations, warm-up included. `enqueued`: total so
  // far. `measuring_seconds`: since the end of the warm-up.
  StopDecision Decide(absl::Span<const double> durations_seconds, int enqueued,
                      double measuring_seconds) const;

 private:
  const v1::MeasurementSettings settings_;
};

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_STOPPING_RULE_H_
