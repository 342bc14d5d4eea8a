// Where an iteration's time goes, by cause, and what it would take without each of them.
//
//   absl::StatusOr<Explanation> e = Explain(trial, model);
//   for (const Cause& cause : e->causes) { ... cause.seconds ... }   // They sum to the iteration.
//
// Computing, waiting for input, copies and updates are as measured on the compute stream. Exposed
// communication is divided by simulation: the schedule with the measured operation times, against
// the same with messages as fast as the rank shows that waits for nobody (stragglers), without
// latency, without bytes, without packing; removed in both orders and averaged, so that no cause is
// favoured and the parts sum exactly. Limits are simulated likewise. Seconds. Thread-safe.
#ifndef PACELINE_ANALYSIS_EXPLAIN_EXPLAIN_H_
#define PACELINE_ANALYSIS_EXPLAIN_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/merge/merge.h"
#include "analysis/predict/cost_model.h"
#include "analysis/stats/statistics.h"

namespace paceline {

struct Cause {
  std::string name;
  double seconds = 0;               // Of the iteration; all causes sum to it.
  double limit_seconds = kUnknown;  // The iteration if this cause cost nothing.
};

struct Explanation {
  std::string label;
  std::string policy;
  double iteration_seconds = 0;
  std::vector<Cause> causes;  // Always the same ones, in the same order.
  // Latency and bandwidth can be told apart. Otherwise all of it is booked as bandwidth, and the
  // note says what to measure.
  bool splits_communication = false;
  std::vector<std::string> notes;
};

// FAILED_PRECONDITION if the trial has no measurement.
absl::StatusOr<Explanation> Explain(const MergedTrial& trial, const CostModel& model);

// The gap b - a by cause. The seconds sum to the difference of the iterations.
std::vector<Cause> ExplainGap(const Explanation& a, const Explanation& b);

struct ExplainOptions {
  std::string network;   // Empty: all.
  std::string policy_a;  // Both: explain the gap between them.
  std::string policy_b;
};
// For a terminal. NOT_FOUND: nothing fits the options.
absl::StatusOr<std::string> ExplainText(const MergedRuns& runs, const ExplainOptions& options);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_EXPLAIN_EXPLAIN_H_
