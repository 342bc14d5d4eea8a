#include "models/schedule/schedule.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace paceline {
namespace {

// "0-3,7": runs of neighbours shortened.
std::string Ranges(const std::vector<int>& values) {
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t last = i;
    while (last + 1 < values.size() && values[last + 1] == values[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", values[i]);
    if (last > i) absl::StrAppend(&text, "-", values[last]);
    i = last + 1;
  }
  return text;
}

absl::string_view StreamKindName(StreamKind kind) {
  switch (kind) {
    case StreamKind::kInput:
      return "input";
    case StreamKind::kCopy:
      return "copy";
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kCommunication:
      return "communication";
    case StreamKind::kUpdate:
      return "update";
  }
  return "unknown";
}

// Collects breaches; all of them are reported at once.
class Breaches {
 public:
  template <typename... Args>
  void Add(const Args&... args) {
    lines_.push_back(absl::StrCat(args...));
  }
  absl::Status ToStatus() const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("the schedule is not sound: ", absl::StrJoin(lines_, "; ")));
  }

 private:
  std::vector<std::string> lines_;
};

// One of: gradients summed on every rank, or pushed, or reduced to an owner.
bool SumsGradients(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduceToOwner ||
         kind == OperationKind::kPush;
}

void CheckOperations(const IterationSchedule& schedule, int layer_count, Breaches& breaches) {
  const int operation_count = static_cast<int>(schedule.operations.size());
  std::vector<int> forward(layer_count), backward(layer_count);
  int reads = 0, copies = 0;
  for (int i = 0; i < operation_count; ++i) {
    const Operation& operation = schedule.operations[i];
    const std::string where =
        absl::StrCat("operation ", i, " (", OperationKindName(operation.kind), ")");
    if (operation.stream < 0 || operation.stream >= static_cast<int>(schedule.streams.size())) {
      breaches.Add(where, ": no stream ", operation.stream);
    }
    for (const Dependency& dependency : operation.dependencies) {
      if (dependency.operation < 0 || dependency.operation >= operation_count) {
        breaches.Add(where, ": depends on operation ", dependency.operation,
                     ", which does not exist");
      } else if (dependency.distance < 0) {
        breaches.Add(where, ": negative distance to operation ", dependency.operation);
      } else if (dependency.distance == 0 && dependency.operation >= i) {
        breaches.Add(where, ": depends on operation ", dependency.operation,
                     " of the same iteration, which comes later in the list");
      }
    }
    const bool of_layer =
        operation.kind == OperationKind::kForward || operation.kind == OperationKind::kBackward;
    if (of_layer) {
      if (operation.layer < 0 || operation.layer >= layer_count) {
        breaches.Add(where, ": no layer ", operation.layer);
      } else {
        ++(operation.kind == OperationKind::kForward ? forward : backward)[operation.layer];
      }
    }
    const bool of_group = IsCommunication(operation.kind);
    const bool group_exists =
        operation.group >= 0 && operation.group < static_cast<int>(schedule.groups.size());
    if ((of_group && !group_exists) ||
        (operation.kind == OperationKind::kUpdate && operation.group != -1 && !group_exists)) {
      breaches.Add(where, ": no group ", operation.group);
    }
    reads += operation.kind == OperationKind::kRead;
    copies += operation.kind == OperationKind::kCopyInput;
  }
  for (int layer = 0; layer < layer_count; ++layer) {
    if (forward[layer] != 1)
      breaches.Add("layer ", layer, " runs forward ", forward[layer], " times");
    if (backward[layer] != 1) {
      breaches.Add("layer ", layer, " runs backward ", backward[layer], " times");
    }
  }
  if (reads != 1) breaches.Add(reads, " reads instead of one");
  if (copies != 1) breaches.Add(copies, " input copies instead of one");
}

