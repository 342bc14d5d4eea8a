#include "worker/input/test_images.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "jpeglib.h"
#include "lmdb.h"
#include "worker/input/jpeg_encoder.h"

namespace paceline {

std::vector<uint8_t> TestPixels(int width, int height, int seed) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const double wave = std::sin(0.05 * x * (1 + seed % 3) + c) +
                            std::cos(0.04 * y * (1 + seed % 5) - c) + 0.1 * ((x * 7 + y * 3) % 5);
        pixels.push_back(
            static_cast<uint8_t>(std::clamp(128 + 45 * wave + 10 * ((seed + c) % 4), 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

std::string TestJpeg(int width, int height, int seed) {
  return EncodeJpeg(TestPixels(width, height, seed).data(), width, height, 95).value();
}

std::string TestJpegOfKind(int width, int height, int seed, TestJpegKind kind) {
  const std::vector<uint8_t> rgb = TestPixels(width, height, seed);
  jpeg_compress_struct info;
  jpeg_error_mgr error;
  info.err = jpeg_std_error(&error);  // Ends the test on failure.
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): the library's type.
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = kind == TestJpegKind::kGray ? 1 : kind == TestJpegKind::kCmyk ? 4 : 3;
  info.in_color_space = kind == TestJpegKind::kGray   ? JCS_GRAYSCALE
                        : kind == TestJpegKind::kCmyk ? JCS_CMYK
                                                      : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (kind == TestJpegKind::kRgb) jpeg_set_colorspace(&info, JCS_RGB);
  if (kind == TestJpegKind::kYcc444 || kind == TestJpegKind::kYcc422) {
    info.comp_info[0].h_samp_factor = kind == TestJpegKind::kYcc422 ? 2 : 1;
    info.comp_info[0].v_samp_factor = 1;
  }
  if (kind == TestJpegKind::kProgressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row(static_cast<size_t>(width) * 4);
  while (info.next_scanline < info.image_height) {
    const uint8_t* from =
        rgb.data() + static_cast<size_t>(info.next_scanline) * static_cast<size_t>(width) * 3;
    for (int x = 0; x < width; ++x, from += 3) {
      const auto at = static_cast<size_t>(x);
      if (kind == TestJpegKind::kGray) {
        row[at] =
            static_cast<uint8_t>(std::lround(0.299 * from[0] + 0.587 * from[1] + 0.114 * from[2]));
      } else if (kind == TestJpegKind::kCmyk) {
        // As Adobe stores it (libjpeg writes Adobe's marker for CMYK): inverted ink, no black.
        std::copy(from, from + 3, &row[4 * at]);
        row[4 * at + 3] = 255;
      } else {
        std::copy(from, from + 3, &row[3 * at]);
      }
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  std::string jpeg(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&info);
  free(bytes);
  return jpeg;
}

std::string TestFolder(absl::string_view name) {
  const char* base = getenv("TEST_TMPDIR");
  std::string folder = absl::StrCat(base != nullptr ? base : "/tmp", "/", name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

void WriteTestFile(const std::string& path, absl::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

void WriteTestFolder(const std::string& root, int classes, int images_per_class, int width,
                     int height) {
  for (int c = 0; c < classes; ++c) {
    for (int i = 0; i < images_per_class; ++i) {
      WriteTestFile(absl::StrFormat("%s/c%d/%03d.jpg", root, c, i),
                    TestJpeg(width, height, c * images_per_class + i));
    }
  }
}

void WriteTestLmdbValues(const std::string& path, const std::vector<std::string>& values) {
  MDB_env* environment = nullptr;
  MDB_txn* transaction = nullptr;
  MDB_dbi database = 0;
  mdb_env_create(&environment);
  mdb_env_set_mapsize(environment, 64 << 20);
  mdb_env_open(environment, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0644);
  mdb_txn_begin(environment, nullptr, 0, &transaction);
  mdb_dbi_open(transaction, nullptr, 0, &database);
  for (size_t i = 0; i < values.size(); ++i) {
    std::string key = absl::StrFormat("%08d", i);
    MDB_val name{key.size(), key.data()};
    MDB_val value{values[i].size(), const_cast<char*>(values[i].data())};
    mdb_put(transaction, database, &name, &value, 0);
  }
  if (mdb_txn_commit(transaction) != 0) std::abort();
  mdb_env_close(environment);
}

}  // namespace paceline
