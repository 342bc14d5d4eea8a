// The analysis program: what `bazel run analysis -- ...` does.
//
//   return RunAnalysis({"report", "runs/today", "--out=report"}, std::cout, std::cerr);
#ifndef PACELINE_ANALYSIS_MAIN_COMMAND_LINE_H_
#define PACELINE_ANALYSIS_MAIN_COMMAND_LINE_H_

#include <ostream>
#include <string>
#include <vector>

namespace paceline {

// Runs one sub-command. Returns the exit status: 0, 1 (it failed) or 2 (bad usage).
int RunAnalysis(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_MAIN_COMMAND_LINE_H_
