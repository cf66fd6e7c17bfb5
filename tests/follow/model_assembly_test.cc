// SPDX-License-Identifier: Apache-2.0
#include "follow/model_assembly.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "sample_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;

constexpr ElementType kType = ElementType::kBfloat16;

// A model of two tensors. Shard 0 has the first and the end of the second, shard 1 the rest; shard
// 2 has nothing.
ModelParts TwoShards() {
  return {
      .model = {{.name = "a", .shape = {3}}, {.name = "b", .shape = {2, 4}}},
      .storage_order = {},
      .shards = {{{.tensor = 0, .offset = 0, .count = 3}, {.tensor = 1, .offset = 6, .count = 2}},
                 {{.tensor = 1, .offset = 0, .count = 6}},
                 {}}};
}

std::vector<std::byte> Words(const std::vector<uint16_t>& words) { return BytesOfWords(words); }

// The versions of one shard's weights, as updates.
class Sender {
 public:
  Sender(const ModelParts& parts, size_t shard) : layout_(LayoutOfShard(parts, shard)) {}

  std::vector<std::byte> Anchor(uint64_t version, std::vector<uint16_t> words) {
    weights_ = Words(words);
    version_ = version;
    return *EncodeAnchor(version, layout_, kType, weights_);
  }
  std::vector<std::byte> Patch(uint64_t version, const std::vector<uint16_t>& words) {
    const std::vector<std::byte> before = std::exchange(weights_, Words(words));
    const uint64_t base = std::exchange(version_, version);
    return *EncodePatch({.base_version = base, .version = version}, layout_, kType, before,
                        weights_);
  }

 private:
  const TensorLayout layout_;
  std::vector<std::byte> weights_;
  uint64_t version_ = 0;
};

class ModelAssemblyTest : public testing::Test {
 protected:
  // Returns the completed version's step, or -1.
  int64_t Advance() {
    const absl::StatusOr<std::optional<WeightsVersion>> version = model_.Advance();
    EXPECT_TRUE(version.ok()) << version.status();
    return version.ok() && version->has_value() ? static_cast<int64_t>((*version)->step) : -1;
  }
  void Take(size_t shard, std::vector<std::byte> bytes, uint32_t term = 1) {
    const absl::Status taken = model_.Take(shard, term, std::move(bytes));
    EXPECT_TRUE(taken.ok()) << taken;
  }
  std::vector<std::byte> Weights() const {
    return {model_.weights().begin(), model_.weights().end()};
  }

  ModelAssembly model_{kType, TwoShards()};
  Sender first_{TwoShards(), 0};
  Sender second_{TwoShards(), 1};
};

