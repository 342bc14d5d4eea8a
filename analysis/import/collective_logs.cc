#include "analysis/import/collective_logs.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace paceline {
namespace {

struct Line {
  int number = 0;
  absl::string_view text;
  std::vector<absl::string_view> words;
};

std::vector<Line> Lines(absl::string_view text) {
  std::vector<Line> lines;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    lines.push_back(
        {number, line, absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())});
  }
  return lines;
}

std::string Place(absl::string_view file, const Line& line) {
  return absl::StrCat(file, ":", line.number);
}

absl::Status Invalid(absl::string_view file, const Line& line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(Place(file, line), ": ", what));
}

// A positive number or an error that names the field.
absl::StatusOr<double> Positive(absl::string_view file, const Line& line, absl::string_view field,
                                absl::string_view text) {
  double value;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return Invalid(
        file, line,
        absl::StrCat(field, " is \"", text, "\", expected a number: is the log damaged?"));
  }
  if (value <= 0) {
    return Invalid(file, line,
                   absl::StrCat(field, " is ", text,
                                ", expected more than 0: measure "
                                "again with more iterations or remove the line"));
  }
  return value;
}

// Seconds per unit named in parentheses, as in "Latency(us)"; 0 if there is none that we know.
double UnitSeconds(absl::string_view text) {
  if (absl::StrContains(text, "(us)")) return 1e-6;
  if (absl::StrContains(text, "(ms)")) return 1e-3;
  if (absl::StrContains(text, "(ns)")) return 1e-9;
  if (absl::StrContains(text, "(s)")) return 1;
  return 0;
}

// Sizes go up within one run; a step back means that two logs were glued together.
absl::Status CheckOrder(absl::string_view file, const Line& line, double bytes,
                        const ImportedCollectives& imported) {
  if (imported.measurements.empty() || bytes > imported.measurements.back().bytes) {
    return absl::OkStatus();
  }
  return Invalid(
      file, line,
      absl::StrFormat("size %.0f follows %.0f, expected growing sizes: the file seems to "
                      "hold two runs; split it",
                      bytes, imported.measurements.back().bytes));
}

void FlagMissingNewline(absl::string_view text, absl::string_view file,
                        ImportedCollectives* imported) {
  if (text.empty() || text.back() == '\n') return;
  imported->flags.push_back(absl::StrCat(
      file, ": does not end with a line end: truncated? Its last time may lack digits"));
}

}  // namespace

absl::StatusOr<ImportedCollectives> ParseOsuCollective(absl::string_view text,
                                                       absl::string_view file,
                                                       const CollectiveLogContext& context) {
  if (context.ranks < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": OSU output does not say how many ranks ran; give ranks (2 or more), not ",
        context.ranks));
  }
  ImportedCollectives imported;
  std::string tool, collective;
  double unit_seconds = 0;
  size_t columns = 0;
  bool full = false;  // With -f: minimum, maximum and iterations too.
  for (const Line& line : Lines(text)) {
    if (line.text[0] == '#') {
      if (absl::StrContains(line.text, "OSU MPI")) {
        if (!tool.empty()) {
          return Invalid(file, line, "a second benchmark starts here; split the file");
        }
        tool = std::string(absl::StripAsciiWhitespace(line.text.substr(1)));
        for (absl::string_view word : absl::StrSplit(tool, ' ')) {
          const std::string lower = absl::AsciiStrToLower(word);
          if (lower == "latency") break;
          collective = lower;  // The word before "Latency": "Allreduce", "Broadcast".
        }
        if (collective == "broadcast") collective = "bcast";
      } else if (absl::StrContains(line.text, "Size")) {
        if (absl::StrContains(line.text, "Bandwidth") || absl::StrContains(line.text, "MB/s")) {
          return Invalid(file, line, "a bandwidth test, expected one of latencies (osu_allreduce)");
        }
        unit_seconds = UnitSeconds(line.text);
        if (unit_seconds == 0) {
          return Invalid(file, line, "no unit of time, expected \"Latency(us)\"");
        }
        full = absl::StrContains(line.text, "Min");
        columns = full ? 5 : 2;
      }
      continue;
    }
    double first;
    if (!absl::SimpleAtod(line.words[0], &first)) continue;  // mpirun's own messages.
    if (columns == 0) {
      return Invalid(file, line,
                     "numbers before a \"# Size ... Latency(us)\" line: is this OSU "
                     "output, from its start?");
    }
    if (line.words.size() != columns) {
      return Invalid(file, line,
                     absl::StrCat(line.words.size(), " columns, expected ", columns,
                                  ": is the log truncated?"));
    }
    absl::StatusOr<double> bytes = Positive(file, line, "size", line.words[0]);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<double> time = Positive(file, line, "latency", line.words[1]);
    if (!time.ok()) return time.status();
    absl::Status order = CheckOrder(file, line, *bytes, imported);
    if (!order.ok()) return order;
    CollectiveMeasurement m;
    m.bytes = *bytes;
    m.ranks = context.ranks;
    m.nodes = context.nodes;
    m.seconds = *time * unit_seconds;
    m.collective = collective;
    m.tool = tool;
    m.library = "MPI";
    m.place = Place(file, line);
    if (full) {
      absl::StatusOr<double> low = Positive(file, line, "minimum", line.words[2]);
      if (!low.ok()) return low.status();
      absl::StatusOr<double> high = Positive(file, line, "maximum", line.words[3]);
      if (!high.ok()) return high.status();
      if (*low > *time * 1.001 || *high < *time * 0.999) {
        return Invalid(file, line,
                       "the average lies outside minimum and maximum: mixed units or a "
                       "damaged log");
      }
      absl::StatusOr<double> iterations = Positive(file, line, "iterations", line.words[4]);
      if (!iterations.ok()) return iterations.status();
      m.iterations = static_cast<int>(*iterations);
    }
    imported.measurements.push_back(std::move(m));
  }
  if (imported.measurements.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": no measurement; expected lines \"SIZE LATENCY\" under \"# Size\""));
  }
  if (tool.empty())
    imported.flags.push_back(absl::StrCat(file, ": no title line \"# OSU MPI ...\""));
  FlagMissingNewline(text, file, &imported);
  return imported;
}

