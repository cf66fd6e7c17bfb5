// SPDX-License-Identifier: Apache-2.0
#include "follow/patch.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/follow/sample_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;
using ::testing::HasSubstr;

constexpr ElementType kTypes[] = {ElementType::kBfloat16, ElementType::kFloat16,
                                  ElementType::kFloat32};

std::vector<std::byte> PatchOf(ElementType type, const std::vector<std::byte>& before,
                               const std::vector<std::byte>& after, uint64_t base_version = 6,
                               uint64_t version = 7) {
  const absl::StatusOr<std::vector<std::byte>> patch =
      EncodePatch({.base_version = base_version, .version = version},
                  OneTensor(before.size() / BytesOf(type)), type, before, after);
  EXPECT_TRUE(patch.ok()) << patch.status();
  return patch.ok() ? *patch : std::vector<std::byte>();
}

TEST(Patch, LeadsFromOneVersionToTheNext) {
  for (const ElementType type : kTypes) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, kChunkElements - 1, kChunkElements,
                               kChunkElements + 1, 2 * kChunkElements + 333}) {
      const std::vector<std::byte> before = RandomBytes(count * BytesOf(type), count);
      const std::vector<std::byte> after = Nudged(before, BytesOf(type), 100, 3, count);
      const std::vector<std::byte> bytes = PatchOf(type, before, after);
      const absl::StatusOr<Patch> patch = Patch::Parse(bytes);
      ASSERT_TRUE(patch.ok()) << patch.status();
      EXPECT_EQ(patch->header().type, type);
      EXPECT_EQ(patch->header().elements, count);
      EXPECT_EQ(patch->header().base_version, 6u);
      EXPECT_EQ(patch->header().version, 7u);
      EXPECT_EQ(patch->header().result, WeightsDigest(type, after));
      EXPECT_EQ(patch->header().layout, LayoutDigest(OneTensor(count)));
      EXPECT_EQ(patch->parts().size(), (count + kChunkElements - 1) / kChunkElements);
      std::vector<std::byte> weights = before;
      const Digest base = WeightsDigest(type, before);
      EXPECT_TRUE(patch->Apply(base, absl::MakeSpan(weights)).ok());
      EXPECT_EQ(weights, after);
    }
  }
}

TEST(Patch, EqualInputsGiveEqualBytes) {
  const std::vector<std::byte> before = RandomBytes(9'000, 1);
  const std::vector<std::byte> after = Nudged(before, 2, 50, 2, 1);
  EXPECT_EQ(PatchOf(ElementType::kBfloat16, before, after),
            PatchOf(ElementType::kBfloat16, before, after));
}

TEST(Patch, OfNothingHasOnlyHeaders) {
  const std::vector<std::byte> weights = RandomBytes(2 * kChunkElements + 2, 1);
  const std::vector<std::byte> bytes = PatchOf(ElementType::kBfloat16, weights, weights);
  EXPECT_EQ(bytes.size(), kPatchHeaderSize + 2 * kPartHeaderSize);
  EXPECT_EQ(Patch::Parse(bytes)->changed(), 0u);
}

TEST(Patch, ALargeChangeFallsBackToRawParts) {
  const std::vector<std::byte> before = RandomBytes(8'000, 1), after = RandomBytes(8'000, 2);
  const std::vector<std::byte> bytes = PatchOf(ElementType::kFloat32, before, after);
  EXPECT_EQ(bytes.size(), kPatchHeaderSize + kPartHeaderSize + 8'000);
  EXPECT_EQ(Patch::Parse(bytes)->parts()[0].method, ChunkMethod::kRaw);
}

TEST(Patch, AnchorsHoldCompleteWeightsAndTheTensorTable) {
  const TensorLayout layout = {{.name = "a", .shape = {3, 5}}, {.name = "b", .shape = {}}};
  const std::vector<std::byte> weights = RandomBytes(16 * 4, 8);
  const absl::StatusOr<std::vector<std::byte>> bytes =
      EncodeAnchor(12, layout, ElementType::kFloat32, weights);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const absl::StatusOr<Patch> anchor = Patch::Parse(*bytes);
  ASSERT_TRUE(anchor.ok()) << anchor.status();
  EXPECT_TRUE(anchor->header().anchor);
  EXPECT_EQ(anchor->header().version, 12u);
  EXPECT_EQ(anchor->layout(), layout);
  std::vector<std::byte> from_nothing(weights.size());
  EXPECT_TRUE(anchor->Apply(Digest{}, absl::MakeSpan(from_nothing)).ok());
  EXPECT_EQ(from_nothing, weights);
}

TEST(Patch, RefusesAnotherBaseAndLeavesItUnchanged) {
  const std::vector<std::byte> before = RandomBytes(600, 1);
  const std::vector<std::byte> bytes =
      PatchOf(ElementType::kBfloat16, before, Nudged(before, 2, 5, 2, 1));
  const absl::StatusOr<Patch> patch = Patch::Parse(bytes);
  ASSERT_TRUE(patch.ok());
  std::vector<std::byte> other = RandomBytes(600, 2);
  const std::vector<std::byte> copy = other;
  const Digest digest = WeightsDigest(ElementType::kBfloat16, other);
  const absl::Status status = patch->Apply(digest, absl::MakeSpan(other));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs version 6"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(ToHex(digest)));
  EXPECT_EQ(other, copy);
  std::vector<std::byte> shorter(598);
  EXPECT_EQ(patch->Apply(patch->header().base, absl::MakeSpan(shorter)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Patch, NoticesAWrongResult) {
  const std::vector<std::byte> before = RandomBytes(600, 1);
  const std::vector<std::byte> bytes =
      PatchOf(ElementType::kBfloat16, before, Nudged(before, 2, 5, 2, 1));
  const absl::StatusOr<Patch> patch = Patch::Parse(bytes);
  ASSERT_TRUE(patch.ok());
  // The caller is wrong about its weights.
  std::vector<std::byte> other = RandomBytes(600, 2);
  EXPECT_EQ(patch->Apply(patch->header().base, absl::MakeSpan(other)).code(),
            absl::StatusCode::kDataLoss);
}

TEST(Patch, EncodersRefuseWhatDoesNotFit) {
  const std::vector<std::byte> weights(20), shorter(18);
  const TensorLayout layout = OneTensor(10);
  const ElementType type = ElementType::kBfloat16;
  EXPECT_FALSE(EncodePatch({.base_version = 7, .version = 7}, layout, type, weights, weights).ok());
  EXPECT_FALSE(EncodePatch({.base_version = 0, .version = 1}, layout, type, weights, shorter).ok());
  EXPECT_FALSE(EncodePatch({.base_version = 0, .version = 1}, layout, type, shorter, weights).ok());
  EXPECT_FALSE(EncodeAnchor(1, OneTensor(9), type, weights).ok());
  EXPECT_FALSE(
      EncodeAnchor(1, {{.name = "", .shape = {10}}}, ElementType::kBfloat16, weights).ok());
}

}  // namespace
}  // namespace sluice::follow
