#include "analysis/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "analysis/report/charts.h"
#include "analysis/report/json.h"
#include "analysis/report/words.h"

namespace paceline {
namespace {

constexpr char kStyle[] = R"css(
:root { color-scheme: light dark;
  --page: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --soft: #5b6470; --rule: #d8dde3; --grid: #e4e8ec;
  --accent: #2f6fb0; --accent-pale: #9cbfe3; --whisker: #1b1f24; --warn: #a8500b;
  --input: #8b6bb1; --copy: #c9a227; --forward: #6aa5d8; --backward: #2b66a3;
  --communication: #df6a2b; --update: #3f9a63; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171b; --card: #1d2228; --ink: #e6e9ed; --soft: #9aa4b0; --rule: #363d46; --grid: #2a3038;
  --accent: #69a7e6; --accent-pale: #35557a; --whisker: #e6e9ed; --warn: #f0a35e;
  --input: #b297d8; --copy: #dcbb4c; --forward: #8fc1ee; --backward: #4a88c9;
  --communication: #f08a4f; --update: #62bd86; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main, header, nav { max-width: 1060px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; } header p { color: var(--soft); margin: 4px 0; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 21px; margin: 48px 0 8px; padding-top: 12px; border-top: 1px solid var(--rule); }
h3 { font-size: 15.5px; margin: 26px 0 6px; }
p { max-width: 84ch; margin: 8px 0; } .soft { color: var(--soft); }
nav { padding-top: 12px; font-size: 14px; } nav a { margin-right: 16px; white-space: nowrap; }
a { color: var(--accent); }
.headlines { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 14px 22px 14px 38px; margin: 14px 0; } .headlines li { margin: 6px 0; max-width: 90ch; }
svg { display: block; width: 100%; height: auto; margin: 6px 0 14px; }
svg.square, .square svg { max-width: 440px; }
svg text { font-size: 12.5px; fill: var(--ink); font-family: inherit; font-variant-numeric: tabular-nums; }
svg .axis { fill: var(--soft); font-size: 11.5px; } svg .small { font-size: 11px; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--grid); } .ideal { stroke: var(--soft); stroke-dasharray: 4 3; }
.whisker { stroke: var(--whisker); stroke-width: 1.4; } .tick { stroke: var(--ink); stroke-width: 2.2; }
.bar { fill: var(--accent); } .bar.one { fill: var(--accent-pale); }
.dot { fill: var(--accent); } .dot.one { fill: var(--page); stroke: var(--accent); stroke-width: 2; }
.band { fill: var(--accent-pale); opacity: 0.3; } .lane { fill: var(--card); }
.p-input { fill: var(--input); } .p-copy { fill: var(--copy); } .p-forward { fill: var(--forward); }
.p-backward { fill: var(--backward); } .p-communication { fill: var(--communication); }
.p-update { fill: var(--update); } .pale { opacity: 0.38; }
.span { stroke: var(--page); stroke-width: 0.25; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); margin: 8px 0; }
.legend svg { display: inline-block; width: 12px; height: 12px; margin: 0 6px -1px 0; }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; font-size: 13px; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 10px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--soft); font-weight: 600; border-bottom-color: var(--rule); }
tbody th { padding-top: 16px; color: var(--ink); }
td.n, th.n { text-align: right; } td.n { white-space: nowrap; } td.id { white-space: nowrap; width: 260px; }
.no { color: var(--soft); } .fail { color: var(--warn); font-weight: 600; white-space: nowrap; }
details { margin: 10px 0; } summary { cursor: pointer; font-weight: 600; font-size: 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--soft); font-size: 13px; max-width: 1060px; margin: 40px auto; padding: 0 24px; }
@media print { :root { color-scheme: light;
  --page: #ffffff; --card: #ffffff; --ink: #000000; --soft: #444444; --rule: #bbbbbb; --grid: #e2e2e2;
  --accent: #2f6fb0; --accent-pale: #9cbfe3; --whisker: #000000; --warn: #7a3a00;
  --input: #8b6bb1; --copy: #c9a227; --forward: #6aa5d8; --backward: #2b66a3;
  --communication: #df6a2b; --update: #3f9a63; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  nav { display: none; } svg, tr, li { break-inside: avoid; } h2, h3 { break-after: avoid; }
  body { font-size: 10pt; } main, header { max-width: none; padding: 0; }
  .scroll { overflow: visible; } table { font-size: 8pt; } th, td { padding-right: 6px; }
  h2 { margin-top: 24px; } }
)css";

