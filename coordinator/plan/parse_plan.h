// Internal to coordinator/plan: a plan's text with all its mistakes found in one go.
#ifndef PACELINE_COORDINATOR_PLAN_PARSE_PLAN_H_
#define PACELINE_COORDINATOR_PLAN_PARSE_PLAN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/text_format.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

struct PlanProblem {
  int line = 0;       // 1-based; 0: unknown.
  std::string field;  // "sweeps[0].networks[1]"; may be empty.
  std::string message;
  // The value is 0, which is also what a value that cannot be read counts as.
  bool about_zero = false;
};
using PlanProblems = std::vector<PlanProblem>;

// Reads as much of the text as can be read. A wrong value counts as 0 in `plan`, an unknown field
// is left out. `complete` is false if the rest of the text had to be given up.
PlanProblems ParsePlanText(absl::string_view text, v1::BenchmarkPlan* plan,
                           std::unique_ptr<google::protobuf::TextFormat::ParseInfoTree>* locations,
                           bool* complete);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_PLAN_PARSE_PLAN_H_
