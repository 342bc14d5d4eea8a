#include "worker/input/input_pipeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/paceline/v1/result.pb.h"
#include "worker/input/caffe_datum.pb.h"
#include "worker/input/data_set.h"
#include "worker/input/data_set_writer.h"
#include "worker/input/host_batch.h"
#include "worker/input/test_images.h"

namespace paceline {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

InputOptions SmallOptions() {
  InputOptions options;
  options.image.set_channels(3);
  options.image.set_height(32);
  options.image.set_width(32);
  options.classes = 10;
  options.batch = 4;
  options.decode_threads = 2;
  options.prefetch_batches = 2;
  return options;
}

v1::InputSource Folder(const std::string& path) {
  v1::InputSource source;
  source.set_image_folder(path);
  return source;
}

std::unique_ptr<InputPipeline> Create(const v1::InputSource& source, const InputOptions& options) {
  absl::StatusOr<std::unique_ptr<InputPipeline>> pipeline = CreateInputPipeline(source, options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return *std::move(pipeline);
}

std::vector<HostBatch> Take(InputPipeline& pipeline, int batches) {
  std::vector<HostBatch> taken(static_cast<size_t>(batches));
  for (HostBatch& batch : taken) {
    const absl::Status status = pipeline.Next(batch, Soon());
    EXPECT_TRUE(status.ok()) << status;
  }
  return taken;
}

void ExpectSame(const std::vector<HostBatch>& a, const std::vector<HostBatch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].labels, b[i].labels) << "batch " << i;
    EXPECT_TRUE(a[i].pixels == b[i].pixels) << "batch " << i;
  }
}

std::string TestLmdb(const std::string& folder, const std::string& name) {
  const std::string path = TestFolder(name) + "/set.lmdb";
  std::unique_ptr<DataSet> set = OpenImageFolder(folder).value();
  std::unique_ptr<DataSetWriter> writer = CreateLmdbWriter(path, 10 << 20).value();
  Record record;
  for (int64_t i = 0; i < set->size(); ++i) {
    EXPECT_TRUE(set->Read(i, 0, record).ok());
    EXPECT_TRUE(writer->Add(static_cast<int32_t>(record.label), "", record.bytes).ok());
  }
  EXPECT_TRUE(writer->Finish().ok());
  return path;
}

TEST(InputPipelineTest, BatchesDoNotDependOnThreadsOrPrefetching) {
  const std::string root = TestFolder("threads");
  WriteTestFolder(root, 3, 7);
  InputOptions options = SmallOptions();
  options.decode_threads = 1;
  options.prefetch_batches = 0;
  const std::vector<HostBatch> expected = Take(*Create(Folder(root), options), 12);
  for (int threads : {1, 2, 5}) {
    for (int prefetch : {0, 1, 4}) {
      options.decode_threads = threads;
      options.prefetch_batches = prefetch;
      ExpectSame(Take(*Create(Folder(root), options), 12), expected);
    }
  }
  options.seed = 2;
  const std::vector<HostBatch> other = Take(*Create(Folder(root), options), 12);
  EXPECT_NE(other[0].labels, expected[0].labels);
}

TEST(InputPipelineTest, ReusedBatchesCarryTheSameSamples) {
  const std::string root = TestFolder("reused");
  WriteTestFolder(root, 2, 5);
  const std::vector<HostBatch> expected = Take(*Create(Folder(root), SmallOptions()), 8);
  std::unique_ptr<InputPipeline> pipeline = Create(Folder(root), SmallOptions());
  HostBatch batch;
  std::set<const float*> buffers;
  for (const HostBatch& want : expected) {
    ASSERT_TRUE(pipeline->Next(batch, Soon()).ok());
    EXPECT_EQ(batch.size, 4);
    EXPECT_TRUE(batch.pixels == want.pixels);
    EXPECT_GT(batch.busy_ns, 0);
    buffers.insert(batch.pixels.data());
  }
  EXPECT_LE(buffers.size(), 3);  // Two ahead and the caller's.
  EXPECT_GT(pipeline->MemoryBytes(), 2 * 4 * 3 * 32 * 32 * 4);
}

TEST(InputPipelineTest, LmdbGivesThePixelsOfTheFolder) {
  const std::string root = TestFolder("folder_for_lmdb");
  WriteTestFolder(root, 3, 5);
  v1::InputSource lmdb;
  lmdb.set_lmdb(TestLmdb(root, "lmdb_of_folder"));
  ExpectSame(Take(*Create(lmdb, SmallOptions()), 6),
             Take(*Create(Folder(root), SmallOptions()), 6));
}

