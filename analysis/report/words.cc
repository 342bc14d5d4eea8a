#include "analysis/report/words.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "analysis/stats/statistics.h"
#include "models/networks/network.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

constexpr char kDash[] = "\xE2\x80\x93";  // –
constexpr char kTimes[] = "\xC3\x97";     // ×

std::string Range(const Interval& interval, const char* format) {
  if (!interval.has_bounds()) return "";
  const auto parsed = absl::ParsedFormat<'f'>::New(format);
  return absl::StrCat(" (", absl::StrFormat(*parsed, interval.low), kDash,
                      absl::StrFormat(*parsed, interval.high), ")");
}

std::string DevicesText(int devices) {
  return absl::StrCat(devices, devices == 1 ? " device" : " devices");
}

// "A", "A and B", "A, B and C".
std::string List(const std::vector<std::string>& items) {
  if (items.size() < 2) return absl::StrJoin(items, "");
  return absl::StrCat(absl::StrJoin(items.begin(), items.end() - 1, ", "), " and ", items.back());
}

std::string GroupHeadline(std::vector<const MergedTrial*> trials) {
  std::sort(trials.begin(), trials.end(), [](const MergedTrial* a, const MergedTrial* b) {
    return a->samples_per_second.value > b->samples_per_second.value;
  });
  const MergedTrial& best = *trials[0];
  const std::string where = absl::StrCat(PanelLabel(best), ", ", DevicesText(best.devices), ": ");
  const std::string rate = absl::StrCat(HumanNumber(best.samples_per_second.value), " samples/s");
  if (trials.size() == 1) {
    return absl::StrCat(where, "only ", FrameworkLabel(best), " was measured, ", rate, ".");
  }
  std::vector<std::string> tied = {FrameworkLabel(best)};
  const MergedTrial* next = nullptr;
  Interval next_ratio;
  double widest_tie = 0;
  for (size_t i = 1; i < trials.size(); ++i) {
    const Interval ratio =
        SpeedRatioInterval(best.IterationRuns(), best.samples_per_iteration(),
                           trials[i]->IterationRuns(), trials[i]->samples_per_iteration());
    if (ratio.has_bounds() && ratio.low > 1 && ratio.value > 1 + kPracticalDifference) {
      if (next == nullptr) {
        next = trials[i];
        next_ratio = ratio;
      }
    } else {
      tied.push_back(FrameworkLabel(*trials[i]));
      widest_tie = std::max(widest_tie, ratio.value - 1);
    }
  }
  if (tied.size() == 1) {
    return absl::StrCat(where, tied[0], " is fastest, ", rate, ": ",
                        absl::StrFormat("%.2f", next_ratio.value), Range(next_ratio, "%.2f"), " ",
                        kTimes, " ", FrameworkLabel(*next), ", the next.");
  }
  std::string text =
      absl::StrCat(where, List(tied), " lead with about ", rate,
                   " and cannot be told apart (differences of at most ", HumanPercent(widest_tie),
                   " are within noise or below ", HumanPercent(kPracticalDifference), ")");
  if (next != nullptr) {
    absl::StrAppend(&text, "; the first of them is ", absl::StrFormat("%.2f", next_ratio.value),
                    Range(next_ratio, "%.2f"), " ", kTimes, " ", FrameworkLabel(*next));
  }
  return absl::StrCat(text, ".");
}

// What the communication is, for a sentence: "all-reduce", "push and pull".
std::string MethodText(const v1::CommunicationPolicy& policy) {
  switch (policy.method()) {
    case v1::CommunicationPolicy::METHOD_PARAMETER_SERVER:
      return "push and pull";
    case v1::CommunicationPolicy::METHOD_REDUCE_TO_OWNER:
      return "reduce to owners and broadcast";
    case v1::CommunicationPolicy::METHOD_REDUCE_BROADCAST:
      return "reduce and broadcast";
    default:
      return "all-reduce";
  }
}

double GradientBytes(const MergedTrial& trial) {
  absl::StatusOr<ShapedNetwork> shaped = InferShapes(trial.trial.network());
  return shaped.ok() ? shaped->gradient_bytes : kUnknown;
}

