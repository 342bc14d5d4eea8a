#include "models/frameworks/policies.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "models/frameworks/embedded_policies.h"
#include "proto/support/closest_name.h"
#include "proto/support/text_proto.h"
#include "proto/support/working_directory.h"
#include "tools/embedded_file.h"

namespace paceline {
namespace {

using v1::CommunicationPolicy;
using v1::FrameworkPolicy;
using v1::Grouping;
using v1::ServerPolicy;
using v1::UpdatePolicy;

constexpr absl::string_view kExtension = ".textproto";

// Collects "path: what is wrong" lines.
class Problems {
 public:
  void Add(absl::string_view path, absl::string_view problem) {
    lines_.push_back(absl::StrCat(path, ": ", problem));
  }
  void Require(bool fine, absl::string_view path, absl::string_view problem) {
    if (!fine) Add(path, problem);
  }
  absl::Status ToStatus(absl::string_view policy) const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("policy '", policy, "': ", absl::StrJoin(lines_, "; ")));
  }

 private:
  std::vector<std::string> lines_;
};

bool IsNonNegative(double value) { return std::isfinite(value) && value >= 0; }

void CheckGrouping(const Grouping& grouping, Problems& problems) {
  const std::string path = "communication.grouping";
  switch (grouping.rule_case()) {
    case Grouping::RULE_NOT_SET:
      problems.Add(
          path,
          "required: one of one_group, per_tensor, per_layer, by_bytes, caffe_mpi_buckets, "
          "pack_small, repack, merged_gradient");
      break;
    case Grouping::kByBytes: {
      const v1::ByBytes& rule = grouping.by_bytes();
      problems.Require(rule.bytes() > 0, path + ".by_bytes.bytes", "must be positive");
      problems.Require(rule.first_bytes() >= 0, path + ".by_bytes.first_bytes",
                       "must not be negative (0: the same as bytes)");
      problems.Require(IsNonNegative(rule.cycle_seconds()), path + ".by_bytes.cycle_seconds",
                       "must be finite and not negative (0: event-driven)");
      break;
    }
    case Grouping::kCaffeMpiBuckets:
      problems.Require(grouping.caffe_mpi_buckets().reduce_buckets() > 0,
                       path + ".caffe_mpi_buckets.reduce_buckets",
                       "must be positive (caffe.proto's default is 6)");
      break;
    case Grouping::kPackSmall:
      problems.Require(grouping.pack_small().threshold_bytes() >= 0,
                       path + ".pack_small.threshold_bytes", "must not be negative");
      break;
    case Grouping::kRepack:
      problems.Require(grouping.repack().parts() > 0, path + ".repack.parts", "must be positive");
      break;
    case Grouping::kMergedGradient:
      problems.Require(IsNonNegative(grouping.merged_gradient().alpha_seconds()),
                       path + ".merged_gradient.alpha_seconds", "must be finite and not negative");
      problems.Require(IsNonNegative(grouping.merged_gradient().beta_seconds_per_byte()),
                       path + ".merged_gradient.beta_seconds_per_byte",
                       "must be finite and not negative");
      break;
    default:
      break;
  }
}

void CheckServer(const FrameworkPolicy& policy, Problems& problems) {
  const CommunicationPolicy& communication = policy.communication();
  if (communication.method() != CommunicationPolicy::METHOD_PARAMETER_SERVER) {
    problems.Require(!communication.has_server(), "communication.server",
                     "only for METHOD_PARAMETER_SERVER");
    return;
  }
  const ServerPolicy& server = communication.server();
  if (!communication.has_server()) {
    problems.Add("communication.server", "required for METHOD_PARAMETER_SERVER");
    return;
  }
  problems.Require(server.servers() >= 0, "communication.server.servers",
                   "must not be negative (0: one per host)");
  problems.Require(server.split_at_elements() >= 0, "communication.server.split_at_elements",
                   "must not be negative (0: never split)");
  problems.Require(server.placement() != ServerPolicy::PLACEMENT_UNSPECIFIED,
                   "communication.server.placement",
                   "required: PLACEMENT_HASH, PLACEMENT_GREEDY_BYTES or PLACEMENT_ROUND_ROBIN");
}

// What fits together: who updates decides how weights come back.
void CheckUpdate(const FrameworkPolicy& policy, Problems& problems) {
  const CommunicationPolicy& communication = policy.communication();
  const UpdatePolicy::When when = policy.update().when();
  if (when == UpdatePolicy::WHEN_UNSPECIFIED) {
    problems.Add("update.when", "required: WHEN_AFTER_ALL, WHEN_PER_GROUP or WHEN_AT_OWNER");
    return;
  }
  const bool to_owner = communication.method() == CommunicationPolicy::METHOD_REDUCE_TO_OWNER;
  const bool servers_update =
      communication.method() == CommunicationPolicy::METHOD_PARAMETER_SERVER &&
      !communication.server().aggregate_only();
  if ((to_owner || servers_update) && when != UpdatePolicy::WHEN_AT_OWNER) {
    problems.Add("update.when", to_owner ? "must be WHEN_AT_OWNER for METHOD_REDUCE_TO_OWNER"
                                         : "must be WHEN_AT_OWNER where servers update (or set "
                                           "communication.server.aggregate_only)");
  }
  if (!to_owner && !servers_update && when == UpdatePolicy::WHEN_AT_OWNER) {
    problems.Add("update.when",
                 "WHEN_AT_OWNER needs METHOD_REDUCE_TO_OWNER, or METHOD_PARAMETER_SERVER without "
                 "aggregate_only");
  }
  if (communication.pulls_before_layer() && when != UpdatePolicy::WHEN_AT_OWNER) {
    problems.Add("communication.pulls_before_layer", "needs update.when: WHEN_AT_OWNER");
  }
  if (communication.grouping().has_repack() && when != UpdatePolicy::WHEN_AFTER_ALL) {
    problems.Add("update.when",
                 "must be WHEN_AFTER_ALL with grouping.repack, whose parts cut through tensors");
  }
}

