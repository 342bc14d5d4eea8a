// Paceline's own version. All ranks of a trial must run the same one; results carry it.
#ifndef PACELINE_PROTO_SUPPORT_VERSION_H_
#define PACELINE_PROTO_SUPPORT_VERSION_H_

namespace paceline {

constexpr char kPacelineVersion[] = "0.1.0";

}  // namespace paceline

#endif  // PACELINE_PROTO_SUPPORT_VERSION_H_
