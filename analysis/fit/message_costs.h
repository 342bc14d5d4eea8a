// Cost of messages: alpha seconds per message and beta seconds per byte on the wire, one pair per
// kind of operation, pooled over networks, groups and numbers of ranks under the closed forms of
// operation_costs.h. Learned from the policy's own trials, or from other policies' where it was not
// measured itself.
//
//   MessageCosts messages;
//   messages.Add(MeasuredOperationCosts(trial), trial.devices, schedule.servers, /*own=*/true);
//   messages.Fit();
//   const MessageLine* line = messages.Find("all_reduce");
//   line->Seconds(shape, /*draw=*/0);
//
// Draws 1 to kDrawCount are a bootstrap over trials. Seconds, bytes. Thread-safe once fitted.
#ifndef PACELINE_ANALYSIS_FIT_MESSAGE_COSTS_H_
#define PACELINE_ANALYSIS_FIT_MESSAGE_COSTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "analysis/fit/line_fit.h"
#include "analysis/fit/operation_costs.h"

namespace paceline {

// An operation as its messages: `steps` of them in a row, of `step_bytes` each.
struct MessageShape {
  double steps = 0;
  double step_bytes = 0;

  double wire_bytes() const { return steps * step_bytes; }
};
MessageShape ShapeOf(absl::string_view kind, int64_t bytes, int ranks, int servers);

struct MessageLine {
  LineFit line;                                  // Seconds of one message against its bytes.
  std::vector<std::pair<double, double>> draws;  // Alpha, beta.
  bool own = false;                              // Measured under the policy itself.

  double Alpha(int draw) const;
  double Beta(int draw) const;
  double Seconds(const MessageShape& shape, int draw) const;
};

class MessageCosts {
 public:
  void Add(const std::vector<OperationCost>& operations, int ranks, int servers, bool own);
  void Fit();

  // Null: never timed.
  const MessageLine* Find(absl::string_view kind) const;
  const std::map<std::string, MessageLine>& lines() const { return lines_; }

  // Part of an operation's time that is latency, whatever its size. Unknown if alpha and beta
  // cannot be told apart; `why` then says what to measure.
  double LatencyShare(absl::string_view kind, int64_t bytes, int ranks, std::string* why) const;

 private:
  struct Points {
    std::vector<LinePoint> own;
    std::vector<LinePoint> all;
  };
  std::map<std::string, Points> points_;
  std::map<std::string, MessageLine> lines_;
  int trials_ = 0;
};

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_MESSAGE_COSTS_H_