absl::StatusOr<ImportedCollectives> ParseNcclTests(absl::string_view text, absl::string_view file,
                                                   const CollectiveLogContext& context) {
  ImportedCollectives imported;
  int ranks = 0;
  int iterations = 0;
  std::set<std::string> hosts;
  size_t time_column = 0, width = 0;
  double unit_seconds = 0;
  bool finished = false;
  for (const Line& line : Lines(text)) {
    const std::vector<absl::string_view>& words = line.words;
    if (line.text[0] == '#') {
      if (words.size() > 2 && words[1] == "Rank") {
        ++ranks;
        for (size_t i = 0; i + 1 < words.size(); ++i) {
          if (words[i] == "on") hosts.insert(std::string(words[i + 1]));
        }
      } else if (absl::StrContains(line.text, "nThread")) {
        for (size_t i = 1; i + 1 < words.size(); ++i) {
          if (words[i] == "iters:" && words[i - 1] != "iters" && words[i - 1] != "warmup" &&
              words[i - 1] != "agg" && !absl::SimpleAtoi(words[i + 1], &iterations)) {
            iterations = 0;
          }
        }
      } else if (words.size() > 4 && words[1] == "size") {
        width = words.size() - 1;  // Without '#'.
        for (size_t i = 1; i < words.size() && time_column == 0; ++i) {
          if (words[i] == "time") time_column = i - 1;
        }
      } else if (words.size() > 1 && words[1] == "(B)") {
        unit_seconds = UnitSeconds(line.text);
      } else if (absl::StrContains(line.text, "Avg bus bandwidth")) {
        finished = true;
      } else if (absl::StrContains(line.text, "Out of bounds values") &&
                 !absl::StrContains(line.text, "OK")) {
        imported.flags.push_back(
            absl::StrCat(Place(file, line), ": the results were wrong: ", line.text.substr(1)));
      }
      continue;
    }
    double first;
    if (!absl::SimpleAtod(words[0], &first)) continue;  // Messages of NCCL or of the launcher.
    if (time_column == 0 || unit_seconds == 0) {
      return Invalid(file, line,
                     "numbers before the header lines \"# size ... time\" and \"# (B) ... "
                     "(us)\": is this nccl-tests output, from its start?");
    }
    if (words.size() != width) {
      return Invalid(
          file, line,
          absl::StrCat(words.size(), " columns, expected ", width, ": is the log truncated?"));
    }
    if (first == 0) {
      imported.flags.push_back(absl::StrCat(Place(file, line), ": size 0 is left out"));
      continue;
    }
    absl::StatusOr<double> bytes = Positive(file, line, "size", words[0]);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<double> time = Positive(file, line, "time", words[time_column]);
    if (!time.ok()) return time.status();
    absl::Status order = CheckOrder(file, line, *bytes, imported);
    if (!order.ok()) return order;
    CollectiveMeasurement m;
    m.bytes = *bytes;
    m.seconds = *time * unit_seconds;
    // The printed bandwidth (two decimals, 10^9 bytes) must agree, or a unit is not what it says.
    double bandwidth;
    if (absl::SimpleAtod(words[time_column + 1], &bandwidth)) {
      const double expected = m.bytes / m.seconds / 1e9;
      if (std::abs(bandwidth - expected) > 0.011 + 0.02 * expected) {
        return Invalid(file, line,
                       absl::StrFormat("time gives %.3g GB/s but algbw says %.3g: mixed units?",
                                       expected, bandwidth));
      }
    }
    int wrong = 0;
    if (width > time_column + 3 && absl::SimpleAtoi(words[time_column + 3], &wrong) && wrong > 0) {
      imported.flags.push_back(absl::StrCat(Place(file, line), ": ", wrong, " wrong values"));
    }
    m.iterations = iterations;
    m.tool = "nccl-tests";
    m.library = "NCCL";
    m.place = Place(file, line);
    imported.measurements.push_back(std::move(m));
  }
  if (imported.measurements.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": no measurement; expected the output of e.g. all_reduce_perf"));
  }
  if (ranks == 0) ranks = context.ranks;
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": no \"# Rank\" lines; give the number of ranks"));
  }
  if (context.ranks > 0 && context.ranks != ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": lists ", ranks, " ranks, but ", context.ranks, " were given"));
  }
  // The output does not name the collective; only a reduction has "redop", only rooted ones a root.
  for (CollectiveMeasurement& m : imported.measurements) {
    m.ranks = ranks;
    m.nodes = hosts.empty() ? context.nodes : static_cast<int>(hosts.size());
    m.collective = "allreduce";
  }
  if (!finished) {
    imported.flags.push_back(
        absl::StrCat(file,
                     ": no \"Avg bus bandwidth\" at the end: truncated, larger sizes may be "
                     "missing"));
  }
  FlagMissingNewline(text, file, &imported);
  return imported;
}

