#include "proto/support/join_token.h"

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "proto/support/text_proto.h"

namespace paceline {
namespace {

TEST(JoinTokenTest, ComesFromTheFileBeforeTheEnvironment) {
  const std::string path = testing::TempDir() + "/token";
  ASSERT_TRUE(WriteFile("from-the-file\n", path).ok());
  setenv("PACELINE_TOKEN", "from-the-environment", 1);
  EXPECT_EQ(*ReadJoinToken(path), "from-the-file");
  EXPECT_EQ(*ReadJoinToken(""), "from-the-environment");
  unsetenv("PACELINE_TOKEN");
  EXPECT_EQ(*ReadJoinToken(""), "");
}

TEST(JoinTokenTest, RefusesWhatCannotTravelOrProtect) {
  const std::string path = testing::TempDir() + "/bad_token";
  ASSERT_TRUE(WriteFile("short", path).ok());
  EXPECT_EQ(ReadJoinToken(path).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFile("two words here", path).ok());
  EXPECT_EQ(ReadJoinToken(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadJoinToken(path + ".missing").status().code(), absl::StatusCode::kNotFound);
}

TEST(JoinTokenTest, ComparesWholeTokens) {
  EXPECT_TRUE(JoinTokensEqual("abcdefgh", "abcdefgh"));
  EXPECT_FALSE(JoinTokensEqual("abcdefgh", "abcdefgx"));
  EXPECT_FALSE(JoinTokensEqual("abcd", "abcdabcd"));
  EXPECT_FALSE(JoinTokensEqual("abcdefgh", ""));
  EXPECT_FALSE(JoinTokensEqual("", "a"));
}

}  // namespace
}  // namespace paceline
