#include "worker/input/photographs.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/runfiles.h"
#include "worker/input/data_set.h"
#include "worker/input/data_set_writer.h"
#include "worker/input/host_batch.h"
#include "worker/input/input_pipeline.h"
#include "worker/input/jpeg_decoder.h"
#include "worker/input/test_images.h"

namespace paceline {
namespace {

constexpr int kImages = 30;

class PhotographsTest : public testing::Test {
 protected:
  PhotographsTest() {
    cache_ = TestFolder(testing::UnitTest::GetInstance()->current_test_info()->name());
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    unsetenv("PACELINE_PHOTOGRAPHS");
  }

  std::string cache_;
};

TEST_F(PhotographsTest, AreCutToJpegsOfImageNetsSize) {
  v1::Photographs source;
  source.set_images(kImages);
  absl::StatusOr<std::string> path = PhotographsDataSet(source);
  ASSERT_TRUE(path.ok()) << path.status();
  std::unique_ptr<DataSet> set = OpenDataSet(*path, 1).value();
  ASSERT_EQ(set->size(), kImages);
  std::set<std::string> different;
  std::set<int64_t> labels;
  JpegDecoder decoder;
  Record record;
  for (int i = 0; i < kImages; ++i) {
    ASSERT_TRUE(set->Read(i, 0, record).ok());
    absl::StatusOr<JpegHeader> header = decoder.ReadHeader(record.bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->width, 500);
    EXPECT_EQ(header->height, 375);
    ASSERT_TRUE(decoder.Decode({}).ok());
    different.insert(std::string(record.bytes));
    labels.insert(record.label);
  }
  EXPECT_EQ(different.size(), kImages);
  EXPECT_GE(labels.size(), 10);
  // The cache holds the data set and its lock file, and another call finds it.
  EXPECT_EQ(PhotographsDataSet(source).value(), *path);
}

TEST_F(PhotographsTest, LmdbAndFolderTrainOnTheSamePixels) {
  v1::InputSource folder;
  folder.mutable_photographs()->set_images(kImages);
  v1::InputSource lmdb = folder;
  lmdb.mutable_photographs()->set_as_lmdb(true);
  InputOptions options;
  options.image.set_channels(3);
  options.image.set_height(224);
  options.image.set_width(224);
  options.classes = 10;  // Fewer than there are photographs: labels wrap.
  options.batch = 8;
  options.decode_threads = 2;
  absl::StatusOr<std::unique_ptr<InputPipeline>> a = CreateInputPipeline(folder, options);
  absl::StatusOr<std::unique_ptr<InputPipeline>> b = CreateInputPipeline(lmdb, options);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  for (int i = 0; i < 5; ++i) {
    HostBatch from_folder;
    HostBatch from_lmdb;
    ASSERT_TRUE((*a)->Next(from_folder, absl::Now() + absl::Seconds(60)).ok());
    ASSERT_TRUE((*b)->Next(from_lmdb, absl::Now() + absl::Seconds(60)).ok());
    EXPECT_EQ(from_folder.labels, from_lmdb.labels);
    EXPECT_TRUE(from_folder.pixels == from_lmdb.pixels);
  }
  EXPECT_EQ((*a)->Counters().corrupt_records(), 0);
}

TEST_F(PhotographsTest, SeveralAtOnceCutOnlyOnce) {
  v1::Photographs source;
  source.set_images(16);
  source.set_as_lmdb(true);
  std::vector<absl::StatusOr<std::string>> paths(4);
  std::vector<std::thread> threads;
  for (absl::StatusOr<std::string>& path : paths) {
    threads.emplace_back([&path, source] { path = PhotographsDataSet(source); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::StatusOr<std::string>& path : paths) {
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(*path, *paths[0]);
  }
  EXPECT_EQ(OpenDataSet(*paths[0], 1).value()->size(), 16);
}

TEST_F(PhotographsTest, LeftoversOfAKilledProcessAreRemoved) {
  v1::Photographs source;
  source.set_images(2);
  const std::string leftover =
      absl::StrCat(cache_, "/paceline/datasets/photographs-v1-2.tmp-abcdef");
  WriteTestFile(leftover + "/0000-x/00000000.jpg", "x");
  ASSERT_TRUE(PhotographsDataSet(source).ok());
  EXPECT_FALSE(std::filesystem::exists(leftover));
}

TEST_F(PhotographsTest, OwnPhotographsAreADataSetOfTheirOwn) {
  v1::Photographs source;
  source.set_images(4);
  const std::string shipped = PhotographsDataSet(source).value();
  const std::string own = cache_ + "/own";
  WriteTestFile(own + "/big.jpg", TestJpeg(640, 480, 1));
  setenv("PACELINE_PHOTOGRAPHS", own.c_str(), 1);
  absl::StatusOr<std::string> path = PhotographsDataSet(source);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_NE(*path, shipped);
  EXPECT_EQ(OpenDataSet(*path, 1).value()->classes(), 1);

  WriteTestFile(own + "/small.jpg", TestJpeg(300, 480, 1));
  const absl::Status small = PhotographsDataSet(source).status();
  EXPECT_EQ(small.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(small.message(), "small.jpg' has 300x480")) << small;
  setenv("PACELINE_PHOTOGRAPHS", (cache_ + "/nowhere").c_str(), 1);
  EXPECT_EQ(PhotographsDataSet(source).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PhotographsTest, SaysWhereToPutTheCache) {
  WriteTestFile(cache_ + "/file", "");
  setenv("XDG_CACHE_HOME", (cache_ + "/file").c_str(), 1);
  const absl::Status status = PhotographsDataSet(v1::Photographs()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "set XDG_CACHE_HOME")) << status;
}

TEST_F(PhotographsTest, EqualOptionsGiveEqualBytes) {
  const std::vector<std::string> photographs =
      ListPhotographs(FindRunfile("@photographs/photographs").value()).value();
  CutOptions options;
  options.images = 3;
  options.width = 64;
  options.height = 48;
  std::vector<std::string> records[2];
  for (int i = 0; i < 2; ++i) {
    const std::string path = absl::StrCat(cache_, "/set", i);
    std::unique_ptr<DataSetWriter> writer = CreateFolderWriter(path).value();
    ASSERT_TRUE(CutPhotographs(photographs, options, *writer).ok());
    ASSERT_TRUE(writer->Finish().ok());
    std::unique_ptr<DataSet> set = OpenImageFolder(path).value();
    Record record;
    for (int r = 0; r < 3; ++r) {
      ASSERT_TRUE(set->Read(r, 0, record).ok());
      records[i].emplace_back(record.bytes);
    }
  }
  EXPECT_EQ(records[0], records[1]);
}

}  // namespace
}  // namespace paceline
