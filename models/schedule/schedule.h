// The iteration schedule: one optimizer step of one rank as a graph of typed operations. The worker
// executes it and the analysis simulates the very same object.
//
// Operations of a stream run in the order of the list, one at a time. An operation starts when its
// stream is free and its dependencies are done. A dependency with distance d refers to the
// operation of d iterations before (0: this one), so one schedule describes any number of
// iterations: prefetching, for example, is "read waits for the copy of two iterations ago".
//
// Text form, one line an operation, used by the golden tests:
//   12 all_reduce g0 stream=communication_0 bytes=4096000 tensors=14-15 after=9,11 carried=3@1
//
// Dependencies that stream order or an earlier wait of the same stream already implies are left
// out.
//
// Schedules are the same on every rank, apart from the roles of owners and servers, which the
// executor derives from `Group::owner` and `Group::shards`.
#ifndef PACELINE_MODELS_SCHEDULE_SCHEDULE_H_
#define PACELINE_MODELS_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace paceline {

enum class OperationKind {
  kRead,           // Read, decode, augment one batch (pool of host threads).
  kCopyInput,      // Batch from host to device, into the device's layout.
  kForward,        // One layer.
  kBackward,       // One layer: data and weight gradients.
  kPack,           // Gradients of a group into the communication buffer.
  kAllReduce,      // One group.
  kReduceToOwner,  // One group: sum arrives at Group::owner.
  kBroadcast,      // One group: from Group::owner to all (gradients or weights,
                   // Group::carries_weights).
  kPush,           // One group: gradients to its servers (Group::shards), which sum (and update).
  kPull,           // One group: new weights (or sums, if servers only aggregate) from its servers.
  kUnpack,         // Communication buffer back into gradients.
  kUpdate,         // SGD for the tensors of `group`, or all (group -1). At owner only if
                   // `at_owner_only`.
};

// True for the kinds that move gradients or weights between ranks, packing included.
bool IsCommunication(OperationKind kind);

absl::string_view OperationKindName(OperationKind kind);  // "read", "copy_input", "forward", ...

struct Dependency {
  int operation = 0;
  int distance = 0;  // Iterations back. 0: the same iteration.
};

struct Operation {
  OperationKind kind = OperationKind::kForward;
  int layer = -1;              // kForward, kBackward.
  int group = -1;              // Communication, pack, update.
  int stream = 0;              // Into IterationSchedule::streams.
  int64_t bytes = 0;           // Communicated or copied by one rank (payload); 0 for compute.
  bool at_owner_only = false;  // kUpdate in METHOD_REDUCE_TO_OWNER: only the owner rank works.
  std::vector<Dependency> dependencies;  // Beside stream order.
};

// Tensors that travel together.
struct Group {
  std::vector<int> tensors;  // Into ShapedNetwork::parameters, in the order they lie in memory.
  int64_t bytes = 0;
  // METHOD_REDUCE_TO_OWNER, METHOD_REDUCE_BROADCAST: rank that holds the sum. -1 otherwise.
  int owner = -1;
  bool carries_weights = false;  // Broadcast/pull brings weights, not gradient sums.
  // METHOD_PARAMETER_SERVER: which server holds which part. Covers [0, bytes) in order.
  struct Shard {
    int server = 0;
    int64_t offset_bytes = 0;
    int64_t bytes = 0;
  };
  std::vector<Shard> shards;
  // TensorFlow repacking splits one concatenation in k parts that cut through tensors: then
  // `tensors` lists all of them and the group covers [offset_bytes, offset_bytes + bytes) of their
  // gradients. Groups with `partial` set tile the concatenation. A device whose layout is padded
  // cuts its span at the same fractions.
  bool partial = false;
  int64_t offset_bytes = 0;
};

enum class StreamKind { kInput, kCopy, kCompute, kCommunication, kUpdate };

struct ScheduleStream {
  StreamKind kind = StreamKind::kCompute;
  std::string name;  // "input", "copy", "compute", "communication_0".
};

struct IterationSchedule {
  std::string network;
  std::string policy;
  int ranks = 1;
  int hosts = 1;
  int servers = 0;              // METHOD_PARAMETER_SERVER.
  bool servers_update = false;  // Servers run SGD; otherwise they only sum.
  int gradient_divisor = 1;     // Sum is divided by this before the update.
  // Groups with a kPack operation travel in a buffer of their own; the others where they lie.
  bool copies_through_buffer = false;
  int prefetch_batches = 0;  // Batches decoded ahead. 0: nothing overlaps reading.
  int input_buffers = 1;     // Batches the device holds: 2 where copying overlaps computing.
  double collect_cycle_seconds = 0;  // Horovod: groups start on multiples of this. 0: at once.
  std::vector<ScheduleStream> streams;
  std::vector<Operation> operations;  // A topological order of the distance-0 dependencies.
  std::vector<Group> groups;
  // Order in which gradient (and weight) tensors lie in memory, so that each group is contiguous.
  std::vector<int> tensor_order;
};

// Checks the invariants every interpreter relies on: dependencies exist and point backwards or have
// distance > 0, every gradient is reduced exactly once, every tensor updated exactly once, groups
// contiguous in tensor_order, each layer once forward and once backward, on known streams. INTERNAL
// lists all breaches.
absl::Status ValidateSchedule(const IterationSchedule& schedule, int layer_count,
                              int parameter_count);

// The text form described above, header first.
std::string ScheduleToText(const IterationSchedule& schedule);

// A few lines for people: streams, groups with their sizes, what overlaps, who updates.
std::string ScheduleSummary(const IterationSchedule& schedule);

// 16 hex digits over the text form.
std::string ScheduleHash(const IterationSchedule& schedule);

}  // namespace paceline

#endif  // PACELINE_MODELS_SCHEDULE_SCHEDULE_H_
