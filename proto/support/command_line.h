// Command lines of Paceline's programs: --name=value flags, with a --help that explains each one by
// an example.
//
//   CommandLine line("coordinator", "Runs a plan.", {"bazel run coordinator --
//   --plan=p.textproto"}); std::string plan = "builtin:default"; line.AddString("plan", &plan,
//   "FILE|builtin:NAME", "What to run.", "--plan=builtin:quick");
//   absl::StatusOr<std::vector<std::string>> rest = line.Parse(argc, argv);
//   if (line.help_wanted()) ...print line.Help()...
//
// Why not absl/flags: its --help hides the flags behind file names and has no room for examples.
// Not thread-safe; used once at the start of main.
#ifndef PACELINE_PROTO_SUPPORT_COMMAND_LINE_H_
#define PACELINE_PROTO_SUPPORT_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

class CommandLine {
 public:
  // `usages` are whole example commands.
  CommandLine(std::string program, std::string summary, std::vector<std::string> usages);

  // `value` holds the default and must outlive Parse(). `placeholder` names the value in --help,
  // `example` is one use of the flag.
  void AddString(std::string name, std::string* value, std::string placeholder, std::string help,
                 std::string example);
  void AddInt(std::string name, int* value, std::string placeholder, std::string help,
              std::string example);
  void AddDouble(std::string name, double* value, std::string placeholder, std::string help,
                 std::string example);
  // --name, --name=true, --name=false, --noname.
  void AddBool(std::string name, bool* value, std::string help, std::string example);

  // Returns the arguments that are not flags, in order; everything behind "--" is one. Takes
  // --name=value, --name value, and one dash as well as two. INVALID_ARGUMENT lists every problem,
  // an unknown flag with the closest known one.
  absl::StatusOr<std::vector<std::string>> Parse(int argc, const char* const* argv);

  bool help_wanted() const { return help_wanted_; }  // --help or -h was given.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string placeholder;
    std::string help;
    std::string example;
    std::string default_text;
    bool boolean = false;
    std::function<absl::Status(absl::string_view)> set;
  };
  void Add(Flag flag) { flags_.push_back(std::move(flag)); }

  std::string program_;
  std::string summary_;
  std::vector<std::string> usages_;
  std::vector<Flag> flags_;
  bool help_wanted_ = false;
};

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_COMMAND_LINE_H_
