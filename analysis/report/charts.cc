#include "analysis/report/charts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/report/html.h"
#include "analysis/report/words.h"

namespace paceline {
namespace {

constexpr double kWidth = 960;
constexpr double kLabelWidth = 250;  // Row labels, right-aligned.
constexpr double kValueWidth = 130;  // Values right of the plot.
constexpr double kPlotWidth = kWidth - kLabelWidth - kValueWidth;
constexpr double kRowHeight = 24;
constexpr double kBarHeight = 14;
constexpr double kAxisHeight = 26;

// 1, 2 or 5 times a power of ten, so that `range` holds about `count` steps.
double NiceStep(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string Open(double width, double height, const std::string& description) {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n", width,
                         height, EscapeHtml(description));
}

std::string Text(double x, double y, const char* classes, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, classes,
                         EscapeHtml(text));
}

std::string Rect(double x, double y, double width, double height, const std::string& classes,
                 const std::string& title = "") {
  std::string rect =
      absl::StrFormat("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"", x,
                      y, std::max(0.0, width), height, classes);
  if (title.empty()) return rect + "/>\n";
  return absl::StrCat(rect, "><title>", EscapeHtml(title), "</title></rect>\n");
}

std::string Line(double x1, double y1, double x2, double y2, const char* classes) {
  return absl::StrFormat("<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"%s\"/>\n",
                         x1, y1, x2, y2, classes);
}

// Interval as a whisker at height y.
std::string Whisker(double low, double high, double y) {
  return Line(low, y, high, y, "whisker") + Line(low, y - 4, low, y + 4, "whisker") +
         Line(high, y - 4, high, y + 4, "whisker");
}

std::string TimesDevices(const MergedTrial& trial) {
  return absl::StrCat(" \xC3\x97", trial.devices);
}

// Grid lines and labels below the plot, values in units of `unit`.
std::string Axis(double maximum, double bottom, const std::string& unit, double scale_label = 1) {
  std::string svg;
  const double step = NiceStep(maximum, 6);
  for (double value = 0; value <= maximum * 1.0001; value += step) {
    const double x = kLabelWidth + value / maximum * kPlotWidth;
    svg += Line(x, 4, x, bottom, "grid");
    svg += Text(x, bottom + 16, "axis middle",
                absl::StrFormat("%g", std::round(value * scale_label / (step * scale_label)) *
                                          step * scale_label));
  }
  svg += Text(kWidth, bottom + 16, "axis end", unit);
  return svg;
}

struct Segment {
  double seconds;
  const char* classes;
  const char* name;
};

// Splits the phases in what bounds the iteration and what runs beside it.
std::vector<Segment> Segments(const MergedTrial& trial) {
  const auto seconds = [&](Phase phase) {
    const double value = trial.phase(phase).value;
    return std::isfinite(value) ? std::max(0.0, value) : 0.0;
  };
  const double input = seconds(Phase::kInput), copy = seconds(Phase::kCopy);
  const double wait = seconds(Phase::kInputWait);
  // A copy on the compute stream is on the path itself; beside it, only what compute waits for.
  const bool copy_on_path = !trial.trial.policy().input().copy_overlaps_compute();
  const double copy_wait = copy_on_path ? copy : std::min(wait, copy);
  const double input_wait = copy_on_path ? wait : wait - copy_wait;
  const double exposed = seconds(Phase::kExposedCommunication);
  const double hidden = std::max(0.0, seconds(Phase::kCommunication) - exposed);
  const double forward = seconds(Phase::kForward), backward = seconds(Phase::kBackward);
  const double update = seconds(Phase::kUpdate);
  // An update that fits beside the rest of the path only beyond the iteration ran beside it.
  const double room = std::max(0.0, trial.iteration_seconds.value * 1.02 -
                                        (input_wait + copy_wait + forward + backward + exposed));
  const double update_on_path = std::min(update, room);
  return {{input_wait, "p-input", "waiting for input"},
          {copy_wait, "p-copy", "copy"},
          {forward, "p-forward", "forward"},
          {backward, "p-backward", "backward"},
          {exposed, "p-communication", "exposed communication"},
          {update_on_path, "p-update", "update"},
          {std::max(0.0, input - input_wait), "p-input pale", "input, hidden"},
          {std::max(0.0, copy - copy_wait), "p-copy pale", "copy, hidden"},
          {hidden, "p-communication pale", "communication, hidden"},
          {update - update_on_path, "p-update pale", "update, hidden"}};
}

const char* KindClass(const std::string& kind) {
  if (kind == "read") return "p-input";
  if (kind == "copy_input") return "p-copy";
  if (kind == "forward") return "p-forward";
  if (kind == "backward") return "p-backward";
  if (kind == "update") return "p-update";
  return "p-communication";
}

}  // namespace

