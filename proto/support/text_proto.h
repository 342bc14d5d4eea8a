// Text-proto files, with errors a user can act on.
//
//   absl::StatusOr<BenchmarkPlan> plan = ReadTextProtoFile<BenchmarkPlan>("plan.textproto");
//   // INVALID_ARGUMENT: plan.textproto:7:3: Message type "paceline.v1.BenchmarkPlan" has no field
//   // named "trails".
//
// Every error found is listed, one a line. NOT_FOUND, PERMISSION_DENIED and the like when the file
// cannot be read. Thread-safe.
#ifndef PACELINE_PROTO_SUPPORT_TEXT_PROTO_H_
#define PACELINE_PROTO_SUPPORT_TEXT_PROTO_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace paceline {

// Where each field of a parsed message stands, for errors found later (zero-based, as protobuf has
// it).
using TextProtoLocations = google::protobuf::TextFormat::ParseInfoTree;

// Parses `text` into `message`. `source_name` (a file's name) starts each error. `locations` may be
// null. On failure `message` is left in an unspecified state.
absl::Status ParseTextProto(absl::string_view text, absl::string_view source_name,
                            google::protobuf::Message* message,
                            TextProtoLocations* locations = nullptr);
absl::Status ReadTextProtoFile(const std::string& path, google::protobuf::Message* message,
                               TextProtoLocations* locations = nullptr);

// The same for text written for another program's messages, of which `message` holds a part: fields
// that it does not have are skipped and described in `ignored`, "net.prototxt:3:8: Message type ...
// has no field named ...".
absl::Status ParseTextProtoPart(absl::string_view text, absl::string_view source_name,
                                google::protobuf::Message* message,
                                std::vector<std::string>* ignored,
                                TextProtoLocations* locations = nullptr);

template <typename T>
absl::StatusOr<T> ParseTextProto(absl::string_view text, absl::string_view source_name = "text") {
  T message;
  absl::Status status = ParseTextProto(text, source_name, &message);
  if (!status.ok()) return status;
  return message;
}

template <typename T>
absl::StatusOr<T> ReadTextProtoFile(const std::string& path) {
  T message;
  absl::Status status = ReadTextProtoFile(path, &message);
  if (!status.ok()) return status;
  return message;
}

// Multi-line text form. Any nested google.protobuf.Any is written as its content.
std::string PrintTextProto(const google::protobuf::Message& message);

// Replaces the file at once: a reader sees the old content or the new, never a part. `comment`, if
// not empty, goes to the top, each of its lines behind "# ".
absl::Status WriteTextProtoFile(const google::protobuf::Message& message, const std::string& path,
                                absl::string_view comment = "");

// The file's whole content, and its replacement at once; errors name the file and the cause.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(absl::string_view content, const std::string& path);

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_TEXT_PROTO_H_
