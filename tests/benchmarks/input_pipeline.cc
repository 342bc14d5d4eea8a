// How fast images become training samples: read, decode, crop, flip, normalise, for a 224x224
// network from 500x375 JPEGs. Beside it, in the same run and taking turns: torchvision's
// ImageFolder with PyTorch's DataLoader doing the same (what a user would otherwise run), and
// libjpeg-turbo's decoding alone (what all of them are built on).
//
//   bazel run //tests/benchmarks:input_pipeline -- --json=input_pipeline.json
#include "worker/input/input_pipeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/paceline/v1/plan.pb.h"
#include "proto/support/runfiles.h"
#include "tests/benchmarks/benchmark_report.h"
#include "turbojpeg.h"
#include "worker/input/data_set.h"
#include "worker/input/host_batch.h"
#include "worker/input/photographs.h"

ABSL_FLAG(std::string, json, "", "Writes the rows as JSON to this file. Example: --json=rows.json");
ABSL_FLAG(int, rounds, 3,
          "Rounds; every figure is the median of one per round. Example: --rounds=5");
ABSL_FLAG(int, images, 2048, "Images per figure and round. Example: --images=4096");
ABSL_FLAG(std::string, python, "/usr/bin/python3",
          "The Python that has torchvision. Example: --python=$HOME/venv/bin/python");

