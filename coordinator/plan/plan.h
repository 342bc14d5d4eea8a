// From a plan's text to the trials to run: parse, validate with all problems at once, expand in a
// deterministic order.
//
//   absl::StatusOr<v1::BenchmarkPlan> plan = LoadPlan("builtin:quick");   // Or a file.
//   absl::StatusOr<std::vector<v1::Trial>> trials = ExpandPlan(*plan);
//
//   INVALID_ARGUMENT: plan.textproto:7: sweeps[0].networks[1]: unknown network 'resnet5' (did you
//   mean 'resnet50_v1'?); known networks: ...
//
// Pure functions of their arguments and of the files that a plan names; thread-safe.
#ifndef PACELINE_COORDINATOR_PLAN_PLAN_H_
#define PACELINE_COORDINATOR_PLAN_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

// "builtin:NAME", or the path of a text-proto file, relative to where the user stands. NOT_FOUND
// names the built-in plans. The plan returned is valid.
absl::StatusOr<v1::BenchmarkPlan> LoadPlan(absl::string_view file_or_builtin);

// Sorted names of the plans in coordinator/plan/builtin.
std::vector<std::string> BuiltinPlanNames();

// Parses and validates. INVALID_ARGUMENT lists every problem, one a line and in the order of the
// text: SOURCE:LINE: FIELD: what is wrong and what to do.
absl::StatusOr<v1::BenchmarkPlan> ParsePlan(absl::string_view text, absl::string_view source_name);

// The same checks for a plan made in code: problems have field paths, but no lines.
absl::Status ValidatePlan(const v1::BenchmarkPlan& plan);

// The plan's trials: for every repeat, every sweep's cross product in the order network, policy,
// devices, batch, precision, input, engine, so that repeats of one configuration lie far apart in
// time. Nothing is left to defaults. Equal configurations are merged. INVALID_ARGUMENT as
// ValidatePlan.
absl::StatusOr<std::vector<v1::Trial>> ExpandPlan(const v1::BenchmarkPlan& plan);

// Hash of everything that makes the configuration: the Trial without ids, plan_name, index, repeat
// and number of repeats. 16 hex digits; the same on every machine and in every run.
std::string ConfigurationId(const v1::Trial& trial);

// "resnet50_v1.5, cntk, 2 devices, batch 16": how messages and tables call a trial.
std::string DescribeTrial(const v1::Trial& trial);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_PLAN_PLAN_H_
