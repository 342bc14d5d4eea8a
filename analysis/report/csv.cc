#include "analysis/report/csv.h"

#include <cassert>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "analysis/report/json.h"

namespace paceline {

CsvWriter::CsvWriter(const std::vector<std::string>& columns) : columns_(columns.size()) {
  for (const std::string& column : columns) Add(column);
  EndRow();
}

void CsvWriter::Separate() {
  assert(in_row_ < columns_);
  if (in_row_++ > 0) text_ += ',';
}

void CsvWriter::Add(absl::string_view text) {
  Separate();
  if (text.find_first_of(",\"\r\n") == absl::string_view::npos) {
    absl::StrAppend(&text_, text);
  } else {
    absl::StrAppend(&text_, "\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
  }
}

void CsvWriter::Add(double value) {
  Separate();
  if (std::isfinite(value)) text_ += ShortestNumber(value);
}

void CsvWriter::Add(int64_t value) {
  Separate();
  absl::StrAppend(&text_, value);
}

void CsvWriter::EndRow() {
  for (; in_row_ < columns_; ++in_row_) {
    if (in_row_ > 0) text_ += ',';
  }
  in_row_ = 0;
  text_ += '\n';
}

}  // namespace paceline
