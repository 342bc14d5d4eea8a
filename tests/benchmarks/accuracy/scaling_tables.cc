#include "tests/benchmarks/accuracy/scaling_tables.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "analysis/import/csv_table.h"

namespace paceline {
namespace {

struct NetworkFacts {
  const char* name;
  double gradient_bytes;
  int gradient_tensors;
};

// fp32 gradients. network_summary.csv where it has the network; otherwise from the published
// definitions (BERT for pretraining with tied embeddings, torchvision, slim).
constexpr NetworkFacts kNetworks[] = {
    {"ResNet-50", 102.2e6, 161},        {"resnet50", 102.2e6, 161},
    {"resnet101", 178.2e6, 314},        {"ResNet-152", 240.8e6, 467},
    {"resnet-152", 240.8e6, 467},       {"resnext50_32x4d", 100.1e6, 161},
    {"resnext101_32x8d", 355.2e6, 314}, {"BERT-Base", 440e6, 206},
    {"BERT-Large", 1344e6, 398},        {"VGG16", 553.4e6, 32},
    {"AlexNet", 247.4e6, 16},           {"alexnet", 203.4e6, 16},
    {"InceptionV3", 95.2e6, 284},       {"inception-v3", 95.2e6, 284},
    {"GoogLeNet", 53.5e6, 128},         {"googlenet", 53.5e6, 128},
};

class Curves {
 public:
  // The curve of `key`, created from `blank` at its first row.
  void Add(const std::string& key, const ScalingCurve& blank, int devices, double seconds) {
    auto [found, is_new] = index_.try_emplace(key, curves_.size());
    if (is_new) {
      curves_.push_back(blank);
      curves_.back().key = key;
      for (const NetworkFacts& facts : kNetworks) {
        if (blank.network != facts.name) continue;
        curves_.back().setting.gradient_bytes = facts.gradient_bytes;
        curves_.back().setting.gradient_tensors = facts.gradient_tensors;
      }
    }
    curves_[found->second].seconds[devices] = seconds;
  }
  std::vector<ScalingCurve> Take() { return std::move(curves_); }

