#include "coordinator/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "coordinator/plan/builtin_plans.h"
#include "coordinator/plan/parse_plan.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "models/frameworks/policies.h"
#include "models/networks/network.h"
#include "proto/support/closest_name.h"
#include "proto/support/text_proto.h"
#include "proto/support/working_directory.h"
#include "tools/embedded_file.h"

namespace paceline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Locations = google::protobuf::TextFormat::ParseInfoTree;

// More trials than anyone can wait for are a mistake in the plan.
constexpr int64_t kMaxTrials = 100000;
constexpr int kMaxDevices = 65536;

// Where a field stands: its path for the user and its line in the text.
struct Place {
  const Descriptor* type = nullptr;
  const Locations* locations = nullptr;  // Null if there is no text.
  std::string path;
  int line = 0;  // 1-based; 0: unknown.

  // A field of this message. A field that is not in the text has the message's line.
  Place Field(const std::string& name, int index = -1) const {
    const FieldDescriptor* field = type->FindFieldByName(name);
    Place child;
    child.type = field->message_type();
    child.path = absl::StrCat(path, path.empty() ? "" : ".", name,
                              index < 0 ? "" : absl::StrCat("[", index, "]"));
    child.line = line;
    if (locations == nullptr || (field->is_repeated() && index < 0)) return child;
    if (child.type != nullptr) {
      // The parser files a repeated field's nested trees and locations by their number.
      child.locations = locations->GetTreeForNested(field, index);
    }
    // Of the values of a list, [a, b], only the first has a location.
    for (int i = index; i >= std::min(index, 0); --i) {
      const auto location = locations->GetLocation(field, i);
      if (location.line >= 0) {
        child.line = location.line + 1;
        break;
      }
    }
    return child;
  }
};

// Names that sweeps may use, each loaded once.
struct Catalogue {
  std::map<std::string, absl::StatusOr<v1::Network>, std::less<>> networks;
  std::map<std::string, absl::StatusOr<v1::FrameworkPolicy>, std::less<>> policies;

  explicit Catalogue(const v1::BenchmarkPlan& plan) : plan_(plan) {}

  const absl::StatusOr<v1::Network>& Network(const std::string& name) {
    auto known = networks.find(name);
    if (known != networks.end()) return known->second;
    return networks.emplace(name, FindNetwork(name)).first->second;
  }
  const absl::StatusOr<v1::FrameworkPolicy>& Policy(const std::string& name) {
    auto known = policies.find(name);
    if (known != policies.end()) return known->second;
    return policies.emplace(name, FindPolicy(name)).first->second;
  }

 private:
  absl::StatusOr<v1::Network> FindNetwork(const std::string& name) const {
    for (const v1::Network& network : plan_.networks()) {
      if (network.name() == name) return network;
    }
    absl::StatusOr<v1::Network> network = LoadNetwork(name);
    if (network.status().code() != absl::StatusCode::kNotFound || plan_.networks().empty()) {
      return network;
    }
    std::vector<std::string> carried;
    for (const v1::Network& candidate : plan_.networks()) carried.push_back(candidate.name());
    return absl::NotFoundError(absl::StrCat(network.status().message(), "; in this plan",
                                            DidYouMean(name, carried), ": ",
                                            absl::StrJoin(carried, ", ")));
  }
  absl::StatusOr<v1::FrameworkPolicy> FindPolicy(const std::string& name) const {
    for (const v1::FrameworkPolicy& policy : plan_.policies()) {
      if (policy.name() == name) return policy;
    }
    absl::StatusOr<v1::FrameworkPolicy> policy = LoadPolicy(name);
    if (policy.status().code() != absl::StatusCode::kNotFound || plan_.policies().empty()) {
      return policy;
    }
    std::vector<std::string> carried;
    for (const v1::FrameworkPolicy& candidate : plan_.policies()) {
      carried.push_back(candidate.name());
    }
    return absl::NotFoundError(absl::StrCat(policy.status().message(), "; in this plan",
                                            DidYouMean(name, carried), ": ",
                                            absl::StrJoin(carried, ", ")));
  }

  const v1::BenchmarkPlan& plan_;
};

bool IsEmpty(const google::protobuf::Message& message) { return message.ByteSizeLong() == 0; }

