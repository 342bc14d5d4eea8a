#include "worker/input/jpeg_encoder.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "turbojpeg.h"

namespace paceline {

absl::StatusOr<std::string> EncodeJpeg(const uint8_t* rgb, int width, int height, int quality) {
  tjhandle handle = tjInitCompress();
  if (handle == nullptr)
    return absl::InternalError(absl::StrCat("libjpeg: ", tjGetErrorStr2(nullptr)));
  unsigned char* jpeg = nullptr;
  unsigned long bytes = 0;  // NOLINT(google-runtime-int): the library's type.
  absl::StatusOr<std::string> result;
  if (tjCompress2(handle, rgb, width, 0, height, TJPF_RGB, &jpeg, &bytes, TJSAMP_420, quality,
                  TJFLAG_ACCURATEDCT) == 0) {
    result = std::string(reinterpret_cast<const char*>(jpeg), bytes);
  } else {
    result = absl::InternalError(absl::StrCat("libjpeg: ", tjGetErrorStr2(handle)));
  }
  tjFree(jpeg);
  tjDestroy(handle);
  return result;
}

}  // namespace paceline
