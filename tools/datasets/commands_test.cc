#include "tools/datasets/commands.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/input/data_set.h"
#include "worker/input/photographs.h"
#include "worker/input/test_images.h"

namespace paceline {
namespace {

TEST(ConvertTest, LmdbHoldsTheFoldersRecordsInOrder) {
  const std::string root = TestFolder("convert");
  WriteTestFolder(root + "/train", 3, 4);
  std::ostringstream out;
  const absl::Status status = ConvertDataSet(root + "/train", root + "/train.lmdb", out);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(absl::StrContains(out.str(), "12 images")) << out.str();
  std::unique_ptr<DataSet> folder = OpenDataSet(root + "/train", 1).value();
  std::unique_ptr<DataSet> lmdb = OpenDataSet(root + "/train.lmdb", 1).value();
  ASSERT_EQ(lmdb->size(), 12);
  Record a;
  Record b;
  for (int64_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(folder->Read(i, 0, a).ok());
    ASSERT_TRUE(lmdb->Read(i, 0, b).ok());
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.bytes, b.bytes);
  }
  EXPECT_EQ(ConvertDataSet(root + "/train", root + "/train.lmdb", out).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ConvertDataSet(root + "/none", root + "/x.lmdb", out).code(),
            absl::StatusCode::kNotFound);
}

TEST(CutTest, MakesAFolderOrAnLmdb) {
  const std::string root = TestFolder("cut");
  WriteTestFile(root + "/photographs/a.jpg", TestJpeg(300, 200, 1));
  WriteTestFile(root + "/photographs/b.jpg", TestJpeg(200, 300, 2));
  CutOptions options;
  options.images = 5;
  options.width = 100;
  options.height = 80;
  std::ostringstream out;
  for (const char* name : {"/crops", "/crops.lmdb"}) {
    const absl::Status status = CutDataSet(root + "/photographs", root + name, options, out);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(VerifyDataSet(root + name, 2, out).ok()) << out.str();
    EXPECT_EQ(OpenDataSet(root + name, 1).value()->size(), 5);
  }
  options.images = -1;
  EXPECT_EQ(CutDataSet(root + "/photographs", root + "/no", options, out).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(root + "/no"));
}

TEST(VerifyTest, ListsWhatTrainingWouldSkip) {
  const std::string root = TestFolder("verify");
  WriteTestFolder(root, 2, 3);
  std::ostringstream good;
  EXPECT_TRUE(VerifyDataSet(root, 0, good).ok());
  const std::string jpeg = TestJpeg(100, 80, 1);
  WriteTestFile(root + "/c1/001.jpg", jpeg.substr(0, jpeg.size() - 100));
  std::ostringstream out;
  EXPECT_EQ(VerifyDataSet(root, 0, out).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(out.str(), "/c1/001.jpg: JPEG: ")) << out.str();
  EXPECT_TRUE(absl::StrContains(out.str(), "6 images")) << out.str();
  EXPECT_EQ(VerifyDataSet(root, 1, out).message(), "3 of 6 records are corrupt");
}

}  // namespace
}  // namespace paceline
