#include "analysis/report/tables.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/report/csv.h"
#include "analysis/report/json.h"
#include "analysis/report/words.h"
#include "models/stats/stats.h"

namespace paceline {
namespace {

// One cell of trials.csv, and the same member of report.json.
struct Cell {
  enum Kind { kText, kNumber } kind;
  const char* name;
  std::string text;
  double number = kUnknown;
};

std::vector<Cell> TrialCells(const MergedTrial& m, const ModelledTrial& modelled) {
  const v1::Trial& trial = m.trial;
  std::vector<Cell> cells;
  const auto text = [&](const char* name, const std::string& value) {
    cells.push_back({Cell::kText, name, value, kUnknown});
  };
  const auto number = [&](const char* name, double value) {
    cells.push_back({Cell::kNumber, name, "", value});
  };
  text("trial", m.configuration_id);
  text("policy", trial.policy().name());
  text("engine", EngineName(trial.engine()));
  text("network", trial.network().name());
  text("precision", PrecisionName(trial.precision()));
  text("backend", BackendName(m));
  number("hosts", std::max(1, trial.cluster().hosts()));
  number("devices", m.devices);
  number("batch_per_device", trial.batch_per_device());
  text("input", InputName(trial.input()));
  text("status", m.status);
  text("cause", m.cause);
  number("samples_per_second", m.samples_per_second.value);
  number("samples_per_second_low", m.samples_per_second.low);
  number("samples_per_second_high", m.samples_per_second.high);
  number("iteration_seconds", m.iteration_seconds.value);
  number("input_seconds", m.phase(Phase::kInput).value);
  number("copy_seconds", m.phase(Phase::kCopy).value);
  number("forward_seconds", m.phase(Phase::kForward).value);
  number("backward_seconds", m.phase(Phase::kBackward).value);
  number("communication_seconds", m.phase(Phase::kCommunication).value);
  number("exposed_communication_seconds", m.phase(Phase::kExposedCommunication).value);
  number("update_seconds", m.phase(Phase::kUpdate).value);
  number("scaling_efficiency", m.scaling_efficiency.value);
  number("modelled_iteration_seconds", modelled.modelled_iteration_seconds);
  number("peak_memory_bytes", m.peak_memory_bytes);
  // Beyond what every reader needs.
  number("iteration_seconds_low", m.iteration_seconds.low);
  number("iteration_seconds_high", m.iteration_seconds.high);
  number("input_wait_seconds", m.phase(Phase::kInputWait).value);
  number("scaling_efficiency_low", m.scaling_efficiency.low);
  number("scaling_efficiency_high", m.scaling_efficiency.high);
  text("scaling_note", m.scaling_note);
  number("replayed_iteration_seconds", modelled.replayed_iteration_seconds);
  number("held_out_iteration_seconds", modelled.held_out_iteration_seconds);
  text("model_note", modelled.note);
  number("repeats", m.repeats.size());
  number("failed_repeats", m.failed_repeats);
  number("attempts", m.attempts);
  number("iterations", m.measured_iterations);
  double warmup = kUnknown;
  for (const MergedRepeat& repeat : m.repeats) {
    if (!(repeat.warmup_iterations <= warmup)) warmup = repeat.warmup_iterations;
  }
  number("warmup_iterations", warmup);
  number("outlier_iterations", m.ok ? m.outlier_iterations : kUnknown);
  number("relative_half_width", m.iteration_seconds.relative_half_width());
  text("stop_reason", m.stop_reason);
  number("loss_first", m.loss_first);
  number("loss_last", m.loss_last);
  number("other_load", m.ok ? m.other_load : kUnknown);
  number("clock_bound_seconds", m.ok ? m.clock_bound_seconds : kUnknown);
  text("machine", m.machine);
  text("trial_ids", absl::StrJoin(m.trial_ids, " "));
  return cells;
}

void WriteEstimate(const v1::Estimate& estimate, JsonWriter* json) {
  json->BeginObject();
  json->Key("identified").Bool(estimate.identified());
  if (estimate.identified()) {
    json->Key("value").Number(estimate.value());
    json->Key("low").Number(estimate.low()).Key("high").Number(estimate.high());
  }
  json->Key("note").String(estimate.note()).EndObject();
}

}  // namespace

std::string TrialsCsv(const MergedRuns& runs, const FitResult& fit) {
  std::vector<std::string> columns;
  for (const Cell& cell : TrialCells(MergedTrial(), ModelledTrial())) columns.push_back(cell.name);
  CsvWriter csv(columns);
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    for (const Cell& cell : TrialCells(runs.trials[i], fit.trials[i])) {
      if (cell.kind == Cell::kText) {
        csv.Add(cell.text);
      } else {
        csv.Add(cell.number);
      }
    }
    csv.EndRow();
  }
  return csv.text();
}

