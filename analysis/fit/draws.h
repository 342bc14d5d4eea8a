// Luck shared between simulations: a draw is one possible truth, and the same draw of two
// configurations has the same luck for the same subject, so that their ratio is sharper than
// either. Draw 0 is the best estimate: no luck at all.
//
//   cost *= std::exp(deviation * NormalOfDraw(draw, "update"));
//
// Pure functions of their arguments, thread-safe.
#ifndef PACELINE_ANALYSIS_FIT_DRAWS_H_
#define PACELINE_ANALYSIS_FIT_DRAWS_H_

#include "absl/strings/string_view.h"

namespace paceline {

// Draws of a model beside the best estimate.
constexpr int kDrawCount = 80;

// Standard normal; 0 for draw 0.
double NormalOfDraw(int draw, absl::string_view subject);
// Uniform in (0, 1); 0.5 for draw 0.
double UniformOfDraw(int draw, absl::string_view subject);

}  // namespace paceline

#endif  // PACELINE_ANALYSIS_FIT_DRAWS_H_
