#include "models/schedule/compiler.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/frameworks/policies.h"
#include "models/schedule/grouping.h"

namespace paceline {
namespace {

using v1::CommunicationPolicy;
using v1::ServerPolicy;
using v1::UpdatePolicy;

// Index with the smallest value, the first of equals.
int Smallest(const std::vector<int64_t>& values) {
  return static_cast<int>(std::min_element(values.begin(), values.end()) - values.begin());
}

// Position of each group in forward order: "key" in MXNet's words.
std::vector<int> ForwardKeys(const std::vector<Group>& groups) {
  std::vector<int> by_first(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) by_first[i] = static_cast<int>(i);
  std::stable_sort(by_first.begin(), by_first.end(), [&](int a, int b) {
    return groups[a].tensors.front() < groups[b].tensors.front();
  });
  std::vector<int> keys(groups.size());
  for (size_t i = 0; i < by_first.size(); ++i) keys[by_first[i]] = static_cast<int>(i);
  return keys;
}

void AssignOwners(CommunicationPolicy::OwnerRule rule, int ranks, std::vector<Group>& groups) {
  const std::vector<int> keys = ForwardKeys(groups);
  if (rule == CommunicationPolicy::OWNER_RULE_ROUND_ROBIN) {
    for (size_t g = 0; g < groups.size(); ++g) groups[g].owner = keys[g] % ranks;
    return;
  }
  if (rule == CommunicationPolicy::OWNER_RULE_GREEDY_BY_SIZE) {
    // MXNet comm.h CommDevice::InitMergeBuffer: largest first, to the device with the fewest bytes.
    std::vector<int> by_size(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) by_size[keys[g]] = static_cast<int>(g);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](int a, int b) { return groups[a].bytes > groups[b].bytes; });
    std::vector<int64_t> owned_bytes(ranks);
    for (const int g : by_size) {
      groups[g].owner = Smallest(owned_bytes);
      owned_bytes[groups[g].owner] += groups[g].bytes;
    }
    return;
  }
  for (Group& group : groups) group.owner = 0;  // One root (Caffe-MPI 1.0).
}

void AssignServers(const ServerPolicy& policy, int servers, std::vector<Group>& groups) {
  const std::vector<int> keys = ForwardKeys(groups);
  std::vector<int> by_key(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) by_key[keys[g]] = static_cast<int>(g);
  std::vector<int64_t> held_bytes(servers);
  for (int key = 0; key < static_cast<int>(by_key.size()); ++key) {
    Group& group = groups[by_key[key]];
    const int64_t elements = group.bytes / 4;
    if (policy.split_at_elements() > 0 && elements >= policy.split_at_elements() && servers > 1) {
      // MXNet kvstore_dist.h EncodeKey: equal parts over all servers.
      for (int server = 0; server < servers; ++server) {
        const int64_t begin = elements * server / servers, end = elements * (server + 1) / servers;
        group.shards.push_back({server, 4 * begin, 4 * (end - begin)});
        held_bytes[server] += 4 * (end - begin);
      }
      continue;
    }
    int server = key % servers;
    if (policy.placement() == ServerPolicy::PLACEMENT_HASH) {
      server = static_cast<int>(static_cast<int64_t>(key) * 9973 % servers);
    } else if (policy.placement() == ServerPolicy::PLACEMENT_GREEDY_BYTES) {
      server = Smallest(held_bytes);
    }
    group.shards.push_back({server, 0, group.bytes});
    held_bytes[server] += group.bytes;
  }
}

// Emits the operations of one iteration in list order, then adds the dependencies between
// iterations (their targets come later in the list) and drops those that stream order implies.
class Compiler {
 public:
  Compiler(const ShapedNetwork& network, const v1::FrameworkPolicy& policy,
           const v1::ClusterShape& cluster, int batch)
      : network_(network), policy_(policy), communication_(policy.communication()), batch_(batch) {
    schedule_.network = network.network.name();
    schedule_.policy = policy.name();
    schedule_.hosts = cluster.hosts();
    schedule_.ranks = cluster.hosts() * cluster.devices_per_host();
    schedule_.prefetch_batches = policy.input().prefetch_batches();
    if (schedule_.ranks > 1) {
      schedule_.gradient_divisor =
          communication_.scaling() == CommunicationPolicy::SCALING_MEAN_OVER_DEVICES_OF_HOST
              ? cluster.devices_per_host()
              : schedule_.ranks;
    }
  }

