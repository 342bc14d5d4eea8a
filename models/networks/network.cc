#include "models/networks/network.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "models/networks/embedded_networks.h"
#include "proto/paceline/v1/network.pb.h"
#include "proto/support/closest_name.h"
#include "proto/support/text_proto.h"
#include "proto/support/working_directory.h"
#include "tools/embedded_file.h"

namespace paceline {
namespace {

constexpr absl::string_view kFileSuffix = ".textproto";
constexpr absl::string_view kAuxiliarySuffix = "+aux";

absl::StatusOr<v1::Network> ReadNetwork(absl::string_view name_or_path);

absl::StatusOr<v1::Network> ReadNetworkFile(absl::string_view path) {
  absl::StatusOr<v1::Network> network = ReadTextProtoFile<v1::Network>(ResolveUserPath(path));
  if (!network.ok()) return network;
  // Results are told apart by the network's name.
  const std::vector<std::string> known = KnownNetworks();
  if (std::find(known.begin(), known.end(), network->name()) != known.end()) {
    absl::StatusOr<v1::Network> built_in = ReadNetwork(network->name());
    if (!built_in.ok()) return built_in;
    if (built_in->SerializeAsString() != network->SerializeAsString()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": name: '", network->name(),
                       "' is a built-in network that differs from this file; choose another name"));
    }
  }
  return network;
}

absl::StatusOr<v1::Network> ReadNetwork(absl::string_view name_or_path) {
  if (absl::EndsWith(name_or_path, kFileSuffix)) return ReadNetworkFile(name_or_path);
  for (const EmbeddedFile& file : EmbeddedNetworks()) {
    if (absl::StripSuffix(file.name, kFileSuffix) == name_or_path) {
      return ParseTextProto<v1::Network>(file.contents, file.name);
    }
  }
  const std::vector<std::string> known = KnownNetworks();
  return absl::NotFoundError(absl::StrCat(
      "unknown network '", name_or_path, "'", DidYouMean(name_or_path, known), "; known networks: ",
      absl::StrJoin(known, ", "), "; or give the path of a file that ends in ", kFileSuffix));
}

}  // namespace

std::vector<std::string> KnownNetworks() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : EmbeddedNetworks()) {
    names.emplace_back(absl::StripSuffix(file.name, kFileSuffix));
  }
  // The files are sorted, but not without their suffix: "v1.5.textproto" comes before
  // "v1.textproto".
  std::sort(names.begin(), names.end());
  return names;
  // with.
}

absl::StatusOr<v1::Network> LoadNetwork(absl::string_view name_or_path) {
  absl::string_view base = name_or_path;
  const bool with_auxiliary = absl::ConsumeSuffix(&base, kAuxiliarySuffix);
  absl::StatusOr<v1::Network> network = ReadNetwork(base);
  if (!network.ok()) return network;

  // Checked with its auxiliary layers: a reference to one of them is clearer now than when it is
  // gone.
  const absl::Status status = InferShapes(*network).status();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(base, ": ", status.message()));

  v1::Network kept = *network;
  kept.clear_layers();
  for (v1::Layer& layer : *network->mutable_layers()) {
    if (with_auxiliary || !layer.auxiliary()) *kept.add_layers() = std::move(layer);
  }
  if (with_auxiliary) {
    bool any = false;
    for (const v1::Layer& layer : kept.layers()) any |= layer.auxiliary();
    if (!any) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network '", base, "' has no auxiliary layers; leave out '", kAuxiliarySuffix, "'"));
    }
    kept.set_name(absl::StrCat(kept.name(), kAuxiliarySuffix));
  }
  return kept;
}

}  // namespace paceline
