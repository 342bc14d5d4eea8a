// A file compiled into the binary by embed_files (tools/embed.bzl).
//
//   for (const EmbeddedFile& file : EmbeddedNetworks()) Parse(file.name, file.contents);
//
// Both views point at constants that live as long as the program.
#ifndef PACELINE_TOOLS_EMBEDDED_FILE_H_
#define PACELINE_TOOLS_EMBEDDED_FILE_H_

#include "absl/strings/string_view.h"

namespace paceline {

struct EmbeddedFile {
  absl::string_view name;  // Base name: "vgg16.textproto".
  absl::string_view contents;
};

}  // namespace paceline

#endif  // PACELINE_TOOLS_EMBEDDED_FILE_H_
