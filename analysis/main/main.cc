#include <iostream>
#include <string>
#include <vector>

#include "analysis/main/command_line.h"

int main(int argc, char** argv) {
  return paceline::RunAnalysis(std::vector<std::string>(argv + 1, argv + argc), std::cout,
                               std::cerr);
}
