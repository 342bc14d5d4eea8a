#include "proto/support/status_proto.h"

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(StatusProtoTest, EveryCodeSurvivesTheRoundTrip) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "rank 3 fell silent");
    const grpc::Status sent = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(sent.error_code()), code);
    EXPECT_EQ(FromGrpcStatus(sent), status);
  }
}

TEST(StatusProtoTest, ContextStartsTheMessage) {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "refused"), "Synchronize");
  EXPECT_EQ(status, absl::UnavailableError("Synchronize: refused"));
}

}  // namespace
}  // namespace paceline
