// `analysis advise RUN...`: see its help text.
#ifndef PACELINE_ANALYSIS_MAIN_ADVISE_COMMAND_H_
#define PACELINE_ANALYSIS_MAIN_ADVISE_COMMAND_H_

#include <ostream>
#include <string>
#include <vector>

namespace paceline {

// Exit status: 0, 1 (failed) or 2 (bad usage).
int RunAdvise(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_MAIN_ADVISE_COMMAND_H_