// The policy that a sweep runs: `base` with the sweep's changes.
v1::FrameworkPolicy ApplyOverride(v1::FrameworkPolicy base, const v1::Sweep& sweep) {
  if (!sweep.has_policy_override() && sweep.override_name().empty()) return base;
  const std::string name = absl::StrCat(base.name(), "/", sweep.override_name());
  base.MergeFrom(sweep.policy_override());
  base.set_name(name);
  return base;
}

class Validator {
 public:
  Validator(const v1::BenchmarkPlan& plan, const Locations* locations)
      : plan_(plan), catalogue_(plan) {
    root_.type = v1::BenchmarkPlan::descriptor();
    root_.locations = locations;
    root_.line = locations == nullptr ? 0 : 1;
  }

  PlanProblems Run() {
    CheckName(root_.Field("name"), plan_.name(), "for example name: \"scaling\"");
    CheckCarried();
    if (plan_.sweeps().empty()) {
      Add(root_.Field("sweeps"), "at least one sweep is required; see docs/plans.md for examples");
    }
    for (int i = 0; i < plan_.sweeps_size(); ++i) {
      CheckSweep(root_.Field("sweeps", i), plan_.sweeps(i));
    }
    CheckMeasurement(root_.Field("measurement"), plan_.measurement());
    const Place failure = root_.Field("failure");
    CheckNotNegative(failure.Field("max_attempts"), plan_.failure().max_attempts());
    CheckNotNegative(failure.Field("trial_timeout_seconds"),
                     plan_.failure().trial_timeout_seconds());
    if (trials_ > kMaxTrials) {
      Add(root_.Field("sweeps"), absl::StrCat("the plan expands to ", trials_, " trials; at most ",
                                              kMaxTrials, " are possible"));
    }
    return std::move(problems_);
  }