std::string RepeatsCsv(const MergedRuns& runs) {
  CsvWriter csv({"trial", "trial_id", "run", "repeat", "attempt", "policy", "engine", "network",
                 "devices", "batch_per_device", "iterations", "warmup_iterations",
                 "samples_per_second", "samples_per_second_low", "samples_per_second_high",
                 "iteration_seconds", "load_average_1m", "other_load"});
  for (const MergedTrial& m : runs.trials) {
    for (const MergedRepeat& repeat : m.repeats) {
      csv.Add(m.configuration_id);
      csv.Add(repeat.trial_id);
      csv.Add(repeat.run_id);
      csv.Add(repeat.repeat);
      csv.Add(repeat.attempt);
      csv.Add(m.trial.policy().name());
      csv.Add(EngineName(m.trial.engine()));
      csv.Add(m.trial.network().name());
      csv.Add(m.devices);
      csv.Add(m.trial.batch_per_device());
      csv.Add(static_cast<int64_t>(repeat.iteration_seconds.size()));
      csv.Add(repeat.warmup_iterations);
      const Interval rate =
          ThroughputInterval({repeat.iteration_seconds}, m.samples_per_iteration());
      csv.Add(rate.value);
      csv.Add(rate.low);
      csv.Add(rate.high);
      csv.Add(Median(repeat.iteration_seconds));
      csv.Add(repeat.ranks.empty() ? kUnknown : repeat.ranks[0].machine().load_average_1m());
      csv.Add(repeat.ranks.empty() ? kUnknown : repeat.ranks[0].machine().other_load());
      csv.EndRow();
    }
  }
  return csv.text();
}

std::string FitsCsv(const FitResult& fit) {
  CsvWriter csv({"policy", "engine", "machine", "parameter", "subject", "precision", "devices",
                 "unit", "value", "low", "high", "identified", "note"});
  for (const FrameworkFit& framework : fit.frameworks) {
    const v1::FrameworkModel& model = framework.model;
    const auto start = [&](const std::string& parameter) {
      csv.Add(model.policy());
      csv.Add(model.engine());
      csv.Add(model.cluster());
      csv.Add(parameter);
    };
    for (const FitRow& row : framework.rows) {
      const bool identified = row.estimate.identified();
      start(row.parameter);
      csv.Add(row.subject);
      csv.Add(row.precision);
      if (row.devices > 0) {
        csv.Add(row.devices);
      } else {
        csv.Add("");
      }
      csv.Add(row.unit);
      csv.Add(identified ? row.estimate.value() : kUnknown);
      csv.Add(identified ? row.estimate.low() : kUnknown);
      csv.Add(identified ? row.estimate.high() : kUnknown);
      csv.Add(identified ? "true" : "false");
      csv.Add(row.estimate.note());
      csv.EndRow();
    }
    const v1::FitQuality& quality = model.quality();
    const auto add_quality = [&](const char* name, double value, int count, const char* how) {
      start(name);
      for (const char* cell : {"iteration_seconds", "", "", "1"}) csv.Add(cell);
      csv.Add(count > 0 ? value : kUnknown);
      csv.Add("");
      csv.Add("");
      csv.Add(count > 0 ? "true" : "false");
      csv.Add(absl::StrCat(how, ", ", count, " configurations"));
      csv.EndRow();
    };
    const int count = quality.configurations();
    add_quality("median_absolute_error", quality.median_absolute_error(), count, "in-sample");
    add_quality("max_absolute_error", quality.max_absolute_error(), count, "in-sample");
    add_quality("bias", quality.bias(), count, "in-sample, mean");
    add_quality("measurement_noise", quality.noise(), count, "half of the 95 % interval");
    add_quality("held_out_median_absolute_error", framework.held_out_median_error,
                framework.held_out_predictions, "predicted from the other networks");
  }
  return csv.text();
}

