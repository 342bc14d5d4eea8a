// The report for people: one self-contained HTML page with inline SVG and CSS, no script, no
// network; follows the reader's light or dark scheme and prints in light. All text from results is
// escaped. Thread-safe.
#ifndef PACELINE_ANALYSIS_REPORT_HTML_H_
#define PACELINE_ANALYSIS_REPORT_HTML_H_

#include <string>

#include "absl/strings/string_view.h"
#include "analysis/fit/fit.h"
#include "analysis/merge/merge.h"

namespace paceline {

std::string ReportHtml(const MergedRuns& runs, const FitResult& fit);

// `text` for use in HTML text and in quoted attributes.
std::string EscapeHtml(absl::string_view text);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_HTML_H_