std::string ThroughputChart(const TrialList& trials) {
  double maximum = 0;
  for (const MergedTrial* trial : trials) {
    maximum = std::max(maximum, trial->samples_per_second.value);
    if (trial->samples_per_second.has_bounds()) {
      maximum = std::max(maximum, trial->samples_per_second.high);
    }
  }
  if (!(maximum > 0)) return "";
  maximum *= 1.02;
  const double bottom = trials.size() * kRowHeight + 4;
  std::string svg = Open(kWidth, bottom + kAxisHeight, "Throughput in samples per second");
  svg += Axis(maximum, bottom, "samples/s");
  double y = 4;
  for (const MergedTrial* trial : trials) {
    const Interval& rate = trial->samples_per_second;
    const double middle = y + kRowHeight / 2;
    svg += Text(kLabelWidth - 8, middle + 4, "label end",
                FrameworkLabel(*trial) + TimesDevices(*trial));
    svg += Rect(kLabelWidth, middle - kBarHeight / 2, rate.value / maximum * kPlotWidth, kBarHeight,
                trial->devices == 1 ? "bar one" : "bar",
                absl::StrCat(TrialLabel(*trial), ": ", HumanNumber(rate.value), " samples/s"));
    std::string value = HumanNumber(rate.value);
    if (rate.has_bounds()) {
      svg += Whisker(kLabelWidth + rate.low / maximum * kPlotWidth,
                     kLabelWidth + rate.high / maximum * kPlotWidth, middle);
      absl::StrAppend(&value, " \xC2\xB1 ", HumanPercent(rate.relative_half_width()));
    }
    svg += Text(kWidth - kValueWidth + 12, middle + 4, "value", value);
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

std::string EfficiencyChart(const TrialList& trials) {
  TrialList shown;
  double maximum = 1.1;
  for (const MergedTrial* trial : trials) {
    if (trial->devices == 1 || !trial->scaling_efficiency.known()) continue;
    shown.push_back(trial);
    maximum = std::max(maximum, trial->scaling_efficiency.value * 1.1);
    if (trial->scaling_efficiency.has_bounds()) {
      maximum = std::max(maximum, trial->scaling_efficiency.high * 1.02);
    }
  }
  if (shown.empty()) return "";
  const double bottom = shown.size() * kRowHeight + 4;
  std::string svg = Open(kWidth, bottom + kAxisHeight, "Scaling efficiency");
  svg += Axis(maximum, bottom, "% of ideal", 100);
  const double ideal = kLabelWidth + kPlotWidth / maximum;
  svg += Line(ideal, 4, ideal, bottom, "ideal");
  double y = 4;
  for (const MergedTrial* trial : shown) {
    const Interval& efficiency = trial->scaling_efficiency;
    const double middle = y + kRowHeight / 2;
    svg += Text(kLabelWidth - 8, middle + 4, "label end",
                FrameworkLabel(*trial) + TimesDevices(*trial));
    if (efficiency.has_bounds()) {
      svg += Whisker(kLabelWidth + efficiency.low / maximum * kPlotWidth,
                     kLabelWidth + efficiency.high / maximum * kPlotWidth, middle);
    }
    svg += absl::StrFormat("<circle cx=\"%.2f\" cy=\"%.2f\" r=\"5\" class=\"dot\"/>\n",
                           kLabelWidth + efficiency.value / maximum * kPlotWidth, middle);
    std::string value = HumanPercent(efficiency.value);
    if (efficiency.has_bounds()) {
      absl::StrAppendFormat(&value, " (%.0f\xE2\x80\x93%.0f)", efficiency.low * 100,
                            efficiency.high * 100);
    }
    if (!trial->scaling_note.empty()) value += " *";
    svg += Text(kWidth - kValueWidth + 12, middle + 4, "value", value);
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

std::string PhasesChart(const TrialList& trials) {
  double maximum = 0;
  for (const MergedTrial* trial : trials) {
    double total = 0;
    for (const Segment& segment : Segments(*trial)) total += segment.seconds;
    maximum = std::max({maximum, total, trial->iteration_seconds.value});
  }
  if (!(maximum > 0)) return "";
  maximum *= 1.02;
  const double bottom = trials.size() * kRowHeight + 4;
  std::string svg = Open(kWidth, bottom + kAxisHeight, "Phases of one iteration");
  svg += Axis(maximum, bottom, "ms", 1e3);
  double y = 4;
  for (const MergedTrial* trial : trials) {
    const double middle = y + kRowHeight / 2;
    svg += Text(kLabelWidth - 8, middle + 4, "label end",
                FrameworkLabel(*trial) + TimesDevices(*trial));
    double x = kLabelWidth;
    for (const Segment& segment : Segments(*trial)) {
      const double width = segment.seconds / maximum * kPlotWidth;
      if (width < 0.05) continue;
      svg += Rect(x, middle - kBarHeight / 2, width, kBarHeight, segment.classes,
                  absl::StrCat(segment.name, ": ", HumanSeconds(segment.seconds)));
      x += width;
    }
    const double tick = kLabelWidth + trial->iteration_seconds.value / maximum * kPlotWidth;
    svg += Line(tick, middle - kBarHeight / 2 - 3, tick, middle + kBarHeight / 2 + 3, "tick");
    svg += Text(kWidth - kValueWidth + 12, middle + 4, "value",
                HumanSeconds(trial->iteration_seconds.value));
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

std::string TimelineChart(const MergedTrial& trial) {
  if (trial.repeats.empty()) return "";
  constexpr double kLeft = 165, kRight = 12, kLane = 16, kGap = 12;
  struct Span {
    double begin, end;
    const v1::OperationSpan* operation;
    int merged = 1;
  };
  // Lanes by rank, in the order of the streams' first operations.
  struct Lane {
    std::string name;
    std::vector<Span> spans;
  };
  std::vector<std::vector<Lane>> ranks;
  std::vector<int> rank_numbers;
  double first = 0, last = 0;
  const double period = trial.iteration_seconds.value;
  const std::vector<v1::TrialResult>& results = trial.repeats[0].ranks;
  for (size_t r = 0; r < results.size(); ++r) {
    if (results[r].trace_size() == 0) continue;
    double shift = 0;
    if (r < trial.lateness.size() && std::isfinite(trial.lateness[r].median_seconds)) {
      shift = trial.lateness[r].median_seconds;
    }
    std::vector<Lane> lanes;
    for (const v1::OperationSpan& operation : results[r].trace()) {
      auto lane = std::find_if(lanes.begin(), lanes.end(),
                               [&](const Lane& l) { return l.name == operation.stream(); });
      if (lane == lanes.end()) lane = lanes.insert(lanes.end(), Lane{operation.stream(), {}});
      double begin = operation.begin_ns() * 1e-9 + shift;
      double end = std::max(begin, operation.end_ns() * 1e-9 + shift);
      // Prefetched whole iterations ahead; in the steady state the same work for a later iteration
      // runs one period later.
      while (period > 0 && end < -0.05 * period) {
        begin += period;
        end += period;
      }
      lane->spans.push_back({begin, end, &operation});
      first = std::min(first, begin);
      last = std::max(last, end);
    }
    for (Lane& lane : lanes) {
      std::sort(lane.spans.begin(), lane.spans.end(),
                [](const Span& a, const Span& b) { return a.begin < b.begin; });
    }
    const auto order = [](const Lane& lane) {
      if (absl::StartsWith(lane.name, "input")) return 0;
      if (absl::StartsWith(lane.name, "copy")) return 1;
      if (absl::StartsWith(lane.name, "compute")) return 2;
      if (absl::StartsWith(lane.name, "communication")) return 3;
      return 4;
    };
    std::stable_sort(lanes.begin(), lanes.end(),
                     [&](const Lane& a, const Lane& b) { return order(a) < order(b); });
    ranks.push_back(std::move(lanes));
    rank_numbers.push_back(results[r].rank());
  }
  if (ranks.empty() || !(last > first)) return "";
  const double scale = (kWidth - kLeft - kRight) / (last - first);
  double height = 0;
  for (const auto& lanes : ranks) height += lanes.size() * (kLane + 3) + kGap;

  std::string svg = Open(kWidth, height + kAxisHeight, "Timeline of one iteration per rank");
  const double step = NiceStep(last - first, 8);
  // Adding 0.0 turns a negative zero into zero.
  for (double t = std::ceil(first / step) * step; t <= last; t += step) {
    const double x = kLeft + (t - first) * scale;
    svg += Line(x, 0, x, height - 4, "grid");
    svg += Text(x, height + 12, "axis middle",
                absl::StrFormat("%g ms", std::round(t / step) * step * 1e3 + 0.0));
  }
  double y = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const Lane& lane : ranks[r]) {
      svg += Text(kLeft - 8, y + kLane - 4, "label small end",
                  absl::StrCat("rank ", rank_numbers[r], " ", lane.name));
      svg += Rect(kLeft, y, kWidth - kLeft - kRight, kLane, "lane");
      // Neighbours of one kind too close to tell apart are drawn as one, which keeps the page
      // small.
      std::vector<Span> drawn;
      for (const Span& span : lane.spans) {
        if (!drawn.empty() && drawn.back().operation->kind() == span.operation->kind() &&
            (span.begin - drawn.back().end) * scale < 0.3 &&
            ((span.end - span.begin) * scale < 1.5 ||
             (drawn.back().end - drawn.back().begin) * scale < 1.5)) {
          drawn.back().end = std::max(drawn.back().end, span.end);
          ++drawn.back().merged;
        } else {
          drawn.push_back(span);
        }
      }
      for (const Span& span : drawn) {
        const std::string more =
            span.merged > 1 ? absl::StrCat(" and ", span.merged - 1, " more") : "";
        svg += Rect(
            kLeft + (span.begin - first) * scale, y, std::max(0.4, (span.end - span.begin) * scale),
            kLane, absl::StrCat(KindClass(span.operation->kind()), " span"),
            absl::StrCat(span.operation->name(), more, ": ", HumanSeconds(span.end - span.begin)));
      }
      y += kLane + 3;
    }
    y += kGap;
  }
  return svg + "</svg>\n";
}

std::string ModelChart(const MergedRuns& runs, const FitResult& fit) {
  constexpr double kSize = 420, kLeft = 64, kBottom = 44, kTop = 10, kRight = 16;
  double low = kUnknown, high = kUnknown;
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    for (double value :
         {runs.trials[i].iteration_seconds.value, fit.trials[i].modelled_iteration_seconds}) {
      if (!(value > 0) || !std::isfinite(fit.trials[i].modelled_iteration_seconds)) continue;
      if (!(low <= value)) low = value;
      if (!(high >= value)) high = value;
    }
  }
  if (!(low > 0)) return "";
  low /= 1.3;
  high *= 1.3;
  const double span = std::log(high / low);
  const auto x = [&](double v) {
    return kLeft + std::log(v / low) / span * (kSize - kLeft - kRight);
  };
  const auto y = [&](double v) {
    return kSize - kBottom - std::log(v / low) / span * (kSize - kBottom - kTop);
  };
  std::string svg = Open(kSize, kSize, "Measured against modelled iteration time");
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * power;
      if (value < low || value > high) continue;
      svg += Line(x(value), kTop, x(value), kSize - kBottom, "grid");
      svg += Line(kLeft, y(value), kSize - kRight, y(value), "grid");
      svg += Text(x(value), kSize - kBottom + 16, "axis middle", HumanSeconds(value));
      svg += Text(kLeft - 6, y(value) + 4, "axis end", HumanSeconds(value));
    }
  }
  // Ten per cent either side of equality.
  svg += absl::StrFormat(
      "<polygon class=\"band\" points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f\"/>\n",
      x(low * 1.1), y(low), x(high), y(high / 1.1), x(high / 1.1), y(high), x(low), y(low * 1.1));
  svg += Line(x(low), y(low), x(high), y(high), "ideal");
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    const double measured = runs.trials[i].iteration_seconds.value;
    const double modelled = fit.trials[i].modelled_iteration_seconds;
    if (!(measured > 0) || !(modelled > 0)) continue;
    svg += absl::StrFormat(
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" class=\"dot%s\"><title>%s</title></circle>\n",
        x(measured), y(modelled), runs.trials[i].devices == 1 ? " one" : "",
        EscapeHtml(absl::StrCat(TrialLabel(runs.trials[i]), ": measured ", HumanSeconds(measured),
                                ", modelled ", HumanSeconds(modelled))));
  }
  svg += Text((kLeft + kSize - kRight) / 2, kSize - 8, "axis middle", "measured iteration");
  svg += absl::StrFormat(
      "<text transform=\"translate(14 %.0f) rotate(-90)\" class=\"axis middle\">modelled "
      "iteration</text>\n",
      (kSize - kBottom + kTop) / 2);
  return svg + "</svg>\n";
}

}  // namespace paceline