// The largest share of all communicated bytes that one message carries.
double LargestMessageShare(const MergedTrial& trial) {
  if (trial.repeats.empty() || trial.repeats[0].ranks.empty()) return kUnknown;
  std::map<std::string, std::pair<double, double>> by_kind;  // Sum, maximum.
  for (const v1::OperationStatistics& operation : trial.repeats[0].ranks[0].operations()) {
    const std::string& kind = operation.kind();
    if (kind == "forward" || kind == "backward" || kind == "read" || kind == "copy_input" ||
        kind == "update") {
      continue;
    }
    auto& entry = by_kind[kind];
    entry.first += operation.bytes();
    entry.second = std::max<double>(entry.second, operation.bytes());
  }
  double share = kUnknown;
  for (const auto& entry : by_kind) {
    if (entry.second.first > 0) {
      const double one = entry.second.second / entry.second.first;
      if (!(one <= share)) share = one;
    }
  }
  return share;
}

std::string WhyNotHidden(const MergedTrial& trial) {
  const v1::CommunicationPolicy& policy = trial.trial.policy().communication();
  const double backward = trial.phase(Phase::kBackward).value;
  const double communication = trial.phase(Phase::kCommunication).value;
  if (!policy.overlaps_backward()) {
    return "nothing is hidden behind backward: this policy starts communicating after it ends";
  }
  if (policy.grouping().has_one_group() || policy.grouping().has_repack()) {
    return "hiding is limited because the message is complete only when backward ends";
  }
  if (communication > backward) {
    return absl::StrCat("hiding is limited because communication (", HumanSeconds(communication),
                        ") takes longer than the backward pass it could hide behind (",
                        HumanSeconds(backward), ")");
  }
  const double share = LargestMessageShare(trial);
  if (share > 0.4) {
    return absl::StrCat("hiding is limited because one message carries ", HumanPercent(share),
                        " of the bytes");
  }
  if (policy.pulls_before_layer()) {
    return "hiding is limited because forward waits for the weights of each layer";
  }
  return "hiding is limited because the last gradients appear only as backward ends";
}

// Whether the second half of a series is clearly, and noticeably, faster or slower than the first.
bool Drifts(const std::vector<double>& seconds) {
  const size_t count = seconds.size();
  if (count < 10) return false;
  const absl::Span<const double> all = absl::MakeConstSpan(seconds);
  const double first = Median(all.first(count / 2));
  const double change = std::abs(Median(all.subspan(count / 2)) - first);
  // Noise from neighbouring iterations, which a drift leaves alone. Doubled, because correlated
  // iterations make it look small (by up to that much at a lag-1 correlation of 0.4).
  std::vector<double> steps;
  for (size_t i = 1; i < count; ++i) steps.push_back(seconds[i] - seconds[i - 1]);
  const double noise = 2 * ScaledMad(steps) / std::sqrt(2.0);
  const double standard_error = 1.2533 * noise * std::sqrt(2 / (count / 2.0));
  return change > kPracticalDifference * first && change > 3 * standard_error;
}

}  // namespace

std::string HumanNumber(double value) {
  if (!std::isfinite(value)) return kDash;
  const double magnitude = std::abs(value);
  if (magnitude == 0) return "0";
  if (magnitude >= 100) return absl::StrFormat("%.0f", value);
  if (magnitude >= 10) return absl::StrFormat("%.1f", value);
  if (magnitude >= 1) return absl::StrFormat("%.2f", value);
  return absl::StrFormat("%.3g", value);
}

std::string HumanSeconds(double seconds) {
  if (!std::isfinite(seconds)) return kDash;
  const double magnitude = std::abs(seconds);
  if (magnitude == 0) return "0";
  if (magnitude >= 1) return absl::StrCat(HumanNumber(seconds), " s");
  if (magnitude >= 1e-3) return absl::StrCat(HumanNumber(seconds * 1e3), " ms");
  if (magnitude >= 1e-6) return absl::StrCat(HumanNumber(seconds * 1e6), " \xC2\xB5s");
  return absl::StrCat(HumanNumber(seconds * 1e9), " ns");
}

