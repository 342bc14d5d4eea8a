// Parsing with recovery: TextFormat stops at the first wrong value; here the value is blanked out
// and the text read again, so that one run of the program shows all mistakes.
#include "coordinator/plan/parse_plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// After this many wrong values the rest is not worth reading.
constexpr int kMaxRecoveries = 50;

struct Message {
  int line = 0;    // 0-based, as the parser counts.
  int column = 0;  // 0-based.
  std::string text;
};

// Unknown fields come as warnings when they are allowed, and then parsing goes on.
class Collector : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    errors.push_back({line, column, message});
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    warnings.push_back({line, column, message});
  }
  std::vector<Message> errors;
  std::vector<Message> warnings;
};

// Every message type that can occur in a plan.
void CollectTypes(const Descriptor* type, std::set<const Descriptor*>* types) {
  if (!types->insert(type).second) return;
  for (int i = 0; i < type->field_count(); ++i) {
    if (type->field(i)->message_type() != nullptr) {
      CollectTypes(type->field(i)->message_type(), types);
    }
  }
}

// The text between the first `begin` and the next `end` behind it.
std::string Between(absl::string_view text, absl::string_view begin, absl::string_view end) {
  const size_t from = text.find(begin);
  if (from == text.npos) return "";
  const size_t to = text.find(end, from + begin.size());
  if (to == text.npos) return "";
  return std::string(text.substr(from + begin.size(), to - from - begin.size()));
}

// Adds to TextFormat's words what the user can write instead.
std::string Explain(const std::string& message, const Descriptor* root) {
  std::set<const Descriptor*> types;
  CollectTypes(root, &types);
  if (absl::StrContains(message, "has no field named")) {
    const std::string type_name = Between(message, "Message type \"", "\"");
    const std::string field_name = Between(message, "has no field named \"", "\"");
    for (const Descriptor* type : types) {
      if (type->full_name() != type_name) continue;
      std::vector<std::string> known;
      for (int i = 0; i < type->field_count(); ++i) known.push_back(type->field(i)->name());
      return absl::StrCat("unknown field '", field_name, "' in ", type->name(),
                          DidYouMean(field_name, known),
                          "; known fields: ", absl::StrJoin(known, ", "));
    }
  }
  if (absl::StartsWith(message, "Unknown enumeration value")) {
    const std::string value = Between(message, "value of \"", "\"");
    const std::string field_name = Between(message, "field \"", "\"");
    for (const Descriptor* type : types) {
      const FieldDescriptor* field = type->FindFieldByName(field_name);
      if (field == nullptr || field->enum_type() == nullptr) continue;
      std::vector<std::string> known;
      for (int i = 0; i < field->enum_type()->value_count(); ++i) {
        if (field->enum_type()->value(i)->number() != 0) {
          known.push_back(field->enum_type()->value(i)->name());
        }
      }
      std::string closest = ClosestName(value, known);
      for (const std::string& name : known) {  // "FP32" for PRECISION_FP32.
        if (absl::EndsWith(name, absl::StrCat("_", value))) closest = name;
      }
      return absl::StrCat(field_name, ": unknown value '", value, "'",
                          closest.empty() ? "" : absl::StrCat(" (did you mean '", closest, "'?)"),
                          "; known values: ", absl::StrJoin(known, ", "));
    }
  }
  return message;
}

size_t OffsetOf(absl::string_view text, int line, int column) {
  size_t offset = 0;
  for (; line > 0; --line) {
    const size_t end = text.find('\n', offset);
    if (end == text.npos) return text.size();
    offset = end + 1;
  }
  // The tokenizer counts a tab as up to eight columns.
  int at = 0;
  while (offset < text.size() && text[offset] != '\n' && at < column) {
    at += text[offset] == '\t' ? 8 - at % 8 : 1;
    ++offset;
  }
  return offset;
}

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '+' || c == '-';
}

// Replaces the wrong value that `error` is about by 0, which both enumerations and numbers accept.
// Returns false if the error is of another kind. `line` (0-based) is set to the value's line.
bool BlankOut(const Message& error, std::string* text, int* line) {
  size_t begin = std::string::npos;
  size_t end = 0;
  size_t at = OffsetOf(*text, error.line, error.column);
  if (absl::StartsWith(error.text, "Unknown enumeration value")) {
    // The parser stands behind the value already.
    const std::string value = Between(error.text, "value of \"", "\"");
    if (value.empty()) return false;
    begin = text->rfind(value, at == 0 ? 0 : at - 1);
    end = begin + value.size();
  } else if (absl::StartsWith(error.text, "Expected integer") ||
             absl::StartsWith(error.text, "Expected double") ||
             absl::StartsWith(error.text, "Expected integer or identifier") ||
             absl::StartsWith(error.text, "Integer out of range") ||
             absl::StartsWith(error.text, "Invalid value for boolean field")) {
    begin = at;
    end = at;
    if (at < text->size() && ((*text)[at] == '"' || (*text)[at] == '\'')) {
      end = text->find((*text)[at], at + 1);
      if (end == std::string::npos) return false;
      ++end;
    } else {
      while (end < text->size() && IsWordCharacter((*text)[end])) ++end;
    }
    if (end == begin) return false;
  }
  if (begin == std::string::npos) return false;
  *line = static_cast<int>(std::count(text->begin(), text->begin() + begin, '\n'));
  text->replace(begin, end - begin, "0" + std::string(end - begin - 1, ' '));
  return true;
}

}  // namespace

PlanProblems ParsePlanText(absl::string_view text, v1::BenchmarkPlan* plan,
                           std::unique_ptr<google::protobuf::TextFormat::ParseInfoTree>* locations,
                           bool* complete) {
  const Descriptor* root = v1::BenchmarkPlan::descriptor();
  PlanProblems problems;
  std::string repaired(text);
  for (int recoveries = 0;; ++recoveries) {
    Collector collector;
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&collector);
    parser.AllowUnknownField(true);
    *locations = std::make_unique<google::protobuf::TextFormat::ParseInfoTree>();
    parser.WriteLocationsTo(locations->get());
    plan->Clear();
    *complete = parser.ParseFromString(repaired, plan);
    int value_line = 0;
    const bool recovered = !*complete && recoveries < kMaxRecoveries &&
                           collector.errors.size() == 1 &&
                           BlankOut(collector.errors[0], &repaired, &value_line);
    for (const Message& error : collector.errors) {
      problems.push_back(
          {(recovered ? value_line : error.line) + 1, "", Explain(error.text, root)});
    }
    if (recovered) continue;
    for (const Message& warning : collector.warnings) {
      problems.push_back({warning.line + 1, "", Explain(warning.text, root)});
    }
    return problems;
  }
}

}  // namespace paceline