// Table cells. Numbers are right-aligned.
std::string Cell(const std::string& text, const char* classes = "") {
  return *classes == '\0' ? absl::StrCat("<td>", EscapeHtml(text), "</td>")
                          : absl::StrCat("<td class=\"", classes, "\">", EscapeHtml(text), "</td>");
}
std::string NumberCell(const std::string& text) { return Cell(text, "n"); }

std::string TableHead(const std::vector<std::string>& columns) {
  // A leading '#' marks a numeric column.
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& column : columns) {
    if (!column.empty() && column[0] == '#') {
      absl::StrAppend(&html, "<th class=\"n\">", EscapeHtml(column.substr(1)), "</th>");
    } else {
      absl::StrAppend(&html, "<th>", EscapeHtml(column), "</th>");
    }
  }
  return html + "</tr></thead><tbody>\n";
}
constexpr char kTableEnd[] = "</tbody></table></div>\n";

std::string Legend() {
  const std::pair<const char*, const char*> phases[] = {{"p-input", "input"},
                                                        {"p-copy", "copy"},
                                                        {"p-forward", "forward"},
                                                        {"p-backward", "backward"},
                                                        {"p-communication", "communication"},
                                                        {"p-update", "update"}};
  std::string html = "<div class=\"legend\">";
  for (const auto& phase : phases) {
    absl::StrAppend(&html,
                    "<span><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect width=\"12\" "
                    "height=\"12\" class=\"",
                    phase.first, "\"/></svg>", phase.second, "</span>");
  }
  return html + "</div>\n";
}

// Comparable trials together, in the order of the rows.
std::vector<std::pair<std::string, TrialList>> Panels(const MergedRuns& runs) {
  std::set<std::string> machines;
  for (const MergedTrial& trial : runs.trials) {
    if (trial.ok) machines.insert(trial.machine);
  }
  std::vector<std::pair<std::string, TrialList>> panels;
  for (const MergedTrial& trial : runs.trials) {
    if (!trial.ok || !trial.iteration_seconds.known()) continue;
    std::string label = PanelLabel(trial);
    if (machines.size() > 1) absl::StrAppend(&label, ", ", trial.machine);
    auto panel =
        std::find_if(panels.begin(), panels.end(), [&](const auto& p) { return p.first == label; });
    if (panel == panels.end()) panel = panels.insert(panels.end(), {label, {}});
    panel->second.push_back(&trial);
  }
  for (auto& panel : panels) {
    std::stable_sort(panel.second.begin(), panel.second.end(),
                     [](const MergedTrial* a, const MergedTrial* b) {
                       if (a->devices != b->devices) return a->devices > b->devices;
                       return a->samples_per_second.value > b->samples_per_second.value;
                     });
  }
  return panels;
}

std::string ValueWithRange(const v1::Estimate& estimate, const std::string& unit) {
  const auto format = [&](double value) {
    if (unit == "s") return HumanSeconds(value);
    if (unit == "s/B") return absl::StrCat(HumanNumber(value * 1e9), " ns/B");
    return HumanNumber(value);
  };
  std::string text = format(estimate.value());
  if (estimate.high() > estimate.low()) {
    absl::StrAppend(&text, " (", format(estimate.low()), " \xE2\x80\x93 ", format(estimate.high()),
                    ")");
  }
  if (unit == "s/B" && estimate.value() > 0) {
    absl::StrAppend(&text, " = ", HumanNumber(1e-9 / estimate.value()), " GB/s");
  }
  return text;
}

std::string Header(const MergedRuns& runs) {
  std::string html = "<header>\n<h1>Paceline report</h1>\n";
  int ok = 0, failed = 0;
  for (const MergedTrial& trial : runs.trials) (trial.ok ? ok : failed) += 1;
  for (const RunInfo& run : runs.runs) {
    absl::StrAppend(
        &html, "<p>Run ", EscapeHtml(run.run_id), ", plan \xE2\x80\x9C",
        EscapeHtml(run.plan.name()), "\xE2\x80\x9D, started ",
        EscapeHtml(absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixNanos(run.created_unix_ns),
                                    absl::UTCTimeZone())),
        run.paceline_version.empty() ? "" : ", Paceline ", EscapeHtml(run.paceline_version),
        "</p>\n");
  }
  absl::StrAppend(&html, "<p>", ok, ok == 1 ? " configuration" : " configurations", " measured");
  if (failed > 0) absl::StrAppend(&html, ", ", failed, " failed or not run");
  return html + ".</p>\n</header>\n";
}

