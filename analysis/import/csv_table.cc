#include "analysis/import/csv_table.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace paceline {
namespace {

absl::StatusOr<std::vector<std::string>> SplitFields(absl::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) return absl::InvalidArgumentError("a quote is not closed: is the file truncated?");
  for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
  return fields;
}

}  // namespace

std::string CsvRow::place() const { return absl::StrCat(header_->file, ":", line_); }

absl::StatusOr<std::string> CsvRow::Text(absl::string_view column) const {
  const auto found = header_->columns.find(std::string(column));
  if (found == header_->columns.end()) {
    return absl::InvalidArgumentError(absl::StrCat(header_->file, ": no column \"", column,
                                                   "\"; its columns are ",
                                                   absl::StrJoin(header_->names, ", ")));
  }
  return fields_[found->second];
}

absl::StatusOr<double> CsvRow::Number(absl::string_view column) const {
  absl::StatusOr<std::string> text = Text(column);
  if (!text.ok()) return text.status();
  double value;
  if (!absl::SimpleAtod(*text, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(place(), ": ", column, " is \"", *text, "\", expected a number"));
  }
  return value;
}

absl::StatusOr<double> CsvRow::PositiveNumber(absl::string_view column) const {
  absl::StatusOr<double> value = Number(column);
  if (value.ok() && *value <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(place(), ": ", column, " is ", *value,
                                                   ", expected more than 0: remove or repeat it"));
  }
  return value;
}

absl::StatusOr<int64_t> CsvRow::Integer(absl::string_view column) const {
  absl::StatusOr<std::string> text = Text(column);
  if (!text.ok()) return text.status();
  int64_t value;
  if (!absl::SimpleAtoi(*text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(place(), ": ", column, " is \"", *text, "\", expected a whole number"));
  }
  return value;
}

absl::StatusOr<absl::optional<double>> CsvRow::OptionalNumber(absl::string_view column) const {
  const auto found = header_->columns.find(std::string(column));
  if (found == header_->columns.end() || fields_[found->second].empty()) {
    return absl::optional<double>();
  }
  absl::StatusOr<double> value = Number(column);
  if (!value.ok()) return value.status();
  return absl::optional<double>(*value);
}

absl::StatusOr<CsvTable> CsvTable::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read; is the path right?"));
  std::stringstream text;
  text << file.rdbuf();
  return Parse(text.str(), path);
}

absl::StatusOr<CsvTable> CsvTable::Parse(absl::string_view text, absl::string_view file) {
  CsvTable table;
  auto header = std::make_shared<CsvRow::Header>();
  header->file = std::string(file);
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripSuffix(line, "\r");
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    if (line[0] == '#') {
      if (header->names.empty()) {
        absl::StrAppend(&table.source_, table.source_.empty() ? "" : "\n",
                        absl::StripAsciiWhitespace(line.substr(1)));
      }
      continue;
    }
    absl::StatusOr<std::vector<std::string>> fields = SplitFields(line);
    if (!fields.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ":", line_number, ": ", fields.status().message()));
    }
    if (header->names.empty()) {
      for (size_t i = 0; i < fields->size(); ++i) {
        if (!header->columns.emplace((*fields)[i], i).second) {
          return absl::InvalidArgumentError(absl::StrCat(
              file, ":", line_number, ": two columns are named \"", (*fields)[i], "\""));
        }
      }
      header->names = *std::move(fields);
      table.header_ = header;
      continue;
    }
    if (fields->size() != header->names.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ":", line_number, ": ", fields->size(), " fields, expected ", header->names.size(),
          " (", absl::StrJoin(header->names, ", "), "): is the line truncated?"));
    }
    CsvRow row;
    row.header_ = header;
    row.fields_ = *std::move(fields);
    row.line_ = line_number;
    table.rows_.push_back(std::move(row));
  }
  if (header->names.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": empty; expected a line with column names, then one record per line"));
  }
  return table;
}

}  // namespace paceline
