#include "analysis/cost/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

absl::Status CheckBytes(double bytes) {
  if (bytes >= 0 && std::isfinite(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes, ", expected 0 or more"));
}

}  // namespace

absl::string_view AllReduceAlgorithmName(AllReduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllReduceAlgorithm::kRing:
      return "ring";
    case AllReduceAlgorithm::kHalvingDoubling:
      return "halving-doubling";
    case AllReduceAlgorithm::kRecursiveDoubling:
      return "recursive doubling";
    case AllReduceAlgorithm::kDoubleTree:
      return "double tree";
  }
  return "unknown";
}

absl::StatusOr<CostTerms> AllReduceTerms(AllReduceAlgorithm algorithm, int ranks) {
  if (ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("ranks is ", ranks, ", expected 1 or more"));
  }
  CostTerms terms;
  if (ranks == 1) return terms;
  const double n = ranks;
  // Ranks that are no power of two fold into one first: counted as a fraction of a step.
  const double levels = std::log2(n);
  const double share = (n - 1) / n;
  switch (algorithm) {
    case AllReduceAlgorithm::kRing:
      terms = {2 * (n - 1), 2 * share, share, 0};
      break;
    case AllReduceAlgorithm::kHalvingDoubling:
      terms = {2 * levels, 2 * share, share, 0};
      break;
    case AllReduceAlgorithm::kRecursiveDoubling:
      terms = {levels, levels, levels, 0};
      break;
    case AllReduceAlgorithm::kDoubleTree:
      // k pieces take (2 log n + k)(alpha + 2 M beta / k); the best k gives the last term.
      terms = {2 * levels, 2, 1, 2 * std::sqrt(4 * levels)};
      break;
  }
  return terms;
}

absl::StatusOr<double> AllReduceSeconds(AllReduceAlgorithm algorithm, double bytes, int ranks,
                                        const LinkCost& link) {
  absl::Status status = CheckBytes(bytes);
  if (!status.ok()) return status;
  absl::StatusOr<CostTerms> terms = AllReduceTerms(algorithm, ranks);
  if (!terms.ok()) return terms.status();
  return terms->alpha_count * link.alpha_seconds +
         bytes * (terms->beta_volume * link.beta_seconds_per_byte +
                  terms->gamma_volume * link.gamma_seconds_per_byte) +
         terms->pipeline * std::sqrt(link.alpha_seconds * link.beta_seconds_per_byte * bytes);
}

absl::StatusOr<double> ParameterServerSeconds(double bytes, const ParameterServerShape& shape) {
  absl::Status status = CheckBytes(bytes);
  if (!status.ok()) return status;
  if (shape.workers < 1 || shape.servers < 1 || shape.pieces < 1) {
    return absl::InvalidArgumentError(absl::StrCat("workers ", shape.workers, ", servers ",
                                                   shape.servers, ", pieces ", shape.pieces,
                                                   ": expected 1 or more of each"));
  }
  if (!(shape.worker_bytes_per_second > 0) || !(shape.server_bytes_per_second > 0) ||
      shape.reduce_bytes_per_second < 0) {
    return absl::InvalidArgumentError("bandwidths of workers and servers must be more than 0");
  }
  const double at_server = bytes * shape.workers / shape.servers;
  const double pull =
      std::max(bytes / shape.worker_bytes_per_second, at_server / shape.server_bytes_per_second);
  double push = pull;
  if (shape.reduce_bytes_per_second > 0) {
    push = std::max(push, at_server / shape.reduce_bytes_per_second);
  }
  const double latency = shape.alpha_seconds * shape.pieces;
  if (!shape.pipelined) return latency + push + pull;
  return latency + std::max(push, pull) + std::min(push, pull) / shape.pieces;
}

absl::StatusOr<double> HierarchicalSeconds(double bytes, int devices_per_node, int nodes,
                                           const LinkCost& inside, const LinkCost& between) {
  absl::StatusOr<double> within =
      AllReduceSeconds(AllReduceAlgorithm::kRing, bytes, devices_per_node, inside);
  if (!within.ok()) return within.status();
  absl::StatusOr<double> across =
      AllReduceSeconds(AllReduceAlgorithm::kRing, bytes, nodes, between);
  if (!across.ok()) return across.status();
  return *within + *across;
}

}  // namespace paceline
