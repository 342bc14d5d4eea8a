#include "analysis/fit/message_costs.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "analysis/fit/draws.h"
#include "analysis/stats/statistics.h"

namespace paceline {
namespace {

// Alpha and beta of resampled trials.
std::vector<std::pair<double, double>> Bootstrap(const std::vector<LinePoint>& points) {
  std::map<int, std::vector<LinePoint>> by_trial;
  for (const LinePoint& point : points) by_trial[point.cluster].push_back(point);
  std::vector<const std::vector<LinePoint>*> trials;
  for (const auto& entry : by_trial) trials.push_back(&entry.second);
  LineFitOptions options;
  options.resamples = 0;
  std::mt19937_64 random(7);
  std::vector<std::pair<double, double>> draws;
  for (int draw = 0; draw < kDrawCount; ++draw) {
    std::vector<LinePoint> resample;
    for (size_t i = 0; i < trials.size(); ++i) {
      const std::vector<LinePoint>& picked = *trials[random() % trials.size()];
      resample.insert(resample.end(), picked.begin(), picked.end());
    }
    const LineFit line = FitLine(resample, options);
    draws.emplace_back(line.intercept.value, line.slope.value);
  }
  return draws;
}

}  // namespace

MessageShape ShapeOf(absl::string_view kind, int64_t bytes, int ranks, int servers) {
  MessageShape shape;
  shape.steps = MessageSteps(kind, ranks);
  if (shape.steps > 0) {
    shape.step_bytes = MessageVolume(kind, ranks, servers) * bytes / shape.steps;
  }
  return shape;
}

double MessageLine::Alpha(int draw) const {
  return draw == 0 || draws.empty() ? line.intercept.value : draws[(draw - 1) % draws.size()].first;
}

double MessageLine::Beta(int draw) const {
  return draw == 0 || draws.empty() ? line.slope.value : draws[(draw - 1) % draws.size()].second;
}

double MessageLine::Seconds(const MessageShape& shape, int draw) const {
  return shape.steps * (Alpha(draw) + Beta(draw) * shape.step_bytes);
}

void MessageCosts::Add(const std::vector<OperationCost>& operations, int ranks, int servers,
                       bool own) {
  ++trials_;
  for (const OperationCost& operation : operations) {
    if (!IsMessage(operation.kind) || operation.bytes <= 0 || !(operation.seconds > 0)) continue;
    const MessageShape shape = ShapeOf(operation.kind, operation.bytes, ranks, servers);
    if (!(shape.steps > 0)) continue;
    const LinePoint point{shape.step_bytes, operation.seconds / shape.steps, trials_};
    points_[operation.kind].all.push_back(point);
    if (own) points_[operation.kind].own.push_back(point);
  }
}

void MessageCosts::Fit() {
  for (const auto& kind : points_) {
    MessageLine& fitted = lines_[kind.first];
    fitted.own = !kind.second.own.empty();
    const std::vector<LinePoint>& points = fitted.own ? kind.second.own : kind.second.all;
    fitted.line = FitLine(points);
    fitted.draws = Bootstrap(points);
  }
}

const MessageLine* MessageCosts::Find(absl::string_view kind) const {
  const auto found = lines_.find(std::string(kind));
  return found == lines_.end() ? nullptr : &found->second;
}

double MessageCosts::LatencyShare(absl::string_view kind, int64_t bytes, int ranks,
                                  std::string* why) const {
  const MessageLine* message = Find(kind);
  if (message == nullptr || !message->line.known()) {
    *why = absl::StrCat("'", kind, "' was not timed");
    return kUnknown;
  }
  const LineFit& line = message->line;
  if (!line.intercept_identified && !line.slope_identified) {
    *why = absl::StrCat("'", kind, "': ", line.note.empty() ? "too few message sizes" : line.note);
    return kUnknown;
  }
  const double total = line.Evaluate(ShapeOf(kind, bytes, ranks, /*servers=*/ranks).step_bytes);
  return total > 0 ? std::min(1.0, std::max(0.0, line.Evaluate(0) / total)) : 0;
}

}  // namespace paceline
