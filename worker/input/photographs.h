// The data set of real photographs: JPEGs cut from the photographs of a locked package, made on
// first use and kept in the user's cache.
//
//   absl::StatusOr<std::string> path = PhotographsDataSet(source.photographs());
//   ... OpenDataSet(*path, readers) ...
//
// Safe for any number of threads and processes at once: the first one cuts, the others wait.
#ifndef PACELINE_WORKER_INPUT_PHOTOGRAPHS_H_
#define PACELINE_WORKER_INPUT_PHOTOGRAPHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/paceline/v1/plan.pb.h"
#include "worker/input/data_set_writer.h"

namespace paceline {

// Path of the data set (a folder, or an LMDB file), cut now if it is not in the cache:
// $XDG_CACHE_HOME/paceline/datasets, or ~/.cache/paceline/datasets. The photographs are those the
// binary was built with, or those of the folder $PACELINE_PHOTOGRAPHS. NOT_FOUND says what to do.
absl::StatusOr<std::string> PhotographsDataSet(const v1::Photographs& source);

// The .jpg and .jpeg files in `folder` and below it, sorted.
absl::StatusOr<std::vector<std::string>> ListPhotographs(absl::string_view folder);

struct CutOptions {
  int images = 512;
  int width = 500;
  int height = 375;
  int quality = 95;  // About what ImageNet's files have.
  uint64_t seed = 1;
};

// Image i comes from photograph i modulo their number, which is also its class: a region at a
// random place, one to four times the size (as far as the photograph reaches), scaled down by
// area. Equal options and photographs give equal bytes.
absl::Status CutPhotographs(const std::vector<std::string>& photographs, const CutOptions& options,
                            DataSetWriter& writer);

}  // namespace paceline

#endif  // PACELINE_WORKER_INPUT_PHOTOGRAPHS_H_
