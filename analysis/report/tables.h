// The report's machine-readable files. Each returns the whole file's text. Thread-safe.
#ifndef PACELINE_ANALYSIS_REPORT_TABLES_H_
#define PACELINE_ANALYSIS_REPORT_TABLES_H_

#include <string>

#include "analysis/fit/fit.h"
#include "analysis/merge/merge.h"

namespace paceline {

// One row per configuration (and per kind of failure of it), repeats pooled.
std::string TrialsCsv(const MergedRuns& runs, const FitResult& fit);
// One row per repeat of a configuration: shows how far repeats agree.
std::string RepeatsCsv(const MergedRuns& runs);
// One row per estimate, then the quality of each framework's model.
std::string FitsCsv(const FitResult& fit);
// One row per iteration and rank, warm-up included.
std::string IterationsCsv(const MergedRuns& runs);
// One row per operation of the schedule (layers forward and backward, messages, updates), trial and
// rank: its time over the measured iterations.
std::string LayersCsv(const MergedRuns& runs);
// Everything but the iterations.
std::string ReportJson(const MergedRuns& runs, const FitResult& fit);
// Chrome trace of one iteration per configuration: a process per rank, a thread per stream. Opens
// in https://ui.perfetto.dev and chrome://tracing.
std::string TimelineJson(const MergedRuns& runs);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_TABLES_H_