std::string IterationsCsv(const MergedRuns& runs) {
  CsvWriter csv({"trial", "trial_id", "run", "attempt", "rank", "iteration", "warmup",
                 "start_unix_ns", "iteration_seconds", "input_seconds", "input_wait_seconds",
                 "copy_seconds", "forward_seconds", "backward_seconds", "communication_seconds",
                 "exposed_communication_seconds", "update_seconds", "loss"});
  for (const MergedTrial& m : runs.trials) {
    for (const MergedRepeat& repeat : m.repeats) {
      for (const v1::TrialResult& rank : repeat.ranks) {
        for (int i = 0; i < rank.iterations_size(); ++i) {
          const v1::IterationSample& sample = rank.iterations(i);
          csv.Add(m.configuration_id);
          csv.Add(repeat.trial_id);
          csv.Add(repeat.run_id);
          csv.Add(repeat.attempt);
          csv.Add(rank.rank());
          csv.Add(i);
          csv.Add(i < repeat.warmup_iterations ? 1 : 0);
          csv.Add(static_cast<int64_t>(sample.start_ns()));
          for (int64_t ns :
               {sample.duration_ns(), sample.input_ns(), sample.input_wait_ns(), sample.copy_ns(),
                sample.forward_ns(), sample.backward_ns(), sample.communication_ns(),
                sample.exposed_communication_ns(), sample.update_ns()}) {
            csv.Add(ns / 1e9);
          }
          csv.Add(sample.loss());
          csv.EndRow();
        }
      }
    }
  }
  return csv.text();
}

std::string LayersCsv(const MergedRuns& runs) {
  CsvWriter csv({"trial", "trial_id", "run", "rank", "operation", "kind", "group", "bytes",
                 "median_seconds", "mean_seconds", "p10_seconds", "p90_seconds", "min_seconds",
                 "samples"});
  for (const MergedTrial& m : runs.trials) {
    for (const MergedRepeat& repeat : m.repeats) {
      for (const v1::TrialResult& rank : repeat.ranks) {
        for (const v1::OperationStatistics& operation : rank.operations()) {
          csv.Add(m.configuration_id);
          csv.Add(repeat.trial_id);
          csv.Add(repeat.run_id);
          csv.Add(rank.rank());
          csv.Add(operation.name());
          csv.Add(operation.kind());
          csv.Add(operation.group());
          csv.Add(static_cast<int64_t>(operation.bytes()));
          for (int64_t ns : {operation.median_ns(), operation.mean_ns(), operation.p10_ns(),
                             operation.p90_ns(), operation.min_ns()}) {
            csv.Add(ns / 1e9);
          }
          csv.Add(operation.samples());
          csv.EndRow();
        }
      }
    }
  }
  return csv.text();
}

