#include "proto/support/command_line.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/support/closest_name.h"

namespace paceline {
namespace {

// `text` in lines of at most 90 characters, each behind `indent`.
std::string Wrap(absl::string_view text, absl::string_view indent) {
  std::string out;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > 90) {
      absl::StrAppend(&out, indent, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  if (!line.empty()) absl::StrAppend(&out, indent, line, "\n");
  return out;
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string summary, std::vector<std::string> usages)
    : program_(std::move(program)), summary_(std::move(summary)), usages_(std::move(usages)) {}

void CommandLine::AddString(std::string name, std::string* value, std::string placeholder,
                            std::string help, std::string example) {
  Add({std::move(name), std::move(placeholder), std::move(help), std::move(example), *value, false,
       [value](absl::string_view text) {
         *value = std::string(text);
         return absl::OkStatus();
       }});
}

void CommandLine::AddInt(std::string name, int* value, std::string placeholder, std::string help,
                         std::string example) {
  Add({std::move(name), std::move(placeholder), std::move(help), std::move(example),
       absl::StrCat(*value), false, [value](absl::string_view text) {
         if (absl::SimpleAtoi(text, value)) return absl::OkStatus();
         return absl::InvalidArgumentError(
             absl::StrCat("expected a whole number, got '", text, "'"));
       }});
}

void CommandLine::AddDouble(std::string name, double* value, std::string placeholder,
                            std::string help, std::string example) {
  Add({std::move(name), std::move(placeholder), std::move(help), std::move(example),
       absl::StrCat(*value), false, [value](absl::string_view text) {
         if (absl::SimpleAtod(text, value)) return absl::OkStatus();
         return absl::InvalidArgumentError(absl::StrCat("expected a number, got '", text, "'"));
       }});
}

void CommandLine::AddBool(std::string name, bool* value, std::string help, std::string example) {
  Add({std::move(name), "", std::move(help), std::move(example), *value ? "true" : "", true,
       [value](absl::string_view text) {
         if (absl::SimpleAtob(text, value)) return absl::OkStatus();
         return absl::InvalidArgumentError(
             absl::StrCat("expected true or false, got '", text, "'"));
       }});
}

absl::StatusOr<std::vector<std::string>> CommandLine::Parse(int argc, const char* const* argv) {
  std::vector<std::string> rest;
  std::vector<std::string> problems;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--") {
      rest.insert(rest.end(), argv + i + 1, argv + argc);
      break;
    }
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      help_wanted_ = true;
      continue;
    }
    if (argument.size() < 2 || argument[0] != '-' || absl::ascii_isdigit(argument[1])) {
      rest.emplace_back(argument);
      continue;
    }
    absl::ConsumePrefix(&argument, "-");
    absl::ConsumePrefix(&argument, "-");
    const size_t equals = argument.find('=');
    const absl::string_view name = argument.substr(0, equals);
    auto find = [this](absl::string_view wanted) {
      return std::find_if(flags_.begin(), flags_.end(),
                          [&](const Flag& flag) { return flag.name == wanted; });
    };
    auto flag = find(name);
    absl::string_view value;
    if (flag == flags_.end() && equals == argument.npos && absl::StartsWith(name, "no") &&
        (flag = find(name.substr(2))) != flags_.end() && flag->boolean) {
      value = "false";
    } else if (flag == flags_.end()) {
      std::vector<std::string> known = {"help"};
      for (const Flag& candidate : flags_) known.push_back(candidate.name);
      const std::string closest = ClosestName(name, known);
      problems.push_back(absl::StrCat("--", name, ": unknown flag",
                                      closest.empty() ? "" : "; did you mean --", closest, "?",
                                      " See --help."));
      continue;
    } else if (equals != argument.npos) {
      value = argument.substr(equals + 1);
    } else if (flag->boolean) {
      value = "true";
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      problems.push_back(absl::StrCat("--", name, ": needs a value, for example ", flag->example));
      continue;
    }
    const absl::Status set = flag->set(value);
    if (!set.ok()) {
      problems.push_back(
          absl::StrCat("--", name, ": ", set.message(), "; for example ", flag->example));
    }
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return rest;
}

std::string CommandLine::Help() const {
  std::string out = absl::StrCat(program_, ": ", summary_, "\n\nExamples:\n");
  for (const std::string& usage : usages_) absl::StrAppend(&out, "  ", usage, "\n");
  absl::StrAppend(&out, "\nFlags:\n");
  for (const Flag& flag : flags_) {
    absl::StrAppend(&out, "  --", flag.name, flag.boolean ? "" : "=", flag.placeholder);
    if (!flag.default_text.empty()) absl::StrAppend(&out, "   (default: ", flag.default_text, ")");
    absl::StrAppend(&out, "\n", Wrap(flag.help, "      "), "      Example: ", flag.example, "\n");
  }
  return out;
}

}  // namespace paceline
