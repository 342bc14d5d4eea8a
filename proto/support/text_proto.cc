#include "proto/support/text_proto.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace paceline {
namespace {

class ErrorList : public google::protobuf::io::ErrorCollector {
 public:
  explicit ErrorList(absl::string_view source_name) : source_name_(source_name) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    errors_.push_back(Located(line, column, message));
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    warnings_.push_back(Located(line, column, message));
  }

  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string Located(int line, google::protobuf::io::ColumnNumber column,
                      const std::string& message) const {
    // The parser says -1 when an error has no place, such as a missing required field.
    if (line < 0) return absl::StrCat(source_name_, ": ", message);
    return absl::StrCat(source_name_, ":", line + 1, ":", column + 1, ": ", message);
  }

  const std::string source_name_;
  std::vector<std::string> errors_;
  std::vector<std::string> warnings_;
};

// Parses with `parser`, whose options the caller has set.
absl::Status Parse(absl::string_view text, absl::string_view source_name,
                   google::protobuf::TextFormat::Parser* parser, ErrorList* errors,
                   google::protobuf::Message* message) {
  parser->RecordErrorsTo(errors);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (parser->Parse(&input, message) && errors->errors().empty()) return absl::OkStatus();
  if (errors->errors().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(source_name, ": not a valid text proto"));
  }
  return absl::InvalidArgumentError(absl::StrJoin(errors->errors(), "\n"));
}

absl::Status FileError(absl::string_view doing, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", doing, " ", path));
}

}  // namespace

absl::Status ParseTextProto(absl::string_view text, absl::string_view source_name,
                            google::protobuf::Message* message, TextProtoLocations* locations) {
  ErrorList errors(source_name);
  google::protobuf::TextFormat::Parser parser;
  if (locations != nullptr) parser.WriteLocationsTo(locations);
  return Parse(text, source_name, &parser, &errors, message);
}

absl::Status ParseTextProtoPart(absl::string_view text, absl::string_view source_name,
                                google::protobuf::Message* message,
                                std::vector<std::string>* ignored, TextProtoLocations* locations) {
  ErrorList errors(source_name);
  google::protobuf::TextFormat::Parser parser;
  if (locations != nullptr) parser.WriteLocationsTo(locations);
  parser.AllowUnknownField(true);
  const absl::Status status = Parse(text, source_name, &parser, &errors, message);
  *ignored = errors.warnings();
  return status;
}

absl::Status ReadTextProtoFile(const std::string& path, google::protobuf::Message* message,
                               TextProtoLocations* locations) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  return ParseTextProto(*text, path, message, locations);
}

std::string PrintTextProto(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetExpandAny(true);
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

absl::Status WriteTextProtoFile(const google::protobuf::Message& message, const std::string& path,
                                absl::string_view comment) {
  std::string text;
  if (!comment.empty()) {
    for (absl::string_view line : absl::StrSplit(comment, '\n')) {
      absl::StrAppend(&text, line.empty() ? "#" : "# ", line, "\n");
    }
  }
  return WriteFile(absl::StrCat(text, PrintTextProto(message)), path);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError("open", path);
  std::string content;
  char buffer[1 << 16];
  ssize_t size_bytes = 0;
  while ((size_bytes = read(file, buffer, sizeof(buffer))) > 0) content.append(buffer, size_bytes);
  const absl::Status status = size_bytes < 0 ? FileError("read", path) : absl::OkStatus();
  close(file);
  if (!status.ok()) return status;
  return content;
}

absl::Status WriteFile(absl::string_view content, const std::string& path) {
  // Beside the target, since a rename cannot cross file systems; mkstemp, since writers may race.
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int file = mkstemp(&temporary[0]);
  if (file < 0) return FileError("create a file beside", path);
  const mode_t mask = umask(0);
  umask(mask);
  absl::Status status =
      fchmod(file, 0666 & ~mask) == 0 ? absl::OkStatus() : FileError("write", path);
  while (status.ok() && !content.empty()) {
    const ssize_t written_bytes = write(file, content.data(), content.size());
    if (written_bytes >= 0) {
      content.remove_prefix(written_bytes);
    } else if (errno != EINTR) {
      status = FileError("write", path);
    }
  }
  if (close(file) != 0 && status.ok()) status = FileError("write", path);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0)
    status = FileError("replace", path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace paceline
