#include "worker/agent/worker_service.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/paceline/v1/worker.grpc.pb.h"
#include "proto/support/mutex.h"

namespace paceline {
namespace {

constexpr size_t kMaxEchoBytes = 1 << 20;

class WorkerServiceImpl : public v1::WorkerService::Service {
 public:
  void SetDescribe(std::function<v1::DescribeResponse()> describe) {
    MutexLock lock(&mutex_);
    describe_ = std::move(describe);
  }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    MutexLock lock(&mutex_);
    if (describe_ == nullptr) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is starting; call again");
    }
    *response = describe_();
    return grpc::Status::OK;
  }

  grpc::Status Echo(grpc::ServerContext*, const v1::EchoRequest* request,
                    v1::EchoResponse* response) override {
    response->set_receive_unix_ns(absl::ToUnixNanos(absl::Now()));
    if (request->payload().size() > kMaxEchoBytes) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          absl::StrCat("payload: at most ", kMaxEchoBytes, " bytes, got ",
                                       request->payload().size()));
    }
    response->set_payload(request->payload());
    response->set_send_unix_ns(absl::ToUnixNanos(absl::Now()));
    return grpc::Status::OK;
  }

 private:
  Mutex mutex_;
  std::function<v1::DescribeResponse()> describe_ ABSL_GUARDED_BY(mutex_);
};

class GrpcWorkerServer : public WorkerServer {
 public:
  ~GrpcWorkerServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  absl::Status Start(const std::string& listen) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen, ": address in use or not of this host"));
    }
    address_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }
  void SetDescribe(std::function<v1::DescribeResponse()> describe) override {
    service_.SetDescribe(std::move(describe));
  }

 private:
  WorkerServiceImpl service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> StartWorkerServer(const std::string& listen) {
  if (!absl::StartsWith(listen, "127.") && !absl::StartsWith(listen, "localhost:") &&
      !absl::StartsWith(listen, "[::1]:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen=", listen,
                     ": the worker's inspection service is for loopback only, for example "
                     "127.0.0.1:0"));
  }
  auto server = std::make_unique<GrpcWorkerServer>();
  absl::Status status = server->Start(listen);
  if (!status.ok()) return status;
  return std::unique_ptr<WorkerServer>(std::move(server));
}

}  // namespace paceline