  IterationSchedule Compile(const std::vector<TensorGroup>& tensor_groups) {
    DeclareStreams();
    if (schedule_.ranks > 1) DeclareGroups(tensor_groups);
    SetTensorOrder();
    weights_ready_.assign(network_.parameters.size(), -1);

    EmitInputAndForward();
    const int layer_count = static_cast<int>(network_.layers.size());
    for (int layer = layer_count - 1; layer >= 0; --layer) {
      last_backward_ = Add(OperationKind::kBackward, compute_);
      Last().layer = layer;
      if (communication_.overlaps_backward()) EmitGroupsReadyAfter(layer);
    }
    EmitGroupsReadyAfter(0);
    EmitTail();
    ConnectIterations();
    DropImpliedDependencies();
    return std::move(schedule_);
  }

 private:
  int Add(OperationKind kind, int stream) {
    Operation operation;
    operation.kind = kind;
    operation.stream = stream;
    schedule_.operations.push_back(operation);
    return static_cast<int>(schedule_.operations.size()) - 1;
  }
  int AddForGroup(OperationKind kind, int group, int stream) {
    const int index = Add(kind, stream);
    Last().group = group;
    if (kind != OperationKind::kUpdate) Last().bytes = schedule_.groups[group].bytes;
    return index;
  }
  Operation& Last() { return schedule_.operations.back(); }
  void DependOn(int operation, int target, int distance = 0) {
    schedule_.operations[operation].dependencies.push_back({target, distance});
  }
  int AddStream(StreamKind kind, std::string name) {
    schedule_.streams.push_back({kind, std::move(name)});
    return static_cast<int>(schedule_.streams.size()) - 1;
  }

  void DeclareStreams() {
    input_ = AddStream(StreamKind::kInput, "input");
    const bool copy_stream =
        policy_.input().copy_overlaps_compute() && schedule_.prefetch_batches > 0;
    if (copy_stream) copy_ = AddStream(StreamKind::kCopy, "copy");
    compute_ = AddStream(StreamKind::kCompute, "compute");
    if (!copy_stream) copy_ = compute_;
    schedule_.input_buffers = copy_stream ? 2 : 1;
    if (schedule_.ranks == 1) return;
    for (int i = 0; i < std::max(1, communication_.streams()); ++i) {
      communication_streams_.push_back(
          AddStream(StreamKind::kCommunication, absl::StrCat("communication_", i)));
    }
  }

  bool IsTwoPhase() const {
    return communication_.method() != CommunicationPolicy::METHOD_ALL_REDUCE;
  }
  // Streams of the first phase (all-reduce, reduce, push) and of the second (broadcast, pull).
  int FirstStream(int group) const {
    const int count = static_cast<int>(communication_streams_.size());
    const int first = IsTwoPhase() && count > 1 ? (count + 1) / 2 : count;
    return communication_streams_[group % first];
  }
  int SecondStream(int group) const {
    const int count = static_cast<int>(communication_streams_.size());
    if (!IsTwoPhase() || count == 1) return FirstStream(group);
    const int first = (count + 1) / 2;
    return communication_streams_[first + group % (count - first)];
  }

