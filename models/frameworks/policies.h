// The built-in framework policies (models/frameworks/*.textproto).
#ifndef PACELINE_MODELS_FRAMEWORKS_POLICIES_H_
#define PACELINE_MODELS_FRAMEWORKS_POLICIES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/paceline/v1/policy.pb.h"

namespace paceline {

// Sorted names of the built-in policies.
std::vector<std::string> KnownPolicies();

// By name, or from a file if `name_or_path` ends in ".textproto" (a relative path is relative to
// where the user stands). NOT_FOUND names the known ones (and the closest); INVALID_ARGUMENT the
// file's lines or the fields at fault.
absl::StatusOr<v1::FrameworkPolicy> LoadPolicy(absl::string_view name_or_path);

// INVALID_ARGUMENT lists every problem with its field path: "communication.grouping: required",
// also combinations that cannot run (repacking with an update per group).
absl::Status ValidatePolicy(const v1::FrameworkPolicy& policy);

}  // namespace paceline

#endif  // PACELINE_MODELS_FRAMEWORKS_POLICIES_H_
