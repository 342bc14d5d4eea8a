// The coordinator as a worker sees it. gRPC stays behind MakeGrpcCoordinatorClient, out of the
// agent's header.
#ifndef PACELINE_WORKER_AGENT_COORDINATOR_CLIENT_H_
#define PACELINE_WORKER_AGENT_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/coordinator.pb.h"
#include "worker/backend/backend.h"

namespace paceline {

class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;
  // Ends by `deadline`. UNAVAILABLE, DEADLINE_EXCEEDED: call again. UNAUTHENTICATED,
  // FAILED_PRECONDITION: somebody must mend something first; the message says what.
  virtual absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                              absl::Time deadline) = 0;
  // The store of one attempt. Outlives the client.
  virtual std::unique_ptr<RendezvousStore> Rendezvous(const std::string& prefix) = 0;
};

struct CoordinatorClientOptions {
  std::string address;  // "host:port".
  std::string token;    // Join token; empty: none.
  std::string tls_ca;   // PEM of the certificate authority; empty: no TLS.
};

std::unique_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(
    const CoordinatorClientOptions& options);

}  // namespace paceline

#endif  // PACELINE_WORKER_AGENT_COORDINATOR_CLIENT_H_