  void DeclareGroups(const std::vector<TensorGroup>& tensor_groups) {
    for (const TensorGroup& from : tensor_groups) {
      Group group;
      group.tensors = from.tensors;
      group.bytes = from.bytes;
      group.partial = from.partial;
      group.offset_bytes = from.offset_bytes;
      schedule_.groups.push_back(std::move(group));
      ready_layer_.push_back(from.ready_layer);
    }
    const v1::Grouping& grouping = communication_.grouping();
    schedule_.copies_through_buffer = communication_.copies_through_buffer();
    schedule_.collect_cycle_seconds = grouping.by_bytes().cycle_seconds();
    switch (communication_.method()) {
      case CommunicationPolicy::METHOD_REDUCE_TO_OWNER:
        for (Group& group : schedule_.groups) group.carries_weights = true;
        AssignOwners(communication_.owner_rule(), schedule_.ranks, schedule_.groups);
        break;
      case CommunicationPolicy::METHOD_REDUCE_BROADCAST:
        AssignOwners(communication_.owner_rule(), schedule_.ranks, schedule_.groups);
        break;
      case CommunicationPolicy::METHOD_PARAMETER_SERVER: {
        const ServerPolicy& server = communication_.server();
        const int wanted = server.servers() > 0 ? server.servers() : schedule_.hosts;
        schedule_.servers = std::min(wanted, schedule_.ranks);
        schedule_.servers_update = !server.aggregate_only();
        for (Group& group : schedule_.groups) group.carries_weights = schedule_.servers_update;
        AssignServers(server, schedule_.servers, schedule_.groups);
        break;
      }
      default:
        break;
    }
    // In which order groups are issued: a stream keeps it.
    for (size_t g = 0; g < schedule_.groups.size(); ++g)
      issue_order_.push_back(static_cast<int>(g));
    if (communication_.order() == CommunicationPolicy::ORDER_FORWARD) {
      const std::vector<int> keys = ForwardKeys(schedule_.groups);
      std::sort(issue_order_.begin(), issue_order_.end(),
                [&](int a, int b) { return keys[a] < keys[b]; });
    }
    group_done_.assign(schedule_.groups.size(), -1);
  }

  // Groups one after the other, in forward order: the natural order wherever groups are runs of
  // neighbouring tensors.
  void SetTensorOrder() {
    std::vector<int>& order = schedule_.tensor_order;
    if (schedule_.groups.empty() || schedule_.groups.front().partial) {
      for (size_t i = 0; i < network_.parameters.size(); ++i) order.push_back(static_cast<int>(i));
      return;
    }
    const std::vector<int> keys = ForwardKeys(schedule_.groups);
    std::vector<const Group*> by_key(keys.size());
    for (size_t g = 0; g < keys.size(); ++g) by_key[keys[g]] = &schedule_.groups[g];
    for (const Group* group : by_key) {
      order.insert(order.end(), group->tensors.begin(), group->tensors.end());
    }
  }

  void EmitInputAndForward() {
    const v1::ImageSize& image = network_.network.input();
    const int64_t input_bytes =
        int64_t{4} * batch_ * image.channels() * image.height() * image.width();
    read_ = Add(OperationKind::kRead, input_);
    copy_input_ = Add(OperationKind::kCopyInput, copy_);
    Last().bytes = input_bytes;
    DependOn(copy_input_, read_);
    for (size_t layer = 0; layer < network_.layers.size(); ++layer) {
      const int forward = Add(OperationKind::kForward, compute_);
      Last().layer = static_cast<int>(layer);
      // By stream order the first forward covers the others.
      if (layer == 0) DependOn(forward, copy_input_);
      forward_.push_back(forward);
    }
  }

  // Issues, in order, the groups whose gradients exist once `layer` has run backward.
  void EmitGroupsReadyAfter(int layer) {
    while (next_issued_ < issue_order_.size() &&
           ready_layer_[issue_order_[next_issued_]] >= layer) {
      EmitGroup(issue_order_[next_issued_++]);
    }
  }

  // DDP, TensorFlow and CNTK copy on the compute stream; Horovod's background thread on its own.
  bool PacksOnCompute() const { return schedule_.collect_cycle_seconds == 0; }
  bool IsPacked(int group) const {
    if (!communication_.copies_through_buffer()) return false;
    const v1::Grouping& grouping = communication_.grouping();
    // CNTK's large tensors and Horovod's lonely ones are reduced where they lie.
    const bool alone_in_place = grouping.has_pack_small() || grouping.by_bytes().never_exceed();
    return !(alone_in_place && schedule_.groups[group].tensors.size() == 1);
  }

