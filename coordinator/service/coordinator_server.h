// The coordinator's gRPC server: CoordinatorService, RendezvousService, health and reflection.
//
//   RendezvousStore rendezvous;
//   TrialScheduler scheduler(..., &rendezvous, now);
//   ServerOptions options;
//   options.listen = "127.0.0.1:0";
//   absl::StatusOr<std::unique_ptr<CoordinatorServer>> server =
//       CoordinatorServer::Start(options, &scheduler, &rendezvous);
//   (*server)->address();   // "127.0.0.1:41234".
//
// Beyond loopback it wants TLS and a join token, unless `insecure` says that the network is
// trusted. Thread-safe. No gRPC type appears here, since its headers are slow to compile.
#ifndef PACELINE_COORDINATOR_SERVICE_COORDINATOR_SERVER_H_
#define PACELINE_COORDINATOR_SERVICE_COORDINATOR_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/scheduler/trial_scheduler.h"
#include "coordinator/service/rendezvous_store.h"

namespace paceline {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0: any free one.
  // Workers must show it on every call; empty: no token.
  std::string join_token;
  // PEM. Certificate chain and key of this server; with `tls_client_ca`, workers must show a
  // certificate signed by it.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  // Allows listening beyond loopback without TLS or without a token.
  bool insecure = false;
  std::string run_dir;  // For GetStatus.

  // INVALID_ARGUMENT: the address; a certificate without key. FAILED_PRECONDITION: not safe; says
  // what to do.
  absl::Status Validate() const;
};

class CoordinatorServer {
 public:
  virtual ~CoordinatorServer() = default;

  // Both must outlive the server. UNAVAILABLE if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(const ServerOptions& options,
                                                                  TrialScheduler* scheduler,
                                                                  RendezvousStore* rendezvous);

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // The host listened on, with the port bound.
  // Ends the calls in progress and stops listening. Called by the destructor as well.
  virtual void Shutdown() = 0;
};

// Whether only this machine can reach `listen` ("127.0.0.1:0", "localhost:1", "[::1]:0").
bool IsLoopback(absl::string_view listen);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_SERVICE_COORDINATOR_SERVER_H_
