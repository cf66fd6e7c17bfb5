// SPDX-License-Identifier: Apache-2.0
#include "follow/tensor_layout.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::follow {
namespace {

using ::testing::HasSubstr;

std::string Problem(const TensorLayout& layout) {
  return std::string(CheckLayout(layout).status().message());
}

TEST(TensorLayout, SurvivesAsBytes) {
  const TensorLayout layout = {{.name = "embedding.weight", .shape = {30'522, 384}},
                               {.name = "größe", .shape = {}},
                               {.name = "empty", .shape = {7, 0}}};
  EXPECT_EQ(*CheckLayout(layout), 30'522u * 384 + 1);
  const absl::StatusOr<TensorLayout> parsed = ParseLayout(SerializeLayout(layout));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, layout);
  EXPECT_TRUE(ParseLayout(SerializeLayout({}))->empty());
}

TEST(TensorLayout, DigestCoversNamesShapesAndOrder) {
  const NamedShape a{.name = "a", .shape = {2, 3}}, b{.name = "b", .shape = {1}};
  const Digest digest = LayoutDigest({a, b});
  EXPECT_NE(digest, LayoutDigest({b, a}));
  EXPECT_NE(digest, LayoutDigest({{.name = "a", .shape = {3, 2}}, b}));
  EXPECT_NE(digest, LayoutDigest({{.name = "c", .shape = {2, 3}}, b}));
}

TEST(TensorLayout, RefusesWhatExceedsTheLimits) {
  EXPECT_THAT(Problem({{.name = "", .shape = {}}}), HasSubstr("reserved"));
  EXPECT_THAT(Problem({{.name = "__metadata__", .shape = {}}}), HasSubstr("reserved"));
  EXPECT_THAT(Problem({{.name = std::string(1025, 'a'), .shape = {}}}), HasSubstr("1025 bytes"));
  EXPECT_THAT(Problem({{.name = "\xff", .shape = {}}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(Problem({{.name = "a", .shape = {}}, {.name = "a", .shape = {2}}}),
              HasSubstr("`a` occurs twice"));
  EXPECT_THAT(Problem({{.name = "a", .shape = std::vector<uint64_t>(17, 1)}}),
              HasSubstr("17 dimensions"));
  EXPECT_THAT(Problem({{.name = "a", .shape = {uint64_t{1} << 21, uint64_t{1} << 20}}}),
              HasSubstr("more than"));
  EXPECT_THAT(Problem({{.name = "a", .shape = {kElementsMax}}, {.name = "b", .shape = {1}}}),
              HasSubstr("exceeds the limit"));
  EXPECT_THAT(Problem(TensorLayout(kTensorsMax + 1)), HasSubstr("1048577 tensors"));
}

TEST(TensorLayout, RefusesEveryCut) {
  const std::vector<std::byte> bytes =
      SerializeLayout({{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {1}}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseLayout(absl::MakeSpan(bytes).first(size)).ok()) << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(ParseLayout(longer).ok());
}

}  // namespace
}  // namespace sluice::follow
