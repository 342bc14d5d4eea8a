#include "worker/input/jpeg_decoder.h"

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "jpeglib.h"
#include "worker/input/image_planes.h"

namespace paceline {
namespace {

// A progressive JPEG may claim thousands of scans over the whole image, each decoded in full.
constexpr int kMaxScans = 100;

constexpr int kMaxRowsPerPass = 2 * DCTSIZE * MAX_SAMP_FACTOR;

struct ErrorManager {
  jpeg_error_mgr base;  // First: libjpeg hands back a pointer to it.
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void OnError(j_common_ptr info) {
  auto* error = reinterpret_cast<ErrorManager*>(info->err);
  (*info->err->format_message)(info, error->message);
  longjmp(error->jump, 1);
}

void OnMessage(j_common_ptr info, int level) {
  if (level < 0) OnError(info);  // A warning: what follows would be made up.
}

void OnProgress(j_common_ptr info) {
  auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kMaxScans) return;
  auto* error = reinterpret_cast<ErrorManager*>(info->err);
  std::snprintf(error->message, sizeof(error->message), "more than %d scans", kMaxScans);
  longjmp(error->jump, 1);
}

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct info;
  ErrorManager error;
  jpeg_progress_mgr progress;
  std::vector<uint8_t> planes[3];
  std::vector<uint8_t> row;  // One interleaved row.

  absl::Status Corrupt() const {
    return absl::DataLossError(absl::StrCat("JPEG: ", error.message));
  }

  // The functions below call setjmp. No object with a destructor may live in them: longjmp skips
  // it.
  bool Header(const unsigned char* bytes, size_t size) {
    if (setjmp(error.jump) != 0) return false;
    jpeg_abort_decompress(&info);
    jpeg_mem_src(&info, bytes, static_cast<unsigned long>(size));  // NOLINT(google-runtime-int)
    jpeg_read_header(&info, TRUE);
    return true;
  }

  bool Start() {
    if (setjmp(error.jump) != 0) return false;
    jpeg_start_decompress(&info);
    return true;
  }

  // Planes as stored: no upsampling and no colour conversion, since the resampler does both on the
  // fewer pixels that it keeps.
  bool ReadPlanes(ImagePlanes* image, int rows) {
    if (setjmp(error.jump) != 0) return false;
    JSAMPROW row_pointers[3][kMaxRowsPerPass];
    JSAMPARRAY components[MAX_COMPONENTS] = {row_pointers[0], row_pointers[1], row_pointers[2]};
    const int lines = info.max_v_samp_factor * info.min_DCT_scaled_size;
    int pass = 0;
    while (info.output_scanline < static_cast<JDIMENSION>(rows)) {
      for (int c = 0; c < image->plane_count(); ++c) {
        const jpeg_component_info& component = info.comp_info[c];
        const int pass_rows = component.v_samp_factor * component.DCT_scaled_size;
        uint8_t* first =
            planes[c].data() + static_cast<ptrdiff_t>(pass) * pass_rows * image->planes[c].stride;
        for (int r = 0; r < pass_rows; ++r) {
          row_pointers[c][r] = first + static_cast<ptrdiff_t>(r) * image->planes[c].stride;
        }
      }
      jpeg_read_raw_data(&info, components, static_cast<JDIMENSION>(lines));
      ++pass;
    }
    return Finish();
  }

  // RGB, CMYK and YCCK files: interleaved rows, taken apart.
  bool ReadInterleaved(ImagePlanes* image, int rows) {
    if (setjmp(error.jump) != 0) return false;
    uint8_t* pixels = row.data();
    // Adobe stores CMYK inverted; a file without its marker does not.
    const bool inverted = info.saw_Adobe_marker != 0;
    while (info.output_scanline < static_cast<JDIMENSION>(rows)) {
      const ptrdiff_t offset =
          static_cast<ptrdiff_t>(info.output_scanline) * image->planes[0].stride;
      jpeg_read_scanlines(&info, &pixels, 1);
      for (int x = 0; x < image->width; ++x) {
        if (info.out_color_space == JCS_CMYK) {
          const uint8_t* cmyk = pixels + 4 * static_cast<ptrdiff_t>(x);
          const int black = inverted ? cmyk[3] : 255 - cmyk[3];
          for (int c = 0; c < 3; ++c) {
            const int ink = inverted ? cmyk[c] : 255 - cmyk[c];
            planes[c][offset + x] = static_cast<uint8_t>((ink * black + 127) / 255);
          }
        } else {
          for (int c = 0; c < 3; ++c) {
            planes[c][offset + x] = pixels[3 * static_cast<ptrdiff_t>(x) + c];
          }
        }
      }
    }
    return Finish();
  }

  bool ReadRgb(uint8_t* pixels) {
    if (setjmp(error.jump) != 0) return false;
    while (info.output_scanline < info.output_height) {
      JSAMPROW next = pixels + static_cast<size_t>(info.output_scanline) * info.output_width * 3;
      jpeg_read_scanlines(&info, &next, 1);
    }
    return Finish();
  }

  // Within a function that has called setjmp.
  bool Finish() {
    if (info.output_scanline >= info.output_height) {
      jpeg_finish_decompress(&info);
    } else {
      // The rest is not decoded, but must be there. Within a scan 0xFF is followed by 0 or a
      // restart marker, so the first end marker is the image's own.
      if (memmem(info.src->next_input_byte, info.src->bytes_in_buffer, "\xff\xd9", 2) == nullptr &&
          !jpeg_has_multiple_scans(&info)) {
        std::snprintf(error.message, sizeof(error.message), "truncated: no end-of-image marker");
        return false;
      }
      jpeg_abort_decompress(&info);
    }
    return true;
  }

