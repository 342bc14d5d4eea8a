#include "proto/support/text_proto.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/type.pb.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::google::protobuf::Field;
using ::google::protobuf::Type;
using ::testing::HasSubstr;

std::string InTempDir(const std::string& name) {
  return absl::StrCat(testing::TempDir(), "/", name);
}

TEST(TextProtoTest, FileRoundTrips) {
  Type type;
  type.set_name("worker");
  type.add_fields()->set_number(7);
  const std::string path = InTempDir("type.textproto");
  ASSERT_TRUE(WriteTextProtoFile(type, path, "What it is for.\n\nMore.").ok());
  absl::StatusOr<std::string> text = ReadFile(path);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "# What it is for.\n#\n# More.\nname: \"worker\"\nfields {\n  number: 7\n}\n");
  absl::StatusOr<Type> read = ReadTextProtoFile<Type>(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), type.SerializeAsString());
}

TEST(TextProtoTest, ErrorNamesFileLineAndColumn) {
  const std::string path = InTempDir("bad.textproto");
  ASSERT_TRUE(WriteFile("name: \"a\"\n  fields { numbr: 7 }\n", path).ok());
  const absl::Status status = ReadTextProtoFile<Type>(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(path, ":2:")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no field named \"numbr\""));
}

TEST(TextProtoTest, WrongTypeAndUnfinishedTextAreErrors) {
  EXPECT_THAT(std::string(ParseTextProto<Field>("number: \"seven\"", "plan").status().message()),
              HasSubstr("plan:1:9: Expected integer"));
  EXPECT_FALSE(ParseTextProto<Type>("fields { number: 7").ok());
}

TEST(TextProtoTest, APartSkipsTheFieldsItDoesNotHaveAndSaysSo) {
  Type type;
  std::vector<std::string> ignored;
  ASSERT_TRUE(ParseTextProtoPart("name: \"a\"\n colour { r: 1 }\nfields { number: 7 }", "t", &type,
                                 &ignored)
                  .ok());
  EXPECT_EQ(type.name(), "a");
  EXPECT_EQ(type.fields(0).number(), 7);
  ASSERT_EQ(ignored.size(), 1);
  EXPECT_THAT(ignored[0], HasSubstr("t:2:"));
  EXPECT_THAT(ignored[0], HasSubstr("\"colour\""));
  EXPECT_FALSE(ParseTextProtoPart("name { broken", "t", &type, &ignored).ok());
}

TEST(TextProtoTest, LocationsTellWhereAFieldStands) {
  Type type;
  TextProtoLocations locations;
  ASSERT_TRUE(ParseTextProto("name: \"a\"\nfields { number: 7 }", "t", &type, &locations).ok());
  const auto* fields = Type::descriptor()->FindFieldByName("fields");
  EXPECT_EQ(locations.GetLocation(fields, 0).line, 1);
}

TEST(TextProtoTest, UnreadableFilesSayWhichAndWhy) {
  const absl::Status missing = ReadTextProtoFile<Type>("/no/such/file").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/such/file"));
  EXPECT_FALSE(ReadFile(testing::TempDir()).ok());  // A folder.
  EXPECT_EQ(WriteFile("x", "/no/such/file").code(), absl::StatusCode::kNotFound);
}

TEST(TextProtoTest, WritingReplacesTheWholeFile) {
  const std::string path = InTempDir("replaced");
  ASSERT_TRUE(WriteFile("a long first content", path).ok());
  ASSERT_TRUE(WriteFile("short", path).ok());
  EXPECT_EQ(*ReadFile(path), "short");
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0400, 0400u);
}

}  // namespace
}  // namespace paceline
