#include "analysis/scaling/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/simulate/simulator.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

constexpr int kComputeStream = 0;
constexpr int kCommunicationStream = 1;
constexpr int kUpdateOnCompute = -1;  // Group of an update of all tensors.

absl::Status CheckTrace(const IterationTrace& trace) {
  if (trace.tensors.empty()) return absl::InvalidArgumentError("the trace has no tensors");
  const auto bad = [](double seconds) { return !std::isfinite(seconds) || seconds < 0; };
  if (bad(trace.other_seconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("other_seconds is ", trace.other_seconds,
                     ": backward in the trace takes longer than the whole iteration?"));
  }
  int layer = -1;
  for (size_t i = 0; i < trace.tensors.size(); ++i) {
    const TracedTensor& tensor = trace.tensors[i];
    if (bad(tensor.backward_seconds) || bad(tensor.communication_seconds)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensors[", i, "]: times must be finite and not negative (backward ",
          tensor.backward_seconds, " s, communication ", tensor.communication_seconds, " s)"));
    }
    if (tensor.layer != layer && tensor.layer != layer + 1) {
      return absl::InvalidArgumentError(absl::StrCat("tensors[", i, "].layer is ", tensor.layer,
                                                     " after ", layer,
                                                     ": layers must ascend from 0"));
    }
    layer = tensor.layer;
  }
  return absl::OkStatus();
}

double MessageSeconds(const IterationTrace& trace, const std::vector<int>& tensors,
                      double start_up_seconds) {
  double sum = 0, longest = 0;
  for (int tensor : tensors) {
    sum += trace.tensors[tensor].communication_seconds;
    longest = std::max(longest, trace.tensors[tensor].communication_seconds);
  }
  return std::max(longest, sum - (static_cast<double>(tensors.size()) - 1) * start_up_seconds);
}

}  // namespace

Messages OneMessagePerTensor(const IterationTrace& trace) {
  Messages messages;
  for (int i = static_cast<int>(trace.tensors.size()) - 1; i >= 0; --i) messages.push_back({i});
  return messages;
}

Messages OneMessage(const IterationTrace& trace) {
  Messages messages(1);
  for (int i = static_cast<int>(trace.tensors.size()) - 1; i >= 0; --i) messages[0].push_back(i);
  return messages;
}

double MessageStartUpSeconds(const IterationTrace& trace) {
  if (trace.tensors.empty()) return 0;
  std::vector<TracedTensor> tensors = trace.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const TracedTensor& a, const TracedTensor& b) { return a.elements < b.elements; });
  tensors.resize(std::max<size_t>(1, tensors.size() / 4));
  std::vector<double> seconds;
  for (const TracedTensor& tensor : tensors) seconds.push_back(tensor.communication_seconds);
  return Median(seconds);
}

Messages MergedMessages(const IterationTrace& trace) {
  const double start_up = MessageStartUpSeconds(trace);
  Messages messages;
  double ready = 0;  // Of the tensor looked at, from the begin of backward.
  double sent = 0;   // When the messages before the open one are over.
  std::vector<int> open;
  for (int i = static_cast<int>(trace.tensors.size()) - 1; i >= 0; --i) {
    // The layer's time is at its first tensor; all its tensors are ready when it is over.
    if (open.empty() || trace.tensors[i].layer != trace.tensors[open.back()].layer) {
      int first = i;
      while (first > 0 && trace.tensors[first - 1].layer == trace.tensors[i].layer) --first;
      double layer_seconds = 0;
      for (int k = first; k <= i; ++k) layer_seconds += trace.tensors[k].backward_seconds;
      const double next_ready = ready + layer_seconds;
      // What is open starts when it is ready and the link is free. Waiting for this tensor costs
      // the time until it is ready and saves a start-up.
      if (!open.empty() && next_ready - std::max(ready, sent) >= start_up) {
        sent = std::max(ready, sent) + MessageSeconds(trace, open, start_up);
        messages.push_back(std::move(open));
        open.clear();
      }
      ready = next_ready;
    }
    open.push_back(i);
  }
  messages.push_back(std::move(open));
  return messages;
}

