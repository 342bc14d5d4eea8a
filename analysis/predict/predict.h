// Predicts configurations nobody measured, with 90 % intervals.
//
//   absl::StatusOr<CostModel> model = CostModel::Fit(runs, "caffe_mpi");
//   absl::StatusOr<Prediction> p =
//       Predict(*model, {.network = "resnet50_v1.5", .devices = 64, .hosts = 16, .batch = 64},
//       link);
//   p->iteration_seconds.value;   // flags say what it rests on.
//
// The interval covers the costs' uncertainty, propagated by simulation, and the model's own error
// on what it was fitted on (Student's t). Seconds, bytes. Thread-safe.
#ifndef PACELINE_ANALYSIS_PREDICT_PREDICT_H_
#define PACELINE_ANALYSIS_PREDICT_PREDICT_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/predict/cost_model.h"
#include "analysis/stats/statistics.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

struct PredictionRequest {
  std::string network;  // Measured, built in, or a .textproto file.
  int devices = 1;
  int hosts = 1;  // Must divide `devices`.
  int batch = 1;  // Per device.
  v1::Precision precision = v1::PRECISION_FP32;
  bool synthetic_input = false;  // Otherwise as in the measured trials.
};

struct Prediction {
  std::string policy;
  PredictionRequest request;
  // 90 % intervals.
  Interval iteration_seconds;
  Interval samples_per_second;  // Of all devices.
  Interval efficiency;          // T(1) / T(n).
  Interval memory_bytes;        // Peak of one rank's process.
  std::set<std::string> flags;  // What it rests on beyond measurements, and what to measure next.
  // The same configuration as measured, if it was.
  double measured_iteration_seconds = kUnknown;
};

// The trial that a request describes. INVALID_ARGUMENT, NOT_FOUND name the field.
absl::StatusOr<v1::Trial> RequestedTrial(const CostModel& model, const PredictionRequest& request);

absl::StatusOr<Prediction> Predict(const CostModel& model, const PredictionRequest& request,
                                   const LinkAssumption& link);

// Median-free: value is the best estimate, low and high the 5 % and 95 % quantiles of the draws
// (index 1 and up) with the model's error on top.
Interval PredictionInterval(const std::vector<double>& draws, double error, int error_points);

std::string PredictionsText(const std::vector<Prediction>& predictions);
std::string PredictionsCsv(const std::vector<Prediction>& predictions);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_PREDICT_PREDICT_H_