  void EmitGroup(int group) {
    const int first_stream = FirstStream(group), second_stream = SecondStream(group);
    int previous = last_backward_;  // What the next operation of this group waits for.
    const auto chain = [&](OperationKind kind, int stream) {
      const int operation = AddForGroup(kind, group, stream);
      DependOn(operation, previous);
      previous = operation;
      return operation;
    };
    const bool packed = IsPacked(group);
    if (packed) chain(OperationKind::kPack, PacksOnCompute() ? compute_ : first_stream);
    switch (communication_.method()) {
      case CommunicationPolicy::METHOD_REDUCE_TO_OWNER:
        chain(OperationKind::kReduceToOwner, first_stream);
        chain(OperationKind::kUpdate, second_stream);
        Last().at_owner_only = true;
        if (!communication_.pulls_before_layer()) chain(OperationKind::kBroadcast, second_stream);
        break;
      case CommunicationPolicy::METHOD_REDUCE_BROADCAST:
        chain(OperationKind::kReduceToOwner, first_stream);
        chain(OperationKind::kBroadcast, second_stream);
        break;
      case CommunicationPolicy::METHOD_PARAMETER_SERVER:
        chain(OperationKind::kPush, first_stream);
        if (!communication_.pulls_before_layer()) chain(OperationKind::kPull, second_stream);
        break;
      default:
        chain(OperationKind::kAllReduce, first_stream);
        break;
    }
    group_done_[group] = previous;
    if (packed && PacksOnCompute()) return;  // Unpacked in the tail, so as not to stall backward.
    if (packed) group_done_[group] = chain(OperationKind::kUnpack, second_stream);
    if (policy_.update().when() == UpdatePolicy::WHEN_PER_GROUP) {
      group_done_[group] = chain(OperationKind::kUpdate, second_stream);
    }
    SetWeightsReady(group);
  }

  void SetWeightsReady(int group) {
    for (const int tensor : schedule_.groups[group].tensors) {
      weights_ready_[tensor] = group_done_[group];
    }
  }

  // What follows backward and the groups' own operations: copies out of the buffer, pulls in
  // forward order, the update of everything.
  void EmitTail() {
    for (const int group : issue_order_) {
      if (!IsPacked(group) || !PacksOnCompute()) continue;
      const int unpack = AddForGroup(OperationKind::kUnpack, group, compute_);
      DependOn(unpack, group_done_[group]);
      group_done_[group] = unpack;
      if (policy_.update().when() == UpdatePolicy::WHEN_PER_GROUP) {
        group_done_[group] = AddForGroup(OperationKind::kUpdate, group, compute_);
      }
      SetWeightsReady(group);
    }
    if (schedule_.ranks > 1 && communication_.pulls_before_layer()) EmitPullsInForwardOrder();
    if (schedule_.ranks == 1 || policy_.update().when() == UpdatePolicy::WHEN_AFTER_ALL) {
      const int update = Add(OperationKind::kUpdate, compute_);
      for (const int done : group_done_) DependOn(update, done);
      std::fill(weights_ready_.begin(), weights_ready_.end(), update);
    }
  }

  // TensorFlow reads a variable where a step uses it, after the barrier that ended the step before.
  // In steady state that is the same as sending all weights in forward order after the last update,
  // each layer of the next iteration waiting for its own; and it leaves all replicas equal at the
  // end.
  void EmitPullsInForwardOrder() {
    const std::vector<int> done = group_done_;
    const std::vector<int> keys = ForwardKeys(schedule_.groups);
    std::vector<int> by_key(keys.size());
    for (size_t g = 0; g < keys.size(); ++g) by_key[keys[g]] = static_cast<int>(g);
    const bool servers = communication_.method() == CommunicationPolicy::METHOD_PARAMETER_SERVER;
    for (const int group : by_key) {
      const int pull = AddForGroup(servers ? OperationKind::kPull : OperationKind::kBroadcast,
                                   group, SecondStream(group));
      for (const int other : done) DependOn(pull, other);
      group_done_[group] = pull;
      SetWeightsReady(group);
    }
  }