 private:
  std::map<std::string, size_t> index_;
  std::vector<ScalingCurve> curves_;
};

// Fields of one row; the first that fails is kept.
class Fields {
 public:
  explicit Fields(const CsvRow& row) : row_(row) {}
  std::string Text(const char* column) { return Get(row_.Text(column), std::string()); }
  int Integer(const char* column) {
    return static_cast<int>(Get(row_.Integer(column), int64_t{1}));
  }
  absl::optional<double> Number(const char* column) {
    return Get(row_.OptionalNumber(column), absl::optional<double>());
  }
  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  T Get(absl::StatusOr<T> value, T otherwise) {
    if (value.ok()) return *std::move(value);
    status_.Update(value.status());
    return otherwise;
  }
  const CsvRow& row_;
  absl::Status status_;
};

using RowReader = void (*)(Fields& fields, Curves& curves);

void ReadDdlBenchmarks(Fields& fields, Curves& curves) {
  const std::string model = fields.Text("model"), link = fields.Text("network"),
                    method = fields.Text("method");
  const absl::optional<double> batch = fields.Number("batch"), rate = fields.Number("images_per_s");
  const int devices = fields.Integer("gpus");
  const bool servers = absl::StrContains(method, "PS");
  // Those rows repeat the 10GbE ones for two of the models.
  if (servers && absl::StartsWith(link, "100GbE")) return;
  if (!batch.has_value() || !rate.has_value()) return;
  ScalingCurve curve;
  curve.cluster = absl::StrCat("ddl-benchmarks ", link);
  curve.network = model;
  curve.group = absl::StrCat(curve.cluster, " ", method);
  curve.setting.schedule = servers                            ? OverlapSchedule::kParameterServer
                           : absl::StartsWith(method, "BSP")  ? OverlapSchedule::kBulkSynchronous
                           : absl::StartsWith(method, "WFBP") ? OverlapSchedule::kWaitFree
                                                              : OverlapSchedule::kBucketed;
  curve.setting.devices_per_host = 4;
  curve.setting.network_bytes_per_second = absl::StartsWith(link, "10GbE") ? 1.25e9 : 12.5e9;
  curve.batch = *batch;
  curves.Add(absl::StrCat(curve.group, " ", model, " ", *batch), curve, devices,
             *batch * devices / *rate);
}

void ReadTensorFlow(Fields& fields, Curves& curves) {
  const std::string platform = fields.Text("platform"), update = fields.Text("variable_update"),
                    input = fields.Text("data"), model = fields.Text("model");
  const absl::optional<double> batch = fields.Number("batch_per_gpu"),
                               rate = fields.Number("images_per_s");
  const int devices = fields.Integer("gpus");
  if (!batch.has_value() || !rate.has_value()) return;
  ScalingCurve curve;
  curve.cluster = absl::StrCat("tensorflow ", platform);
  curve.network = model;
  curve.group = absl::StrCat(curve.cluster, " ", input);
  curve.setting.schedule = absl::StartsWith(update, "replicated")
                               ? OverlapSchedule::kWaitFree
                               : OverlapSchedule::kParameterServer;
  curve.setting.devices_per_host = 8;
  curve.batch = *batch;
  curves.Add(absl::StrCat(curve.group, " ", update, " ", model, " ", *batch), curve, devices,
             *batch * devices / *rate);
}

void ReadMxnetP2(Fields& fields, Curves& curves) {
  ScalingCurve curve;
  curve.network = fields.Text("model");
  const absl::optional<double> batch = fields.Number("batch_per_gpu"),
                               rate = fields.Number("images_per_sec");
  const int devices = fields.Integer("gpus");
  if (!batch.has_value() || !rate.has_value()) return;
  curve.cluster = curve.group = "mxnet P2.16xlarge";
  curve.setting.schedule = OverlapSchedule::kParameterServer;
  curve.setting.devices_per_host = 16;
  curve.batch = *batch;
  curves.Add(absl::StrCat(curve.group, " ", curve.network, " ", *batch), curve, devices,
             *batch * devices / *rate);
}

void ReadNvidia(Fields& fields, Curves& curves) {
  const std::string framework = fields.Text("framework"), hardware = fields.Text("hardware"),
                    precision = fields.Text("precision");
  const absl::optional<double> batch = fields.Number("batch_per_gpu"),
                               rate = fields.Number("images_per_sec");
  const int devices = fields.Integer("gpus");
  if (!rate.has_value()) return;
  ScalingCurve curve;
  curve.cluster = absl::StrCat("nvidia ", hardware);
  curve.network = "ResNet-50";
  curve.group = absl::StrCat(curve.cluster, " ", framework, " ", precision);
  curve.setting.schedule = OverlapSchedule::kBucketed;
  curve.setting.devices_per_host = 16;
  curve.batch = batch.value_or(0);
  curves.Add(curve.group, curve, devices, batch.value_or(1) * devices / *rate);
}

void ReadPytorchDdp(Fields& fields, Curves& curves) {
  if (fields.Text("layout") == "no ddp") return;  // Another code path, not one device of DDP.
  ScalingCurve curve;
  curve.network = fields.Text("model");
  const absl::optional<double> batch = fields.Number("batch_per_gpu"),
                               seconds = fields.Number("p50_s");
  if (!seconds.has_value()) return;
  curve.cluster = curve.group = "pytorch DGX V100";
  curve.setting.schedule = OverlapSchedule::kBucketed;
  curve.setting.devices_per_host = 8;
  curve.batch = batch.value_or(0);
  curves.Add(absl::StrCat(curve.group, " ", curve.network), curve, fields.Integer("gpus"),
             *seconds);
}

void ReadPytorchBuckets(Fields& fields, Curves& curves) {
  ScalingCurve curve;
  curve.network = fields.Text("model");
  const absl::optional<double> bucket = fields.Number("baseline_bucket_mb"),
                               seconds = fields.Number("p75_s");
  if (!seconds.has_value()) return;
  curve.cluster = "pytorch DGX V100";
  curve.group = absl::StrCat(curve.cluster, " buckets of ", bucket.value_or(0), " MB");
  curve.setting.schedule = OverlapSchedule::kBucketed;
  curve.setting.devices_per_host = 8;
  curves.Add(absl::StrCat(curve.group, " ", curve.network), curve, fields.Integer("gpus"),
             *seconds);
}

void ReadCaffe(Fields& fields, Curves& curves) {
  const std::string framework = fields.Text("framework"), device = fields.Text("gpu");
  const absl::optional<double> rate = fields.Number("images_per_sec");
  const int devices = fields.Integer("gpus");
  if (!rate.has_value()) return;  // Source A prints speedups at one n only.
  ScalingCurve curve;
  curve.network = fields.Text("model");
  curve.cluster = absl::StrCat("dell ", device);
  curve.group = absl::StrCat(curve.cluster, " ", framework);
  curve.setting.schedule =
      framework == "MXNet" ? OverlapSchedule::kParameterServer : OverlapSchedule::kBulkSynchronous;
  curve.setting.devices_per_host = 4;
  curves.Add(absl::StrCat(curve.group, " ", curve.network), curve, devices, devices / *rate);
}

void ReadBcaffe(Fields& fields, Curves& curves) {
  const std::string method = fields.Text("method"), expression = fields.Text("expression");
  const absl::optional<double> batch = fields.Number("batch");
  const int nodes = fields.Integer("nodes");
  // "74.83*2*2": images per second of a device, devices per node, nodes.
  double device_rate = 0;
  if (!absl::SimpleAtod(expression.substr(0, expression.find('*')), &device_rate)) return;
  if (!batch.has_value() || !(device_rate > 0)) return;
  ScalingCurve curve;
  curve.network = fields.Text("model");
  curve.cluster = "b-caffe";
  curve.group = absl::StrCat(curve.cluster, " ", method);
  curve.setting.schedule = method == "WFBP"      ? OverlapSchedule::kWaitFree
                           : method == "MG-WFBP" ? OverlapSchedule::kBucketed
                                                 : OverlapSchedule::kBulkSynchronous;
  curve.setting.devices_per_host = 1;  // Counted in hosts.
  curve.batch = *batch;
  curves.Add(absl::StrCat(curve.group, " ", curve.network), curve, nodes, *batch / device_rate);
}

struct TableFile {
  const char* name;
  RowReader read;
};

constexpr TableFile kFiles[] = {
    {"ddl_benchmarks_throughput.csv", &ReadDdlBenchmarks},
    {"tensorflow_benchmarks_2017.csv", &ReadTensorFlow},
    {"mxnet_p2_16xlarge_scaling.csv", &ReadMxnetP2},
    {"nvidia_resnet50_scaling.csv", &ReadNvidia},
    {"pytorch_ddp_v100.csv", &ReadPytorchDdp},
    {"pytorch_ddp_bucket_sizes.csv", &ReadPytorchBuckets},
    {"caffe_mpi_and_nvcaffe.csv", &ReadCaffe},
    {"bcaffe_measured_speed.csv", &ReadBcaffe},
};

}  // namespace

absl::StatusOr<std::vector<ScalingCurve>> ReadScalingCurves(
    const std::string& folder, const std::function<void(const std::string&)>& skip) {
  Curves curves;
  for (const TableFile& file : kFiles) {
    absl::StatusOr<CsvTable> table = CsvTable::Read(absl::StrCat(folder, "/", file.name));
    if (absl::IsNotFound(table.status())) {
      skip(file.name);
      continue;
    }
    if (!table.ok()) return table.status();
    for (const CsvRow& row : table->rows()) {
      Fields fields(row);
      file.read(fields, curves);
      if (!fields.status().ok()) return fields.status();
    }
  }
  return curves.Take();
}

}  // namespace paceline