 private:
  void Add(const Place& place, absl::string_view message, bool about_zero = false) {
    problems_.push_back({place.line, place.path, std::string(message), about_zero});
  }
  void CheckName(const Place& place, const std::string& name, absl::string_view example) {
    if (name.empty()) {
      Add(place, absl::StrCat("required: ", example));
      return;
    }
    for (const char c : name) {
      if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.') {
        Add(place,
            absl::StrCat("'", name, "': only letters, digits, '_', '-' and '.' are allowed"));
        return;
      }
    }
  }
  void CheckNotNegative(const Place& place, double value) {
    if (!std::isfinite(value) || value < 0) {
      Add(place,
          absl::StrCat("must not be negative, is ", value, " (leave it out for the default)"));
    }
  }

  // Networks and policies carried inline.
  void CheckCarried() {
    const std::vector<std::string> networks = KnownNetworks();
    std::set<std::string> seen(networks.begin(), networks.end());
    for (int i = 0; i < plan_.networks_size(); ++i) {
      const v1::Network& network = plan_.networks(i);
      const Place place = root_.Field("networks", i);
      if (network.name().empty()) {
        Add(place.Field("name"), "required");
      } else if (!seen.insert(network.name()).second) {
        Add(place.Field("name"),
            absl::StrCat("'", network.name(),
                         "' is the name of another network; choose a new one"));
      }
      const absl::Status status = InferShapes(network).status();
      if (!status.ok()) Add(place, status.message());
    }
    const std::vector<std::string> policies = KnownPolicies();
    seen = std::set<std::string>(policies.begin(), policies.end());
    for (int i = 0; i < plan_.policies_size(); ++i) {
      const v1::FrameworkPolicy& policy = plan_.policies(i);
      const Place place = root_.Field("policies", i);
      if (policy.name().empty()) {
        Add(place.Field("name"), "required");
      } else if (!seen.insert(policy.name()).second) {
        Add(place.Field("name"),
            absl::StrCat("'", policy.name(), "' is the name of another policy; choose a new one"));
      }
      const absl::Status status = ValidatePolicy(policy);
      if (!status.ok()) Add(place, status.message());
    }
  }

  void CheckSweep(const Place& place, const v1::Sweep& sweep) {
    Require(place, "networks", sweep.networks_size(), "networks: \"resnet50_v1.5\"");
    for (int i = 0; i < sweep.networks_size(); ++i) {
      const absl::Status& status = catalogue_.Network(sweep.networks(i)).status();
      if (!status.ok()) Add(place.Field("networks", i), status.message());
    }
    Require(place, "policies", sweep.policies_size(), "policies: \"cntk\"");
    const bool overridden = sweep.has_policy_override() && !IsEmpty(sweep.policy_override());
    if (overridden) {
      CheckName(place.Field("override_name"), sweep.override_name(),
                "with policy_override the results need a name of their own, for example "
                "override_name: \"bucket4mb\"");
      if (!sweep.policy_override().name().empty()) {
        Add(place.Field("policy_override").Field("name"), "use override_name instead");
      }
    } else if (!sweep.override_name().empty()) {
      Add(place.Field("override_name"), "has a meaning only with policy_override");
    }
    for (int i = 0; i < sweep.policies_size(); ++i) {
      const absl::StatusOr<v1::FrameworkPolicy>& policy = catalogue_.Policy(sweep.policies(i));
      if (!policy.ok()) {
        Add(place.Field("policies", i), policy.status().message());
      } else if (overridden) {
        const absl::Status status = ValidatePolicy(ApplyOverride(*policy, sweep));
        if (!status.ok()) {
          Add(place.Field("policy_override"),
              absl::StrCat("applied to '", sweep.policies(i), "': ", status.message()));
        }
      }
    }
    if (sweep.devices_per_host() < 0) {
      Add(place.Field("devices_per_host"), "must not be negative (0: the coordinator chooses)");
    }
    Require(place, "devices", sweep.devices_size(), "devices: 2");
    for (int i = 0; i < sweep.devices_size(); ++i) {
      const int devices = sweep.devices(i);
      if (devices <= 0 || devices > kMaxDevices) {
        Add(place.Field("devices", i),
            absl::StrCat("must be from 1 to ", kMaxDevices, ", is ", devices), devices == 0);
      } else if (sweep.devices_per_host() > 0 && devices > sweep.devices_per_host() &&
                 devices % sweep.devices_per_host() != 0) {
        Add(place.Field("devices", i),
            absl::StrCat(devices, " devices cannot be spread evenly over hosts with ",
                         sweep.devices_per_host(), " each (devices_per_host)"));
      }
    }
    Require(place, "batch_per_device", sweep.batch_per_device_size(), "batch_per_device: 16");
    for (int i = 0; i < sweep.batch_per_device_size(); ++i) {
      if (sweep.batch_per_device(i) <= 0) {
        Add(place.Field("batch_per_device", i),
            absl::StrCat("must be positive, is ", sweep.batch_per_device(i)),
            sweep.batch_per_device(i) == 0);
      }
    }
    for (int i = 0; i < sweep.precisions_size(); ++i) {
      CheckEnum<v1::Precision>(place.Field("precisions", i), sweep.precisions(i));
    }
    for (int i = 0; i < sweep.engines_size(); ++i) {
      CheckEnum<v1::Engine>(place.Field("engines", i), sweep.engines(i));
    }
    for (int i = 0; i < sweep.inputs_size(); ++i) {
      CheckInput(place.Field("inputs", i), sweep.inputs(i));
    }
    CheckTraining(place.Field("training"), sweep.training());
    trials_ += int64_t{sweep.networks_size()} * sweep.policies_size() * sweep.devices_size() *
               sweep.batch_per_device_size() * std::max(1, sweep.precisions_size()) *
               std::max(1, sweep.inputs_size()) * std::max(1, sweep.engines_size()) *
               std::max(1, plan_.measurement().repeats());
  }

  void Require(const Place& place, const std::string& field, int count, absl::string_view example) {
    if (count == 0) {
      Add(place.Field(field), absl::StrCat("at least one is required, for example ", example));
    }
  }

  template <typename Enum>
  void CheckEnum(const Place& place, int value) {
    const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
    if (value != 0 && type->FindValueByNumber(value) != nullptr) return;
    std::vector<std::string> known;
    for (int i = 0; i < type->value_count(); ++i) {
      if (type->value(i)->number() != 0) known.push_back(type->value(i)->name());
    }
    Add(place, absl::StrCat("must be one of ", absl::StrJoin(known, ", ")), value == 0);
  }

  void CheckInput(const Place& place, const v1::InputSource& input) {
    switch (input.source_case()) {
      case v1::InputSource::SOURCE_NOT_SET:
        Add(place, "one of synthetic {}, image_folder, lmdb, photographs {} is required");
        break;
      case v1::InputSource::kImageFolder:
        if (input.image_folder().empty()) Add(place.Field("image_folder"), "a path is required");
        break;
      case v1::InputSource::kLmdb:
        if (input.lmdb().empty()) Add(place.Field("lmdb"), "a path is required");
        break;
      case v1::InputSource::kPhotographs:
        if (input.photographs().images() < 0) {
          Add(place.Field("photographs").Field("images"), "must not be negative");
        }
        break;
      case v1::InputSource::kSynthetic:
        break;
    }
    if (!(input.max_corrupt_fraction() >= 0 && input.max_corrupt_fraction() <= 1)) {
      Add(place.Field("max_corrupt_fraction"),
          absl::StrCat("must be from 0 to 1, is ", input.max_corrupt_fraction()));
    }
  }

  void CheckTraining(const Place& place, const v1::TrainingSettings& training) {
    CheckNotNegative(place.Field("learning_rate"), training.learning_rate());
    if (!(training.momentum() < 1)) {
      Add(place.Field("momentum"),
          absl::StrCat("must be below 1, is ", training.momentum(), " (negative: no momentum)"));
    }
    if (!(training.weight_decay() < 1)) {
      Add(place.Field("weight_decay"),
          absl::StrCat("must be below 1, is ", training.weight_decay(), " (negative: no decay)"));
    }
  }

  void CheckMeasurement(const Place& place, const v1::MeasurementSettings& measurement) {
    CheckNotNegative(place.Field("min_warmup_iterations"), measurement.min_warmup_iterations());
    CheckNotNegative(place.Field("min_iterations"), measurement.min_iterations());
    CheckNotNegative(place.Field("max_iterations"), measurement.max_iterations());
    CheckNotNegative(place.Field("max_measure_seconds"), measurement.max_measure_seconds());
    if (measurement.max_iterations() > 0 &&
        measurement.max_iterations() < measurement.min_iterations()) {
      Add(place.Field("max_iterations"),
          absl::StrCat("is ", measurement.max_iterations(), ", less than min_iterations (",
                       measurement.min_iterations(), ")"));
    }
    if (!(measurement.target_half_width() >= 0 && measurement.target_half_width() < 1)) {
      Add(place.Field("target_half_width"),
          absl::StrCat("is a share of the median, from 0 to below 1 (0.02 is 2 %), is ",
                       measurement.target_half_width()));
    }
    if (measurement.repeats() < 0 || measurement.repeats() > 1000) {
      Add(place.Field("repeats"),
          absl::StrCat("must be from 1 to 1000, is ", measurement.repeats()));
    }
  }

  const v1::BenchmarkPlan& plan_;
  Catalogue catalogue_;
  Place root_;
  PlanProblems problems_;
  int64_t trials_ = 0;
};

