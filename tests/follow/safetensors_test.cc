// SPDX-License-Identifier: Apache-2.0
#include "follow/safetensors.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::follow {
namespace {

using compress::ElementType;
using ::testing::HasSubstr;

std::vector<std::byte> FileOf(absl::string_view header, size_t value_bytes) {
  const uint64_t size = header.size();
  std::vector<std::byte> file(sizeof(size) + header.size() + value_bytes);
  std::memcpy(file.data(), &size, sizeof(size));
  std::memcpy(file.data() + sizeof(size), header.data(), header.size());
  return file;
}

std::string ProblemOf(absl::string_view header, size_t value_bytes) {
  return std::string(ParseSafetensors(FileOf(header, value_bytes)).status().message());
}

constexpr char kTwo[] =
    R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[2,14]},)"
    R"("__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirValues) {
  const absl::StatusOr<SafetensorsModel> model = ParseSafetensors(FileOf(kTwo, 14));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->type, ElementType::kBfloat16);
  EXPECT_EQ(model->weights_at, 8 + sizeof(kTwo) - 1);
  EXPECT_EQ(model->layout,
            (TensorLayout{{.name = "a", .shape = {}}, {.name = "b", .shape = {2, 3}}}));
}

TEST(Safetensors, ReadsWhatItWrites) {
  const TensorLayout layout = {{.name = "größe \"x\"\n", .shape = {4}},
                               {.name = "n", .shape = {0, 2}}};
  for (const ElementType type :
       {ElementType::kBfloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    const std::string header = FormatSafetensorsHeader(layout, type);
    EXPECT_EQ(header.size() % 8, 0u);
    std::vector<std::byte> file(header.size() + 4 * BytesOf(type));
    std::memcpy(file.data(), header.data(), header.size());
    const absl::StatusOr<SafetensorsModel> model = ParseSafetensors(file);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->type, type);
    EXPECT_EQ(model->layout, layout);
    EXPECT_EQ(model->weights_at, header.size());
  }
}

TEST(Safetensors, WritesTheUsualForm) {
  const std::string header =
      FormatSafetensorsHeader({{.name = "ids", .type = "I64", .shape = {2}, .bytes = 16}});
  EXPECT_THAT(header, HasSubstr(R"({"__metadata__":{"format":"pt"},"ids":{"dtype":"I64",)"
                                R"("shape":[2],"data_offsets":[0,16]}})"));
}

TEST(Safetensors, RefusesHeadersThatAreNotOne) {
  EXPECT_THAT(ProblemOf("", 0), HasSubstr("not JSON"));
  EXPECT_THAT(ProblemOf("[]", 0), HasSubstr("not JSON"));
  EXPECT_THAT(ProblemOf("{\"a\":", 0), HasSubstr("not JSON"));
  EXPECT_THAT(ProblemOf("{\"\xff\":{}}", 0), HasSubstr("not JSON"));
  EXPECT_THAT(ProblemOf(R"({"a":[[[[1]]]]})", 0), HasSubstr("too many levels"));
  EXPECT_THAT(ProblemOf(R"({"__metadata__":{"a":1}})", 0), HasSubstr("metadata"));
  EXPECT_THAT(ProblemOf(R"({"__metadata__":{"a":"b"},"__metadata__":{}})", 0),
              HasSubstr("`__metadata__` twice"));
  const std::string deep = absl::StrCat(std::string(100'000, '['), std::string(100'000, ']'));
  EXPECT_THAT(ProblemOf(deep, 0), HasSubstr("too many levels"));
}

TEST(Safetensors, RefusesOtherFiles) {
  EXPECT_FALSE(ParseSafetensors({}).ok());
  EXPECT_FALSE(ParseSafetensors(std::vector<std::byte>(7)).ok());
  const absl::Status other = ParseSafetensors(std::vector<std::byte>(99, std::byte{'P'})).status();
  EXPECT_THAT(std::string(other.message()), HasSubstr("another kind of file"));
  std::vector<std::byte> longer_header = FileOf("{}", 0);
  longer_header[0] = std::byte{3};
  EXPECT_FALSE(ParseSafetensors(longer_header).ok());
}

TEST(Safetensors, AnEmptyModelIsAModel) {
  EXPECT_TRUE(ParseSafetensors(FileOf("{}", 0)).ok());
  EXPECT_THAT(ProblemOf("{}", 1), HasSubstr("is it complete?"));
}

TEST(Safetensors, RefusesTensorsThatDoNotFit) {
  struct Case {
    const char* tensor;
    const char* error;
  };
  const Case cases[] = {
      {R"({"dtype":"BF16","shape":[2]})", "exactly the fields"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[0,4],"more":1})", "exactly the fields"},
      {R"(7)", "exactly the fields"},
      {R"({"dtype":"I64","shape":[2],"data_offsets":[0,16]})", "type \"I64\""},
      {R"({"dtype":5,"shape":[2],"data_offsets":[0,16]})", "type 5"},
      {R"({"dtype":"BF16","shape":[2.0],"data_offsets":[0,4]})", "shape"},
      {R"({"dtype":"BF16","shape":[-2],"data_offsets":[0,4]})", "shape"},
      {R"({"dtype":"BF16","shape":2,"data_offsets":[0,4]})", "shape"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[0]})", "data_offsets"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[0,4,8]})", "data_offsets"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[4,0]})", "do not fit"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[0,5]})", "do not fit"},
      {R"({"dtype":"BF16","shape":[3],"data_offsets":[0,4]})", "do not fit"},
      {R"({"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "more than"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[2,6]})", "begins at byte 2"},
      {R"({"dtype":"BF16","shape":[2],"data_offsets":[0,4],"dtype":"F16"})", "`dtype` twice"}};
  for (const Case& one : cases) {
    EXPECT_THAT(ProblemOf(absl::StrCat(R"({"t":)", one.tensor, "}"), 6), HasSubstr(one.error))
        << one.tensor;
  }
}

TEST(Safetensors, RefusesOverlapsGapsAndTwoTypes) {
  const auto two = [](const char* type, int begin, int end) {
    return absl::StrCat(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":")",
                        type, R"(","shape":[2],"data_offsets":[)", begin, ",", end, "]}}");
  };
  EXPECT_EQ(ProblemOf(two("F16", 4, 8), 8), "");
  EXPECT_THAT(ProblemOf(two("F16", 2, 6), 6), HasSubstr("begins at byte 2"));
  EXPECT_THAT(ProblemOf(two("F16", 5, 9), 9), HasSubstr("begins at byte 5"));
  EXPECT_THAT(ProblemOf(two("F16", 4, 8), 9), HasSubstr("is it complete?"));
  EXPECT_THAT(ProblemOf(two("F16", 4, 8), 7), HasSubstr("is it complete?"));
  EXPECT_THAT(ProblemOf(two("F32", 4, 12), 12), HasSubstr("a patch has one type"));
}

TEST(Safetensors, EscapesNamesInErrors) {
  const std::string problem = ProblemOf(R"({"a\u001b[2J":{}})", 0);
  EXPECT_FALSE(absl::StrContains(problem, "\x1b")) << problem;
}

}  // namespace
}  // namespace sluice::follow