// Groups cover every tensor once and lie together in memory.
void CheckGroups(const IterationSchedule& schedule, int parameter_count, Breaches& breaches) {
  std::vector<int> position(parameter_count, -1);
  for (size_t i = 0; i < schedule.tensor_order.size(); ++i) {
    const int tensor = schedule.tensor_order[i];
    if (tensor < 0 || tensor >= parameter_count || position[tensor] >= 0) {
      breaches.Add("tensor_order is no permutation: tensor ", tensor, " at position ", i);
      return;
    }
    position[tensor] = static_cast<int>(i);
  }
  if (static_cast<int>(schedule.tensor_order.size()) != parameter_count) {
    breaches.Add("tensor_order has ", schedule.tensor_order.size(), " tensors instead of ",
                 parameter_count);
    return;
  }
  if (schedule.ranks == 1) {
    if (!schedule.groups.empty()) breaches.Add("one rank has groups");
    return;
  }
  std::vector<int> seen(parameter_count);
  int64_t covered_bytes = 0;
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    if (group.tensors.empty()) breaches.Add("group ", g, " is empty");
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      const int tensor = group.tensors[i];
      if (tensor < 0 || tensor >= parameter_count) {
        breaches.Add("group ", g, ": no tensor ", tensor);
        return;
      }
      if (!group.partial || g == 0) ++seen[tensor];
      if (i > 0 && position[tensor] != position[group.tensors[i - 1]] + 1) {
        breaches.Add("group ", g, ": tensors ", group.tensors[i - 1], " and ", tensor,
                     " are not neighbours in tensor_order");
      }
    }
    if (group.partial) {
      if (group.offset_bytes != covered_bytes) breaches.Add("group ", g, " leaves a gap before it");
      covered_bytes += group.bytes;
    }
    int64_t sharded_bytes = 0;
    for (const Group::Shard& shard : group.shards) {
      if (shard.offset_bytes != sharded_bytes) breaches.Add("group ", g, ": shards leave a gap");
      if (shard.server < 0 || shard.server >= schedule.servers) {
        breaches.Add("group ", g, ": no server ", shard.server);
      }
      sharded_bytes += shard.bytes;
    }
    if (!group.shards.empty() && sharded_bytes != group.bytes) {
      breaches.Add("group ", g, ": shards cover ", sharded_bytes, " of ", group.bytes, " bytes");
    }
    if (group.owner >= schedule.ranks) breaches.Add("group ", g, ": no rank ", group.owner);
  }
  for (int tensor = 0; tensor < parameter_count; ++tensor) {
    if (seen[tensor] != 1) breaches.Add("tensor ", tensor, " is in ", seen[tensor], " groups");
  }
}

// Every group is summed once and every tensor updated once: by one operation for all, one per
// group, or by the servers.
void CheckReductionAndUpdate(const IterationSchedule& schedule, Breaches& breaches) {
  std::vector<int> summed(schedule.groups.size()), updated(schedule.groups.size());
  std::vector<int> returned(schedule.groups.size());
  int updates_of_all = 0;
  for (const Operation& operation : schedule.operations) {
    const bool has_group =
        operation.group >= 0 && operation.group < static_cast<int>(schedule.groups.size());
    if (operation.kind == OperationKind::kUpdate && operation.group == -1) ++updates_of_all;
    if (!has_group) continue;
    if (operation.kind == OperationKind::kUpdate) ++updated[operation.group];
    if (SumsGradients(operation.kind)) ++summed[operation.group];
    if (operation.kind == OperationKind::kAllReduce ||
        operation.kind == OperationKind::kBroadcast || operation.kind == OperationKind::kPull) {
      ++returned[operation.group];
    }
  }
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    if (summed[g] != 1) breaches.Add("group ", g, " is summed ", summed[g], " times");
    if (returned[g] != 1) breaches.Add("group ", g, " comes back ", returned[g], " times");
    const int updates = updated[g] + updates_of_all + (schedule.servers_update ? 1 : 0);
    if (updates != 1) breaches.Add("group ", g, " is updated ", updates, " times");
  }
  if (schedule.groups.empty() && updates_of_all != 1) {
    breaches.Add(updates_of_all, " updates instead of one");
  }
}

}  // namespace

