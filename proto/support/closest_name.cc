#include "proto/support/closest_name.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace paceline {
namespace {

// Longer names are compared by their first characters only: the table below is quadratic.
constexpr size_t kMaxComparedLength = 200;

// Optimal string alignment distance.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_previous(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_previous, previous);
    std::swap(previous, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_previous[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

std::string ClosestName(absl::string_view name, absl::Span<const std::string> candidates) {
  const std::string wanted = absl::AsciiStrToLower(name.substr(0, kMaxComparedLength));
  if (wanted.empty()) return "";
  const std::string* closest = nullptr;
  size_t fewest_edits = 0;
  for (const std::string& candidate : candidates) {
    const std::string offered =
        absl::AsciiStrToLower(absl::string_view(candidate).substr(0, kMaxComparedLength));
    const bool continues = wanted.size() >= 3 && absl::StartsWith(offered, wanted);
    const size_t edits = continues ? (offered != wanted) : EditDistance(wanted, offered);
    if (2 * edits > std::max(wanted.size(), offered.size())) continue;
    if (closest == nullptr || edits < fewest_edits) {
      closest = &candidate;
      fewest_edits = edits;
    }
  }
  return closest == nullptr ? "" : *closest;
}

std::string DidYouMean(absl::string_view name, absl::Span<const std::string> candidates) {
  const std::string closest = ClosestName(name, candidates);
  return closest.empty() ? "" : absl::StrCat(" (did you mean '", closest, "'?)");
}

}  // namespace paceline
