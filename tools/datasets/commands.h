// What the data set tool does; main.cc reads the command line.
//
//   std::ostringstream out;
//   absl::Status status = ConvertDataSet("/data/train", "/data/train.lmdb", out);
#ifndef PACELINE_TOOLS_DATASETS_COMMANDS_H_
#define PACELINE_TOOLS_DATASETS_COMMANDS_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "worker/input/photographs.h"

namespace paceline {

// Folder of JPEGs (or an LMDB, for example Caffe's) to Paceline's LMDB. Records are copied as they
// are, damaged ones too; Caffe's raw pixels are refused.
absl::Status ConvertDataSet(const std::string& from, const std::string& to, std::ostream& out);

// Cuts images from the photographs below `from` into a folder, or an LMDB if `to` ends in ".lmdb".
absl::Status CutDataSet(const std::string& from, const std::string& to, const CutOptions& options,
                        std::ostream& out);

// Reads and decodes every record, and lists those that training would skip. DATA_LOSS if there are
// any. `classes` 0: labels may be of any size.
absl::Status VerifyDataSet(const std::string& path, int classes, std::ostream& out);

}  // namespace paceline

#endif  // PACELINE_TOOLS_DATASETS_COMMANDS_H_
