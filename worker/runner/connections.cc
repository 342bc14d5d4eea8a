#include "worker/runner/connections.h"

#include <utility>

namespace paceline {

absl::StatusOr<Connections> Connect(Backend& backend, const IterationSchedule& schedule,
                                    LayerEngine& engine, const RankInfo& rank,
                                    const v1::TrainingSettings& training, RendezvousStore& store) {
  Connections connections;
  connections.communicators.resize(schedule.streams.size());
  if (rank.ranks == 1) return connections;
  if (schedule.servers > 0) {
    std::vector<DeviceSpan> weights;
    for (const Group& group : schedule.groups) weights.push_back(engine.WeightSpan(group.tensors));
    auto server = backend.CreateParameterServer(rank, schedule, weights, training, "server", store);
    if (!server.ok()) return server.status();
    connections.server = *std::move(server);
    return connections;  // It brings its own connections.
  }
  for (const Operation& op : schedule.operations) {
    if (!IsCommunication(op.kind) || connections.communicators[op.stream] != nullptr) continue;
    auto communicator = backend.CreateCommunicator(rank, schedule.streams[op.stream].name, store);
    if (!communicator.ok()) return communicator.status();
    connections.communicators[op.stream] = *std::move(communicator);
  }
  return connections;
}

}  // namespace paceline
