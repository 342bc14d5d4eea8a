#include "worker/agent/coordinator_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/paceline/v1/coordinator.grpc.pb.h"
#include "proto/paceline/v1/rendezvous.grpc.pb.h"
#include "proto/support/join_token.h"
#include "proto/support/status_proto.h"

namespace paceline {
namespace {

// Results with thousands of iterations and operations are larger than gRPC's 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;

void PrepareContext(grpc::ClientContext& context, const std::string& token, absl::Time deadline) {
  context.set_deadline(absl::ToChronoTime(deadline));
  if (!token.empty()) context.AddMetadata(kJoinTokenMetadataKey, token);
}

class GrpcRendezvousStore : public RendezvousStore {
 public:
  GrpcRendezvousStore(const std::shared_ptr<grpc::Channel>& channel, std::string prefix,
                      std::string token)
      : stub_(v1::RendezvousService::NewStub(channel)),
        prefix_(std::move(prefix)),
        token_(std::move(token)) {}

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    grpc::ClientContext context;
    PrepareContext(context, token_, absl::Now() + absl::Seconds(10));
    v1::PutRequest request;
    request.set_prefix(prefix_);
    request.set_key(std::string(key));
    request.set_value(std::string(value));
    v1::PutResponse response;
    return FromGrpcStatus(stub_->Put(&context, request, &response), "rendezvous");
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    v1::GetRequest request;
    request.set_prefix(prefix_);
    request.add_keys(std::string(key));
    while (true) {
      // The service waits at most 60 s a call.
      const absl::Duration left =
          std::min<absl::Duration>(deadline - absl::Now(), absl::Seconds(20));
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            absl::StrCat("no peer published '", key, "' within the deadline"));
      }
      grpc::ClientContext context;
      // A little longer than the server waits: its own answer says why.
      PrepareContext(context, token_, absl::Now() + left + absl::Seconds(2));
      request.set_timeout_seconds(absl::ToDoubleSeconds(left));
      v1::GetResponse response;
      absl::Status status = FromGrpcStatus(stub_->Get(&context, request, &response), "rendezvous");
      if (status.ok()) {
        if (response.values_size() != 1) {
          return absl::InternalError("the rendezvous answered without the value");
        }
        return response.values(0);
      }
      if (!absl::IsDeadlineExceeded(status)) return status;
    }
  }

 private:
  std::unique_ptr<v1::RendezvousService::Stub> stub_;
  const std::string prefix_;
  const std::string token_;
};

class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  explicit GrpcCoordinatorClient(const CoordinatorClientOptions& options)
      : token_(options.token),
        channel_(MakeChannel(options)),
        stub_(v1::CoordinatorService::NewStub(channel_)) {}

  absl::StatusOr<v1::SynchronizeResponse> Synchronize(const v1::SynchronizeRequest& request,
                                                      absl::Time deadline) override {
    grpc::ClientContext context;
    PrepareContext(context, token_, deadline);
    v1::SynchronizeResponse response;
    absl::Status status = FromGrpcStatus(stub_->Synchronize(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  std::unique_ptr<RendezvousStore> Rendezvous(const std::string& prefix) override {
    return std::make_unique<GrpcRendezvousStore>(channel_, prefix, token_);
  }

 private:
  static std::shared_ptr<grpc::Channel> MakeChannel(const CoordinatorClientOptions& options) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
    arguments.SetMaxSendMessageSize(kMaxMessageBytes);
    // A coordinator that comes back is found soon.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (!options.tls_ca.empty()) {
      grpc::SslCredentialsOptions ssl;
      ssl.pem_root_certs = options.tls_ca;
      credentials = grpc::SslCredentials(ssl);
    }
    return grpc::CreateCustomChannel(options.address, credentials, arguments);
  }

  const std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

}  // namespace

std::unique_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(
    const CoordinatorClientOptions& options) {
  return std::make_unique<GrpcCoordinatorClient>(options);
}

}  // namespace paceline