// The classes that the ranks together see in one pass, when every record has a class of its own.
TEST(InputPipelineTest, RanksReadDisjointSharesOfEveryPass) {
  const std::string root = TestFolder("shares");
  WriteTestFolder(root, 24, 1);
  InputOptions options = SmallOptions();
  options.classes = 24;
  options.ranks = 3;
  std::vector<std::vector<HostBatch>> taken;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    taken.push_back(Take(*Create(Folder(root), options), 4));  // Two passes of eight samples.
  }
  std::vector<std::vector<int>> passes;
  for (size_t pass = 0; pass < 2; ++pass) {
    std::vector<int> seen;
    for (const std::vector<HostBatch>& rank : taken) {
      for (size_t b : {2 * pass, 2 * pass + 1}) {
        seen.insert(seen.end(), rank[b].labels.begin(), rank[b].labels.end());
      }
    }
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), 24);
    passes.push_back(seen);
  }
  EXPECT_NE(passes[0], passes[1]);
}

TEST(InputPipelineTest, RanksTogetherSeeWhatOneRankWithTheWholeBatchSees) {
  const std::string root = TestFolder("whole_batch");
  WriteTestFolder(root, 24, 1);
  InputOptions options = SmallOptions();
  options.classes = 24;
  options.batch = 8;
  const std::vector<HostBatch> whole = Take(*Create(Folder(root), options), 5);
  options.batch = 4;
  options.ranks = 2;
  std::vector<std::vector<HostBatch>> parts;
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    parts.push_back(Take(*Create(Folder(root), options), 5));
  }
  const size_t sample = 3 * 32 * 32;
  for (size_t b = 0; b < 5; ++b) {
    for (size_t i = 0; i < 8; ++i) {
      const HostBatch& part = parts[i % 2][b];
      EXPECT_EQ(whole[b].labels[i], part.labels[i / 2]);
      EXPECT_TRUE(std::equal(&whole[b].pixels[i * sample], &whole[b].pixels[i * sample] + sample,
                             &part.pixels[i / 2 * sample]));
    }
  }
}

TEST(InputPipelineTest, CorruptRecordsAreReplacedCountedAndNamed) {
  const std::string root = TestFolder("corrupt");
  WriteTestFolder(root, 4, 5);
  const std::string jpeg = TestJpeg(100, 80, 3);
  WriteTestFile(root + "/c1/003.jpg", jpeg.substr(0, jpeg.size() / 2));
  WriteTestFile(root + "/c2/000.jpg", "not an image");
  v1::InputSource source = Folder(root);
  source.set_max_corrupt_fraction(0.1);  // Two of twenty.
  std::vector<HostBatch> expected;
  for (int threads : {1, 3}) {
    InputOptions options = SmallOptions();
    options.decode_threads = threads;
    std::unique_ptr<InputPipeline> pipeline = Create(source, options);
    const std::vector<HostBatch> taken = Take(*pipeline, 5);
    const v1::InputCounters counters = pipeline->Counters();
    EXPECT_EQ(counters.images_read(), 20);
    EXPECT_GT(counters.bytes_read(), 20 * 1000);
    EXPECT_EQ(counters.corrupt_records(), 2);
    ASSERT_EQ(counters.corrupt_names_size(), 2);
    std::vector<std::string> names(counters.corrupt_names().begin(),
                                   counters.corrupt_names().end());
    std::sort(names.begin(), names.end());
    EXPECT_TRUE(absl::StrContains(names[0], root + "/c1/003.jpg: JPEG: ")) << names[0];
    EXPECT_TRUE(absl::StrContains(names[1], root + "/c2/000.jpg: is not a JPEG")) << names[1];
    if (!expected.empty()) ExpectSame(taken, expected);
    expected = taken;
  }
}

TEST(InputPipelineTest, MoreCorruptRecordsThanAllowedFailNamingThem) {
  const std::string root = TestFolder("too_corrupt");
  WriteTestFolder(root, 4, 5);
  for (int i = 0; i < 3; ++i) WriteTestFile(root + "/c1/00" + std::to_string(i) + ".jpg", "");
  v1::InputSource source = Folder(root);
  source.set_max_corrupt_fraction(0.1);
  std::unique_ptr<InputPipeline> pipeline = Create(source, SmallOptions());
  HostBatch batch;
  absl::Status status;
  for (int i = 0; i < 5 && status.ok(); ++i) status = pipeline->Next(batch, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "3 corrupt records in a pass of 20")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "c1/000.jpg: is empty")) << status;
  EXPECT_EQ(pipeline->Next(batch, Soon()), status);
}