std::string HeadlineSection(const MergedRuns& runs) {
  std::string html = "<h2 id=\"headline\">What was found</h2>\n";
  const std::vector<std::string> headlines = Headlines(runs);
  if (headlines.empty()) {
    return html + "<p>No configuration was measured successfully; see the failures below.</p>\n";
  }
  absl::StrAppend(&html, "<ul class=\"headlines\">\n");
  for (const std::string& headline : headlines) {
    absl::StrAppend(&html, "<li>", EscapeHtml(headline), "</li>\n");
  }
  return html +
         "</ul>\n<p class=\"soft\">Ratios are of throughput, with 95 % intervals. Where the "
         "interval includes 1, or the difference is below 2 %, no winner is named.</p>\n";
}

std::string ThroughputSection(const std::vector<std::pair<std::string, TrialList>>& panels) {
  std::string html =
      "<h2 id=\"throughput\">Throughput and scaling</h2>\n"
      "<p>Samples per second of all devices together: samples over total time of the measured "
      "iterations. Whiskers are 95 % intervals from a bootstrap over repeats and blocks of "
      "iterations. Pale bars: one device.</p>\n";
  bool noted = false;
  for (const auto& panel : panels) {
    absl::StrAppend(&html, "<h3>", EscapeHtml(panel.first), "</h3>\n",
                    ThroughputChart(panel.second));
    const std::string efficiency = EfficiencyChart(panel.second);
    if (efficiency.empty()) continue;
    absl::StrAppend(&html,
                    "<p class=\"soft\">Scaling efficiency: time of an iteration on one device "
                    "over that on several, with the same batch per device.</p>\n",
                    efficiency);
    for (const MergedTrial* trial : panel.second) {
      if (!noted && trial->devices > 1 && !trial->scaling_note.empty() &&
          trial->scaling_efficiency.known()) {
        absl::StrAppend(&html, "<p class=\"soft\">* ", EscapeHtml(trial->scaling_note), ".</p>\n");
        noted = true;
      }
    }
  }
  return html;
}

std::string PhasesSection(const std::vector<std::pair<std::string, TrialList>>& panels) {
  std::string html =
      "<h2 id=\"phases\">Where the time goes</h2>\n"
      "<p>Solid: what the iteration is made of, waiting for input and communication included. "
      "Pale: "
      "work that ran beside it, hidden. The tick is the measured iteration; medians, mean over "
      "ranks.</p>\n" +
      Legend();
  for (const auto& panel : panels) {
    absl::StrAppend(&html, "<h3>", EscapeHtml(panel.first), "</h3>\n", PhasesChart(panel.second),
                    TableHead({"Configuration", "Bottleneck"}));
    for (const MergedTrial* trial : panel.second) {
      absl::StrAppend(&html, "<tr>",
                      Cell(absl::StrCat(FrameworkLabel(*trial), " \xC3\x97", trial->devices), "id"),
                      Cell(Bottleneck(*trial)), "</tr>\n");
    }
    html += kTableEnd;
  }
  return html;
}

std::string TimelineSection(const std::vector<std::pair<std::string, TrialList>>& panels) {
  std::string charts;
  for (const auto& panel : panels) {
    int most = 0;
    for (const MergedTrial* trial : panel.second) most = std::max(most, trial->devices);
    for (const MergedTrial* trial : panel.second) {
      if (trial->devices != most) continue;
      const std::string chart = TimelineChart(*trial);
      if (chart.empty()) continue;
      absl::StrAppend(&charts, "<details", charts.empty() ? " open" : "", "><summary>",
                      EscapeHtml(TrialLabel(*trial)), "</summary>\n", chart, "</details>\n");
    }
  }
  if (charts.empty()) return "";
  return absl::StrCat(
      "<h2 id=\"timeline\">One iteration on every rank</h2>\n<p>The measured iteration closest to "
      "the median, as each rank recorded it; 0 is where the first rank began it. Input "
      "prefetched for later iterations is drawn where it recurs. Hover for operations. "
      "timeline.json holds every configuration for ui.perfetto.dev.</p>\n",
      Legend(), charts);
}

