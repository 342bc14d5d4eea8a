// `analysis predict --from RUN...`: see its help text.
#ifndef PACELINE_ANALYSIS_MAIN_PREDICT_COMMAND_H_
#define PACELINE_ANALYSIS_MAIN_PREDICT_COMMAND_H_

#include <ostream>
#include <string>
#include <vector>

namespace paceline {

// Exit status: 0, 1 (something could not be predicted) or 2 (bad usage).
int RunPredict(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& error);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_MAIN_PREDICT_COMMAND_H_
