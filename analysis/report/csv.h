// Comma-separated values with the quoting of RFC 4180 (lines end in '\n').
//
//   CsvWriter csv({"trial", "seconds"});
//   csv.Add("a,b");          // Quoted.
//   csv.Add(kUnknown);       // Empty: unknown is not zero.
//   csv.EndRow();
//
// Not thread-safe.
#ifndef PACELINE_ANALYSIS_REPORT_CSV_H_
#define PACELINE_ANALYSIS_REPORT_CSV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

class CsvWriter {
 public:
  explicit CsvWriter(const std::vector<std::string>& columns);

  void Add(absl::string_view text);
  void Add(const char* text) { Add(absl::string_view(text)); }
  void Add(double value);  // Shortest form that reads back equal; empty if not finite.
  void Add(int64_t value);
  void Add(int value) { Add(static_cast<int64_t>(value)); }
  // Missing fields of the row stay empty; more fields than columns are a programming error.
  void EndRow();

  const std::string& text() const { return text_; }

 private:
  void Separate();

  std::string text_;
  size_t columns_;
  size_t in_row_ = 0;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_CSV_H_
