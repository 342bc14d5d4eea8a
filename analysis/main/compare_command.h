// `analysis compare A B`: see its help text.
#ifndef PACELINE_ANALYSIS_MAIN_COMPARE_COMMAND_H_
#define PACELINE_ANALYSIS_MAIN_COMPARE_COMMAND_H_

#include <ostream>
#include <string>
#include <vector>

namespace paceline {

// Exit status: 0 nothing slower, 1 something is, 2 bad usage or nothing that can be compared.
int RunCompare(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_MAIN_COMPARE_COMMAND_H_