void CheckCommunication(const FrameworkPolicy& policy, Problems& problems) {
  const CommunicationPolicy& communication = policy.communication();
  problems.Require(
      communication.method() != CommunicationPolicy::METHOD_UNSPECIFIED, "communication.method",
      "required: METHOD_ALL_REDUCE, METHOD_PARAMETER_SERVER, METHOD_REDUCE_TO_OWNER or "
      "METHOD_REDUCE_BROADCAST");
  CheckGrouping(communication.grouping(), problems);
  problems.Require(communication.order() != CommunicationPolicy::ORDER_UNSPECIFIED,
                   "communication.order", "required: ORDER_BACKWARD or ORDER_FORWARD");
  problems.Require(communication.scaling() != CommunicationPolicy::SCALING_UNSPECIFIED,
                   "communication.scaling",
                   "required: SCALING_MEAN_OVER_DEVICES or SCALING_MEAN_OVER_DEVICES_OF_HOST");
  problems.Require(communication.streams() >= 0 && communication.streams() <= 16,
                   "communication.streams", "must be between 1 and 16 (0: 1)");
  const bool all_reduce = communication.method() == CommunicationPolicy::METHOD_ALL_REDUCE;
  const bool to_owner = communication.method() == CommunicationPolicy::METHOD_REDUCE_TO_OWNER;
  const bool reduce_broadcast =
      communication.method() == CommunicationPolicy::METHOD_REDUCE_BROADCAST;
  problems.Require(
      !to_owner || communication.owner_rule() != CommunicationPolicy::OWNER_RULE_UNSPECIFIED,
      "communication.owner_rule",
      "required for METHOD_REDUCE_TO_OWNER: OWNER_RULE_GREEDY_BY_SIZE or "
      "OWNER_RULE_ROUND_ROBIN");
  problems.Require(to_owner || reduce_broadcast ||
                       communication.owner_rule() == CommunicationPolicy::OWNER_RULE_UNSPECIFIED,
                   "communication.owner_rule",
                   "only for METHOD_REDUCE_TO_OWNER and METHOD_REDUCE_BROADCAST");
  problems.Require(all_reduce || reduce_broadcast || !communication.copies_through_buffer(),
                   "communication.copies_through_buffer",
                   "only for METHOD_ALL_REDUCE and METHOD_REDUCE_BROADCAST");
  problems.Require(all_reduce || !communication.grouping().has_repack(),
                   "communication.grouping.repack", "only for METHOD_ALL_REDUCE");
  CheckServer(policy, problems);
}

// The embedded file of this name, or null.
const EmbeddedFile* FindEmbedded(absl::string_view name) {
  for (const EmbeddedFile& file : EmbeddedPolicies()) {
    if (absl::StripSuffix(file.name, kExtension) == name) return &file;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> KnownPolicies() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : EmbeddedPolicies()) {
    names.emplace_back(absl::StripSuffix(file.name, kExtension));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<FrameworkPolicy> LoadPolicy(absl::string_view name_or_path) {
  absl::StatusOr<FrameworkPolicy> policy;
  if (absl::EndsWith(name_or_path, kExtension)) {
    policy = ReadTextProtoFile<FrameworkPolicy>(ResolveUserPath(name_or_path));
  } else {
    const EmbeddedFile* file = FindEmbedded(name_or_path);
    if (file == nullptr) {
      const std::vector<std::string> known = KnownPolicies();
      return absl::NotFoundError(absl::StrCat(
          "unknown policy '", name_or_path, "'", DidYouMean(name_or_path, known),
          "; known: ", absl::StrJoin(known, ", "), "; or give a file that ends in .textproto"));
    }
    policy = ParseTextProto<FrameworkPolicy>(file->contents, file->name);
  }
  if (!policy.ok()) return policy.status();
  if (absl::Status valid = ValidatePolicy(*policy); !valid.ok()) {
    return absl::Status(valid.code(), absl::StrCat(name_or_path, ": ", valid.message()));
  }
  return policy;
}

absl::Status ValidatePolicy(const FrameworkPolicy& policy) {
  Problems problems;
  problems.Require(!policy.name().empty(), "name", "required");
  problems.Require(!policy.framework().empty(), "framework", "required, for example \"mxnet\"");
  problems.Require(policy.has_input(), "input", "required");
  problems.Require(policy.input().decode_threads_per_device() >= 0,
                   "input.decode_threads_per_device",
                   "must not be negative (0: as many as the cores allow)");
  problems.Require(
      policy.input().prefetch_batches() >= 0 && policy.input().prefetch_batches() <= 64,
      "input.prefetch_batches", "must be between 0 and 64");
  problems.Require(!policy.input().copy_overlaps_compute() || policy.input().prefetch_batches() > 0,
                   "input.copy_overlaps_compute", "needs prefetch_batches of at least 1");
  if (policy.has_communication()) {
    CheckCommunication(policy, problems);
  } else {
    problems.Add("communication", "required");
  }
  if (policy.has_update()) {
    CheckUpdate(policy, problems);
  } else {
    problems.Add("update", "required");
  }
  return problems.ToStatus(policy.name());
}

}  // namespace paceline
