#include "proto/support/join_token.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/text_proto.h"

namespace paceline {

absl::StatusOr<std::string> ReadJoinToken(const std::string& token_file) {
  std::string token;
  std::string source;
  if (!token_file.empty()) {
    absl::StatusOr<std::string> content = ReadFile(token_file);
    if (!content.ok()) return content.status();
    token = *std::move(content);
    source = token_file;
  } else {
    const char* variable = std::getenv("PACELINE_TOKEN");
    if (variable == nullptr || *variable == '\0') return std::string();
    token = variable;
    source = "PACELINE_TOKEN";
  }
  token = std::string(absl::StripAsciiWhitespace(token));
  if (token.size() < 8) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": a join token has at least 8 characters; make one with: openssl rand -hex 16"));
  }
  for (const char c : token) {
    if (!absl::ascii_isgraph(c)) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": a join token is one line of printable ASCII without spaces"));
    }
  }
  return token;
}

bool JoinTokensEqual(absl::string_view a, absl::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

}  // namespace paceline
