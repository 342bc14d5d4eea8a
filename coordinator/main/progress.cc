#include "coordinator/main/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/main/trial_summary.h"
#include "coordinator/plan/plan.h"

namespace paceline {
namespace {

// Without a terminal a sign of life is enough.
constexpr absl::Duration kPlainInterval = absl::Seconds(30);

}  // namespace

std::string FormatBar(double share, int width) {
  const int done = std::min(width, std::max(0, static_cast<int>(std::lround(share * width))));
  return absl::StrCat("[", std::string(done, '#'), std::string(width - done, '.'), "]");
}

std::vector<std::string> FormatProgress(const v1::GetStatusResponse& status) {
  std::vector<std::string> lines;
  for (const v1::RunningTrial& running : status.running()) {
    const v1::TrialProgress& progress = running.progress();
    const int planned = progress.iterations_planned();
    std::string line = absl::StrCat("  ", DescribeTrial(running.trial()));
    if (running.attempt() > 1) absl::StrAppend(&line, ", attempt ", running.attempt());
    if (line.size() < 52) line.resize(52, ' ');
    absl::StrAppend(
        &line, " ",
        FormatBar(planned > 0 ? static_cast<double>(progress.iterations_done()) / planned : 0, 12),
        " ", progress.step().empty() ? "starting" : progress.step());
    if (planned > 0) absl::StrAppend(&line, " ", progress.iterations_done(), "/", planned);
    if (progress.samples_per_second() > 0) {
      absl::StrAppend(
          &line, ", ",
          FormatRate(progress.samples_per_second() * std::max(1, running.worker_ids_size()), 4),
          " img/s");
    }
    lines.push_back(line);
  }
  const int total = std::max(1, status.trials_total());
  std::string line = absl::StrCat(FormatBar(static_cast<double>(status.trials_done()) / total, 30),
                                  " ", status.trials_done(), "/", status.trials_total(), " trials");
  if (status.trials_failed() > 0) absl::StrAppend(&line, ", ", status.trials_failed(), " failed");
  if (status.seconds_left() > 0) {
    absl::StrAppend(&line, ", about ", FormatDurationForPeople(status.seconds_left()), " left");
  }
  if (status.workers().empty()) absl::StrAppend(&line, ", waiting for workers");
  lines.push_back(line);
  return lines;
}

void ProgressDisplay::Line(absl::string_view text) {
  Clear();
  absl::FPrintF(out_, "%s\n", text);
  std::fflush(out_);
}

void ProgressDisplay::Update(const v1::GetStatusResponse& status, absl::Time now) {
  std::vector<std::string> lines = FormatProgress(status);
  if (!terminal_) {
    if (now - last_plain_ < kPlainInterval) return;
    last_plain_ = now;
    absl::FPrintF(out_, "%s\n", lines.back());
    std::fflush(out_);
    return;
  }
  for (std::string& line : lines) {
    if (static_cast<int>(line.size()) >= columns_) line.resize(std::max(1, columns_ - 1));
  }
  if (lines == last_ && drawn_lines_ > 0) return;
  Clear();
  last_ = std::move(lines);
  for (const std::string& line : last_) absl::FPrintF(out_, "%s\n", line);
  drawn_lines_ = static_cast<int>(last_.size());
  std::fflush(out_);
}

void ProgressDisplay::Clear() {
  // Up to the block's first line, and erase from there to the end of the screen.
  if (drawn_lines_ > 0) absl::FPrintF(out_, "\x1b[%dA\x1b[J", drawn_lines_);
  drawn_lines_ = 0;
  last_.clear();
}

}  // namespace paceline
