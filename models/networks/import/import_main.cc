// Makes a network file of an ONNX model or a Caffe prototxt.
//
//   bazel run //models/networks:import -- model.onnx --out=mynet.textproto
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "models/networks/import/network_builder.h"
#include "models/networks/import/onnx_import.h"
#include "models/networks/import/prototxt_import.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/command_line.h"
#include "proto/support/text_proto.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

absl::StatusOr<v1::ImageSize> ParseImageSize(absl::string_view text) {
  v1::ImageSize size;
  if (text.empty()) return size;
  int channels = 0, height = 0, width = 0;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, 'x');
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &channels) ||
      !absl::SimpleAtoi(parts[1], &height) || !absl::SimpleAtoi(parts[2], &width) ||
      channels <= 0 || height <= 0 || width <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--input: expected CHANNELSxHEIGHTxWIDTH such as 3x224x224, got '", text, "'"));
  }
  size.set_channels(channels);
  size.set_height(height);
  size.set_width(width);
  return size;
}

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

absl::Status Import(int argc, char** argv) {
  ImportOptions options;
  std::string out, input;
  CommandLine line(
      "import",
      "Makes a network file of a model of yours, to be benchmarked (networks: \"mynet.textproto\" "
      "in "
      "a plan) and predicted (--network=mynet.textproto). Takes ONNX models and Caffe's network "
      "definitions. What the network file cannot hold is an error; what was left out or assumed is "
      "said.",
      {"bazel run //models/networks:import -- model.onnx --out=mynet.textproto",
       "bazel run //models/networks:import -- train_val.prototxt --out=mynet.textproto "
       "--name=mynet"});
  line.AddString("out", &out, "FILE.textproto",
                 "The network file to write; none: only the summary.", "--out=mynet.textproto");
  line.AddString(
      "name", &options.name, "NAME",
      "What results call the network; default: the name in a prototxt, the file name of an ONNX "
      "model.",
      "--name=mynet");
  line.AddString("title", &options.title, "TEXT", "What a reader calls it; default: the name.",
                 "--title=\"My network\"");
  line.AddString("input", &input, "CxHxW",
                 "Size of one image, channels first; needed where the file does not say.",
                 "--input=3x224x224");
  absl::StatusOr<std::vector<std::string>> rest = line.Parse(argc, argv);
  if (!rest.ok()) return rest.status();
  if (line.help_wanted()) {
    std::cout << line.Help();
    return absl::OkStatus();
  }
  if (rest->size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one model to import, got ", rest->size(), "; see --help"));
  }
  if (!out.empty() && !absl::EndsWith(out, ".textproto")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out: must end in .textproto, by which plans know a file; got '", out, "'"));
  }
  absl::StatusOr<v1::ImageSize> size = ParseImageSize(input);
  if (!size.ok()) return size.status();
  options.input = *size;
  const std::string& path = rest->front();
  options.file = std::string(BaseName(path));
  const bool is_onnx = absl::EndsWith(path, ".onnx");
  // Exporters call every graph "main_graph"; people give a prototxt a name.
  if (options.name.empty() && is_onnx) {
    options.name = std::string(absl::StripSuffix(options.file, ".onnx"));
  }
  if (!is_onnx && !absl::EndsWith(path, ".prototxt")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "': expected a file that ends in .onnx or .prototxt"));
  }
  absl::StatusOr<std::string> content = ReadFile(ResolveUserPath(path));
  if (!content.ok()) return content.status();
  absl::StatusOr<ImportedNetwork> imported =
      is_onnx ? ImportOnnx(*content, options) : ImportPrototxt(*content, options);
  if (!imported.ok()) return imported.status();
  const std::string summary = ImportSummary(*imported);
  std::cout << summary;
  if (out.empty()) return absl::OkStatus();
  const absl::Status written = WriteTextProtoFile(
      imported->network, ResolveUserPath(out),
      absl::StrCat("proto-file: proto/paceline/v1/network.proto\nproto-message: Network\n\n"
                   "Imported from ",
                   options.file, ".\n\n", absl::StripSuffix(summary, "\n")));
  if (!written.ok()) return written;
  std::cout << "written      " << out << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  const absl::Status status = paceline::Import(argc, argv);
  if (status.ok()) return 0;
  std::cerr << "import: " << status.message() << "\n";
  return 1;
}