TEST(InputPipelineTest, ASetWithoutOneGoodRecordFails) {
  const std::string root = TestFolder("all_corrupt");
  for (int i = 0; i < 8; ++i) WriteTestFile(root + "/c/" + std::to_string(i) + ".jpg", "x");
  v1::InputSource source = Folder(root);
  source.set_max_corrupt_fraction(1);
  HostBatch batch;
  EXPECT_EQ(Create(source, SmallOptions())->Next(batch, Soon()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(InputPipelineTest, LabelsOutsideTheNetworksClassesAreCorrupt) {
  const std::string root = TestFolder("labels");
  WriteTestFolder(root, 5, 4);
  v1::InputSource source;
  source.set_lmdb(TestLmdb(root, "labels_lmdb"));
  source.set_max_corrupt_fraction(0.25);
  InputOptions options = SmallOptions();
  options.classes = 4;
  std::unique_ptr<InputPipeline> pipeline = Create(source, options);
  Take(*pipeline, 5);
  EXPECT_EQ(pipeline->Counters().corrupt_records(), 4);
  EXPECT_TRUE(
      absl::StrContains(pipeline->Counters().corrupt_names(0), "label 4 is outside [0, 4)"));
  // A folder tells how many classes it has before anything is read.
  EXPECT_EQ(CreateInputPipeline(Folder(root), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(InputPipelineTest, WithoutPrefetchingNothingRunsBetweenCalls) {
  const std::string root = TestFolder("no_prefetch");
  WriteTestFolder(root, 2, 8);
  InputOptions options = SmallOptions();
  options.prefetch_batches = 0;
  std::unique_ptr<InputPipeline> pipeline = Create(Folder(root), options);
  Take(*pipeline, 1);
  // If anything were read ahead, it would find the good files still there.
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < 8; ++i) {
      WriteTestFile(root + "/c" + std::to_string(c) + "/00" + std::to_string(i) + ".jpg", "x");
    }
  }
  HostBatch batch;
  EXPECT_EQ(pipeline->Next(batch, Soon()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pipeline->Counters().images_read(), 4);
}

TEST(InputPipelineTest, CancelWakesAWaitingNext) {
  const std::string root = TestFolder("cancel");
  WriteTestFolder(root, 1, 4, 1500, 1500);
  InputOptions options = SmallOptions();
  options.batch = 2000;  // Takes longer than anyone waits.
  options.decode_threads = 1;
  std::unique_ptr<InputPipeline> pipeline = Create(Folder(root), options);
  std::thread canceller([&] {
    absl::SleepFor(absl::Milliseconds(20));
    pipeline->Cancel();
  });
  HostBatch batch;
  EXPECT_EQ(pipeline->Next(batch, absl::InfiniteFuture()).code(), absl::StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ(pipeline->Next(batch, Soon()).code(), absl::StatusCode::kCancelled);
}

TEST(InputPipelineTest, NextGivesUpAtTheDeadlineAndGoesOnLater) {
  const std::string root = TestFolder("deadline");
  WriteTestFolder(root, 2, 8);
  InputOptions options = SmallOptions();
  const std::vector<HostBatch> expected = Take(*Create(Folder(root), options), 3);
  options.prefetch_batches = 0;
  std::unique_ptr<InputPipeline> pipeline = Create(Folder(root), options);
  HostBatch batch;
  const absl::Status status = pipeline->Next(batch, absl::InfinitePast());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  ExpectSame(Take(*pipeline, 3), expected);
}

TEST(InputPipelineTest, OneChannelNetworksGetLuminance) {
  const std::string root = TestFolder("luminance");
  WriteTestFolder(root, 2, 4);
  InputOptions options = SmallOptions();
  const std::vector<HostBatch> colour = Take(*Create(Folder(root), options), 1);
  options.image.set_channels(1);
  const std::vector<HostBatch> gray = Take(*Create(Folder(root), options), 1);
  ASSERT_EQ(gray[0].pixels.size(), 4 * 32 * 32);
  const size_t plane = 32 * 32;
  double difference = 0;
  for (size_t i = 0; i < 4 * plane; ++i) {
    const float* rgb = &colour[0].pixels[i / plane * 3 * plane + i % plane];
    const double luminance = 0.299 * (rgb[0] * 0.229 + 0.485) +
                             0.587 * (rgb[plane] * 0.224 + 0.456) +
                             0.114 * (rgb[2 * plane] * 0.225 + 0.406);
    difference += std::abs(gray[0].pixels[i] * 0.226 + 0.449 - luminance);
  }
  EXPECT_LT(difference / (4.0 * plane), 0.01);
}

TEST(InputPipelineTest, ReadsCaffesRawRecords) {
  // Constant colour: blue 10, green 100, red 200.
  v1::CaffeDatum datum;
  datum.set_channels(3);
  datum.set_height(40);
  datum.set_width(40);
  datum.set_label(2);
  datum.set_data(std::string(1600, '\x0a') + std::string(1600, '\x64') + std::string(1600, '\xc8'));
  const std::string root = TestFolder("raw_datum");
  const std::string path = root + "/set.lmdb";
  WriteTestLmdbValues(path, {datum.SerializeAsString(), datum.SerializeAsString(),
                             datum.SerializeAsString(), datum.SerializeAsString()});
  v1::InputSource source;
  source.set_lmdb(path);
  const std::vector<HostBatch> batch = Take(*Create(source, SmallOptions()), 1);
  EXPECT_EQ(batch[0].labels, std::vector<int32_t>({2, 2, 2, 2}));
  EXPECT_NEAR(batch[0].pixels[0], (200 / 255.0 - 0.485) / 0.229, 1e-4);
  EXPECT_NEAR(batch[0].pixels[1024], (100 / 255.0 - 0.456) / 0.224, 1e-4);
  EXPECT_NEAR(batch[0].pixels[2048], (10 / 255.0 - 0.406) / 0.225, 1e-4);
}

TEST(InputPipelineTest, BadOptionsAndSourcesSayWhatWasExpected) {
  const std::string root = TestFolder("bad");
  WriteTestFolder(root, 1, 2);
  InputOptions options = SmallOptions();
  options.decode_threads = 0;
  EXPECT_EQ(CreateInputPipeline(Folder(root), options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = SmallOptions();
  options.ranks = 3;
  EXPECT_TRUE(absl::StrContains(CreateInputPipeline(Folder(root), options).status().message(),
                                "at least one per rank"));
  options = SmallOptions();
  options.image.set_channels(2);
  EXPECT_TRUE(absl::StrContains(CreateInputPipeline(Folder(root), options).status().message(),
                                "1 or 3 channels"));
  v1::InputSource source = Folder(root);
  source.set_max_corrupt_fraction(1.5);
  EXPECT_TRUE(absl::StrContains(CreateInputPipeline(source, SmallOptions()).status().message(),
                                "max_corrupt_fraction"));
  EXPECT_EQ(CreateInputPipeline(Folder(root + "/none"), SmallOptions()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(InputPipelineTest, ABatchBeyondTheMemoryIsRefusedBeforeItIsAllocated) {
  InputOptions options = SmallOptions();
  options.batch = 1 << 30;
  const absl::Status status = CreateInputPipeline(v1::InputSource(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(status.message(), "batch_per_device")) << status;
}

TEST(SyntheticPipelineTest, RepeatsOneNormalisedBatchPerRank) {
  InputOptions options = SmallOptions();
  options.ranks = 2;
  v1::InputSource source;
  source.mutable_synthetic();
  std::unique_ptr<InputPipeline> pipeline = Create(source, options);
  const std::vector<HostBatch> batches = Take(*pipeline, 2);
  EXPECT_EQ(batches[0].pixels, batches[1].pixels);
  EXPECT_EQ(batches[0].busy_ns, 0);
  double sum = 0;
  double squares = 0;
  for (float pixel : batches[0].pixels) {
    sum += pixel;
    squares += pixel * pixel;
  }
  const auto count = static_cast<double>(batches[0].pixels.size());
  EXPECT_NEAR(sum / count, 0, 0.05);
  EXPECT_NEAR(squares / count, 1, 0.05);
  for (int32_t label : batches[0].labels) {
    EXPECT_GE(label, 0);
    EXPECT_LT(label, 10);
  }
  options.rank = 1;
  EXPECT_NE(Take(*Create(source, options), 1)[0].pixels, batches[0].pixels);
}

TEST(SyntheticPipelineTest, RefillsABatchThatSomebodyElseUsed) {
  v1::InputSource source;
  source.mutable_synthetic();
  std::unique_ptr<InputPipeline> pipeline = Create(source, SmallOptions());
  HostBatch batch = Take(*pipeline, 1)[0];
  const std::vector<float> expected = batch.pixels;
  std::fill(batch.pixels.begin(), batch.pixels.end(), 0.0f);
  ASSERT_TRUE(pipeline->Next(batch, Soon()).ok());
  EXPECT_EQ(batch.pixels, expected);
  pipeline->Cancel();
  EXPECT_EQ(pipeline->Next(batch, Soon()).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace paceline
