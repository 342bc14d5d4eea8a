// Images and files for the tests of this folder.
#ifndef PACELINE_WORKER_INPUT_TEST_IMAGES_H_
#define PACELINE_WORKER_INPUT_TEST_IMAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

// Smooth colours that differ between seeds, with some texture; interleaved RGB.
std::vector<uint8_t> TestPixels(int width, int height, int seed);
// The same as a JPEG, quality 95.
std::string TestJpeg(int width, int height, int seed);

enum class TestJpegKind { kGray, kYcc444, kYcc422, kProgressive, kRgb, kCmyk };
// Of TestPixels, in another way of storing it. Aborts on failure.
std::string TestJpegOfKind(int width, int height, int seed, TestJpegKind kind);

// A fresh folder of this test.
std::string TestFolder(absl::string_view name);
void WriteTestFile(const std::string& path, absl::string_view content);
// Class folders c0, c1, ... with JPEGs 000.jpg, 001.jpg, ...: record i has seed i.
void WriteTestFolder(const std::string& root, int classes, int images_per_class, int width = 100,
                     int height = 80);
// An LMDB file with these values under increasing keys, whatever they are.
void WriteTestLmdbValues(const std::string& path, const std::vector<std::string>& values);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_TEST_IMAGES_H_
