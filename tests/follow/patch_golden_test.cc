// SPDX-License-Identifier: Apache-2.0
// Tests that encoding and applying reproduce the patches in tests/golden/patches byte for byte. A
// file has lines `key value...`: type (BF16, F16 or F32), versions (of the base and of the patch),
// before and after (weights, as hexadecimal bit patterns; pattern*n stands for n equal ones), and
// patch (bytes). An anchor has no base and no `before`. A line that begins with a space continues
// the previous line.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "follow/safetensors.h"
#include "gtest/gtest.h"
#include "tests/compress/golden_file.h"
#include "tests/follow/sample_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;

std::vector<std::byte> WeightsOf(const std::string& text, size_t width) {
  std::vector<std::byte> weights;
  for (const uint32_t bits : compress::BitPatterns(text)) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&bits);
    weights.insert(weights.end(), bytes, bytes + width);
  }
  return weights;
}

ElementType TypeOf(absl::string_view name) {
  for (const ElementType type :
       {ElementType::kBfloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    if (SafetensorsTypeName(type) == name) return type;
  }
  ADD_FAILURE() << name;
  return ElementType::kFloat32;
}

class PatchGolden : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(PatchGolden, EncodesAndAppliesByteForByte) {
  std::map<std::string, std::string> golden = compress::ReadGolden(GetParam());
  const ElementType type = TypeOf(absl::StripAsciiWhitespace(golden["type"]));
  const std::vector<std::byte> before = WeightsOf(golden["before"], BytesOf(type));
  const std::vector<std::byte> after = WeightsOf(golden["after"], BytesOf(type));
  const TensorLayout layout = OneTensor(after.size() / BytesOf(type));
  const std::vector<std::string> versions =
      absl::StrSplit(golden["versions"], ' ', absl::SkipEmpty());
  ASSERT_FALSE(versions.empty());
  uint64_t base_version = 0, version = 0;
  ASSERT_TRUE(absl::SimpleAtoi(versions.back(), &version));
  const bool anchor = versions.size() == 1;
  ASSERT_TRUE(anchor || absl::SimpleAtoi(versions.front(), &base_version));

  const absl::StatusOr<std::vector<std::byte>> patch =
      anchor ? EncodeAnchor(version, layout, type, after)
             : EncodePatch({.base_version = base_version, .version = version}, layout, type, before,
                           after);
  ASSERT_TRUE(patch.ok()) << patch.status();
  const std::string wanted =
      absl::HexStringToBytes(absl::StrReplaceAll(golden["patch"], {{" ", ""}}));
  const absl::string_view found(reinterpret_cast<const char*>(patch->data()), patch->size());
  EXPECT_EQ(absl::BytesToHexString(found), absl::BytesToHexString(wanted));

  const absl::StatusOr<Patch> parsed =
      Patch::Parse({reinterpret_cast<const std::byte*>(wanted.data()), wanted.size()});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::byte> weights = anchor ? std::vector<std::byte>(after.size()) : before;
  EXPECT_TRUE(parsed->Apply(WeightsDigest(type, before), absl::MakeSpan(weights)).ok());
  EXPECT_EQ(weights, after);
}

std::vector<std::filesystem::path> GoldenPatches() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_GOLDEN_PATCHES)) {
    paths.push_back(entry.path());
  }
  return paths;
}

INSTANTIATE_TEST_SUITE_P(All, PatchGolden, ::testing::ValuesIn(GoldenPatches()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace sluice::follow
