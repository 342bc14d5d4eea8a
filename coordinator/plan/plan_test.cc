#include "coordinator/plan/plan.h"

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/frameworks/policies.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kPlan[] = R"pb(
  name: "test"
  sweeps {
    networks: [ "lenet5", "cifar_resnet20" ]
    policies: [ "caffe_mpi", "cntk" ]
    devices: [ 1, 2 ]
    batch_per_device: 8
  }
  measurement { repeats: 2 }
)pb";

v1::BenchmarkPlan Parse(absl::string_view text) {
  auto plan = ParsePlan(text, "plan.textproto");
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : v1::BenchmarkPlan();
}

std::vector<v1::Trial> Expand(absl::string_view text) {
  auto trials = ExpandPlan(Parse(text));
  EXPECT_TRUE(trials.ok()) << trials.status();
  return trials.ok() ? *trials : std::vector<v1::Trial>();
}

// The lines of the error that `text` gives.
std::vector<std::string> Problems(absl::string_view text) {
  const absl::Status status = ParsePlan(text, "plan.textproto").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return absl::StrSplit(status.message(), '\n');
}

TEST(ExpandPlanTest, InterleavesRepeatsAndResolvesDefaults) {
  const std::vector<v1::Trial> trials = Expand(kPlan);
  ASSERT_EQ(trials.size(), 16);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(trials[i].index(), i);
    EXPECT_EQ(trials[i].repeat(), i / 8);
    EXPECT_EQ(trials[i].configuration_id(), trials[i % 8].configuration_id());
    EXPECT_EQ(trials[i].trial_id(), absl::StrCat(trials[i].configuration_id(), "-r", i / 8));
  }
  EXPECT_EQ(DescribeTrial(trials[0]), "lenet5, caffe_mpi, 1 device, batch 8");
  EXPECT_EQ(DescribeTrial(trials[3]), "lenet5, cntk, 2 devices, batch 8");
  EXPECT_EQ(DescribeTrial(trials[15]), "cifar_resnet20, cntk, 2 devices, batch 8, repeat 2");
  const v1::Trial& trial = trials[3];
  EXPECT_FALSE(trial.network().layers().empty());
  EXPECT_TRUE(trial.policy().has_communication());
  EXPECT_EQ(trial.cluster().hosts(), 1);
  EXPECT_EQ(trial.cluster().devices_per_host(), 2);
  EXPECT_TRUE(trial.cluster().free_placement());
  EXPECT_EQ(trial.precision(), v1::PRECISION_FP32);
  EXPECT_EQ(trial.engine(), v1::ENGINE_NATIVE);
  EXPECT_TRUE(trial.input().has_synthetic());
  EXPECT_EQ(trial.input().max_corrupt_fraction(), 0.01);
  EXPECT_EQ(trial.training().learning_rate(), 0.001);
  EXPECT_EQ(trial.training().momentum(), 0.9);
  EXPECT_EQ(trial.training().seed(), 1);
  EXPECT_EQ(trial.measurement().min_warmup_iterations(), 3);
  EXPECT_EQ(trial.measurement().min_iterations(), 8);
  EXPECT_EQ(trial.measurement().max_iterations(), 100);
  EXPECT_EQ(trial.measurement().target_half_width(), 0.02);
  EXPECT_EQ(trial.failure().max_attempts(), 3);
  EXPECT_EQ(trial.failure().trial_timeout_seconds(), 600);
}

TEST(ExpandPlanTest, IdsAreStableAndDistinct) {
  const std::vector<v1::Trial> once = Expand(kPlan);
  std::set<std::string> ids;
  for (const v1::Trial& trial : once) ids.insert(trial.trial_id());
  EXPECT_EQ(ids.size(), once.size());
  // The plan's name, place in the plan and number of repeats do not make another configuration.
  const std::vector<v1::Trial> other = Expand(R"pb(
    name: "other"
    sweeps { networks: "lenet5" policies: "cntk" devices: 2 batch_per_device: 8 })pb");
  ASSERT_EQ(other.size(), 1);
  EXPECT_EQ(other[0].trial_id(), once[3].trial_id());
  // The hash itself must not change between versions without reason: results of old runs would no
  // longer belong to the same configuration.
  v1::Trial trial;
  trial.set_batch_per_device(16);
  EXPECT_EQ(ConfigurationId(trial), "9299b57c933a1e42");
}

