// Makes and checks data sets:
//
//   bazel run //tools/datasets -- convert --from=train --to=train.lmdb
//   bazel run //tools/datasets -- cut --from=photographs --to=crops --images=512
//   bazel run //tools/datasets -- verify train.lmdb --classes=1000
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/support/working_directory.h"
#include "tools/datasets/commands.h"

ABSL_FLAG(std::string, from, "",
          "convert: the image folder (one sub-folder per class) or LMDB to read. "
          "cut: the folder of large photographs. Example: --from=imagenet/train");
ABSL_FLAG(std::string, to, "",
          "convert: the LMDB file to make. cut: the folder to make, or an LMDB if the name ends in "
          ".lmdb. It must not exist. Example: --to=train.lmdb");
ABSL_FLAG(int, images, 512, "cut: number of images. Example: --images=512");
ABSL_FLAG(int, width, 500, "cut: width of an image in pixels. Example: --width=500");
ABSL_FLAG(int, height, 375, "cut: height of an image in pixels. Example: --height=375");
ABSL_FLAG(int, quality, 95, "cut: JPEG quality, 1 to 100. Example: --quality=90");
ABSL_FLAG(int, seed, 1, "cut: of the places that are cut out. Example: --seed=2");
ABSL_FLAG(int, classes, 0,
          "verify: classes of the network; larger labels count as corrupt. 0: any label is fine. "
          "Example: --classes=1000");

namespace paceline {
namespace {

constexpr absl::string_view kUsage =
    "Makes and checks data sets. Relative paths are relative to where you stand.\n\n"
    "  bazel run //tools/datasets -- convert --from=train --to=train.lmdb\n"
    "      An LMDB from a folder with one sub-folder of JPEGs per class.\n"
    "  bazel run //tools/datasets -- cut --from=photographs --to=crops --images=512 --width=500 "
    "--height=375\n"
    "      Small JPEGs cut from large photographs, one class per photograph.\n"
    "  bazel run //tools/datasets -- verify train.lmdb --classes=1000\n"
    "      Decodes every record and lists the corrupt ones (exit code 1 if there are any).\n\n"
    "docs/data_sets.md describes the layouts.";

absl::Status NeedsFromAndTo() {
  if (absl::GetFlag(FLAGS_from).empty() || absl::GetFlag(FLAGS_to).empty()) {
    return absl::InvalidArgumentError(
        "--from and --to are required, for example: --from=train --to=train.lmdb");
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<char*>& arguments) {
  const std::string command = arguments.size() > 1 ? arguments[1] : "";
  const std::string from = ResolveUserPath(absl::GetFlag(FLAGS_from));
  const std::string to = ResolveUserPath(absl::GetFlag(FLAGS_to));
  const size_t expected = command == "verify" ? 3 : 2;
  if (command != "convert" && command != "cut" && command != "verify") {
    return absl::InvalidArgumentError(
        absl::StrCat(command.empty() ? "a command is missing" : "unknown command '", command,
                     command.empty() ? "" : "'", "; expected convert, cut or verify (see --help)"));
  }
  if (arguments.size() != expected) {
    return absl::InvalidArgumentError(
        command == "verify" ? "verify takes one path, for example: verify train.lmdb"
                            : absl::StrCat(command, " takes flags only, for example: ", command,
                                           " --from=photographs --to=crops"));
  }
  if (command == "verify") {
    return VerifyDataSet(ResolveUserPath(arguments[2]), absl::GetFlag(FLAGS_classes), std::cout);
  }
  if (absl::Status status = NeedsFromAndTo(); !status.ok()) return status;
  if (command == "convert") return ConvertDataSet(from, to, std::cout);
  CutOptions options;
  options.images = absl::GetFlag(FLAGS_images);
  options.width = absl::GetFlag(FLAGS_width);
  options.height = absl::GetFlag(FLAGS_height);
  options.quality = absl::GetFlag(FLAGS_quality);
  options.seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
  return CutDataSet(from, to, options, std::cout);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(paceline::kUsage);
  absl::FlagsUsageConfig usage;
  usage.contains_helpshort_flags = [](absl::string_view file) {
    return absl::StrContains(file, "tools/datasets/");
  };
  usage.contains_help_flags = usage.contains_helpshort_flags;
  absl::SetFlagsUsageConfig(usage);
  const absl::Status status = paceline::Run(absl::ParseCommandLine(argc, argv));
  if (status.ok()) return 0;
  std::cerr << "datasets: " << status.message() << "\n";
  return 1;
}