  absl::Status CheckSize() const {
    const int64_t pixels = static_cast<int64_t>(info.image_width) * info.image_height;
    if (pixels > kMaxJpegPixels) {
      return absl::DataLossError(absl::StrCat("JPEG: claims ", info.image_width, "x",
                                              info.image_height, " pixels; the limit is ",
                                              kMaxJpegPixels / 1'000'000, " million"));
    }
    return absl::OkStatus();
  }
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  // Creating allocates a few kilobytes with malloc; the only failure is running out of memory.
  state_->info.err = jpeg_std_error(&state_->error.base);
  state_->error.base.error_exit = OnError;
  state_->error.base.emit_message = OnMessage;
  if (setjmp(state_->error.jump) != 0) {
    std::fprintf(stderr, "libjpeg: %s\n", state_->error.message);
    std::abort();
  }
  jpeg_create_decompress(&state_->info);
  state_->progress.progress_monitor = OnProgress;
  state_->info.progress = &state_->progress;
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

absl::StatusOr<JpegHeader> JpegDecoder::ReadHeader(absl::string_view jpeg) {
  if (jpeg.size() < 2 || jpeg.substr(0, 2) != "\xff\xd8") {
    const bool png = jpeg.substr(0, 4) == "\x89PNG";
    return absl::DataLossError(png            ? "is a PNG; only JPEG is supported"
                               : jpeg.empty() ? "is empty"
                                              : "is not a JPEG (does not begin with FF D8)");
  }
  if (!state_->Header(reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size())) {
    return state_->Corrupt();
  }
  if (absl::Status status = state_->CheckSize(); !status.ok()) return status;
  return JpegHeader{static_cast<int>(state_->info.image_width),
                    static_cast<int>(state_->info.image_height)};
}

absl::StatusOr<ImagePlanes> JpegDecoder::Decode(const JpegDecodeOptions& options) {
  State& state = *state_;
  jpeg_decompress_struct& info = state.info;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(options.denominator);
  ImagePlanes image;
  const bool raw = (info.jpeg_color_space == JCS_GRAYSCALE && info.num_components == 1) ||
                   (info.jpeg_color_space == JCS_YCbCr && info.num_components == 3);
  if (raw) {
    const bool luminance = options.luminance_only || info.num_components == 1;
    image.colour = luminance ? PlaneColour::kLuminance : PlaneColour::kYCbCr;
    info.raw_data_out = TRUE;
    info.out_color_space = info.jpeg_color_space;
    // What the library's own colour converter does for grey output: no inverse DCT of chroma.
    for (int c = 1; c < info.num_components; ++c) info.comp_info[c].component_needed = !luminance;
  } else if (info.jpeg_color_space == JCS_RGB) {
    image.colour = PlaneColour::kRgb;
    info.out_color_space = JCS_RGB;
  } else if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    image.colour = PlaneColour::kRgb;
    info.out_color_space = JCS_CMYK;
  } else {
    return absl::DataLossError(
        absl::StrCat("JPEG: unknown colour space with ", info.num_components, " components"));
  }
  if (!state.Start()) return state.Corrupt();
  image.width = static_cast<int>(info.output_width);
  image.height = static_cast<int>(info.output_height);
  const int rows = options.rows > 0 ? std::min(options.rows, image.height) : image.height;

  const int mcu_rows = info.max_v_samp_factor * info.min_DCT_scaled_size;
  for (int c = 0; c < image.plane_count(); ++c) {
    ImagePlane& plane = image.planes[c];
    int64_t stored_rows = image.height;
    if (raw) {
      const jpeg_component_info& component = info.comp_info[c];
      plane.width = static_cast<int>(component.downsampled_width);
      plane.height = static_cast<int>(component.downsampled_height);
      // Whole blocks are written, past the image's right and lower edges.
      plane.stride = static_cast<int>(component.width_in_blocks +
                                      static_cast<JDIMENSION>(component.h_samp_factor)) *
                     component.DCT_scaled_size;
      const int64_t passes = (image.height + mcu_rows - 1) / mcu_rows;
      stored_rows = passes * component.v_samp_factor * component.DCT_scaled_size;
    } else {
      plane.width = plane.stride = image.width;
      plane.height = image.height;
    }
    const auto bytes = static_cast<size_t>(stored_rows * plane.stride + kPlaneSlackBytes);
    // Grows only: clearing or shrinking would touch the memory again for every image.
    if (state.planes[c].size() < bytes) state.planes[c].resize(bytes);
    plane.data = state.planes[c].data();
  }
  if (!raw) state.row.resize(static_cast<size_t>(image.width) * 4);
  if (!(raw ? state.ReadPlanes(&image, rows) : state.ReadInterleaved(&image, rows))) {
    return state.Corrupt();
  }
  return image;
}

absl::Status JpegDecoder::DecodeRgb(absl::string_view jpeg, int& width, int& height,
                                    std::vector<uint8_t>& pixels) {
  absl::StatusOr<JpegHeader> header = ReadHeader(jpeg);
  if (!header.ok()) return header.status();
  if (state_->info.jpeg_color_space == JCS_CMYK || state_->info.jpeg_color_space == JCS_YCCK) {
    return absl::DataLossError("JPEG: CMYK is not supported here");
  }
  state_->info.out_color_space = JCS_RGB;
  if (!state_->Start()) return state_->Corrupt();
  width = header->width;
  height = header->height;
  pixels.resize(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  return state_->ReadRgb(pixels.data()) ? absl::OkStatus() : state_->Corrupt();
}

int64_t JpegDecoder::MemoryBytes() const {
  int64_t bytes = static_cast<int64_t>(state_->row.capacity());
  for (const std::vector<uint8_t>& plane : state_->planes) {
    bytes += static_cast<int64_t>(plane.capacity());
  }
  return bytes;
}

}  // namespace paceline
