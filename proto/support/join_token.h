// The secret that workers show to join a run, and the coordinator checks.
//
//   absl::StatusOr<std::string> token = ReadJoinToken(token_file);
//   context.AddMetadata(kJoinTokenMetadataKey, *token);   // On every call of a worker.
//
// Thread-safe.
#ifndef PACELINE_PROTO_SUPPORT_JOIN_TOKEN_H_
#define PACELINE_PROTO_SUPPORT_JOIN_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// gRPC metadata key under which it travels.
constexpr char kJoinTokenMetadataKey[] = "x-paceline-token";

// The content of `token_file` without surrounding white space; with an empty path, of the
// environment variable PACELINE_TOKEN; empty if neither is given (no token). INVALID_ARGUMENT for a
// token that is shorter than 8 characters or cannot travel in a header.
absl::StatusOr<std::string> ReadJoinToken(const std::string& token_file);

// Compares without telling by its duration where the two differ.
bool JoinTokensEqual(absl::string_view a, absl::string_view b);

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_JOIN_TOKEN_H_
