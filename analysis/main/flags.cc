#include "analysis/main/flags.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<Flags> Flags::Parse(const std::vector<std::string>& arguments,
                                   const std::vector<std::string>& names,
                                   const std::vector<std::string>& switches) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "-") || argument == "-") {
      flags.positional_.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string dashed = argument.substr(0, equals);
    const size_t begin = dashed.find_first_not_of('-');
    const std::string name = begin == std::string::npos ? "" : dashed.substr(begin);
    if (Contains(switches, name) && equals == std::string::npos) {
      flags.values_[name] = "true";
      continue;
    }
    if (!Contains(names, name)) {
      std::vector<std::string> known = names;
      known.insert(known.end(), switches.begin(), switches.end());
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag '", argument, "'", DidYouMean(name, known)));
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (value.empty())
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    // A list given in several pieces is one list.
    std::string& stored = flags.values_[name];
    stored = stored.empty() ? value : absl::StrCat(stored, ",", value);
  }
  return flags;
}

std::string Flags::Text(const std::string& name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second;
}

std::vector<std::string> Flags::List(const std::string& name) const {
  return absl::StrSplit(Text(name), ',', absl::SkipWhitespace());
}

absl::StatusOr<double> Flags::Number(const std::string& name, double otherwise,
                                     double above) const {
  absl::StatusOr<std::vector<double>> numbers = Numbers(name, {otherwise}, above);
  if (!numbers.ok()) return numbers.status();
  if (numbers->size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": expected one number, got '", Text(name), "'"));
  }
  return numbers->front();
}

absl::StatusOr<std::vector<double>> Flags::Numbers(const std::string& name,
                                                   const std::vector<double>& otherwise,
                                                   double above) const {
  if (!Has(name)) return otherwise;
  std::vector<double> numbers;
  for (const std::string& part : List(name)) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !std::isfinite(number) || !(number > above)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": expected a number above ", above, ", got '", part, "'"));
    }
    numbers.push_back(number);
  }
  if (numbers.empty())
    return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
  return numbers;
}

absl::StatusOr<std::vector<int>> Flags::Counts(const std::string& name,
                                               const std::vector<int>& otherwise) const {
  if (!Has(name)) return otherwise;
  std::vector<int> counts;
  for (const std::string& part : List(name)) {
    int count = 0;
    if (!absl::SimpleAtoi(part, &count) || count < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": expected a positive whole number, got '", part, "'"));
    }
    counts.push_back(count);
  }
  if (counts.empty()) return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
  return counts;
}

}  // namespace paceline
