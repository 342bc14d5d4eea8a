// The communicators and the parameter server that a schedule needs, connected to the other ranks.
#ifndef PACELINE_WORKER_RUNNER_CONNECTIONS_H_
#define PACELINE_WORKER_RUNNER_CONNECTIONS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "models/schedule/schedule.h"
#include "proto/paceline/v1/plan.pb.h"
#include "worker/backend/backend.h"

namespace paceline {

struct Connections {
  // By stream index of the schedule; null for streams that do not communicate.
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::unique_ptr<ParameterServer> server;  // METHOD_PARAMETER_SERVER only.
};

// Blocks until all ranks of the schedule are connected, at most `rank.timeout`. Nothing to connect
// with one rank.
absl::StatusOr<Connections> Connect(Backend& backend, const IterationSchedule& schedule,
                                    LayerEngine& engine, const RankInfo& rank,
                                    const v1::TrainingSettings& training, RendezvousStore& store);

}  // namespace paceline

#endif  // PACELINE_WORKER_RUNNER_CONNECTIONS_H_