std::string HumanBytes(double bytes) {
  if (!std::isfinite(bytes)) return kDash;
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return absl::StrCat(unit == 0 ? absl::StrFormat("%.0f", bytes) : HumanNumber(bytes), " ",
                      units[unit]);
}

std::string HumanPercent(double fraction) {
  if (!std::isfinite(fraction)) return kDash;
  const double percent = fraction * 100;
  if (std::abs(percent) < 0.05) return "0 %";
  return absl::StrCat(std::abs(percent) < 9.95 && percent != std::round(percent)
                          ? absl::StrFormat("%.1f", percent)
                          : absl::StrFormat("%.0f", percent),
                      " %");
}

std::string HumanSignedPercent(double fraction) {
  return absl::StrCat(fraction * 100 >= 0.05 ? "+" : "", HumanPercent(fraction));
}

std::string FrameworkLabel(const MergedTrial& trial) {
  const std::string engine = EngineName(trial.trial.engine());
  return engine == "native" ? trial.trial.policy().name()
                            : absl::StrCat(trial.trial.policy().name(), " [", engine, "]");
}

std::string PanelLabel(const MergedTrial& trial) {
  return absl::StrCat(trial.trial.network().name(), ", ", PrecisionName(trial.trial.precision()),
                      ", batch ", trial.trial.batch_per_device(), " per device, ",
                      InputName(trial.trial.input()));
}

std::string TrialLabel(const MergedTrial& trial) {
  std::string label =
      absl::StrCat(trial.trial.network().name(), ", ", FrameworkLabel(trial), ", ",
                   DevicesText(trial.devices), ", batch ", trial.trial.batch_per_device());
  if (trial.trial.precision() > v1::PRECISION_FP32) {
    absl::StrAppend(&label, ", ", PrecisionName(trial.trial.precision()));
  }
  const std::string input = InputName(trial.trial.input());
  if (input != "synthetic") absl::StrAppend(&label, ", ", input);
  return label;
}

std::vector<std::string> Headlines(const MergedRuns& runs) {
  std::map<std::string, std::vector<const MergedTrial*>> panels;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok || !trial.samples_per_second.known()) continue;
    panels[absl::StrCat(PanelLabel(trial), "\n", trial.machine)].push_back(&trial);
  }
  std::vector<std::string> headlines;
  for (auto& panel : panels) {
    int most = 0;
    for (const MergedTrial* trial : panel.second) most = std::max(most, trial->devices);
    std::vector<const MergedTrial*> largest;
    for (const MergedTrial* trial : panel.second) {
      if (trial->devices == most) largest.push_back(trial);
    }
    headlines.push_back(GroupHeadline(std::move(largest)));
  }
  return headlines;
}

std::string Bottleneck(const MergedTrial& trial) {
  const double total = trial.iteration_seconds.value;
  if (!trial.ok || !(total > 0)) return "";
  const auto share = [&](Phase phase) {
    const double seconds = trial.phase(phase).value;
    return std::isfinite(seconds) ? seconds / total : 0;
  };
  const double compute = share(Phase::kForward) + share(Phase::kBackward);
  const double exposed = share(Phase::kExposedCommunication);
  const double input = share(Phase::kInputWait);
  const double update = share(Phase::kUpdate);
  if (compute + exposed + input + update < 0.05) return "phases were not reported by this engine";

  std::string communication;
  if (exposed >= 0.05) {
    communication =
        absl::StrCat(HumanPercent(exposed), " of the iteration waits for ",
                     MethodText(trial.trial.policy().communication()), " of ",
                     HumanBytes(GradientBytes(trial)), " of gradients; ", WhyNotHidden(trial));
  }
  const std::string read =
      absl::StrCat(HumanPercent(input), " of the iteration waits for ",
                   share(Phase::kInput) >= share(Phase::kCopy) ? "reading and decoding"
                                                               : "the copy to the device");
  if (input > exposed && input > compute) return absl::StrCat("input: ", read, ".");
  if (exposed >= compute || (exposed > 0.25 && exposed >= input)) {
    return absl::StrCat("communication: ", communication, ".");
  }
  std::string text = absl::StrCat("compute: forward and backward take ", HumanPercent(compute),
                                  " of the iteration");
  if (!communication.empty()) absl::StrAppend(&text, "; ", communication);
  if (input >= 0.05) absl::StrAppend(&text, "; ", read);
  if (update >= 0.05) {
    absl::StrAppend(&text, "; the update is busy for ", HumanPercent(update));
  }
  const double hidden = share(Phase::kCommunication) - exposed;
  if (communication.empty() && hidden > 0.05) {
    absl::StrAppend(&text, "; communication is ",
                    HumanPercent(hidden / share(Phase::kCommunication)), " hidden");
  }
  return absl::StrCat(text, ".");
}

