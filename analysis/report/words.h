// What the numbers say, in sentences. No claim below the measurement's noise. Thread-safe.
#ifndef PACELINE_ANALYSIS_REPORT_WORDS_H_
#define PACELINE_ANALYSIS_REPORT_WORDS_H_

#include <string>
#include <vector>

#include "analysis/fit/fit.h"
#include "analysis/merge/merge.h"

namespace paceline {

// Differences below this share are not worth a claim, however certain.
constexpr double kPracticalDifference = 0.02;

// Per network (and precision, batch, input), at its largest number of devices: which policy is
// fastest and by how much, or that they cannot be told apart.
std::vector<std::string> Headlines(const MergedRuns& runs);

// What bounds one OK configuration and what limits hiding; empty for others.
std::string Bottleneck(const MergedTrial& trial);

// What could not be measured, was doubtful, or is left out, and what to do about it.
std::vector<std::string> Limitations(const MergedRuns& runs, const FitResult& fit);

// "alexnet_caffe, caffe_mpi, 2 devices" with what differs from native fp32 training added.
std::string TrialLabel(const MergedTrial& trial);
// "caffe_mpi" or "tensorflow_replicated [tensorflow]": the policy, and the engine unless native.
std::string FrameworkLabel(const MergedTrial& trial);
// "alexnet_caffe, fp32, batch 16 per device, synthetic": what makes trials comparable.
std::string PanelLabel(const MergedTrial& trial);

// Numbers for people: 3 significant digits and a unit.
std::string HumanSeconds(double seconds);         // "12.3 ms"
std::string HumanBytes(double bytes);             // "244 MB"
std::string HumanNumber(double value);            // "1230", "61.2"; a dash if unknown
std::string HumanPercent(double fraction);        // "38 %"
std::string HumanSignedPercent(double fraction);  // "+1.2 %"

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_REPORT_WORDS_H_