std::string ModelSection(const MergedRuns& runs, const FitResult& fit) {
  if (fit.frameworks.empty()) return "";
  std::string html =
      "<h2 id=\"model\">The fitted model</h2>\n"
      "<p>Each framework's compute, communication, input and update costs are fitted to its "
      "trials; "
      "the simulator then runs every trial's own schedule with them. Those errors are in-sample. "
      "Held out: a network on several devices, predicted from its own compute on one device and "
      "the "
      "communication and contention of the framework's other networks. Replayed: the schedule fed "
      "with the trial's own operation medians, which tests the schedule and not the fit.</p>\n";
  const std::string chart = ModelChart(runs, fit);
  if (!chart.empty()) {
    absl::StrAppend(&html, "<div class=\"square\">", chart,
                    "</div>\n<p class=\"soft\">Band: \xC2\xB1 10 %. Rings: one device.</p>\n");
  }
  html += TableHead({"Framework", "#Configurations", "#Median error", "#Largest", "#Bias",
                     "#Held out, median error", "#Measurement noise"});
  for (const FrameworkFit& framework : fit.frameworks) {
    const v1::FitQuality& quality = framework.model.quality();
    const bool any = quality.configurations() > 0;
    absl::StrAppend(
        &html, "<tr>",
        Cell(framework.model.engine() == "native"
                 ? framework.model.policy()
                 : absl::StrCat(framework.model.policy(), " [", framework.model.engine(), "]")),
        NumberCell(absl::StrCat(quality.configurations())),
        NumberCell(HumanPercent(any ? quality.median_absolute_error() : kUnknown)),
        NumberCell(HumanPercent(any ? quality.max_absolute_error() : kUnknown)),
        NumberCell(HumanSignedPercent(any ? quality.bias() : kUnknown)),
        NumberCell(HumanPercent(framework.held_out_median_error)),
        NumberCell(absl::StrCat("\xC2\xB1 ", HumanPercent(quality.noise()))), "</tr>\n");
  }
  html += kTableEnd;

  html += "<details open><summary>Measured and modelled iterations</summary>\n";
  html += TableHead({"Configuration", "#Measured", "#Modelled", "#Error", "#Held out", "#Error",
                     "#Replayed", "#Error", "Note"});
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    const MergedTrial& trial = runs.trials[i];
    if (!trial.ok || !trial.iteration_seconds.known()) continue;
    const double measured = trial.iteration_seconds.value;
    const ModelledTrial& modelled = fit.trials[i];
    absl::StrAppend(
        &html, "<tr>", Cell(TrialLabel(trial)), NumberCell(HumanSeconds(measured)),
        NumberCell(HumanSeconds(modelled.modelled_iteration_seconds)),
        NumberCell(HumanSignedPercent(modelled.modelled_iteration_seconds / measured - 1)),
        NumberCell(HumanSeconds(modelled.held_out_iteration_seconds)),
        NumberCell(HumanSignedPercent(modelled.held_out_iteration_seconds / measured - 1)),
        NumberCell(HumanSeconds(modelled.replayed_iteration_seconds)),
        NumberCell(HumanSignedPercent(modelled.replayed_iteration_seconds / measured - 1)),
        Cell(modelled.note, "no"), "</tr>\n");
  }
  absl::StrAppend(&html, kTableEnd, "</details>\n");

  for (const FrameworkFit& framework : fit.frameworks) {
    absl::StrAppend(&html, "<details><summary>Fit of ", EscapeHtml(framework.model.policy()),
                    framework.model.engine() == "native"
                        ? ""
                        : EscapeHtml(absl::StrCat(" [", framework.model.engine(), "]")),
                    "</summary>\n<p class=\"soft\">", EscapeHtml(framework.model.cluster()),
                    "</p>\n",
                    TableHead({"Parameter", "Of", "#Devices", "Value (95 % interval)", "Note"}));
    // What is not determined shares its reasons: one line a reason.
    std::vector<std::pair<std::string, std::vector<std::string>>> undetermined;
    for (const FitRow& row : framework.rows) {
      const std::string subject =
          row.precision.empty() ? row.subject : absl::StrCat(row.subject, " ", row.precision);
      if (!row.estimate.identified()) {
        const std::string reason = absl::StrCat(subject, ": ", row.estimate.note());
        auto entry = std::find_if(undetermined.begin(), undetermined.end(),
                                  [&](const auto& e) { return e.first == reason; });
        if (entry == undetermined.end()) {
          entry = undetermined.insert(undetermined.end(), {reason, {}});
        }
        entry->second.push_back(row.parameter);
        continue;
      }
      absl::StrAppend(&html, "<tr>", Cell(row.parameter), Cell(subject),
                      NumberCell(row.devices > 0 ? absl::StrCat(row.devices) : "all"),
                      Cell(ValueWithRange(row.estimate, row.unit)), Cell(row.estimate.note(), "no"),
                      "</tr>\n");
    }
    html += kTableEnd;
    if (!undetermined.empty()) {
      html += "<p>Not determined, and why:</p>\n<ul class=\"soft\">\n";
      for (const auto& entry : undetermined) {
        absl::StrAppend(&html, "<li>", EscapeHtml(absl::StrJoin(entry.second, ", ")), " of ",
                        EscapeHtml(entry.first), "</li>\n");
      }
      html += "</ul>\n";
    }
    html += "</details>\n";
  }
  return html;
}

