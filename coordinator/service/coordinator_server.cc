#include "coordinator/service/coordinator_server.h"

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines.
#include <mutex>   // NOLINT(build/c++11): std::call_once.
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/paceline/v1/coordinator.grpc.pb.h"
#include "proto/paceline/v1/rendezvous.grpc.pb.h"
#include "proto/support/join_token.h"
#include "proto/support/status_proto.h"

namespace paceline {
namespace {

// A result with a hundred thousand iterations has about 7 MB.
constexpr int kMaxMessageBytes = 64 << 20;

class Authenticator {
 public:
  explicit Authenticator(std::string token) : token_(std::move(token)) {}

  grpc::Status Check(const grpc::ServerContext& context) const {
    if (token_.empty()) return grpc::Status::OK;
    const auto& metadata = context.client_metadata();
    const auto shown = metadata.find(kJoinTokenMetadataKey);
    if (shown == metadata.end()) {
      return ToGrpcStatus(absl::UnauthenticatedError(
          "this run wants a join token: start the worker with --token_file=FILE or with "
          "PACELINE_TOKEN set to the coordinator's token"));
    }
    if (!JoinTokensEqual(token_, absl::string_view(shown->second.data(), shown->second.size()))) {
      return ToGrpcStatus(
          absl::UnauthenticatedError("the join token is not the coordinator's: use the same file"));
    }
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
};

class CoordinatorServiceImpl final : public v1::CoordinatorService::Service {
 public:
  CoordinatorServiceImpl(const Authenticator* authenticator, TrialScheduler* scheduler,
                         std::string run_dir)
      : authenticator_(authenticator), scheduler_(scheduler), run_dir_(std::move(run_dir)) {}

  grpc::Status Synchronize(grpc::ServerContext* context, const v1::SynchronizeRequest* request,
                           v1::SynchronizeResponse* response) override {
    const int64_t receive_unix_ns = absl::GetCurrentTimeNanos();
    grpc::Status allowed = authenticator_->Check(*context);
    if (!allowed.ok()) return allowed;
    absl::StatusOr<v1::SynchronizeResponse> answer = scheduler_->Synchronize(*request, absl::Now());
    if (!answer.ok()) return ToGrpcStatus(answer.status());
    *response = *std::move(answer);
    response->set_receive_unix_ns(receive_unix_ns);
    response->set_send_unix_ns(absl::GetCurrentTimeNanos());
    return grpc::Status::OK;
  }

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    grpc::Status allowed = authenticator_->Check(*context);
    if (!allowed.ok()) return allowed;
    *response = scheduler_->Snapshot(absl::Now());
    response->set_run_dir(run_dir_);
    return grpc::Status::OK;
  }

 private:
  const Authenticator* const authenticator_;
  TrialScheduler* const scheduler_;
  const std::string run_dir_;
};

class RendezvousServiceImpl final : public v1::RendezvousService::Service {
 public:
  RendezvousServiceImpl(const Authenticator* authenticator, RendezvousStore* store)
      : authenticator_(authenticator), store_(store) {}

  grpc::Status Put(grpc::ServerContext* context, const v1::PutRequest* request,
                   v1::PutResponse*) override {
    grpc::Status allowed = authenticator_->Check(*context);
    if (!allowed.ok()) return allowed;
    return ToGrpcStatus(store_->Put(request->prefix(), request->key(), request->value()));
  }

  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request,
                   v1::GetResponse* response) override {
    grpc::Status allowed = authenticator_->Check(*context);
    if (!allowed.ok()) return allowed;
    absl::StatusOr<std::vector<std::string>> values = store_->Get(
        request->prefix(), {request->keys().begin(), request->keys().end()},
        absl::Seconds(request->timeout_seconds()), [context] { return context->IsCancelled(); });
    if (!values.ok()) return ToGrpcStatus(values.status());
    for (std::string& value : *values) response->add_values(std::move(value));
    return grpc::Status::OK;
  }