absl::Status ToStatus(PlanProblems problems, absl::string_view source_name) {
  if (problems.empty()) return absl::OkStatus();
  std::stable_sort(problems.begin(), problems.end(),
                   [](const PlanProblem& a, const PlanProblem& b) { return a.line < b.line; });
  std::vector<std::string> lines;
  for (const PlanProblem& problem : problems) {
    std::string line =
        source_name.empty()
            ? ""
            : absl::StrCat(source_name, ":",
                           problem.line > 0 ? absl::StrCat(problem.line, ":") : "", " ");
    if (!problem.field.empty()) absl::StrAppend(&line, problem.field, ": ");
    lines.push_back(absl::StrCat(line, problem.message));
  }
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

// Fills in the documented defaults.
v1::MeasurementSettings ResolveMeasurement(v1::MeasurementSettings settings) {
  if (settings.min_warmup_iterations() == 0) settings.set_min_warmup_iterations(3);
  if (settings.min_iterations() == 0) {
    settings.set_min_iterations(
        settings.max_iterations() > 0 ? std::min(8, settings.max_iterations()) : 8);
  }
  if (settings.max_iterations() == 0) {
    settings.set_max_iterations(std::max(100, settings.min_iterations()));
  }
  if (settings.target_half_width() == 0) settings.set_target_half_width(0.02);
  if (settings.repeats() == 0) settings.set_repeats(1);
  if (settings.max_measure_seconds() == 0) settings.set_max_measure_seconds(60);
  settings.set_check_replicas(true);
  return settings;
}

v1::FailureSettings ResolveFailure(v1::FailureSettings settings) {
  if (settings.max_attempts() == 0) settings.set_max_attempts(3);
  if (settings.trial_timeout_seconds() == 0) settings.set_trial_timeout_seconds(600);
  return settings;
}

v1::TrainingSettings ResolveTraining(v1::TrainingSettings settings) {
  if (settings.learning_rate() == 0) settings.set_learning_rate(0.001);
  if (settings.momentum() == 0) settings.set_momentum(0.9);
  if (settings.weight_decay() == 0) settings.set_weight_decay(5e-4);
  if (settings.seed() == 0) settings.set_seed(1);
  return settings;
}

v1::InputSource ResolveInput(v1::InputSource input) {
  if (input.source_case() == v1::InputSource::SOURCE_NOT_SET) input.mutable_synthetic();
  if (input.has_photographs() && input.photographs().images() == 0) {
    input.mutable_photographs()->set_images(512);
  }
  // Workers run in other directories, or on other hosts where the same path is meant.
  if (!input.image_folder().empty()) input.set_image_folder(ResolveUserPath(input.image_folder()));
  if (!input.lmdb().empty()) input.set_lmdb(ResolveUserPath(input.lmdb()));
  if (input.max_corrupt_fraction() == 0) input.set_max_corrupt_fraction(0.01);
  return input;
}

v1::ClusterShape ResolveCluster(int devices, int devices_per_host) {
  v1::ClusterShape cluster;
  if (devices_per_host == 0) {
    cluster.set_hosts(1);
    cluster.set_devices_per_host(devices);
    cluster.set_free_placement(devices > 1);
  } else {
    cluster.set_devices_per_host(std::min(devices, devices_per_host));
    cluster.set_hosts(devices / cluster.devices_per_host());
  }
  return cluster;
}

}  // namespace

