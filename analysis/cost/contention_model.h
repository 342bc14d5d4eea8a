// How long a collective takes when k jobs use the same network at once.
//
//   absl::StatusOr<ContentionModel> model = ContentionModel::Fit(points);
//   ContentionPrediction p = model->Predict(/*jobs=*/8, /*bytes=*/40e6);
//
// Per size: t(k)^2 = alone^2 + (k share)^2. Few jobs with small messages wait for latency alone;
// many share the link fairly, each adding its share. Where two jobs already take more than twice as
// long as one, sharing itself costs (lost packets, jobs that collide); then only the shared runs
// tell the share and one job is predicted as measured. What all sizes have in common at a number of
// jobs is one more factor, kept if it predicts sizes left out better. Both coefficients are
// non-negative, residuals relative.
//
// Immutable after Fit, so thread-safe. Bytes, seconds, 90 % intervals.
#ifndef PACELINE_ANALYSIS_COST_CONTENTION_MODEL_H_
#define PACELINE_ANALYSIS_COST_CONTENTION_MODEL_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

struct ContentionPoint {
  int jobs = 0;
  double bytes = 0;
  double seconds = 0;
};

struct ContentionPrediction {
  double seconds = 0;
  double low_seconds = 0;
  double high_seconds = 0;
  bool extrapolated = false;
  std::vector<std::string> flags;  // Doubts, with the measurement to take next.
};

// At one size.
struct ContentionCurve {
  double bytes = 0;
  double alone_seconds = 0;
  double share_seconds = 0;    // Of one job when many share; 0 if no shared run was measured.
  double sharpness = 2;        // p.
  double one_job_seconds = 0;  // As measured, where sharing costs more than the share; 0: not so.
  std::map<int, double> measured_seconds;  // By jobs; medians.

  double At(int jobs) const;
};

class ContentionModel {
 public:
  // INVALID_ARGUMENT for values that are not positive.
  static absl::StatusOr<ContentionModel> Fit(absl::Span<const ContentionPoint> points);

  ContentionPrediction Predict(int jobs, double bytes) const;

  const std::vector<ContentionCurve>& curves() const { return curves_; }  // By size.
  // Common factor at a number of jobs; empty: it did not help.
  const std::map<int, double>& jobs_factors() const { return jobs_factors_; }
  const std::vector<std::string>& flags() const { return flags_; }

 private:
  std::vector<ContentionCurve> curves_;
  std::map<int, double> jobs_factors_;
  std::vector<std::string> flags_;
  int most_jobs_ = 0;
  double in_sample_log_error_ = 0;  // 90 % quantile.
  double rehearsed_log_error_ = 0;  // Of predicting the most jobs from at most half as many.
  bool rehearsed_ = false;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_COST_CONTENTION_MODEL_H_