 private:
  const Authenticator* const authenticator_;
  RendezvousStore* const store_;
};

class GrpcCoordinatorServer : public CoordinatorServer {
 public:
  GrpcCoordinatorServer(const ServerOptions& options, TrialScheduler* scheduler,
                        RendezvousStore* rendezvous)
      : options_(options),
        rendezvous_(rendezvous),
        authenticator_(options.join_token),
        coordinator_service_(&authenticator_, scheduler, options.run_dir),
        rendezvous_service_(&authenticator_, rendezvous) {}
  ~GrpcCoordinatorServer() override { GrpcCoordinatorServer::Shutdown(); }

  absl::Status Listen() {
    static std::once_flag once;
    std::call_once(once, [] {
      grpc::EnableDefaultHealthCheckService(true);
      grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    });
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (!options_.tls_certificate.empty()) {
      grpc::SslServerCredentialsOptions ssl(
          options_.tls_client_ca.empty()
              ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
              : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
      ssl.pem_key_cert_pairs.push_back({options_.tls_key, options_.tls_certificate});
      ssl.pem_root_certs = options_.tls_client_ca;
      credentials = grpc::SslServerCredentials(ssl);
    }
    grpc::ServerBuilder builder;
    // A second coordinator on the same port must fail, not share its workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    builder.AddListeningPort(options_.listen, credentials, &port_);
    builder.RegisterService(&coordinator_service_);
    builder.RegisterService(&rendezvous_service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", options_.listen, ": the address is in use or not of this machine",
          options_.tls_certificate.empty() ? "" : ", or the certificate or key is not valid PEM",
          "; --listen=127.0.0.1:0 takes any free port"));
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  std::string address() const override {
    return absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port_);
  }
  void Shutdown() override {
    if (server_ == nullptr) return;
    rendezvous_->Close();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    server_->Wait();
    server_.reset();
  }

 private:
  const ServerOptions options_;
  RendezvousStore* const rendezvous_;
  const Authenticator authenticator_;
  CoordinatorServiceImpl coordinator_service_;
  RendezvousServiceImpl rendezvous_service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

bool IsLoopback(absl::string_view listen) {
  const absl::string_view host = listen.substr(0, listen.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

absl::Status ServerOptions::Validate() const {
  const size_t colon = listen.rfind(':');
  int port_number = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port_number) || port_number < 0 ||
      port_number > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen=", listen, ": expected HOST:PORT, for example 127.0.0.1:0 or 0.0.0.0:7400"));
  }
  if (tls_certificate.empty() != tls_key.empty()) {
    return absl::InvalidArgumentError("--tls_cert and --tls_key belong together: give both");
  }
  if (!tls_client_ca.empty() && tls_certificate.empty()) {
    return absl::InvalidArgumentError("--tls_ca needs --tls_cert and --tls_key");
  }
  if (IsLoopback(listen) || insecure) return absl::OkStatus();
  if (!tls_certificate.empty() && !join_token.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--listen=", listen,
      " can be reached from other machines, and workers run what the "
      "coordinator tells them; missing:",
      tls_certificate.empty() ? " TLS (--tls_cert=FILE --tls_key=FILE)" : "",
      tls_certificate.empty() && join_token.empty() ? " and" : "",
      join_token.empty() ? " a join token (--token_file=FILE or PACELINE_TOKEN)" : "",
      ". docs/cluster.md shows how to make them. In a network that you trust, --insecure goes "
      "without."));
}

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const ServerOptions& options, TrialScheduler* scheduler, RendezvousStore* rendezvous) {
  absl::Status valid = options.Validate();
  if (!valid.ok()) return valid;
  auto server = std::make_unique<GrpcCoordinatorServer>(options, scheduler, rendezvous);
  absl::Status listening = server->Listen();
  if (!listening.ok()) return listening;
  return server;
}

}  // namespace paceline
