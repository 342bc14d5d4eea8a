// absl::Status to gRPC's and back: the codes are the same numbers, the message travels as it is.
//
//   grpc::Status Synchronize(...) override { return ToGrpcStatus(scheduler_->Synchronize(...)); }
//   absl::Status status = FromGrpcStatus(stub->Synchronize(&context, request, &response));
//
// A header of its own, since gRPC's are slow to compile: include it in services and clients only.
#ifndef PACELINE_PROTO_SUPPORT_STATUS_PROTO_H_
#define PACELINE_PROTO_SUPPORT_STATUS_PROTO_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace paceline {

grpc::Status ToGrpcStatus(const absl::Status& status);

// `context`, if not empty, says what failed: "rank 3: Synchronize: connection refused".
absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view context = "");

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_STATUS_PROTO_H_
