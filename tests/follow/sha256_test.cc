// SPDX-License-Identifier: Apache-2.0
#include "follow/sha256.h"

#include "follow/chunk_coding.h"
#include "gtest/gtest.h"
#include "tests/follow/sample_weights.h"

namespace sluice::follow {
namespace {

TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(ToHex(Sha256Of({})),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::byte abc[] = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  EXPECT_EQ(ToHex(Sha256Of(abc)),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(WeightsDigest, IsTheDigestOfTheDigestsOfTheChunks) {
  const std::vector<std::byte> weights = RandomBytes(2 * kChunkElements + 10, 1);
  const absl::Span<const std::byte> bytes = weights;
  Sha256 all;
  all.Add(Sha256Of(bytes.first(2 * kChunkElements)));
  all.Add(Sha256Of(bytes.last(10)));
  EXPECT_EQ(WeightsDigest(compress::ElementType::kBfloat16, weights), all.Finish());
  EXPECT_EQ(WeightsDigest(compress::ElementType::kFloat32, weights), Sha256Of(Sha256Of(weights)));
  EXPECT_EQ(WeightsDigest(compress::ElementType::kFloat32, {}), Sha256Of({}));
}

}  // namespace
}  // namespace sluice::follow