TEST_F(ModelAssemblyTest, PutsPiecesIntoTheModelsOrder) {
  Take(0, first_.Anchor(4, {1, 2, 3, 10, 11}));
  EXPECT_EQ(Advance(), -1);
  Take(1, second_.Anchor(4, {4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), 4);
  EXPECT_EQ(Weights(), Words({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Advance(), -1);
  EXPECT_FALSE(model_.HasWeights(2));
}

TEST_F(ModelAssemblyTest, CompletesVersionsOneByOne) {
  Take(0, first_.Anchor(1, {1, 2, 3, 10, 11}));
  const std::vector<std::byte> patch = first_.Patch(2, {1, 2, 4, 10, 11});
  Take(0, patch);
  Take(0, first_.Patch(3, {1, 2, 5, 10, 12}));
  Take(1, second_.Anchor(1, {4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), 1);
  EXPECT_EQ(model_.applied().anchors, 2U);
  EXPECT_EQ(Advance(), -1);
  const std::vector<std::byte> other = second_.Patch(2, {4, 5, 6, 7, 8, 8});
  Take(1, other);
  EXPECT_EQ(Advance(), 2);
  EXPECT_EQ(Weights(), Words({1, 2, 4, 4, 5, 6, 7, 8, 8, 10, 11}));
  // Updates count for the version that they lead to, even if they arrived earlier.
  EXPECT_EQ(model_.applied().changed, 11U);  // Patches of so few elements replace all of them.
  EXPECT_EQ(model_.applied().bytes, patch.size() + other.size());
  EXPECT_EQ(model_.applied().anchors, 0U);
  Take(1, second_.Patch(3, {4, 5, 6, 7, 8, 7}));
  EXPECT_EQ(Advance(), 3);
}

// Shard 1 fell behind and continues with an anchor of version 5.
TEST_F(ModelAssemblyTest, SkipsVersionsThatNotAllShardsHave) {
  Take(0, first_.Anchor(1, {1, 2, 3, 10, 11}));
  Take(1, second_.Anchor(1, {4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), 1);
  Take(0, first_.Patch(2, {1, 2, 4, 10, 11}));
  Take(0, first_.Patch(4, {1, 2, 5, 10, 11}));
  EXPECT_EQ(Advance(), -1);
  Take(1, second_.Anchor(5, {0, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), -1);
  Take(0, first_.Patch(6, {1, 2, 6, 10, 11}));
  EXPECT_EQ(Advance(), -1);
  Take(1, second_.Patch(6, {0, 0, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), 6);
  EXPECT_EQ(Weights(), Words({1, 2, 6, 0, 0, 6, 7, 8, 9, 10, 11}));
}

TEST_F(ModelAssemblyTest, ALaterTermIsNewerEvenIfItsStepIsLower) {
  Take(0, first_.Anchor(9, {1, 2, 3, 10, 11}));
  Take(1, second_.Anchor(9, {4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), 9);
  Take(1, second_.Anchor(5, {3, 5, 6, 7, 8, 9}), 2);
  EXPECT_EQ(Advance(), -1);
  Take(0, first_.Anchor(5, {0, 2, 3, 10, 11}), 2);
  EXPECT_EQ(Advance(), 5);
  EXPECT_EQ(Weights(), Words({0, 2, 3, 3, 5, 6, 7, 8, 9, 10, 11}));
}

TEST_F(ModelAssemblyTest, RefusesUpdatesThatDoNotContinueItsState) {
  Take(0, first_.Anchor(1, {1, 2, 3, 10, 11}));
  first_.Patch(2, {1, 2, 4, 10, 11});
  const absl::Status gap = model_.Take(0, 1, first_.Patch(3, {1, 2, 5, 10, 11}));
  EXPECT_TRUE(absl::IsInvalidArgument(gap)) << gap;
  EXPECT_NE(gap.message().find("needs an anchor"), absl::string_view::npos) << gap;
  EXPECT_TRUE(absl::IsInvalidArgument(model_.Take(0, 2, first_.Patch(4, {1, 2, 6, 10, 11}))));
  const absl::Status other = model_.Take(0, 1, second_.Anchor(1, {4, 5, 6, 7, 8, 9}));
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
  EXPECT_EQ(model_.have(0)->version.step, 1U);
}

TEST_F(ModelAssemblyTest, RefusesDamagedBytes) {
  std::vector<std::byte> anchor = first_.Anchor(1, {1, 2, 3, 10, 11});
  anchor.back() ^= std::byte{1};
  const absl::Status damaged = model_.Take(0, 1, anchor);
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_FALSE(model_.have(0).has_value());
}

TEST_F(ModelAssemblyTest, IsFullBeforeWaitingUpdatesPileUp) {
  Take(0, first_.Anchor(1, {1, 2, 3, 10, 11}));
  EXPECT_TRUE(model_.IsFull(0));  // An anchor has more bytes than the weights.
  EXPECT_FALSE(model_.IsFull(1));
  Take(1, second_.Anchor(1, {4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Advance(), 1);
  EXPECT_FALSE(model_.IsFull(0));
}

TEST(ModelAssembly, WritesTensorsOfAnotherStorageOrderRowMajor) {
  // A matrix of 2 x 3 that is stored column by column, in two pieces.
  const ModelParts parts{.model = {{.name = "m", .shape = {2, 3}}},
                         .storage_order = {{1, 0}},
                         .shards = {{{.tensor = 0, .offset = 0, .count = 5}},
                                    {{.tensor = 0, .offset = 5, .count = 1}}}};
  ModelAssembly model(kType, parts);
  Sender first(parts, 0);
  Sender second(parts, 1);
  ASSERT_TRUE(model.Take(0, 1, first.Anchor(0, {0, 3, 1, 4, 2})).ok());
  ASSERT_TRUE(model.Take(1, 1, second.Anchor(0, {5})).ok());
  const absl::StatusOr<std::optional<WeightsVersion>> version = model.Advance();
  ASSERT_TRUE(version.ok() && version->has_value());
  EXPECT_EQ(std::vector<std::byte>(model.weights().begin(), model.weights().end()),
            Words({0, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace sluice::follow
