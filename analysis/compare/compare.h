// Compares two sets of runs configuration by configuration: what changed, beyond what noise
// explains, and in which phase.
//
//   absl::StatusOr<Comparison> comparison = CompareRuns(before, after);
//   if (comparison->regressions > 0) puts(ComparisonText(*comparison).c_str());
//
// A configuration is a regression if its median iteration became slower by more than the threshold
// and the whole interval of the ratio is above 1. The intervals hold together (Bonferroni): with 95
// % no configuration at all is called changed if none is. Where a side was measured once only,
// which cannot show what differs from run to run, the scatter of all ratios stands in for it.
//
// All times in seconds. Stateless and thread-safe.
#ifndef PACELINE_ANALYSIS_COMPARE_COMPARE_H_
#define PACELINE_ANALYSIS_COMPARE_COMPARE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/explain/parts.h"
#include "analysis/merge/merge.h"
#include "analysis/stats/statistics.h"

namespace paceline {

struct CompareOptions {
  double threshold = 0.02;  // Changes below this share are not worth a word, however certain.
  // Compare this policy of A with that one of B; both or none.
  std::string policy_a;
  std::string policy_b;
};

enum class Change { kNone, kFaster, kSlower, kFailed, kRecovered };
const char* ChangeName(Change change);  // "same", "faster", "SLOWER", "FAILED", "recovered".

struct ConfigurationChange {
  std::string label;
  Change change = Change::kNone;
  // Median iteration of B over that of A, with its 95 % interval (of the whole family).
  Interval ratio;
  IterationParts before;
  IterationParts after;
  std::string note;  // What to beware of, or why it failed.
};

struct Comparison {
  std::vector<ConfigurationChange> changes;
  int regressions = 0;  // Slower, or failed now.
  int improvements = 0;
  double threshold = 0;
  std::vector<std::string> only_in_a;  // Labels.
  std::vector<std::string> only_in_b;
  std::vector<std::string> notes;
};

// INVALID_ARGUMENT: different networks under one name. FAILED_PRECONDITION: no configuration in
// both. NOT_FOUND: no such policy.
absl::StatusOr<Comparison> CompareRuns(const MergedRuns& a, const MergedRuns& b,
                                       const CompareOptions& options = {});

// For a terminal: one line per configuration, and the phases of those that changed.
std::string ComparisonText(const Comparison& comparison);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_COMPARE_COMPARE_H_