  void ConnectIterations() {
    // Room for what is read: a batch keeps its host slot until its copy is done.
    if (schedule_.prefetch_batches > 0) {
      DependOn(read_, copy_input_, schedule_.prefetch_batches);
    } else {
      // Nothing overlaps: reading waits for the end of the iteration before, on every stream.
      std::vector<int> last_of_stream(schedule_.streams.size(), -1);
      for (size_t i = 0; i < schedule_.operations.size(); ++i) {
        last_of_stream[schedule_.operations[i].stream] = static_cast<int>(i);
      }
      for (const int last : last_of_stream) {
        if (last >= 0) DependOn(read_, last, 1);
      }
    }
    // Room on the device: the input is read until the last backward operation. With two buffers
    // that of two iterations ago; with one, the copy is on the compute stream itself.
    if (copy_ != compute_) DependOn(copy_input_, last_backward_, schedule_.input_buffers);

    const bool barrier =
        schedule_.ranks > 1 && policy_.update().iteration_barrier() &&
        !communication_.pulls_before_layer();  // The pulls have waited for everything already.
    for (size_t layer = 0; layer < network_.layers.size(); ++layer) {
      for (const int tensor : network_.layers[layer].parameters) {
        DependOn(forward_[layer], weights_ready_[tensor], 1);
      }
    }
    if (barrier) {
      for (const int ready : weights_ready_) DependOn(forward_.front(), ready, 1);
    }
  }

  // Keeps of each operation's dependencies only those that neither its stream's order nor an
  // earlier wait of the same stream in this iteration implies.
  void DropImpliedDependencies() {
    using Point = std::pair<int, int>;  // {-distance, operation}: later in time is larger.
    // reached[s][p]: how far stream p is known to be done when stream s gets here.
    std::vector<std::map<int, Point>> reached(schedule_.streams.size());
    for (Operation& operation : schedule_.operations) {
      std::map<int, Point> wanted;
      for (const Dependency& dependency : operation.dependencies) {
        const int producer = schedule_.operations[dependency.operation].stream;
        if (producer == operation.stream) continue;
        const Point point{-dependency.distance, dependency.operation};
        const auto known = reached[operation.stream].find(producer);
        if (known != reached[operation.stream].end() && known->second >= point) continue;
        const auto [entry, inserted] = wanted.emplace(producer, point);
        if (!inserted) entry->second = std::max(entry->second, point);
      }
      operation.dependencies.clear();
      for (const auto& [producer, point] : wanted) {
        operation.dependencies.push_back({point.second, -point.first});
        reached[operation.stream][producer] = point;
      }
    }
  }

  const ShapedNetwork& network_;
  const v1::FrameworkPolicy& policy_;
  const CommunicationPolicy& communication_;
  const int batch_;
  IterationSchedule schedule_;
  int input_ = 0, copy_ = 0, compute_ = 0;
  std::vector<int> communication_streams_;
  std::vector<int> ready_layer_;  // Per group.
  std::vector<int> issue_order_;  // Groups.
  size_t next_issued_ = 0;        // Into issue_order_.
  std::vector<int> group_done_;   // Per group: its last operation so far.
  std::vector<int>
      weights_ready_;         // Per tensor: the operation after which the next forward may run.
  std::vector<int> forward_;  // Per layer.
  int read_ = 0, copy_input_ = 0, last_backward_ = 0;
};

}  // namespace

absl::StatusOr<IterationSchedule> CompileSchedule(const ShapedNetwork& network,
                                                  const v1::FrameworkPolicy& policy,
                                                  const v1::ClusterShape& cluster,
                                                  int batch_per_device,
                                                  const ScheduleCosts& costs) {
  if (absl::Status valid = ValidatePolicy(policy); !valid.ok()) return valid;
  if (cluster.hosts() < 1 || cluster.devices_per_host() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster: hosts and devices_per_host must be positive, not ", cluster.hosts(),
                     " and ", cluster.devices_per_host()));
  }
  if (batch_per_device < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_per_device: must be positive, not ", batch_per_device));
  }
  if (network.layers.empty()) return absl::InvalidArgumentError("the network has no layers");
  ScheduleCosts complete = costs;
  absl::StatusOr<std::vector<double>> backward = BackwardSeconds(network, batch_per_device, costs);
  if (!backward.ok()) return backward.status();
  complete.backward_seconds = *std::move(backward);
  absl::StatusOr<std::vector<TensorGroup>> groups =
      GroupTensors(network, policy.communication().grouping(), complete);
  if (!groups.ok()) return groups.status();
  IterationSchedule schedule =
      Compiler(network, policy, cluster, batch_per_device).Compile(*groups);
  absl::Status sound = ValidateSchedule(schedule, static_cast<int>(network.layers.size()),
                                        static_cast<int>(network.parameters.size()));
  if (!sound.ok()) return sound;
  return schedule;
}

}  // namespace paceline