bool IsCommunication(OperationKind kind) {
  switch (kind) {
    case OperationKind::kPack:
    case OperationKind::kAllReduce:
    case OperationKind::kReduceToOwner:
    case OperationKind::kBroadcast:
    case OperationKind::kPush:
    case OperationKind::kPull:
    case OperationKind::kUnpack:
      return true;
    case OperationKind::kRead:
    case OperationKind::kCopyInput:
    case OperationKind::kForward:
    case OperationKind::kBackward:
    case OperationKind::kUpdate:
      return false;
  }
  return false;
}

absl::string_view OperationKindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kRead:
      return "read";
    case OperationKind::kCopyInput:
      return "copy_input";
    case OperationKind::kForward:
      return "forward";
    case OperationKind::kBackward:
      return "backward";
    case OperationKind::kPack:
      return "pack";
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kReduceToOwner:
      return "reduce_to_owner";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kPush:
      return "push";
    case OperationKind::kPull:
      return "pull";
    case OperationKind::kUnpack:
      return "unpack";
    case OperationKind::kUpdate:
      return "update";
  }
  return "unknown";
}

absl::Status ValidateSchedule(const IterationSchedule& schedule, int layer_count,
                              int parameter_count) {
  Breaches breaches;
  if (schedule.ranks < 1) breaches.Add("ranks is ", schedule.ranks);
  if (schedule.gradient_divisor < 1) {
    breaches.Add("gradient_divisor is ", schedule.gradient_divisor);
  }
  CheckOperations(schedule, layer_count, breaches);
  CheckGroups(schedule, parameter_count, breaches);
  CheckReductionAndUpdate(schedule, breaches);
  return breaches.ToStatus();
}

