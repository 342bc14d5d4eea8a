#include "worker/runner/iteration_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// Sleeps until the next multiple of `cycle` since the epoch: Horovod's background thread collects
// ready tensors once a cycle.
void SleepUntilNextCycle(absl::Duration cycle) {
  const absl::Duration since_epoch = absl::Now() - absl::UnixEpoch();
  absl::SleepFor(cycle - since_epoch % cycle);
}

int MaxDistance(const IterationSchedule& schedule) {
  int distance = 0;
  for (const Operation& op : schedule.operations) {
    for (const Dependency& dependency : op.dependencies) {
      distance = std::max(distance, dependency.distance);
    }
  }
  return distance;
}

// The part of `covering` (all tensors of the group) that travels with this group. All of it, except
// where the policy cuts one concatenation in parts (TensorFlow's repacking): these are cut at the
// same fractions, since the device's layout may be padded.
DeviceSpan GroupSlice(const IterationSchedule& schedule, int group, DeviceSpan covering) {
  const Group& mine = schedule.groups[group];
  if (!mine.partial) return covering;
  int64_t total_bytes = 0;
  for (const Group& other : schedule.groups) {
    if (other.partial) total_bytes += other.bytes;
  }
  const double scale = static_cast<double>(covering.elements) / total_bytes;
  const int64_t first = std::llround(mine.offset_bytes * scale);
  const int64_t last = std::llround((mine.offset_bytes + mine.bytes) * scale);
  return covering.Slice(first, last - first);
}

}  // namespace

absl::StatusOr<std::unique_ptr<IterationExecutor>> IterationExecutor::Create(
    const ExecutorParts& parts) {
  std::unique_ptr<IterationExecutor> executor(new IterationExecutor(parts));
  absl::Status status = executor->Initialize();
  if (!status.ok()) return status;
  return executor;
}

IterationExecutor::~IterationExecutor() {
  Abort(absl::CancelledError("the trial is over"));
  streams_.clear();  // Joins the threads before what they use goes away.
}

absl::Status IterationExecutor::Initialize() {
  const IterationSchedule& schedule = *parts_.schedule;
  for (const ScheduleStream& stream : schedule.streams) {
    auto created = parts_.backend->CreateStream(stream.kind, stream.name);
    if (!created.ok()) return created.status();
    streams_.push_back(*std::move(created));
  }
  // An iteration's slot may be reused when neither a later iteration's dependency nor the
  // collection of its times can still refer to it.
  const int slots = MaxDistance(schedule) + kMaxInFlight + 1;
  for (int i = 0; i < slots; ++i) {
    auto slot = std::make_unique<Slot>();
    for (size_t op = 0; op < schedule.operations.size(); ++op) {
      auto begin = parts_.backend->CreateEvent();
      if (!begin.ok()) return begin.status();
      auto end = parts_.backend->CreateEvent();
      if (!end.ok()) return end.status();
      slot->begin.push_back(*std::move(begin));
      slot->end.push_back(*std::move(end));
    }
    slots_.push_back(std::move(slot));
  }
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    if (schedule.operations[i].kind == OperationKind::kForward) last_forward_ = i;
  }
  // Only what is packed travels in a buffer: CNTK's large tensors are reduced where they lie, and
  // so are Horovod's tensors that travel alone.
  buffers_.resize(schedule.groups.size());
  for (const Operation& op : schedule.operations) {
    if (op.kind != OperationKind::kPack) continue;
    buffers_[op.group].resize(GroupGradients(op.group).elements);
  }
  return absl::OkStatus();
}

int64_t IterationExecutor::buffer_bytes() const {
  int64_t bytes = 0;
  for (const std::vector<float>& buffer : buffers_) bytes += buffer.size() * sizeof(float);
  return bytes;
}

DeviceSpan IterationExecutor::GroupGradients(int group) {
  return GroupSlice(*parts_.schedule, group,
                    parts_.engine->GradientSpan(parts_.schedule->groups[group].tensors));
}

DeviceSpan IterationExecutor::GroupWeights(int group) {
  return GroupSlice(*parts_.schedule, group,
                    parts_.engine->WeightSpan(parts_.schedule->groups[group].tensors));
}

DeviceSpan IterationExecutor::Travelling(int group) {
  if (buffers_[group].empty()) return GroupGradients(group);
  return {buffers_[group].data(), static_cast<int64_t>(buffers_[group].size())};
}

absl::Status IterationExecutor::Enqueue() {
  if (in_flight() >= kMaxInFlight) {
    return absl::FailedPreconditionError("too many iterations in flight");
  }
  for (int i = 0; i < static_cast<int>(parts_.schedule->operations.size()); ++i) {
    absl::Status status = EnqueueOperation(i, enqueued_);
    if (!status.ok()) return status;
  }
  ++enqueued_;
  return absl::OkStatus();
}