std::string ConfigurationId(const v1::Trial& trial) {
  v1::Trial canonical = trial;
  canonical.clear_trial_id();
  canonical.clear_configuration_id();
  canonical.clear_plan_name();
  canonical.clear_index();
  canonical.clear_repeat();
  canonical.mutable_measurement()->clear_repeats();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    canonical.SerializeToCodedStream(&coded);
  }
  // FNV-1a over the bytes, then the finaliser of MurmurHash3, since FNV's high bits mix slowly.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  hash ^= hash >> 33;
  return absl::StrFormat("%016x", hash);
}

absl::StatusOr<v1::BenchmarkPlan> ParsePlan(absl::string_view text, absl::string_view source_name) {
  v1::BenchmarkPlan plan;
  std::unique_ptr<Locations> locations;
  bool complete = false;
  PlanProblems problems = ParsePlanText(text, &plan, &locations, &complete);
  if (complete) {
    std::set<int> misread_lines;
    for (const PlanProblem& problem : problems) misread_lines.insert(problem.line);
    for (PlanProblem& problem : Validator(plan, locations.get()).Run()) {
      // A value that could not be read counts as 0; that it is 0 is no second mistake.
      if (problem.about_zero && misread_lines.count(problem.line) > 0) continue;
      problems.push_back(std::move(problem));
    }
  }
  absl::Status status = ToStatus(std::move(problems), source_name);
  if (!status.ok()) return status;
  return plan;
}

absl::Status ValidatePlan(const v1::BenchmarkPlan& plan) {
  return ToStatus(Validator(plan, nullptr).Run(), "");
}

