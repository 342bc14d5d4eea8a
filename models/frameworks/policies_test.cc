#include "models/frameworks/policies.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/paceline/v1/policy.pb.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using v1::CommunicationPolicy;
using v1::FrameworkPolicy;

TEST(PoliciesTest, KnowsTheFrameworksOfThePlan) {
  EXPECT_THAT(KnownPolicies(),
              IsSupersetOf({"bsp", "caffe_mpi", "cntk", "horovod", "mg_wfbp", "mxnet_device",
                            "mxnet_dist_device_sync", "mxnet_dist_sync", "pytorch_ddp",
                            "tensorflow_collective_all_reduce", "tensorflow_distributed_replicated",
                            "tensorflow_parameter_server", "tensorflow_replicated", "wfbp"}));
}

TEST(PoliciesTest, EveryBuiltInPolicyIsValidAndNamedAsItsFile) {
  for (const std::string& name : KnownPolicies()) {
    absl::StatusOr<FrameworkPolicy> policy = LoadPolicy(name);
    ASSERT_TRUE(policy.ok()) << policy.status();
    EXPECT_EQ(policy->name(), name);
    EXPECT_FALSE(policy->title().empty()) << name;
    EXPECT_FALSE(policy->version().empty()) << name;
    EXPECT_GT(policy->sources_size(), 0) << name << " does not say where its facts come from";
  }
}

TEST(PoliciesTest, UnknownNameGetsTheClosestAndTheKnownOnes) {
  const absl::Status status = LoadPolicy("pytorch_dpd").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("unknown policy 'pytorch_dpd'"),
                    HasSubstr("did you mean 'pytorch_ddp'"), HasSubstr("mxnet_device")));
}

TEST(PoliciesTest, LoadsAFileAndNamesItInErrors) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/mine.textproto");
  FrameworkPolicy policy = *LoadPolicy("wfbp");
  policy.set_name("mine");
  ASSERT_TRUE(WriteTextProtoFile(policy, path).ok());
  absl::StatusOr<FrameworkPolicy> loaded = LoadPolicy(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->name(), "mine");

  policy.clear_update();
  ASSERT_TRUE(WriteTextProtoFile(policy, path).ok());
  EXPECT_THAT(std::string(LoadPolicy(path).status().message()),
              AllOf(HasSubstr("mine.textproto"), HasSubstr("update: required")));
}

TEST(ValidatePolicyTest, ReportsEveryProblemAtOnceWithItsPath) {
  FrameworkPolicy policy = *LoadPolicy("mxnet_dist_sync");
  policy.clear_name();
  policy.mutable_input()->set_prefetch_batches(-1);
  policy.mutable_communication()->mutable_grouping()->mutable_by_bytes()->set_bytes(0);
  policy.mutable_communication()->mutable_server()->clear_placement();
  policy.mutable_update()->set_when(v1::UpdatePolicy::WHEN_AFTER_ALL);
  EXPECT_THAT(std::string(ValidatePolicy(policy).message()),
              AllOf(HasSubstr("name: required"), HasSubstr("input.prefetch_batches: "),
                    HasSubstr("communication.grouping.by_bytes.bytes: must be positive"),
                    HasSubstr("communication.server.placement: required"),
                    HasSubstr("update.when: must be WHEN_AT_OWNER where servers update")));
}

TEST(ValidatePolicyTest, EmptyPolicyNamesEveryRequiredMessage) {
  EXPECT_THAT(std::string(ValidatePolicy(FrameworkPolicy()).message()),
              AllOf(HasSubstr("input: required"), HasSubstr("communication: required"),
                    HasSubstr("update: required")));
}

TEST(ValidatePolicyTest, RejectsCombinationsThatCannotRun) {
  FrameworkPolicy policy = *LoadPolicy("bsp");
  policy.mutable_communication()->mutable_grouping()->mutable_repack()->set_parts(4);
  policy.mutable_update()->set_when(v1::UpdatePolicy::WHEN_PER_GROUP);
  EXPECT_THAT(std::string(ValidatePolicy(policy).message()), HasSubstr("cut through tensors"));

  policy = *LoadPolicy("bsp");
  policy.mutable_communication()->set_owner_rule(CommunicationPolicy::OWNER_RULE_ROUND_ROBIN);
  policy.mutable_communication()->mutable_server()->set_servers(2);
  EXPECT_THAT(std::string(ValidatePolicy(policy).message()),
              AllOf(HasSubstr("communication.owner_rule: only for"),
                    HasSubstr("communication.server: only for"), Not(HasSubstr("update.when"))));

  policy = *LoadPolicy("bsp");
  policy.mutable_update()->set_when(v1::UpdatePolicy::WHEN_AT_OWNER);
  EXPECT_THAT(std::string(ValidatePolicy(policy).message()), HasSubstr("WHEN_AT_OWNER needs"));
}

}  // namespace
}  // namespace paceline