std::string FailureSection(const MergedRuns& runs) {
  std::string rows;
  for (const MergedTrial& trial : runs.trials) {
    if (trial.ok) continue;
    absl::StrAppend(&rows, "<tr>", Cell(TrialLabel(trial)), Cell(trial.status, "fail"),
                    NumberCell(absl::StrCat(trial.failed_repeats)),
                    NumberCell(absl::StrCat(trial.attempts)), Cell(trial.cause), "</tr>\n");
  }
  std::string html = "<h2 id=\"failures\">Failures</h2>\n";
  if (rows.empty()) return html + "<p>None: every trial of the plan was measured.</p>\n";
  return absl::StrCat(html, TableHead({"Configuration", "Status", "#Trials", "#Attempts", "Cause"}),
                      rows, kTableEnd);
}

std::string AllTrialsSection(const MergedRuns& runs) {
  std::string html = "<h2 id=\"trials\">All configurations</h2>\n";
  html += TableHead({"Framework", "Status", "#Samples/s (95 %)", "#Iteration", "#Efficiency",
                     "#Iterations", "#Repeats", "#Outliers", "#Memory", "#Loss"});
  std::string panel;
  for (const MergedTrial& trial : runs.trials) {
    if (PanelLabel(trial) != panel) {
      panel = PanelLabel(trial);
      absl::StrAppend(&html, "<tr><th colspan=\"10\">", EscapeHtml(panel), "</th></tr>\n");
    }
    int warmup = 0;
    for (const MergedRepeat& repeat : trial.repeats) {
      warmup = std::max(warmup, repeat.warmup_iterations);
    }
    const Interval& rate = trial.samples_per_second;
    std::string rate_text = HumanNumber(rate.value);
    if (rate.has_bounds()) {
      absl::StrAppend(&rate_text, " (", HumanNumber(rate.low), "\xE2\x80\x93",
                      HumanNumber(rate.high), ")");
    }
    absl::StrAppend(&html, "<tr>",
                    Cell(absl::StrCat(FrameworkLabel(trial), " \xC3\x97", trial.devices)),
                    Cell(trial.status, trial.ok ? "" : "fail"), NumberCell(rate_text),
                    NumberCell(HumanSeconds(trial.iteration_seconds.value)),
                    NumberCell(HumanPercent(trial.scaling_efficiency.value)));
    if (trial.ok) {
      absl::StrAppend(&html, NumberCell(absl::StrCat(trial.measured_iterations, " (", warmup, ")")),
                      NumberCell(absl::StrCat(trial.repeats.size())),
                      NumberCell(absl::StrCat(trial.outlier_iterations)),
                      NumberCell(HumanBytes(trial.peak_memory_bytes)),
                      NumberCell(absl::StrCat(HumanNumber(trial.loss_first), " \xE2\x86\x92 ",
                                              HumanNumber(trial.loss_last))));
    } else {
      for (int i = 0; i < 5; ++i) html += "<td></td>";
    }
    html += "</tr>\n";
  }
  return html + kTableEnd +
         "<p class=\"soft\">Iterations: measured, over all repeats, and in brackets the warm-up of "
         "each "
         "repeat, which is left out of every number. Outliers lie beyond 3.5 scaled MADs and are "
         "kept. "
         "Memory: peak resident of the largest rank. Loss: of the first and the last "
         "iteration.</p>\n";
}

