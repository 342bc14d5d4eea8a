#include "analysis/fit/operation_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "models/schedule/schedule.h"

namespace paceline {

std::vector<OperationCost> MeasuredOperationCosts(const MergedTrial& trial) {
  struct Records {
    std::map<int, std::vector<double>> seconds_by_rank;  // One value per repeat.
    int64_t bytes = 0;
  };
  std::map<std::tuple<std::string, int, int>, Records> operations;
  for (const MergedRepeat& repeat : trial.repeats) {
    for (const v1::TrialResult& rank : repeat.ranks) {
      for (const v1::OperationStatistics& operation : rank.operations()) {
        // Runs of older versions have no means.
        const int64_t ns = operation.mean_ns() > 0 ? operation.mean_ns() : operation.median_ns();
        if (ns < 0) continue;
        Records& records =
            operations[std::make_tuple(operation.kind(), operation.layer(), operation.group())];
        records.seconds_by_rank[rank.rank()].push_back(ns * 1e-9);
        records.bytes = operation.bytes();
      }
    }
  }
  std::vector<OperationCost> costs;
  for (const auto& entry : operations) {
    OperationCost cost;
    std::tie(cost.kind, cost.layer, cost.group) = entry.first;
    cost.bytes = entry.second.bytes;
    std::vector<double> ranks;
    for (const auto& rank : entry.second.seconds_by_rank) ranks.push_back(Mean(rank.second));
    if (cost.kind == "update") {
      cost.seconds = *std::max_element(ranks.begin(), ranks.end());
    } else if (IsMessage(cost.kind)) {
      cost.seconds = *std::min_element(ranks.begin(), ranks.end());
    } else {
      cost.seconds = Mean(ranks);
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

double SumOfKind(const std::vector<OperationCost>& costs, absl::string_view kind) {
  double sum = 0;
  for (const OperationCost& cost : costs) {
    if (cost.kind == kind) sum += cost.seconds;
  }
  return sum;
}

bool IsMessage(absl::string_view kind) {
  for (int k = 0; k <= static_cast<int>(OperationKind::kUpdate); ++k) {
    const OperationKind candidate = static_cast<OperationKind>(k);
    if (IsCommunication(candidate) && OperationKindName(candidate) == kind) return true;
  }
  return false;
}

double MessageSteps(absl::string_view kind, int ranks) {
  if (kind == "all_reduce") return 2.0 * (ranks - 1);
  if (kind == "reduce_to_owner" || kind == "broadcast") return std::ceil(std::log2(ranks));
  return 1;
}

double MessageVolume(absl::string_view kind, int ranks, int servers) {
  if (kind == "all_reduce") return 2.0 * (ranks - 1) / ranks;
  if (kind == "reduce_to_owner" || kind == "broadcast") return std::ceil(std::log2(ranks));
  if (kind == "push" || kind == "pull") return std::max(1.0, 1.0 * ranks / std::max(1, servers));
  return 1;
}

std::string InputSubject(const v1::Trial& trial) {
  const v1::ImageSize& size = trial.network().input();
  return absl::StrCat(InputName(trial.input()), " ", size.channels(), "x", size.height(), "x",
                      size.width());
}

}  // namespace paceline