std::vector<std::string> BuiltinPlanNames() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : BuiltinPlans()) {
    names.emplace_back(absl::StripSuffix(file.name, ".textproto"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<v1::BenchmarkPlan> LoadPlan(absl::string_view file_or_builtin) {
  absl::string_view name = file_or_builtin;
  if (absl::ConsumePrefix(&name, "builtin:")) {
    for (const EmbeddedFile& file : BuiltinPlans()) {
      if (absl::StripSuffix(file.name, ".textproto") == name) {
        return ParsePlan(file.contents, file_or_builtin);
      }
    }
    const std::vector<std::string> known = BuiltinPlanNames();
    return absl::NotFoundError(absl::StrCat("there is no built-in plan '", name, "'",
                                            DidYouMean(name, known),
                                            "; built-in plans: ", absl::StrJoin(known, ", ")));
  }
  absl::StatusOr<std::string> text = ReadFile(ResolveUserPath(file_or_builtin));
  if (!text.ok()) {
    if (text.status().code() != absl::StatusCode::kNotFound) return text.status();
    return absl::NotFoundError(absl::StrCat(
        text.status().message(), "; give the path of a plan, or one of the built-in plans builtin:",
        absl::StrJoin(BuiltinPlanNames(), ", builtin:")));
  }
  return ParsePlan(*text, file_or_builtin);
}

absl::StatusOr<std::vector<v1::Trial>> ExpandPlan(const v1::BenchmarkPlan& plan) {
  absl::Status status = ValidatePlan(plan);
  if (!status.ok()) return status;
  Catalogue catalogue(plan);
  std::vector<v1::Trial> configurations;
  absl::flat_hash_set<std::string> seen;
  const v1::MeasurementSettings measurement = ResolveMeasurement(plan.measurement());
  // Adds the sweep's product over what follows the devices.
  auto add = [&](v1::Trial trial, const v1::Sweep& sweep) {
    for (const int batch : sweep.batch_per_device()) {
      trial.set_batch_per_device(batch);
      for (int p = 0; p < std::max(1, sweep.precisions_size()); ++p) {
        trial.set_precision(sweep.precisions().empty() ? v1::PRECISION_FP32 : sweep.precisions(p));
        for (int i = 0; i < std::max(1, sweep.inputs_size()); ++i) {
          *trial.mutable_input() =
              ResolveInput(sweep.inputs().empty() ? v1::InputSource() : sweep.inputs(i));
          for (int e = 0; e < std::max(1, sweep.engines_size()); ++e) {
            trial.set_engine(sweep.engines().empty() ? v1::ENGINE_NATIVE : sweep.engines(e));
            trial.set_configuration_id(ConfigurationId(trial));
            if (seen.insert(trial.configuration_id()).second) configurations.push_back(trial);
          }
        }
      }
    }
  };
  for (const v1::Sweep& sweep : plan.sweeps()) {
    v1::Trial trial;
    trial.set_plan_name(plan.name());
    *trial.mutable_measurement() = measurement;
    *trial.mutable_failure() = ResolveFailure(plan.failure());
    *trial.mutable_training() = ResolveTraining(sweep.training());
    for (const std::string& network : sweep.networks()) {
      *trial.mutable_network() = *catalogue.Network(network);
      for (const std::string& policy : sweep.policies()) {
        *trial.mutable_policy() = ApplyOverride(*catalogue.Policy(policy), sweep);
        for (const int devices : sweep.devices()) {
          *trial.mutable_cluster() = ResolveCluster(devices, sweep.devices_per_host());
          add(trial, sweep);
        }
      }
    }
  }
  std::vector<v1::Trial> trials;
  trials.reserve(configurations.size() * measurement.repeats());
  for (int repeat = 0; repeat < measurement.repeats(); ++repeat) {
    for (const v1::Trial& configuration : configurations) {
      v1::Trial& trial = trials.emplace_back(configuration);
      trial.set_repeat(repeat);
      trial.set_index(static_cast<int>(trials.size()) - 1);
      trial.set_trial_id(absl::StrCat(trial.configuration_id(), "-r", repeat));
    }
  }
  return trials;
}

std::string DescribeTrial(const v1::Trial& trial) {
  const int devices = trial.cluster().hosts() * trial.cluster().devices_per_host();
  std::string text =
      absl::StrCat(trial.network().name(), ", ", trial.policy().name(), ", ", devices,
                   devices == 1 ? " device" : " devices", ", batch ", trial.batch_per_device());
  if (trial.precision() != v1::PRECISION_FP32) {
    absl::StrAppend(&text, ", ",
                    absl::AsciiStrToLower(
                        absl::StripPrefix(v1::Precision_Name(trial.precision()), "PRECISION_")));
  }
  if (trial.engine() != v1::ENGINE_NATIVE) {
    absl::StrAppend(
        &text, ", ",
        absl::AsciiStrToLower(absl::StripPrefix(v1::Engine_Name(trial.engine()), "ENGINE_")));
  }
  if (trial.repeat() > 0) absl::StrAppend(&text, ", repeat ", trial.repeat() + 1);
  return text;
}

}  // namespace paceline