absl::StatusOr<ReplayPlan> PlanReplay(const IterationTrace& trace, const Messages& messages) {
  if (absl::Status status = CheckTrace(trace); !status.ok()) return status;
  const int tensors = static_cast<int>(trace.tensors.size());
  const int layers = trace.tensors.back().layer + 1;
  const double start_up = MessageStartUpSeconds(trace);

  std::vector<double> backward_seconds(layers, 0);
  for (const TracedTensor& tensor : trace.tensors) {
    backward_seconds[tensor.layer] += tensor.backward_seconds;
  }
  // Messages that each layer completes.
  std::vector<std::vector<int>> completes(layers);
  std::vector<bool> sent(tensors, false);
  for (size_t m = 0; m < messages.size(); ++m) {
    int layer = layers - 1;
    for (int tensor : messages[m]) {
      if (tensor < 0 || tensor >= tensors || sent[tensor]) {
        return absl::InvalidArgumentError(absl::StrCat("messages[", m, "] has tensor ", tensor,
                                                       ", which is in another one or does not "
                                                       "exist"));
      }
      sent[tensor] = true;
      layer = std::min(layer, trace.tensors[tensor].layer);
    }
    completes[layer].push_back(static_cast<int>(m));
  }
  for (int tensor = 0; tensor < tensors; ++tensor) {
    if (!sent[tensor]) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, " is in no message"));
    }
  }

  ReplayPlan plan;
  IterationSchedule& schedule = plan.schedule;
  schedule.policy = "replay";
  schedule.ranks = 2;
  schedule.streams = {{StreamKind::kCompute, "compute"},
                      {StreamKind::kCommunication, "communication_0"}};
  const auto add = [&](Operation operation, double seconds) {
    schedule.operations.push_back(std::move(operation));
    plan.operation_seconds.push_back(seconds);
    return static_cast<int>(schedule.operations.size()) - 1;
  };
  // Whatever is not backward stands in the one forward operation.
  Operation forward;
  forward.kind = OperationKind::kForward;
  forward.layer = 0;
  forward.stream = kComputeStream;
  add(forward, trace.other_seconds);
  Operation update;
  update.kind = OperationKind::kUpdate;
  update.group = kUpdateOnCompute;
  update.stream = kComputeStream;
  for (int layer = layers - 1; layer >= 0; --layer) {
    Operation backward;
    backward.kind = OperationKind::kBackward;
    backward.layer = layer;
    backward.stream = kComputeStream;
    const int done = add(backward, backward_seconds[layer]);
    for (int message : completes[layer]) {
      Group group;
      group.tensors = messages[message];
      std::sort(group.tensors.begin(), group.tensors.end());
      for (int tensor : group.tensors) group.bytes += 4 * trace.tensors[tensor].elements;
      Operation all_reduce;
      all_reduce.kind = OperationKind::kAllReduce;
      all_reduce.group = static_cast<int>(schedule.groups.size());
      all_reduce.stream = kCommunicationStream;
      all_reduce.bytes = group.bytes;
      all_reduce.dependencies = {{done, 0}};
      schedule.groups.push_back(std::move(group));
      update.dependencies.push_back(
          {add(std::move(all_reduce), MessageSeconds(trace, messages[message], start_up)), 0});
    }
  }
  add(std::move(update), 0);
  return plan;
}

absl::StatusOr<double> ReplaySeconds(const IterationTrace& trace, const Messages& messages) {
  absl::StatusOr<ReplayPlan> plan = PlanReplay(trace, messages);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<Timeline> timeline = Simulate(plan->schedule, plan->operation_seconds);
  if (!timeline.ok()) return timeline.status();
  return timeline->period_seconds;
}

absl::StatusOr<double> FitFixedSeconds(absl::Span<const double> replayed_seconds,
                                       absl::Span<const double> measured_seconds) {
  if (replayed_seconds.empty() || replayed_seconds.size() != measured_seconds.size()) {
    return absl::InvalidArgumentError(absl::StrCat(replayed_seconds.size(), " replays and ",
                                                   measured_seconds.size(),
                                                   " measurements: must be as many, at least one"));
  }
  // The sum of absolute values is smallest at one of its corners.
  double best_seconds = 0, best_error = std::numeric_limits<double>::infinity();
  std::vector<double> candidates = {0};
  for (size_t i = 0; i < replayed_seconds.size(); ++i) {
    candidates.push_back(std::max(0.0, measured_seconds[i] - replayed_seconds[i]));
  }
  for (double candidate : candidates) {
    double error = 0;
    for (size_t i = 0; i < replayed_seconds.size(); ++i) {
      error +=
          std::abs(replayed_seconds[i] + candidate - measured_seconds[i]) / measured_seconds[i];
    }
    if (error < best_error) {
      best_error = error;
      best_seconds = candidate;
    }
  }
  return best_seconds;
}

}  // namespace paceline
