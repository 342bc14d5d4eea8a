#include "tests/benchmarks/benchmark_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/support/working_directory.h"

namespace paceline {
namespace {

std::string Number(double value) {
  const double size = std::abs(value);
  return absl::StrFormat("%.*f", size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 3 : 6, value);
}

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// JSON knows neither NaN nor infinity.
std::string JsonNumber(absl::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? absl::StrFormat("%.9g", *value) : "null";
}

}  // namespace

absl::optional<double> BenchmarkRow::ratio() const {
  if (reference.empty() || reference_value == 0) return absl::nullopt;
  return value / reference_value;
}

absl::optional<bool> BenchmarkRow::met() const {
  if (!goal.has_value()) return absl::nullopt;
  if (!reference.empty() && !ratio().has_value()) return absl::nullopt;
  const double judged = reference.empty() ? value : *ratio();
  return lower_is_better ? judged <= *goal : judged >= *goal;
}

BenchmarkReport::BenchmarkReport(std::string title) : title_(std::move(title)) {}

void BenchmarkReport::Add(BenchmarkRow row) { rows_.push_back(std::move(row)); }

void BenchmarkReport::Note(std::string text) { notes_.push_back(std::move(text)); }

std::string BenchmarkReport::Table() const {
  std::vector<std::vector<std::string>> cells = {
      {"", "value", "unit", "reference", "its value", "ratio", "goal", ""}};
  for (const BenchmarkRow& row : rows_) {
    const absl::optional<bool> met = row.met();
    cells.push_back({row.name, Number(row.value), row.unit, row.reference,
                     row.ratio().has_value() ? Number(row.reference_value) : "",
                     row.ratio().has_value() ? Number(*row.ratio()) : "",
                     row.goal.has_value()
                         ? absl::StrCat(row.lower_is_better ? "<= " : ">= ", Number(*row.goal))
                         : "",
                     !met.has_value() ? ""
                     : *met           ? "met"
                                      : "MISSED"});
  }
  std::vector<size_t> widths(cells[0].size(), 0);
  for (const std::vector<std::string>& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out = title_ + "\n";
  for (const std::vector<std::string>& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      const bool number = i == 1 || i == 4 || i == 5;
      absl::StrAppend(&line, "  ", number ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  for (const std::string& note : notes_) absl::StrAppend(&out, "  ", note, "\n");
  return out;
}

std::string BenchmarkReport::Json() const {
  std::string out = "[";
  for (size_t i = 0; i < rows_.size(); ++i) {
    const BenchmarkRow& row = rows_[i];
    const absl::optional<bool> met = row.met();
    absl::StrAppend(
        &out, i == 0 ? "\n" : ",\n", "  {\"name\": ", Quoted(row.name),
        ", \"value\": ", JsonNumber(row.value), ", \"unit\": ", Quoted(row.unit),
        ", \"reference\": ", row.reference.empty() ? "null" : Quoted(row.reference),
        ", \"reference_value\": ", row.reference.empty() ? "null" : JsonNumber(row.reference_value),
        ", \"ratio\": ", JsonNumber(row.ratio()), ", \"goal\": ", JsonNumber(row.goal),
        ", \"met\": ",
        !met.has_value() ? "null"
        : *met           ? "true"
                         : "false",
        "}");
  }
  return out + "\n]\n";
}

int BenchmarkReport::Finish(absl::string_view json_path) const {
  std::fputs(Table().c_str(), stdout);
  std::fflush(stdout);
  if (json_path.empty()) return 0;
  const std::string path = ResolveUserPath(json_path);
  std::ofstream file(path);
  file << Json();
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "cannot write '%s' (--json)\n", path.c_str());
  return 1;
}

}  // namespace paceline
