// SPDX-License-Identifier: Apache-2.0
// Patches that are cut, changed, or made by an attacker who can compute checksums.

#include <cstring>

#include "absl/status/status.h"
#include "base/crc32c.h"
#include "follow/patch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/follow/sample_weights.h"
#include "tests/follow/sealed_patch.h"

namespace sluice::follow {
namespace {

using compress::ElementType;
using ::testing::HasSubstr;

std::vector<std::byte> SmallPatch() {
  const std::vector<std::byte> before = RandomBytes(400, 1);
  return *EncodePatch({.base_version = 1, .version = 2}, OneTensor(200), ElementType::kBfloat16,
                      before, Nudged(before, 2, 8, 4, 1));
}

std::vector<std::byte> SmallAnchor() {
  return *EncodeAnchor(3, {{.name = "ab", .shape = {2, 3}}}, ElementType::kFloat16,
                       RandomBytes(12, 1));
}

void ExpectRefused(absl::Span<const std::byte> bytes, absl::string_view text = "") {
  const absl::StatusOr<Patch> patch = Patch::Parse(bytes);
  ASSERT_FALSE(patch.ok());
  EXPECT_THAT(patch.status().code(),
              ::testing::AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kDataLoss));
  EXPECT_THAT(std::string(patch.status().message()), HasSubstr(std::string(text)));
}

TEST(DamagedPatch, EveryChangedBitIsNoticed) {
  for (const std::vector<std::byte>& intact : {SmallPatch(), SmallAnchor()}) {
    ASSERT_TRUE(Patch::Parse(intact).ok());
    for (size_t bit = 0; bit < 8 * intact.size(); ++bit) {
      std::vector<std::byte> damaged = intact;
      damaged[bit / 8] ^= std::byte{1} << (bit % 8);
      ExpectRefused(damaged);
    }
  }
}

TEST(DamagedPatch, EveryCutAndEveryExtraByteIsNoticed) {
  for (const std::vector<std::byte>& intact : {SmallPatch(), SmallAnchor()}) {
    for (size_t size = 0; size < intact.size(); ++size) {
      // An exact copy, so that sanitizers notice reads behind the end.
      const std::vector<std::byte> cut(intact.begin(), intact.begin() + static_cast<long>(size));
      ExpectRefused(cut);
    }
    std::vector<std::byte> longer = intact;
    longer.push_back(std::byte{0});
    ExpectRefused(longer, "1 bytes after its last part");
  }
}

// An attacker who changes a byte can also compute the checksums. Such a patch is refused, or it
// leads to another digest than it announces.
TEST(DamagedPatch, ChangedBytesWithRightChecksumsNeverGiveAWrongResult) {
  const std::vector<std::byte> before = RandomBytes(400, 1);
  const Digest base = WeightsDigest(ElementType::kBfloat16, before);
  const std::vector<std::byte> intact = SmallPatch();
  const Digest result = Patch::Parse(intact)->header().result;
  for (size_t bit = 0; bit < 8 * intact.size(); ++bit) {
    std::vector<std::byte> changed = intact;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    SealPatch(&changed);
    const absl::StatusOr<Patch> patch = Patch::Parse(changed);
    if (!patch.ok()) continue;
    std::vector<std::byte> weights = before;
    const absl::Status applied = patch->Apply(base, absl::MakeSpan(weights));
    if (!applied.ok()) continue;
    EXPECT_EQ(WeightsDigest(ElementType::kBfloat16, weights), result) << bit;
  }
}

struct ForgedField {
  size_t at;
  std::vector<int> bytes;
  const char* error;
};

TEST(DamagedPatch, HeadersAreChecked) {
  const ForgedField fields[] = {{0, {'X'}, "does not begin with SLUICEPT"},
                                {8, {2}, "format version 2"},
                                {8, {0}, "format version 0"},
                                {10, {3}, "unknown type 3"},
                                {11, {2}, "unknown flags: 2"},
                                {11, {1}, "base version 1 and version 2"},
                                {12, {1, 0, 0, 1}, "tensor table of 16777217 bytes"},
                                {16, {0, 0, 0, 0, 0, 2, 0, 0}, "has 2199023255552 elements"},
                                {16, {100}, "part 0 of 1"},
                                {16, {0}, "after its last part"},
                                {24, {2}, "base version 2 and version 2"},
                                {136, {1}, "reserved bytes"},
                                {147, {1}, "reserved bytes"}};
  for (const ForgedField& field : fields) {
    std::vector<std::byte> bytes = SmallPatch();
    for (size_t i = 0; i < field.bytes.size(); ++i) {
      bytes[field.at + i] = static_cast<std::byte>(field.bytes[i]);
    }
    SealPatch(&bytes);
    ExpectRefused(bytes, field.error);
  }
}

TEST(DamagedPatch, AHugeNumberOfElementsDoesNotTakeMemory) {
  std::vector<std::byte> bytes = SmallPatch();
  const uint64_t elements = kElementsMax;
  std::memcpy(bytes.data() + 16, &elements, sizeof(elements));
  SealPatch(&bytes);
  ExpectRefused(bytes, "part");
}

TEST(DamagedPatch, AnchorsAreChecked) {
  std::vector<std::byte> other_table = SmallAnchor();
  other_table[kPatchHeaderSize + 7] = std::byte{'c'};
  SealPatch(&other_table);
  ExpectRefused(other_table, "wrong digest of its tensor table");
  std::vector<std::byte> other_shape = SmallAnchor();
  other_shape[kPatchHeaderSize + 9] = std::byte{1};
  SealPatch(&other_shape);
  ExpectRefused(other_shape, "another number of elements");
  std::vector<std::byte> same_part = SmallAnchor();
  same_part.resize(same_part.size() - 12);
  std::memset(same_part.data() + same_part.size() - kPartHeaderSize, 0, 4);
  SealPatch(&same_part);
  ExpectRefused(same_part, "does not hold complete weights");
}

}  // namespace
}  // namespace sluice::follow