TEST(ExpandPlanTest, MergesEqualConfigurations) {
  EXPECT_EQ(Expand(R"pb(
              name: "t"
              sweeps {
                networks: "lenet5"
                policies: "cntk"
                devices: [ 1, 1 ]
                batch_per_device: 8
              }
              sweeps {
                networks: "lenet5"
                policies: "cntk"
                devices: [ 1, 2 ]
                batch_per_device: 8
                precisions: PRECISION_FP32
                inputs { synthetic {} }
              })pb")
                .size(),
            2);
}

TEST(ExpandPlanTest, AppliesOverridesFieldByField) {
  const std::vector<v1::Trial> trials = Expand(R"pb(
    name: "t"
    sweeps {
      networks: "lenet5"
      policies: [ "pytorch_ddp", "bsp" ]
      devices: 2
      batch_per_device: 8
      policy_override { communication { grouping { by_bytes { bytes: 4194304 } } } }
      override_name: "bucket4mb"
    })pb");
  ASSERT_EQ(trials.size(), 2);
  EXPECT_EQ(trials[0].policy().name(), "pytorch_ddp/bucket4mb");
  EXPECT_EQ(trials[0].policy().communication().grouping().by_bytes().bytes(), 4194304);
  EXPECT_EQ(trials[0].policy().communication().grouping().by_bytes().first_bytes(), 1 << 20);
  EXPECT_EQ(trials[1].policy().name(), "bsp/bucket4mb");
  EXPECT_TRUE(trials[1].policy().communication().grouping().has_by_bytes());
}

TEST(ExpandPlanTest, LaysDevicesOnHosts) {
  const std::vector<v1::Trial> trials = Expand(R"pb(
    name: "t"
    sweeps {
      networks: "lenet5"
      policies: "cntk"
      devices: [ 1, 2, 4 ]
      devices_per_host: 2
      batch_per_device: 8
    })pb");
  ASSERT_EQ(trials.size(), 3);
  EXPECT_EQ(trials[0].cluster().hosts(), 1);
  EXPECT_EQ(trials[0].cluster().devices_per_host(), 1);
  EXPECT_EQ(trials[2].cluster().hosts(), 2);
  EXPECT_EQ(trials[2].cluster().devices_per_host(), 2);
  EXPECT_FALSE(trials[2].cluster().free_placement());
}

TEST(ParsePlanTest, GivesAllMistakesWithFieldsAndLines) {
  const std::vector<std::string> problems = Problems(R"(name: "my plan"
sweeps {
  networks: "lenet5"
  networks: "resnet5"
  policies: "cntkk"
  devices: [2, -1]
  batch_per_device: 0
  precisions: FP32
  batchsize: 3
}
measurement { target_half_width: 2 }
)");
  EXPECT_THAT(
      problems,
      ElementsAre(
          AllOf(StartsWith("plan.textproto:1: name: 'my plan': "), HasSubstr("only letters")),
          AllOf(StartsWith("plan.textproto:4: sweeps[0].networks[1]: unknown network 'resnet5'"),
                HasSubstr("did you mean 'resnet50_v1"), HasSubstr("lenet5")),
          AllOf(StartsWith("plan.textproto:5: sweeps[0].policies[0]: "),
                HasSubstr("did you mean 'cntk'"), HasSubstr("horovod")),
          StartsWith("plan.textproto:6: sweeps[0].devices[1]: must be from 1 to"),
          StartsWith("plan.textproto:7: sweeps[0].batch_per_device[0]: must be positive, is 0"),
          AllOf(StartsWith("plan.textproto:8: precisions: unknown value 'FP32'"),
                HasSubstr("did you mean 'PRECISION_FP32'")),
          AllOf(StartsWith("plan.textproto:9: unknown field 'batchsize' in Sweep"),
                HasSubstr("batch_per_device")),
          StartsWith("plan.textproto:11: measurement.target_half_width: ")));
}

TEST(ParsePlanTest, GoesOnBehindAWrongNumber) {
  const std::vector<std::string> problems = Problems(R"(name: "p"
sweeps {
  networks: "lenet5" policies: "cntk"
  devices: "two"
  batch_per_device: many
}
failure { max_attempts: -1 }
)");
  EXPECT_THAT(problems, ElementsAre(StartsWith("plan.textproto:4: Expected integer"),
                                    StartsWith("plan.textproto:5: Expected integer"),
                                    StartsWith("plan.textproto:7: failure.max_attempts: ")));
}

TEST(ParsePlanTest, NamesTheLineWhereTheTextBreaksOff) {
  EXPECT_THAT(Problems("name: \"p\"\nsweeps {\n  devices: 1\n"),
              ElementsAre(StartsWith("plan.textproto:4: ")));
}

