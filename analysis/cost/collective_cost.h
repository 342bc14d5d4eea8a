// Closed forms of collectives: how long an all-reduce of M bytes per rank takes over n ranks, given
// the cost of a message (alpha), of a byte on the wire (beta) and of adding a byte (gamma).
//
//   LinkCost link{.alpha_seconds = 20e-6, .beta_seconds_per_byte = 1e-9};
//   double t = *AllReduceSeconds(AllReduceAlgorithm::kRing, 25e6, 8, link);
//
// Sources: Thakur, Rabenseifner, Gropp, IJHPCA 2005 (ring, halving-doubling, recursive doubling);
// Sanders, Speck, Traff, Parallel Computing 2009 (double tree). Stateless and thread-safe.
#ifndef PACELINE_ANALYSIS_COST_COLLECTIVE_COST_H_
#define PACELINE_ANALYSIS_COST_COLLECTIVE_COST_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

enum class AllReduceAlgorithm {
  kRing,
  kHalvingDoubling,    // Rabenseifner: recursive halving, then doubling.
  kRecursiveDoubling,  // The whole buffer in each of log2 n steps.
  kDoubleTree,         // Two pipelined binary trees, half of the buffer through each.
};

absl::string_view AllReduceAlgorithmName(AllReduceAlgorithm algorithm);

struct LinkCost {
  double alpha_seconds = 0;           // Per message.
  double beta_seconds_per_byte = 0;   // On the wire.
  double gamma_seconds_per_byte = 0;  // Reduction.
};

// t = alpha_count * alpha + M * (beta_volume * beta + gamma_volume * gamma)
//     + pipeline * sqrt(alpha * beta * M).
struct CostTerms {
  double alpha_count = 0;
  double beta_volume = 0;
  double gamma_volume = 0;
  double pipeline = 0;  // Filling the pipeline of a tree with the best number of pieces.
};

// ranks >= 1; all terms are 0 for one rank.
absl::StatusOr<CostTerms> AllReduceTerms(AllReduceAlgorithm algorithm, int ranks);
absl::StatusOr<double> AllReduceSeconds(AllReduceAlgorithm algorithm, double bytes, int ranks,
                                        const LinkCost& link);

// Push of gradients to and pull of weights from S servers that share M bytes evenly.
struct ParameterServerShape {
  int workers = 1;  // Machines, not devices: devices of one reduce first.
  int servers = 1;
  double worker_bytes_per_second = 0;  // Network card, each direction.
  double server_bytes_per_second = 0;
  double reduce_bytes_per_second = 0;  // Per server; 0: reduction costs nothing.
  double alpha_seconds = 0;            // Per piece.
  int pieces = 1;                      // Messages that M is cut into.
  bool pipelined = true;               // Pull of a piece overlaps push of the next (full duplex).
};
absl::StatusOr<double> ParameterServerSeconds(double bytes, const ParameterServerShape& shape);

// Reduce-scatter within each node, all-reduce between nodes (one ring through every device's
// share), all-gather within each node: 2(g-1)/g M beta_in + 2(m-1)/m M beta_out of a node's network
// card.
absl::StatusOr<double> HierarchicalSeconds(double bytes, int devices_per_node, int nodes,
                                           const LinkCost& inside, const LinkCost& between);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_COST_COLLECTIVE_COST_H_
