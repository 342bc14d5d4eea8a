// Fits one performance model per framework (policy, engine and machine), then lets the simulator
// run each trial's own schedule with the fitted costs: what was measured is what is modelled.
//
//   absl::StatusOr<FitResult> fit = FitFrameworks(merged);
//   fit->frameworks[0].model.quality().median_absolute_error();
//   fit->trials[i].modelled_iteration_seconds;   // Beside merged.trials[i].
//
// The model of an iteration (performance_model.md has the equations):
//   compute        forward, backward: fixed + per_sample * batch on one device, shared out to
//   layers
//                  as measured, times the contention ratio where communication runs beside it;
//   communication  a(kind, n) + b(kind, n) * bytes per message, pooled over the framework's
//   networks; input          seconds per sample of reading and of copying; update         as
//   measured, shared out by bytes;
// and the schedule decides what overlaps. The model's errors are in-sample: they say how much of
// what was measured it explains. Held out, a network's trials on several devices are predicted from
// the framework's other networks.
//
// A quantity the data do not determine has identified = false and a note that says what to measure.
// All times in seconds. Stateless and thread-safe.
#ifndef PACELINE_ANALYSIS_FIT_FIT_H_
#define PACELINE_ANALYSIS_FIT_FIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/fit/line_fit.h"
#include "analysis/merge/merge.h"
#include "models/schedule/schedule.h"
#include "models/simulate/simulator.h"
#include "proto/paceline/v1/model.pb.h"

namespace paceline {

// One estimated number, for fits.csv and the report's table.
struct FitRow {
  std::string parameter;  // "forward_seconds_per_sample", "alpha_seconds", ...
  std::string subject;    // Network, collective or input it belongs to.
  std::string precision;  // Empty where it does not matter.
  int devices = 0;        // 0: pooled.
  std::string unit;
  v1::Estimate estimate;
};

struct FrameworkFit {
  v1::FrameworkModel model;
  std::vector<FitRow> rows;  // The same estimates, flat.
  // Of the held-out predictions, relative; unknown if there are none.
  double held_out_median_error = kUnknown;
  int held_out_predictions = 0;
};

// Beside MergedRuns::trials, index by index.
struct ModelledTrial {
  double modelled_iteration_seconds = kUnknown;
  // The same without this network's trials on several devices: from its compute on one device, and
  // the communication and contention of the framework's other networks. Unknown with one network.
  double held_out_iteration_seconds = kUnknown;
  // The schedule simulated with the trial's own operation medians: tests the schedule, not the fit.
  double replayed_iteration_seconds = kUnknown;
  std::string note;  // Why one of them is missing, or what to beware of.
};

struct FitResult {
  std::vector<FrameworkFit> frameworks;  // Sorted by policy and engine.
  std::vector<ModelledTrial> trials;
};

// Never fails: what cannot be fitted or simulated is left unknown, with a note that says why.
FitResult FitFrameworks(const MergedRuns& runs);

// The schedule a trial executed, compiled again.
absl::StatusOr<IterationSchedule> CompileTrial(const v1::Trial& trial);

// Mean time from when an operation on a stream of this kind could begin (the one before it has
// ended, and what it waits for) to when it does, in the traced iteration. 0 without a trace. It
// matters for small networks, whose operations take tens of microseconds, and where threads
// outnumber cores.
double StartOverheadSeconds(const IterationSchedule& schedule, const v1::TrialResult& rank,
                            StreamKind kind);

// Duration of every operation of `schedule` as `rank` measured it, the start overhead included: of
// the traced iteration, the one closest to the median. Operations disturb each other (communication
// takes cores from computing), a different one in each iteration, so that medians of operations do
// not add up to the median iteration; those of one iteration do. Without a trace, the means.
// FAILED_PRECONDITION if an operation was not timed.
absl::StatusOr<std::vector<double>> MeasuredOperationSeconds(const IterationSchedule& schedule,
                                                             const v1::TrialResult& rank);

// Simulated period with every rank's own operation times: the mean over ranks.
absl::StatusOr<double> ReplayIterationSeconds(const MergedRepeat& repeat);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_FIT_H_