std::string ScheduleToText(const IterationSchedule& schedule) {
  std::string text = absl::StrFormat(
      "schedule network=%s policy=%s ranks=%d hosts=%d divisor=%d prefetch=%d input_buffers=%d",
      schedule.network, schedule.policy, schedule.ranks, schedule.hosts, schedule.gradient_divisor,
      schedule.prefetch_batches, schedule.input_buffers);
  if (schedule.servers > 0) {
    absl::StrAppend(&text, " servers=", schedule.servers,
                    schedule.servers_update ? " servers_update" : " servers_only_sum");
  }
  if (schedule.copies_through_buffer) absl::StrAppend(&text, " buffer");
  if (schedule.collect_cycle_seconds > 0) {
    absl::StrAppendFormat(&text, " cycle=%gs", schedule.collect_cycle_seconds);
  }
  absl::StrAppend(&text, "\ntensor_order ", Ranges(schedule.tensor_order), "\n");
  for (const ScheduleStream& stream : schedule.streams) {
    absl::StrAppend(&text, "stream ", stream.name, " ", StreamKindName(stream.kind), "\n");
  }
  for (size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    absl::StrAppend(&text, "group g", g, " bytes=", group.bytes,
                    " tensors=", Ranges(group.tensors));
    if (group.partial) absl::StrAppend(&text, " offset=", group.offset_bytes);
    if (group.owner >= 0) absl::StrAppend(&text, " owner=", group.owner);
    if (group.carries_weights) absl::StrAppend(&text, " carries_weights");
    if (!group.shards.empty()) {
      absl::StrAppend(&text, " shards=",
                      absl::StrJoin(group.shards, ",", [](std::string* out, const auto& shard) {
                        absl::StrAppend(out, shard.server, ":", shard.bytes);
                      }));
    }
    absl::StrAppend(&text, "\n");
  }
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    absl::StrAppend(&text, i, " ", OperationKindName(operation.kind));
    if (operation.layer >= 0) absl::StrAppend(&text, " l", operation.layer);
    if (operation.group >= 0) absl::StrAppend(&text, " g", operation.group);
    absl::StrAppend(&text, " stream=", schedule.streams[operation.stream].name);
    if (operation.bytes > 0) absl::StrAppend(&text, " bytes=", operation.bytes);
    if (operation.group >= 0) {
      absl::StrAppend(&text, " tensors=", Ranges(schedule.groups[operation.group].tensors));
    }
    if (operation.at_owner_only) absl::StrAppend(&text, " at_owner_only");
    std::vector<std::string> after, carried;
    for (const Dependency& dependency : operation.dependencies) {
      if (dependency.distance == 0) {
        after.push_back(absl::StrCat(dependency.operation));
      } else {
        carried.push_back(absl::StrCat(dependency.operation, "@", dependency.distance));
      }
    }
    if (!after.empty()) absl::StrAppend(&text, " after=", absl::StrJoin(after, ","));
    if (!carried.empty()) absl::StrAppend(&text, " carried=", absl::StrJoin(carried, ","));
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string ScheduleSummary(const IterationSchedule& schedule) {
  int last_backward = -1;
  std::vector<int> updates_on(schedule.streams.size());
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& operation = schedule.operations[i];
    if (operation.kind == OperationKind::kBackward) last_backward = static_cast<int>(i);
    if (operation.kind == OperationKind::kUpdate) ++updates_on[operation.stream];
  }
  // A group overlaps backward if its first communication is listed before backward ends.
  int64_t overlapping_bytes = 0, total_bytes = 0;
  int overlapping_groups = 0;
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    const Operation& operation = schedule.operations[i];
    if (!SumsGradients(operation.kind)) continue;
    total_bytes += operation.bytes;
    if (i < last_backward) {
      overlapping_bytes += operation.bytes;
      ++overlapping_groups;
    }
  }
  std::string text = absl::StrFormat("%s under %s on %d rank(s), %d host(s)\n", schedule.network,
                                     schedule.policy, schedule.ranks, schedule.hosts);
  absl::StrAppendFormat(&text, "  operations %d, streams %s\n", schedule.operations.size(),
                        absl::StrJoin(schedule.streams, " ", [](std::string* out, const auto& s) {
                          absl::StrAppend(out, s.name);
                        }));
  absl::StrAppendFormat(
      &text, "  input: %d batch(es) decoded ahead, copy %s\n", schedule.prefetch_batches,
      schedule.input_buffers > 1 ? "overlaps computing" : "on the compute stream");
  if (!schedule.groups.empty()) {
    std::vector<int64_t> sizes;
    for (const Group& group : schedule.groups) sizes.push_back(group.bytes);
    std::sort(sizes.begin(), sizes.end());
    absl::StrAppendFormat(&text, "  groups %d: smallest %d, median %d, largest %d bytes\n",
                          sizes.size(), sizes.front(), sizes[sizes.size() / 2], sizes.back());
    absl::StrAppendFormat(&text, "  may overlap backward: %d of %d groups, %.1f %% of the bytes\n",
                          overlapping_groups, sizes.size(),
                          total_bytes > 0 ? 100.0 * overlapping_bytes / total_bytes : 0.0);
  }
  if (schedule.servers_update) {
    absl::StrAppendFormat(&text, "  update: by %d server(s)\n", schedule.servers);
  }
  for (size_t s = 0; s < schedule.streams.size(); ++s) {
    if (updates_on[s] == 0) continue;
    absl::StrAppendFormat(&text, "  update: %d operation(s) on %s\n", updates_on[s],
                          schedule.streams[s].name);
  }
  return text;
}

std::string ScheduleHash(const IterationSchedule& schedule) {
  // FNV-1a, 64 bits: stable across builds and machines, unlike absl::Hash.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : ScheduleToText(schedule)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return absl::StrFormat("%016x", hash);
}

}  // namespace paceline
