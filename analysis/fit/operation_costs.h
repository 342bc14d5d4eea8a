// Operation records turned into cost points: what each operation of a trial took, as one number
// that a cost model can be fitted to. Everything that learns from operations starts here.
//
//   for (const OperationCost& cost : MeasuredOperationCosts(trial)) {
//     if (IsMessage(cost.kind)) { ... cost.bytes, cost.seconds ... }
//   }
//
// Numbers are means over iterations and repeats: means of operations add up to the mean of what
// they make up, medians do not where operations disturb each other (MeasuredOperationSeconds in
// fit.h says why). Over ranks: messages count as the rank sees them that arrives last and waits for
// nobody (the minimum), updates as the rank that does them all (the maximum), the rest as the mean.
//
// Seconds, bytes. Pure functions, thread-safe.
#ifndef PACELINE_ANALYSIS_FIT_OPERATION_COSTS_H_
#define PACELINE_ANALYSIS_FIT_OPERATION_COSTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "analysis/merge/merge.h"
#include "proto/paceline/v1/plan.pb.h"

namespace paceline {

struct OperationCost {
  std::string kind;  // OperationKindName.
  int layer = -1;
  int group = -1;
  int64_t bytes = 0;
  double seconds = 0;
};

// By kind, layer and group. Records of negative time are left out. Empty: nothing was timed.
std::vector<OperationCost> MeasuredOperationCosts(const MergedTrial& trial);

double SumOfKind(const std::vector<OperationCost>& costs, absl::string_view kind);

// True for the names of kinds that IsCommunication() holds for (packing included).
bool IsMessage(absl::string_view kind);

// Messages in a row that an operation of `kind` over `ranks` consists of, and the bytes it puts on
// the wire over its payload: the ring's closed form for all-reduce, trees for reduce and broadcast,
// the busiest server's share for push and pull (performance model, "Collectives").
double MessageSteps(absl::string_view kind, int ranks);
double MessageVolume(absl::string_view kind, int ranks, int servers);

// What decides the cost of a sample's input: source and image size, "synthetic 3x32x32".
std::string InputSubject(const v1::Trial& trial);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_OPERATION_COSTS_H_