std::string ReportJson(const MergedRuns& runs, const FitResult& fit) {
  JsonWriter json;
  json.BeginObject();
  json.Key("headlines").BeginArray();
  for (const std::string& headline : Headlines(runs)) json.String(headline);
  json.EndArray();
  json.Key("runs").BeginArray();
  for (const RunInfo& run : runs.runs) {
    json.BeginObject();
    json.Key("run_id").String(run.run_id);
    json.Key("plan").String(run.plan.name());
    json.Key("created_unix_seconds").Number(run.created_unix_ns / 1e9);
    json.Key("paceline_version").String(run.paceline_version);
    json.EndObject();
  }
  json.EndArray();
  json.Key("trials").BeginArray();
  for (size_t i = 0; i < runs.trials.size(); ++i) {
    json.BeginObject();
    for (const Cell& cell : TrialCells(runs.trials[i], fit.trials[i])) {
      json.Key(cell.name);
      if (cell.kind == Cell::kText) {
        json.String(cell.text);
      } else {
        json.Number(cell.number);
      }
    }
    json.Key("bottleneck").String(Bottleneck(runs.trials[i]));
    json.Key("ranks").BeginArray();
    for (const RankLateness& rank : runs.trials[i].lateness) {
      json.BeginObject();
      json.Key("rank").Number(rank.rank).Key("host").String(rank.host);
      json.Key("lateness_seconds").Number(rank.median_seconds);
      json.Key("compute_seconds").Number(rank.compute_seconds);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray();
  json.Key("fits").BeginArray();
  for (const FrameworkFit& framework : fit.frameworks) {
    const v1::FrameworkModel& model = framework.model;
    json.BeginObject();
    json.Key("policy").String(model.policy()).Key("engine").String(model.engine());
    json.Key("machine").String(model.cluster());
    json.Key("estimates").BeginArray();
    for (const FitRow& row : framework.rows) {
      json.BeginObject();
      json.Key("parameter").String(row.parameter).Key("subject").String(row.subject);
      json.Key("precision").String(row.precision).Key("devices").Number(row.devices);
      json.Key("unit").String(row.unit).Key("estimate");
      WriteEstimate(row.estimate, &json);
      json.EndObject();
    }
    json.EndArray();
    const v1::FitQuality& quality = model.quality();
    json.Key("quality").BeginObject();
    json.Key("configurations").Number(quality.configurations());
    json.Key("median_absolute_error").Number(quality.median_absolute_error());
    json.Key("max_absolute_error").Number(quality.max_absolute_error());
    json.Key("bias").Number(quality.bias()).Key("noise").Number(quality.noise());
    json.Key("held_out_median_absolute_error").Number(framework.held_out_median_error);
    json.EndObject().EndObject();
  }
  json.EndArray();
  json.Key("notes").BeginArray();
  for (const std::string& note : Limitations(runs, fit)) json.String(note);
  json.EndArray().EndObject();
  return json.text();
}

std::string TimelineJson(const MergedRuns& runs) {
  JsonWriter json;
  json.BeginObject().Key("displayTimeUnit").String("ms").Key("traceEvents").BeginArray();
  int process = 0;
  for (const MergedTrial& m : runs.trials) {
    if (m.repeats.empty()) continue;
    // Prefetched input begins before its iteration, but viewers want no negative times.
    double earliest = 0;
    for (const v1::TrialResult& rank : m.repeats[0].ranks) {
      for (const v1::OperationSpan& span : rank.trace()) {
        earliest = std::min(earliest, span.begin_ns() / 1e3);
      }
    }
    for (size_t r = 0; r < m.repeats[0].ranks.size(); ++r) {
      const v1::TrialResult& rank = m.repeats[0].ranks[r];
      if (rank.trace_size() == 0) continue;
      ++process;
      const auto metadata = [&](const char* name, int thread, const std::string& value) {
        json.BeginObject().Key("ph").String("M").Key("name").String(name);
        json.Key("pid").Number(process).Key("tid").Number(thread);
        json.Key("args").BeginObject().Key("name").String(value).EndObject().EndObject();
      };
      metadata("process_name", 0, absl::StrCat(TrialLabel(m), ", rank ", rank.rank()));
      json.BeginObject().Key("ph").String("M").Key("name").String("process_sort_index");
      json.Key("pid").Number(process).Key("tid").Number(0);
      json.Key("args").BeginObject().Key("sort_index").Number(process).EndObject().EndObject();
      // Ranks of one trial start as late as they did on the median.
      double shift = -earliest;
      if (r < m.lateness.size() && std::isfinite(m.lateness[r].median_seconds)) {
        shift += m.lateness[r].median_seconds * 1e6;
      }
      std::map<std::string, int> threads;
      for (const v1::OperationSpan& span : rank.trace()) {
        const auto inserted = threads.emplace(span.stream(), threads.size() + 1);
        const int thread = inserted.first->second;
        if (inserted.second) metadata("thread_name", thread, span.stream());
        json.BeginObject().Key("ph").String("X").Key("name").String(span.name());
        json.Key("cat").String(span.kind());
        json.Key("pid").Number(process).Key("tid").Number(thread);
        json.Key("ts").Number(span.begin_ns() / 1e3 + shift);
        json.Key("dur").Number(std::max<int64_t>(0, span.end_ns() - span.begin_ns()) / 1e3);
        json.EndObject();
      }
    }
  }
  json.EndArray().EndObject();
  return json.text();
}

}  // namespace paceline
