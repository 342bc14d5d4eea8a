// The report's charts as inline SVG. Colours are CSS classes, which html.cc defines for both
// schemes. Every function returns one <svg> or <figure> element, empty if there is nothing to draw.
// Text from results is escaped. Thread-safe.
#ifndef PACELINE_ANALYSIS_REPORT_CHARTS_H_
#define PACELINE_ANALYSIS_REPORT_CHARTS_H_

#include <string>
#include <vector>

#include "analysis/fit/fit.h"
#include "analysis/merge/merge.h"

namespace paceline {

using TrialList = std::vector<const MergedTrial*>;

// Bars with error bars, one per trial.
std::string ThroughputChart(const TrialList& trials);
// Efficiency of trials on several devices: points with error bars against the ideal.
std::string EfficiencyChart(const TrialList& trials);
// Six phases per trial. Solid: on the iteration's path. Pale: hidden beside it. Tick: the
// iteration.
std::string PhasesChart(const TrialList& trials);
// One iteration, one group of lanes per rank.
std::string TimelineChart(const MergedTrial& trial);
// Measured against modelled iteration times, both axes logarithmic.
std::string ModelChart(const MergedRuns& runs, const FitResult& fit);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_CHARTS_H_
