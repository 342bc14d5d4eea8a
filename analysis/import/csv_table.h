// A tidy CSV file: one header line, one record per line, comment lines that start with '#'.
//
//   absl::StatusOr<CsvTable> table = CsvTable::Read("allreduce.csv");
//   for (const CsvRow& row : table->rows()) {
//     absl::StatusOr<double> bytes = row.PositiveNumber("bytes");   // Error: "allreduce.csv:7:
//     ..."
//   }
//
// Every error names the file, the line and the column, what was found and what is expected.
// Immutable after creation, so thread-safe. Rows point into their table: keep it alive.
#ifndef PACELINE_ANALYSIS_IMPORT_CSV_TABLE_H_
#define PACELINE_ANALYSIS_IMPORT_CSV_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace paceline {

class CsvRow {
 public:
  // "file:line", for messages.
  std::string place() const;
  int line() const { return line_; }

  absl::StatusOr<std::string> Text(absl::string_view column) const;
  // Finite numbers only. Spaces around them are ignored.
  absl::StatusOr<double> Number(absl::string_view column) const;
  absl::StatusOr<double> PositiveNumber(absl::string_view column) const;
  absl::StatusOr<int64_t> Integer(absl::string_view column) const;
  // Unset if the column is missing or the field empty.
  absl::StatusOr<absl::optional<double>> OptionalNumber(absl::string_view column) const;

 private:
  friend class CsvTable;
  struct Header {
    std::string file;
    std::map<std::string, size_t> columns;
    std::vector<std::string> names;
  };
  std::shared_ptr<const Header> header_;
  std::vector<std::string> fields_;
  int line_ = 0;
};

class CsvTable {
 public:
  // NOT_FOUND if there is no such file, INVALID_ARGUMENT for what is wrong inside.
  static absl::StatusOr<CsvTable> Read(const std::string& path);
  // `file` is only for messages. A quoted field may hold commas and doubled quotes.
  static absl::StatusOr<CsvTable> Parse(absl::string_view text, absl::string_view file);

  const std::vector<CsvRow>& rows() const { return rows_; }
  const std::vector<std::string>& columns() const { return header_->names; }
  bool has_column(absl::string_view name) const {
    return header_->columns.count(std::string(name)) > 0;
  }
  // Text of the comment lines before the header, without '#': where the numbers come from.
  const std::string& source() const { return source_; }

 private:
  std::shared_ptr<const CsvRow::Header> header_;
  std::vector<CsvRow> rows_;
  std::string source_;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_IMPORT_CSV_TABLE_H_