absl::Status IterationExecutor::EnqueueOperation(int operation, int64_t iteration) {
  const IterationSchedule& schedule = *parts_.schedule;
  const Operation& op = schedule.operations[operation];
  Stream& stream = *streams_[op.stream];
  for (const Dependency& dependency : op.dependencies) {
    const int64_t source = iteration - dependency.distance;
    if (source < 0) continue;
    // The order within a stream already holds.
    if (schedule.operations[dependency.operation].stream == op.stream) continue;
    absl::Status status = stream.Wait(*slot(source).end[dependency.operation]);
    if (!status.ok()) return status;
  }
  Slot& current = slot(iteration);
  absl::Status status = absl::OkStatus();
  // The first operation of a group waits for the tick.
  const bool starts_group = op.kind == OperationKind::kPack ||
                            (op.kind == OperationKind::kAllReduce && buffers_[op.group].empty());
  if (schedule.collect_cycle_seconds > 0 && starts_group) {
    const absl::Duration cycle = absl::Seconds(schedule.collect_cycle_seconds);
    status = stream.RunOnHost([cycle] {
      SleepUntilNextCycle(cycle);
      return absl::OkStatus();
    });
  }
  if (status.ok()) status = stream.Record(*current.begin[operation]);
  if (status.ok()) status = EnqueueWork(op, current, stream);
  if (status.ok()) status = stream.Record(*current.end[operation]);
  if (status.ok() && operation == last_forward_) {
    status = stream.RunOnHost([this, &current] {
      current.loss = parts_.engine->Loss();
      return absl::OkStatus();
    });
  }
  return status;
}

absl::Status IterationExecutor::EnqueueWork(const Operation& op, Slot& slot, Stream& stream) {
  const IterationSchedule& schedule = *parts_.schedule;
  LayerEngine& engine = *parts_.engine;
  Communicator* communicator =
      parts_.communicators.empty() ? nullptr : parts_.communicators[op.stream];
  switch (op.kind) {
    case OperationKind::kRead:
      return stream.RunOnHost(
          [this, &slot] { return parts_.input->Next(slot.batch, parts_.deadline); });
    case OperationKind::kCopyInput:
      return engine.LoadInput(slot.batch, stream);
    case OperationKind::kForward:
      return engine.Forward(op.layer, stream);
    case OperationKind::kBackward:
      return engine.Backward(op.layer, stream);
    case OperationKind::kPack:
    case OperationKind::kUnpack: {
      DeviceSpan from = GroupGradients(op.group);
      DeviceSpan to = Travelling(op.group);
      if (op.kind == OperationKind::kUnpack) std::swap(from, to);
      return stream.RunOnHost([from, to] {
        std::memcpy(to.data, from.data, from.bytes());
        return absl::OkStatus();
      });
    }
    case OperationKind::kAllReduce:
      return communicator->AllReduceSum(Travelling(op.group), stream);
    case OperationKind::kReduceToOwner:
      return communicator->ReduceSum(Travelling(op.group), schedule.groups[op.group].owner, stream);
    case OperationKind::kBroadcast: {
      const Group& group = schedule.groups[op.group];
      if (!group.carries_weights) {
        return communicator->Broadcast(Travelling(op.group), group.owner, stream);
      }
      absl::Status status = communicator->Broadcast(GroupWeights(op.group), group.owner, stream);
      if (!status.ok()) return status;
      return engine.WeightsChanged(group.tensors, stream);
    }
    case OperationKind::kPush:
      return parts_.server->Push(op.group, Travelling(op.group), stream);
    case OperationKind::kPull: {
      const Group& group = schedule.groups[op.group];
      if (!group.carries_weights) {
        return parts_.server->Pull(op.group, Travelling(op.group), stream);
      }
      absl::Status status = parts_.server->Pull(op.group, GroupWeights(op.group), stream);
      if (!status.ok()) return status;
      return engine.WeightsChanged(group.tensors, stream);
    }
    case OperationKind::kUpdate: {
      if (op.at_owner_only && schedule.groups[op.group].owner != parts_.rank) {
        return absl::OkStatus();
      }
      const std::vector<int>& tensors =
          op.group >= 0 ? schedule.groups[op.group].tensors : schedule.tensor_order;
      return engine.Update(tensors, 1.0f / schedule.gradient_divisor, stream);
    }
  }
  return absl::InternalError("unknown kind of operation");
}

absl::StatusOr<IterationTimes> IterationExecutor::Collect(absl::Time deadline) {
  if (in_flight() == 0) return absl::FailedPreconditionError("no iteration in flight");
  Slot& done = slot(collected_);
  IterationTimes times;
  times.operations.resize(done.end.size());
  // The last first: when it is reached hardly any of the others is left to wait for, so that this
  // thread does not wake once an operation and take the core from the one that computes.
  for (size_t i = done.end.size(); i-- > 0;) {
    absl::Status status = done.end[i]->WaitReached(deadline);
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < done.end.size(); ++i) {
    auto begin_ns = parts_.backend->EventUnixNs(*done.begin[i]);
    if (!begin_ns.ok()) return begin_ns.status();
    auto end_ns = parts_.backend->EventUnixNs(*done.end[i]);
    if (!end_ns.ok()) return end_ns.status();
    times.operations[i] = {*begin_ns, *end_ns};
  }
  times.input_busy_ns = done.batch.busy_ns;
  times.loss = done.loss;
  ++collected_;
  return times;
}

absl::Status IterationExecutor::Finish(absl::Time deadline) {
  for (auto& stream : streams_) {
    absl::Status status = stream->Synchronize(deadline);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void IterationExecutor::Abort(const absl::Status& cause) {
  for (auto& stream : streams_) stream->Abort(cause);
  for (Communicator* communicator : parts_.communicators) {
    if (communicator != nullptr) communicator->Abort(cause);
  }
  if (parts_.server != nullptr) parts_.server->Abort(cause);
}

}  // namespace paceline
