// Suggestions for mistyped names in error messages.
//
//   DidYouMean("resnet5", {"resnet50_v1", "vgg16"});  // " (did you mean 'resnet50_v1'?)"
//
// Thread-safe.
#ifndef PACELINE_PROTO_SUPPORT_CLOSEST_NAME_H_
#define PACELINE_PROTO_SUPPORT_CLOSEST_NAME_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace paceline {

// The candidate that needs the fewest edits (insert, delete, replace, swap of neighbours; case is
// ignored), the first of equals; a candidate that continues `name` costs one edit. Empty if even
// the closest differs in more than half of the longer name.
std::string ClosestName(absl::string_view name, absl::Span<const std::string> candidates);

// " (did you mean 'CLOSEST'?)", or empty if nothing is close.
std::string DidYouMean(absl::string_view name, absl::Span<const std::string> candidates);

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_CLOSEST_NAME_H_