std::string MachineSection(const MergedRuns& runs) {
  std::string html = "<h2 id=\"machines\">Machines</h2>\n";
  for (const v1::MachineState& machine : runs.machines) {
    std::vector<std::string> versions;
    std::map<std::string, std::string> sorted(machine.versions().begin(), machine.versions().end());
    for (const auto& version : sorted) {
      versions.push_back(absl::StrCat(version.first, " ", version.second));
    }
    const auto item = [&](const char* name, const std::string& value) {
      if (!value.empty()) {
        absl::StrAppend(&html, "<dt>", name, "</dt><dd>", EscapeHtml(value), "</dd>\n");
      }
    };
    absl::StrAppend(&html, "<h3>", EscapeHtml(machine.host().empty() ? "host" : machine.host()),
                    "</h3>\n<dl>\n");
    item("Device", absl::StrCat(machine.backend(), " ", machine.device()));
    item("CPU", absl::StrCat(machine.cpu_model(), ", ", machine.logical_cores(), " logical cores"));
    item("Compute threads per rank", absl::StrCat(machine.compute_threads()));
    item("Memory", HumanBytes(machine.memory_bytes()));
    item("Kernel", machine.kernel());
    item("Frequency governor",
         machine.governor().empty() ? "not reported by the kernel" : machine.governor());
    item("Load average at start", HumanNumber(machine.load_average_1m()));
    item("Versions", absl::StrJoin(versions, ", "));
    html += "</dl>\n";
  }
  std::string ranks;
  for (const MergedTrial& trial : runs.trials) {
    if (trial.lateness.size() < 2) continue;
    std::vector<std::string> late, compute;
    for (const RankLateness& rank : trial.lateness) {
      late.push_back(HumanSeconds(rank.median_seconds));
      compute.push_back(HumanSeconds(rank.compute_seconds));
    }
    absl::StrAppend(
        &ranks, "<tr>", Cell(TrialLabel(trial)), Cell(absl::StrJoin(compute, ", ")),
        Cell(absl::StrJoin(late, ", ")),
        NumberCell(trial.clock_bound_seconds > 0 ? HumanSeconds(trial.clock_bound_seconds)
                                                 : "one clock"),
        NumberCell(HumanPercent(trial.other_load)), "</tr>\n");
  }
  if (!ranks.empty()) {
    absl::StrAppend(&html, "<details><summary>Ranks: balance and clocks</summary>\n",
                    TableHead({"Configuration", "Forward + backward of each rank",
                               "Start after the first rank", "#Clock bound", "#Other load"}),
                    ranks, kTableEnd, "</details>\n");
  }
  return html;
}

std::string LimitationSection(const MergedRuns& runs, const FitResult& fit) {
  std::string html = "<h2 id=\"limits\">What these measurements cannot say</h2>\n<ul>\n";
  for (const std::string& note : Limitations(runs, fit)) {
    absl::StrAppend(&html, "<li>", EscapeHtml(note), "</li>\n");
  }
  return html + "</ul>\n";
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  std::string escaped;
  for (const char c : ValidUtf8(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string ReportHtml(const MergedRuns& runs, const FitResult& fit) {
  const std::vector<std::pair<std::string, TrialList>> panels = Panels(runs);
  const std::pair<const char*, std::string> sections[] = {
      {"Findings", HeadlineSection(runs)},
      {"Throughput", panels.empty() ? "" : ThroughputSection(panels)},
      {"Phases", panels.empty() ? "" : PhasesSection(panels)},
      {"Timeline", TimelineSection(panels)},
      {"Model", ModelSection(runs, fit)},
      {"Failures", FailureSection(runs)},
      {"All configurations", AllTrialsSection(runs)},
      {"Machines", MachineSection(runs)},
      {"Limits", LimitationSection(runs, fit)}};
  const char* anchors[] = {"headline", "throughput", "phases",   "timeline", "model",
                           "failures", "trials",     "machines", "limits"};
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>Paceline report</title>\n<style>",
      kStyle, "</style>\n</head>\n<body>\n", Header(runs), "<nav>");
  for (size_t i = 0; i < 9; ++i) {
    if (sections[i].second.empty()) continue;
    absl::StrAppend(&html, "<a href=\"#", anchors[i], "\">", sections[i].first, "</a>");
  }
  html += "</nav>\n<main>\n";
  for (const auto& section : sections) html += section.second;
  return html +
         "</main>\n<footer>Tables for programs: trials.csv, repeats.csv, iterations.csv, "
         "layers.csv, fits.csv, "
         "report.json; timeline.json for Perfetto.</footer>\n</body>\n</html>\n";
}

}  // namespace paceline