absl::StatusOr<ImportedCollectives> ImportCollectiveCsv(const CsvTable& table) {
  static constexpr struct {
    const char* name;
    double seconds;
  } kUnits[] = {{"seconds", 1}, {"milliseconds", 1e-3}, {"microseconds", 1e-6}};
  const char* column = nullptr;
  double unit_seconds = 0;
  for (const auto& unit : kUnits) {
    if (!table.has_column(unit.name)) continue;
    if (column != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "columns ", column, " and ", unit.name, ": mixed units, expected one column of times"));
    }
    column = unit.name;
    unit_seconds = unit.seconds;
  }
  if (column == nullptr) {
    return absl::InvalidArgumentError(
        "no column of times: name one seconds, milliseconds or microseconds");
  }
  ImportedCollectives imported;
  for (const CsvRow& row : table.rows()) {
    absl::StatusOr<double> bytes = row.PositiveNumber("bytes");
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<int64_t> ranks = row.Integer("ranks");
    if (!ranks.ok()) return ranks.status();
    absl::StatusOr<double> time = row.PositiveNumber(column);
    if (!time.ok()) return time.status();
    absl::StatusOr<absl::optional<double>> nodes = row.OptionalNumber("nodes");
    if (!nodes.ok()) return nodes.status();
    CollectiveMeasurement m;
    m.bytes = *bytes;
    m.ranks = static_cast<int>(*ranks);
    m.nodes = static_cast<int>(nodes->value_or(0));
    m.seconds = *time * unit_seconds;
    m.collective = "allreduce";
    if (table.has_column("collective")) m.collective = *row.Text("collective");
    if (table.has_column("library")) m.library = *row.Text("library");
    m.tool = table.source();
    m.place = row.place();
    imported.measurements.push_back(std::move(m));
  }
  if (imported.measurements.empty()) {
    return absl::InvalidArgumentError("no record below the column names");
  }
  return imported;
}

}  // namespace paceline
