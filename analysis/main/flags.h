// Flags of one sub-command: "--name=value" or "--name value", and positional arguments.
//
//   absl::StatusOr<Flags> flags = Flags::Parse(arguments, {"threshold"});
//   absl::StatusOr<double> threshold = flags->Number("threshold", 0.02, 0);
//
// Errors name the flag, what was expected and what was given. Thread-safe once parsed.
#ifndef PACELINE_ANALYSIS_MAIN_FLAGS_H_
#define PACELINE_ANALYSIS_MAIN_FLAGS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

class Flags {
 public:
  // Every flag takes a value, but those in `switches`. Unknown ones are INVALID_ARGUMENT with the
  // closest name.
  static absl::StatusOr<Flags> Parse(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& names,
                                     const std::vector<std::string>& switches = {});

  const std::vector<std::string>& positional() const { return positional_; }
  bool Has(const std::string& name) const { return values_.count(name) > 0; }
  std::string Text(const std::string& name, const std::string& otherwise = "") const;
  // Parts of a comma list; empty if the flag is not given.
  std::vector<std::string> List(const std::string& name) const;
  // Finite and above `above`.
  absl::StatusOr<double> Number(const std::string& name, double otherwise, double above) const;
  // Comma list of such numbers.
  absl::StatusOr<std::vector<double>> Numbers(const std::string& name,
                                              const std::vector<double>& otherwise,
                                              double above) const;
  // Comma list of positive whole numbers.
  absl::StatusOr<std::vector<int>> Counts(const std::string& name,
                                          const std::vector<int>& otherwise) const;

 private:
  std::vector<std::string> positional_;
  std::map<std::string, std::string> values_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_MAIN_FLAGS_H_