TEST(ParsePlanTest, SaysWhatIsMissing) {
  EXPECT_THAT(Problems("sweeps {}"),
              ElementsAre(StartsWith("plan.textproto:1: name: required"),
                          StartsWith("plan.textproto:1: sweeps[0].networks: at least one"),
                          StartsWith("plan.textproto:1: sweeps[0].policies: at least one"),
                          StartsWith("plan.textproto:1: sweeps[0].devices: at least one"),
                          StartsWith("plan.textproto:1: sweeps[0].batch_per_device: at least")));
  EXPECT_THAT(Problems("name: \"p\""), ElementsAre(HasSubstr("sweeps: at least one sweep")));
}

TEST(ParsePlanTest, ChecksInlineNetworksAndPolicies) {
  EXPECT_THAT(Problems(R"(name: "p"
sweeps { networks: "mine" policies: "cntk" devices: 1 batch_per_device: 1 }
networks { name: "lenet5" }
policies { name: "mine" }
)"),
              ::testing::Contains(AllOf(StartsWith("plan.textproto:3: networks[0].name: "),
                                        HasSubstr("name of another network"))));
}

TEST(ParsePlanTest, ChecksOverridesOnEveryPolicy) {
  EXPECT_THAT(
      Problems(R"(name: "p"
sweeps {
  networks: "lenet5" policies: "bsp" devices: 2 batch_per_device: 1
  policy_override { communication { grouping { repack { parts: -1 } } } }
})"),
      ElementsAre(HasSubstr("override_name: required"),
                  AllOf(StartsWith("plan.textproto:4: sweeps[0].policy_override: applied to "
                                   "'bsp'"),
                        HasSubstr("parts"))));
}

TEST(ParsePlanTest, RefusesUnevenGangsAndEndlessPlans) {
  EXPECT_THAT(Problems(R"(name: "p"
sweeps { networks: "lenet5" policies: "bsp" devices: 3 devices_per_host: 2 batch_per_device: 1 })"),
              ElementsAre(HasSubstr("3 devices cannot be spread evenly")));
  std::vector<std::string> numbers;
  for (int i = 1; i <= 400; ++i) numbers.push_back(absl::StrCat(i));
  const std::string list = absl::StrJoin(numbers, ",");
  EXPECT_THAT(Problems(absl::StrCat("name: \"p\" sweeps { networks: \"lenet5\" policies: \"bsp\" "
                                    "devices: [",
                                    list, "] batch_per_device: [", list, "] }")),
              ElementsAre(HasSubstr("160000 trials")));
}

TEST(ValidatePlanTest, GivesFieldPathsWithoutText) {
  v1::BenchmarkPlan plan = Parse(kPlan);
  plan.mutable_sweeps(0)->set_devices(1, -4);
  const absl::Status status = ValidatePlan(plan);
  EXPECT_THAT(std::string(status.message()), StartsWith("sweeps[0].devices[1]: must be from 1"));
  EXPECT_EQ(ExpandPlan(plan).status(), status);
}

TEST(LoadPlanTest, EveryBuiltinPlanExpands) {
  EXPECT_THAT(BuiltinPlanNames(), ElementsAre("default", "policies", "precision", "quick"));
  for (const std::string& name : BuiltinPlanNames()) {
    auto plan = LoadPlan("builtin:" + name);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->name(), name);
    EXPECT_FALSE(plan->description().empty());
    EXPECT_TRUE(ExpandPlan(*plan).ok());
  }
  EXPECT_EQ(ExpandPlan(*LoadPlan("builtin:default"))->size(), 24);
}

TEST(LoadPlanTest, PoliciesPlanRunsEveryPolicy) {
  std::set<std::string> run;
  const auto trials = ExpandPlan(*LoadPlan("builtin:policies"));
  ASSERT_TRUE(trials.ok()) << trials.status();
  for (const v1::Trial& trial : *trials) {
    run.insert(trial.policy().name());
  }
  const std::vector<std::string> known = KnownPolicies();
  EXPECT_EQ(run, std::set<std::string>(known.begin(), known.end()));
}

TEST(LoadPlanTest, NamesTheBuiltinPlans) {
  const absl::Status unknown = LoadPlan("builtin:quik").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr("did you mean 'quick'"), HasSubstr("default")));
  const absl::Status missing = LoadPlan("missing.textproto").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("builtin:quick"));
}

TEST(LoadPlanTest, ReadsFiles) {
  const std::string path = testing::TempDir() + "/plan.textproto";
  ASSERT_TRUE(WriteFile(kPlan, path).ok());
  EXPECT_TRUE(LoadPlan(path).ok());
}

}  // namespace
}  // namespace paceline
