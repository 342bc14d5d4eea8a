// Shows how a run goes: bars that are redrawn in a terminal, plain lines elsewhere.
//
//   ProgressDisplay display(stdout, isatty(STDOUT_FILENO));
//   display.Line("worker a joined");        // Stays.
//   display.Update(scheduler.Snapshot(now), now);   // A few times a second.
//   display.Clear();                        // Before other output.
//
// Not thread-safe.
#ifndef PACELINE_COORDINATOR_MAIN_PROGRESS_H_
#define PACELINE_COORDINATOR_MAIN_PROGRESS_H_

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/paceline/v1/coordinator.pb.h"

namespace paceline {

class ProgressDisplay {
 public:
  // `columns`: width of the terminal; longer lines would break the redrawing and are cut.
  ProgressDisplay(std::FILE* out, bool terminal, int columns = 100)
      : out_(out), terminal_(terminal), columns_(columns) {}

  void Line(absl::string_view text);
  void Update(const v1::GetStatusResponse& status, absl::Time now);
  void Clear();

 private:
  std::FILE* const out_;
  const bool terminal_;
  const int columns_;
  int drawn_lines_ = 0;
  std::vector<std::string> last_;
  absl::Time last_plain_ = absl::InfinitePast();
};

// One line per running trial, then the total: what Update draws.
std::vector<std::string> FormatProgress(const v1::GetStatusResponse& status);

// "[#####.....]".
std::string FormatBar(double share, int width);

}  // namespace paceline

#endif  // PACELINE_COORDINATOR_MAIN_PROGRESS_H_
