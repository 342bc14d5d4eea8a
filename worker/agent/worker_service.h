// WorkerService over gRPC: what this worker is and does, and an echo for round-trip times.
#ifndef PACELINE_WORKER_AGENT_WORKER_SERVICE_H_
#define PACELINE_WORKER_AGENT_WORKER_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/paceline/v1/worker.pb.h"

namespace paceline {

class WorkerServer {
 public:
  virtual ~WorkerServer() = default;               // Stops serving.
  virtual const std::string& address() const = 0;  // "host:port" that is served.
  // `describe` must be thread-safe. Until it is set, Describe answers UNAVAILABLE.
  virtual void SetDescribe(std::function<v1::DescribeResponse()> describe) = 0;
};

// `listen` is "host:port"; port 0 picks a free one. Loopback only: the service has no TLS of its
// own (INVALID_ARGUMENT otherwise).
absl::StatusOr<std::unique_ptr<WorkerServer>> StartWorkerServer(const std::string& listen);

}  // namespace paceline

#endif  // PACELINE_WORKER_AGENT_WORKER_SERVICE_H_
