#include "worker/input/data_set.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "worker/input/caffe_datum.pb.h"
#include "worker/input/data_set_writer.h"
#include "worker/input/lmdb_record.h"
#include "worker/input/test_images.h"

namespace paceline {
namespace {

using OpenedSet = absl::StatusOr<std::unique_ptr<DataSet>>;

TEST(ImageFolderTest, SortsClassesAndFilesAndLooksIntoSubFolders) {
  const std::string root = TestFolder("sorted");
  WriteTestFile(root + "/zebra/b.jpg", "1");
  WriteTestFile(root + "/zebra/deep/er/a.JPEG", "22");
  WriteTestFile(root + "/ant/z.jpeg", "333");
  WriteTestFile(root + "/ant/readme.txt", "no");
  WriteTestFile(root + "/ant/.hidden.jpg", "no");
  std::filesystem::create_directories(root + "/middle");  // Empty, but a class.
  OpenedSet set = OpenImageFolder(root + "/");
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ((*set)->size(), 3);
  EXPECT_EQ((*set)->classes(), 3);
  const char* names[] = {"/ant/z.jpeg", "/zebra/b.jpg", "/zebra/deep/er/a.JPEG"};
  const int labels[] = {0, 2, 2};
  const char* contents[] = {"333", "1", "22"};
  Record record;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*set)->Name(i), root + names[i]);
    ASSERT_TRUE((*set)->Read(i, 0, record).ok());
    EXPECT_EQ(record.label, labels[i]);
    EXPECT_EQ(record.bytes, contents[i]);
  }
}

TEST(ImageFolderTest, ErrorsSayWhatWasExpected) {
  const std::string root = TestFolder("errors");
  EXPECT_EQ(OpenImageFolder(root + "/missing").status().code(), absl::StatusCode::kNotFound);
  WriteTestFile(root + "/loose.jpg", "x");
  const absl::Status loose = OpenImageFolder(root).status();
  EXPECT_EQ(loose.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(loose.message(), "move them into a sub-folder")) << loose;
  std::filesystem::create_directories(root + "/class");
  std::filesystem::create_directory_symlink("..", root + "/class/up");
  EXPECT_TRUE(absl::StrContains(OpenImageFolder(root).status().message(), "lead back up"));
}

TEST(ImageFolderTest, AVanishedFileIsACorruptRecord) {
  const std::string root = TestFolder("vanished");
  WriteTestFolder(root, 1, 2);
  OpenedSet set = OpenImageFolder(root);
  ASSERT_TRUE(set.ok());
  std::filesystem::remove(root + "/c0/001.jpg");
  Record record;
  EXPECT_EQ((*set)->Read(1, 0, record).code(), absl::StatusCode::kDataLoss);
}

std::string WriteLmdb(const std::string& folder, int records) {
  const std::string path = folder + "/set.lmdb";
  absl::StatusOr<std::unique_ptr<DataSetWriter>> writer = CreateLmdbWriter(path, 1 << 20);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (int i = 0; i < records; ++i) {
    EXPECT_TRUE((*writer)->Add(i - 1, "class", TestJpeg(60, 50, i)).ok());
  }
  const absl::Status status = (*writer)->Finish();
  EXPECT_TRUE(status.ok()) << status;
  return path;
}

TEST(LmdbTest, GivesBackWhatWasWritten) {
  const std::string folder = TestFolder("lmdb");
  const std::string path = WriteLmdb(folder, 12);
  // Nothing is left beside it.
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    ++entries;
  }
  EXPECT_EQ(entries, 1);
  OpenedSet set = OpenDataSet(path, 2);
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ((*set)->size(), 12);
  Record first;
  Record second;
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE((*set)->Read(i, 0, first).ok());
    ASSERT_TRUE((*set)->Read(11 - i, 1, second).ok());
    EXPECT_EQ(first.label, i - 1);
    EXPECT_EQ(first.bytes, TestJpeg(60, 50, i));
    EXPECT_EQ(second.bytes, TestJpeg(60, 50, 11 - i));
  }
  EXPECT_TRUE(absl::StrContains((*set)->Name(3), "record '00000003'")) << (*set)->Name(3);
}

TEST(LmdbTest, TruncatedFileIsRefused) {
  const std::string path = WriteLmdb(TestFolder("cut_lmdb"), 50);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const absl::Status status = OpenLmdb(path, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "truncated")) << status;
}

TEST(LmdbTest, OtherFilesAreRefused) {
  const std::string folder = TestFolder("not_lmdb");
  WriteTestFile(folder + "/x.lmdb", std::string(10000, 'x'));
  EXPECT_EQ(OpenLmdb(folder + "/x.lmdb", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenLmdb(folder, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenLmdb(folder + "/none", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenDataSet(folder + "/none", 1).status().code(), absl::StatusCode::kNotFound);
}

TEST(DataSetWriterTest, NothingAppearsUnlessFinished) {
  const std::string folder = TestFolder("unfinished");
  {
    absl::StatusOr<std::unique_ptr<DataSetWriter>> writer = CreateFolderWriter(folder + "/set");
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Add(0, "a", "jpeg").ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  WriteTestFile(folder + "/taken", "");
  EXPECT_EQ(CreateFolderWriter(folder + "/taken").status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CreateLmdbWriter(folder + "/taken", 1).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(LmdbRecordTest, ReadsCaffesEncodedDatum) {
  v1::CaffeDatum datum;
  datum.set_label(7);
  datum.set_encoded(true);
  datum.set_data("jpeg bytes");
  Record record;
  ASSERT_TRUE(ParseLmdbRecord(datum.SerializeAsString(), record).ok());
  EXPECT_EQ(record.label, 7);
  EXPECT_EQ(record.bytes, "jpeg bytes");
  EXPECT_FALSE(record.raw);
}

TEST(LmdbRecordTest, ReadsCaffesRawDatumAndChecksItsSize) {
  v1::CaffeDatum datum;
  datum.set_channels(3);
  datum.set_height(2);
  datum.set_width(4);
  datum.set_label(1);
  datum.set_data(std::string(24, 'p'));
  Record record;
  ASSERT_TRUE(ParseLmdbRecord(datum.SerializeAsString(), record).ok());
  EXPECT_TRUE(record.raw);
  EXPECT_EQ(record.width, 4);
  datum.set_width(5);
  const absl::Status status = ParseLmdbRecord(datum.SerializeAsString(), record);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "3x2x5 but holds 24")) << status;
}

TEST(LmdbRecordTest, WireFormatOfDatumIsCaffes) {
  // Hand-made: channels 3, height 1, width 1, data "bgr", label 9.
  const std::string bytes = std::string("\x08\x03\x10\x01\x18\x01\x22\x03") + "bgr" + "\x28\x09";
  Record record;
  ASSERT_TRUE(ParseLmdbRecord(bytes, record).ok());
  EXPECT_EQ(record.label, 9);
  EXPECT_EQ(record.bytes, "bgr");
}

TEST(LmdbRecordTest, LayoutIsAsDocumented) {
  EXPECT_EQ(MakeLmdbRecord(0x01020304, "J"), std::string("PLI1\x04\x03\x02\x01J"));
  Record record;
  EXPECT_EQ(ParseLmdbRecord("PLI1\x01", record).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseLmdbRecord("garbage", record).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseLmdbRecord("", record).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace paceline