std::vector<std::string> Limitations(const MergedRuns& runs, const FitResult& fit) {
  std::vector<std::string> notes = runs.notes;
  int without_baseline = 0, thread_change = 0, wide = 0, unconverged = 0, loaded = 0, drifting = 0,
      superlinear = 0;
  double worst_clock = 0;
  std::set<std::string> governors;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok) continue;
    if (trial.devices > 1 && !trial.scaling_efficiency.known()) ++without_baseline;
    if (trial.scaling_efficiency.known() && !trial.scaling_note.empty()) ++thread_change;
    if (trial.scaling_efficiency.low > 1.05) ++superlinear;
    if (!(trial.iteration_seconds.relative_half_width() <= 0.05)) ++wide;
    if (trial.stop_reason == "max_iterations" || trial.stop_reason == "max_seconds") ++unconverged;
    if (trial.other_load > 0.05) ++loaded;
    worst_clock = std::max(worst_clock, trial.clock_bound_seconds);
    bool drifts = false;
    for (const MergedRepeat& repeat : trial.repeats) drifts |= Drifts(repeat.iteration_seconds);
    drifting += drifts;
  }
  const auto add = [&](int count, const std::string& text) {
    if (count > 0) {
      notes.push_back(
          absl::StrCat(count, count == 1 ? " configuration " : " configurations ", text));
    }
  };
  add(without_baseline,
      "on several devices without the same measurement on one device: scaling efficiency is left "
      "empty. Add devices: 1 to the sweep.");
  add(thread_change,
      "where one device computed with more threads than each of several: their scaling efficiency "
      "includes the loss of cores.");
  add(superlinear,
      "that scale better than ideal: something slowed their measurement on one device down; "
      "measure "
      "it again, or with more repeats.");
  add(wide,
      "whose 95 % interval of the median iteration time is wider than \xC2\xB1 5 % or unknown: "
      "raise measurement.max_iterations or repeats.");
  add(unconverged,
      "stopped at the limit of iterations or seconds before the interval was as narrow as asked.");
  add(loaded,
      "measured while other processes or the hypervisor took more than 5 % of the CPU time.");
  add(drifting,
      "did not reach a steady state: the second half of a repeat is faster or slower than the "
      "first by "
      "more than noise.");
  if (worst_clock > 0) {
    notes.push_back(absl::StrCat("Clocks of different hosts are known to within ",
                                 HumanSeconds(worst_clock),
                                 "; ranks closer than that are not ordered."));
  }
  std::map<std::string, int> unidentified;
  for (const FrameworkFit& framework : fit.frameworks) {
    for (const FitRow& row : framework.rows) {
      if (!row.estimate.identified()) ++unidentified[row.parameter];
    }
  }
  std::vector<std::string> parameters;
  for (const auto& entry : unidentified) {
    parameters.push_back(absl::StrCat(entry.first, " (", entry.second, ")"));
  }
  if (!parameters.empty()) {
    notes.push_back(absl::StrCat("Not determined by these measurements, so given no value: ",
                                 absl::StrJoin(parameters, ", "),
                                 ". fits.csv says for each which measurement would tell."));
  }
  notes.push_back(
      "Model errors are in-sample unless called held out: the model was fitted to the very trials "
      "it "
      "is compared with.");
  notes.push_back(
      "Hidden communication is what ran while compute was busy; how much of it slowed compute down "
      "shows only in the contention ratio, which needs the same trial on one device.");
  return notes;
}

}  // namespace paceline
