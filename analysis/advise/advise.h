// Searches a framework's own knobs by simulation with fitted costs and proposes what pays; writes a
// plan that measures the advice beside its baseline; shows promised against delivered.
//
//   absl::StatusOr<std::vector<Advice>> advice = Advise(runs);
//   v1::BenchmarkPlan plan = AdvicePlan(*advice);        // coordinator --plan=...
//   CheckAdvice(runs_of_that_plan);                       // What became of the promises.
//
// Advice is given only if its gain exceeds both 2 % and the noise of the baseline, and the whole 90
// % interval is above 0. Both sides share each draw of the costs. Thread-safe.
#ifndef PACELINE_ANALYSIS_ADVISE_ADVISE_H_
#define PACELINE_ANALYSIS_ADVISE_ADVISE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/merge/merge.h"
#include "analysis/stats/statistics.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {

struct Advice {
  v1::Trial baseline;
  std::string label;
  v1::FrameworkPolicy policy_override;  // Empty: nothing worth changing.
  std::string override_name;            // "advice_bucket4mb_prefetch2".
  Interval gain;     // 0.1: 10 % more samples per second; 90 % interval. Of the best candidate.
  double noise = 0;  // Relative half width of the baseline's measurement.
  bool worth_it = false;
  int candidates = 0;  // Simulated.
  std::string note;
};

struct AdviseOptions {
  std::string network;  // Empty: all.
  std::string policy;
  int devices = 0;  // 0: the largest measured of each.
};

// NOT_FOUND: nothing measured fits the options.
absl::StatusOr<std::vector<Advice>> Advise(const MergedRuns& runs, const AdviseOptions& options);

// Baselines and advised settings side by side, promises in the description. Only what is worth it.
v1::BenchmarkPlan AdvicePlan(const std::vector<Advice>& advice);

struct Delivered {
  std::string label;
  Interval promised;   // 90 %.
  Interval delivered;  // 95 %; unknown if not measured.
  std::string verdict;
};
// From runs of advice plans. NOT_FOUND if no run holds a promise.
absl::StatusOr<std::vector<Delivered>> CheckAdvice(const MergedRuns& runs);

std::string AdviceText(const std::vector<Advice>& advice);
std::string DeliveredText(const std::vector<Delivered>& delivered);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_ADVISE_ADVISE_H_