namespace paceline {
namespace {

constexpr int kBatch = 32;
constexpr int kWarmupBatches = 8;
constexpr int kImages = 512;  // In the data set: 57 kB each on average.

struct Figure {
  double images_per_second = 0;
  double images_per_core_second = 0;  // By the pool's own clock.
  double bytes_per_second = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

absl::StatusOr<Figure> MeasurePipeline(bool as_lmdb, int threads, int images) {
  v1::InputSource source;
  source.mutable_photographs()->set_images(kImages);
  source.mutable_photographs()->set_as_lmdb(as_lmdb);
  InputOptions options;
  options.image.set_channels(3);
  options.image.set_height(224);
  options.image.set_width(224);
  options.batch = kBatch;
  options.decode_threads = threads;
  options.prefetch_batches = 2;
  absl::StatusOr<std::unique_ptr<InputPipeline>> pipeline = CreateInputPipeline(source, options);
  if (!pipeline.ok()) return pipeline.status();
  HostBatch batch;
  const int batches = std::max(1, images / kBatch);
  int64_t busy_ns = 0;
  int64_t bytes = 0;
  absl::Time start;
  for (int i = 0; i < kWarmupBatches + batches; ++i) {
    if (i == kWarmupBatches) {
      start = absl::Now();
      bytes = (*pipeline)->Counters().bytes_read();
    }
    if (absl::Status status = (*pipeline)->Next(batch, absl::Now() + absl::Minutes(1));
        !status.ok()) {
      return status;
    }
    if (i >= kWarmupBatches) busy_ns += batch.busy_ns;
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  bytes = (*pipeline)->Counters().bytes_read() - bytes;
  const double measured = static_cast<double>(batches) * kBatch;
  Figure figure;
  figure.images_per_second = measured / seconds;
  figure.images_per_core_second = measured / (static_cast<double>(busy_ns) * 1e-9);
  figure.bytes_per_second = static_cast<double>(bytes) / seconds;
  return figure;
}

// Decoding to RGB and nothing else, from memory, on one thread.
absl::StatusOr<double> MeasureLibjpeg(const std::string& folder, int images) {
  absl::StatusOr<std::unique_ptr<DataSet>> set = OpenDataSet(folder, 1);
  if (!set.ok()) return set.status();
  std::vector<std::string> jpegs;
  Record record;
  for (int64_t i = 0; i < (*set)->size(); ++i) {
    if (absl::Status status = (*set)->Read(i, 0, record); !status.ok()) return status;
    jpegs.emplace_back(record.bytes);
  }
  tjhandle decoder = tjInitDecompress();
  std::vector<unsigned char> pixels(static_cast<size_t>(500) * 375 * 3);
  const absl::Time start = absl::Now();
  for (int i = 0; i < images; ++i) {
    const std::string& jpeg = jpegs[static_cast<size_t>(i) % jpegs.size()];
    if (tjDecompress2(decoder, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size(),
                      pixels.data(), 500, 0, 375, TJPF_RGB, 0) != 0) {
      return absl::InternalError(absl::StrCat("libjpeg: ", tjGetErrorStr2(decoder)));
    }
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  tjDestroy(decoder);
  return images / seconds;
}

// Images per second, or what the script said instead.
absl::StatusOr<double> MeasureTorchvision(const std::string& folder, int workers, int images) {
  absl::StatusOr<std::string> script =
      FindRunfile("tests/benchmarks/input_pipeline_torchvision.py");
  if (!script.ok()) return script.status();
  const std::string command = absl::StrFormat(
      "'%s' '%s' --folder='%s' --workers=%d --batch=%d --images=%d --warmup=%d 2>&1",
      absl::GetFlag(FLAGS_python), *script, folder, workers, kBatch, images, kWarmupBatches);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::InternalError("cannot start a shell");
  std::string output;
  char buffer[4096];
  while (size_t got = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, got);
  const int code = pclose(pipe);
  double rate;
  const size_t at = output.rfind("images_per_second ");
  if (code == 0 && at != std::string::npos &&
      absl::SimpleAtod(absl::string_view(output).substr(at + 18), &rate)) {
    return rate;
  }
  return absl::UnavailableError(output.substr(0, 500));
}

int Run() {
  v1::Photographs photographs;
  photographs.set_images(kImages);
  absl::StatusOr<std::string> folder = PhotographsDataSet(photographs);
  if (!folder.ok()) {
    std::fprintf(stderr, "%s\n", folder.status().ToString().c_str());
    return 1;
  }
  const int images = absl::GetFlag(FLAGS_images);
  std::vector<Figure> figures[2][2];   // [as_lmdb][threads - 1]
  std::vector<double> torchvision[2];  // [workers - 1]
  std::vector<double> libjpeg;
  absl::Status torchvision_status;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    absl::StatusOr<double> decode = MeasureLibjpeg(*folder, images);
    if (!decode.ok()) {
      std::fprintf(stderr, "%s\n", decode.status().ToString().c_str());
      return 1;
    }
    libjpeg.push_back(*decode);
    for (int threads : {1, 2}) {
      for (bool as_lmdb : {false, true}) {
        absl::StatusOr<Figure> figure = MeasurePipeline(as_lmdb, threads, images);
        if (!figure.ok()) {
          std::fprintf(stderr, "%s\n", figure.status().ToString().c_str());
          return 1;
        }
        figures[as_lmdb ? 1 : 0][threads - 1].push_back(*figure);
      }
      if (!torchvision_status.ok()) continue;
      absl::StatusOr<double> rate = MeasureTorchvision(*folder, threads, images / 2);
      if (rate.ok()) {
        torchvision[threads - 1].push_back(*rate);
      } else {
        torchvision_status = rate.status();
      }
    }
  }

  BenchmarkReport report("input_pipeline: 500x375 JPEG to normalised 224x224");
  const auto median = [](const std::vector<Figure>& of, double Figure::*member) {
    std::vector<double> values;
    for (const Figure& figure : of) values.push_back(figure.*member);
    return Median(values);
  };
  for (int threads : {1, 2}) {
    for (bool as_lmdb : {false, true}) {
      const std::vector<Figure>& of = figures[as_lmdb ? 1 : 0][threads - 1];
      const std::string name = absl::StrCat(as_lmdb ? "lmdb" : "folder", ", ", threads,
                                            threads == 1 ? " thread" : " threads");
      BenchmarkRow row;
      row.name = name;
      row.value = median(of, &Figure::images_per_second);
      row.unit = "images/s";
      if (!torchvision[threads - 1].empty()) {
        row.reference = absl::StrCat("torchvision, ", threads, " worker", threads == 1 ? "" : "s");
        row.reference_value = Median(torchvision[threads - 1]);
        row.goal = 2.0;
      }
      report.Add(row);
      BenchmarkRow bytes;
      bytes.name = name + ", encoded";
      bytes.value = median(of, &Figure::bytes_per_second) / 1e6;
      bytes.unit = "MB/s";
      report.Add(bytes);
      // Two threads may share a core, or its clock; one tells what the code costs.
      if (threads > 1) continue;
      BenchmarkRow core;
      core.name = name + ", per busy thread";
      core.value = median(of, &Figure::images_per_core_second);
      core.unit = "images/s";
      core.reference = "libjpeg-turbo, decoding alone";
      core.reference_value = Median(libjpeg);
      core.goal = 1.0;
      report.Add(core);
    }
  }
  report.Note(absl::StrFormat("median of %d rounds of %d images, %d photographs, batches of %d",
                              absl::GetFlag(FLAGS_rounds), images, kImages, kBatch));
  if (!torchvision_status.ok()) {
    report.Note(
        absl::StrCat("without torchvision, which did not run: ", torchvision_status.message()));
    report.Note("  (on Debian: apt install python3-torchvision python3-pil)");
  }
  return report.Finish(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Images per second of the input pipeline, beside torchvision's DataLoader.\n"
      "  bazel run //tests/benchmarks:input_pipeline -- --json=rows.json");
  absl::ParseCommandLine(argc, argv);
  return paceline::Run();
}
