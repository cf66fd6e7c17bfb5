// SPDX-License-Identifier: Apache-2.0
#include "protocol/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/fnv1a.h"
#include "base/random.h"

namespace sluice::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TensorTable TableOf(const std::vector<int64_t>& sizes) {
  TensorTable table;
  for (size_t i = 0; i < sizes.size(); ++i) {
    table.push_back({absl::StrCat("t", i), {sizes[i]}, {}, DType::kFloat32});
  }
  return table;
}

Layout Build(const TensorTable& table, uint32_t shards, const LayoutParameters& parameters,
             const std::vector<bool>& whole_rows = {}) {
  absl::StatusOr<Layout> layout = BuildLayout(table, shards, parameters, whole_rows);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? *std::move(layout) : Layout();
}

// Checks that the chunks, in id order, cover each tensor from its first element to its last,
// without gaps or overlaps.
void ExpectCovers(const TensorTable& table, const LayoutParameters& parameters,
                  const Layout& layout) {
  size_t next = 0;
  for (uint32_t t = 0; t < table.size(); ++t) {
    uint64_t at = 0;
    while (next < layout.chunks.size() && layout.chunks[next].tensor == t) {
      const Chunk& chunk = layout.chunks[next++];
      EXPECT_EQ(chunk.offset, at);
      EXPECT_GE(chunk.count, 1u);
      EXPECT_LE(chunk.count, parameters.chunk_elements);
      at += chunk.count;
    }
    EXPECT_EQ(at, table[t].elements());
  }
  EXPECT_EQ(next, layout.chunks.size());
}

// Checks that every chunk is only in the bundle that it names, and that bundles are sent from the
// last tensor to the first.
void ExpectBundled(const LayoutParameters& parameters, const Layout& layout) {
  size_t seen = 0;
  for (uint32_t shard = 0; shard < layout.bundles.size(); ++shard) {
    uint32_t before = UINT32_MAX;
    for (uint32_t b = 0; b < layout.bundles[shard].size(); ++b) {
      const Bundle& bundle = layout.bundles[shard][b];
      uint64_t elements = 0;
      for (const uint32_t id : bundle.chunks) {
        EXPECT_LT(id, before);
        before = id;
        EXPECT_EQ(layout.chunks[id].shard, shard);
        EXPECT_EQ(layout.chunks[id].bundle, b);
        elements += layout.chunks[id].count;
        ++seen;
      }
      EXPECT_EQ(bundle.elements, elements);
      EXPECT_LE(bundle.chunks.size(), kBundleChunksMax);
      if (bundle.chunks.empty()) {
        EXPECT_EQ(layout.bundles[shard].size(), 1u) << "only a shard without chunks has it";
        continue;
      }
      const uint32_t last = layout.chunks[bundle.chunks.back()].count;
      EXPECT_LT(elements - last, parameters.bundle_elements)
          << "the bundle must not be full before its last chunk";
      const bool is_last = b + 1 == layout.bundles[shard].size();
      EXPECT_TRUE(is_last || elements >= parameters.bundle_elements ||
                  bundle.chunks.size() == kBundleChunksMax);
    }
  }
  EXPECT_EQ(seen, layout.chunks.size());
}

TEST(Layout, CoversOddShapesOnce) {
  CounterRandom random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes;
    for (uint64_t n = 1 + random.Below(12); n > 0; --n) {
      sizes.push_back(static_cast<int64_t>(1 + random.Below(uint64_t{1} << random.Below(16))));
    }
    const TensorTable table = TableOf(sizes);
    LayoutParameters parameters;
    parameters.chunk_elements = static_cast<uint32_t>(1 + random.Below(5000));
    parameters.bundle_elements = static_cast<uint32_t>(1 + random.Below(20000));
    const auto shards = static_cast<uint32_t>(1 + random.Below(9));
    SCOPED_TRACE(round);
    const Layout layout = Build(table, shards, parameters);
    ASSERT_EQ(layout.bundles.size(), shards);
    ExpectCovers(table, parameters, layout);
    ExpectBundled(parameters, layout);
  }
}

TEST(Layout, FragmentsHaveWholeBundlesAndEqualSizes) {
  CounterRandom random(8);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    // A large tensor, small ones, and buffers.
    TensorTable table = TableOf({static_cast<int64_t>(30000 + random.Below(100000)), 10,
                                 static_cast<int64_t>(1 + random.Below(40000)), 300, 7});
    table[4].role = TensorRole::kBuffer;
    const auto fragments = static_cast<uint32_t>(2 + random.Below(9));
    LayoutParameters parameters;
    parameters.chunk_elements = static_cast<uint32_t>(1000 + random.Below(50000));
    parameters.bundle_elements = static_cast<uint32_t>(1 + random.Below(20000));
    parameters.fragments = fragments;
    const Layout layout = Build(table, static_cast<uint32_t>(1 + random.Below(4)), parameters);
    EXPECT_EQ(layout.fragments, fragments);
    ExpectCovers(table, parameters, layout);
    std::vector<uint64_t> elements(fragments);
    for (const std::vector<Bundle>& bundles : layout.bundles) {
      for (const Bundle& bundle : bundles) {
        if (!bundle.buffers) elements[bundle.fragment] += bundle.elements;
        for (const uint32_t id : bundle.chunks) {
          EXPECT_EQ(layout.chunks[id].fragment, bundle.fragment);
          EXPECT_EQ(layout.chunks[id].tensor == 4, bundle.buffers);
        }
      }
    }
    const double mean = static_cast<double>(TrainedElements(table)) / fragments;
    for (const uint64_t of_fragment : elements) {
      EXPECT_NEAR(static_cast<double>(of_fragment), mean, 0.1 * mean);
    }
  }
}

TEST(Layout, EachFragmentIsSpreadOverTheShards) {
  LayoutParameters parameters;
  parameters.fragments = 3;
  const Layout layout = Build(TableOf({300000, 50000, 128}), 4, parameters);
  std::vector<std::vector<uint64_t>> loads(3, std::vector<uint64_t>(4));
  uint32_t largest = 0;
  for (const Chunk& chunk : layout.chunks) {
    loads[chunk.fragment][chunk.shard] += chunk.count;
    largest = std::max(largest, chunk.count);
  }
  for (const std::vector<uint64_t>& of_fragment : loads) {
    const auto [least, most] = std::minmax_element(of_fragment.begin(), of_fragment.end());
    EXPECT_LE(*most - *least, largest);
  }
}

TEST(Layout, TheStepsExchangeTheFragmentsInTurns) {
  LayoutParameters parameters;
  parameters.fragments = 2;
  // The chunks have 5, 300 (256 and 44) and 7 elements.
  TensorTable table = TableOf({5, 300, 7});
  table[2].role = TensorRole::kBuffer;
  const Layout layout = Build(table, 1, parameters);
  const std::vector<TensorPart> all = {{0, 0, 5}, {1, 0, 300}};
  const std::vector<TensorPart> first = {{1, 0, 256}};
  const std::vector<TensorPart> second = {{0, 0, 5}, {1, 256, 44}};
  EXPECT_EQ(PartsDue(layout, 2, 0), all) << "step 0 distributes the parameters";
  EXPECT_EQ(PartsDue(layout, 2, 1), first);
  EXPECT_EQ(PartsDue(layout, 2, 2), second);
  EXPECT_EQ(PartsDue(layout, 2, 3), first);
}

TEST(Layout, CutsEvenlyInBlocks) {
  LayoutParameters parameters;
  parameters.chunk_elements = 65536;
  const Layout layout = Build(TableOf({65537}), 1, parameters);
  ASSERT_EQ(layout.chunks.size(), 2u);
  // Half of the tensor, rounded up to a multiple of 256.
  EXPECT_EQ(layout.chunks[0].count, 33024u);
  EXPECT_EQ(layout.chunks[1].count, 32513u);
}

TEST(Layout, BalancesShards) {
  LayoutParameters parameters;
  parameters.chunk_elements = 4096;
  const TensorTable table = TableOf({150000, 10, 73728, 4608, 128, 33, 1280, 10});
  const Layout layout = Build(table, 3, parameters);
  std::vector<uint64_t> loads(3);
  for (const Chunk& chunk : layout.chunks) loads[chunk.shard] += chunk.count;
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_LE(*most - *least, parameters.chunk_elements);
}

TEST(Layout, PlacesLargestFirstTiesLowest) {
  const Layout layout = Build(TableOf({10, 30, 20, 30}), 2, {});
  // The chunks are placed in this order, as size (id) -> shard: 30 (1) -> 0, 30 (3) -> 1, 20 (2) ->
  // 0, 10 (0) -> 1.
  std::vector<uint32_t> shards;
  for (const Chunk& chunk : layout.chunks) shards.push_back(chunk.shard);
  EXPECT_THAT(shards, ElementsAre(1, 0, 0, 1));
}

TEST(Layout, SendsTheLastTensorFirst) {
  LayoutParameters parameters;
  parameters.bundle_elements = 15;
  const Layout layout = Build(TableOf({10, 10, 10}), 1, parameters);
  ASSERT_EQ(layout.bundles[0].size(), 2u);
  EXPECT_THAT(layout.bundles[0][0].chunks, ElementsAre(2, 1));
  EXPECT_THAT(layout.bundles[0][1].chunks, ElementsAre(0));
}

TEST(Layout, AShardWithoutChunksHasOneEmptyBundleOfBuffers) {
  const Layout layout = Build(TableOf({5}), 3, {});
  ASSERT_THAT(layout.bundles, SizeIs(3));
  EXPECT_FALSE(layout.bundles[0][0].buffers);
  for (const uint32_t idle : {1u, 2u}) {
    ASSERT_THAT(layout.bundles[idle], SizeIs(1));
    EXPECT_THAT(layout.bundles[idle][0].chunks, IsEmpty());
    EXPECT_EQ(layout.bundles[idle][0].elements, 0u);
    EXPECT_TRUE(layout.bundles[idle][0].buffers);
  }
}

TEST(Layout, IsAFunctionOfItsArguments) {
  const TensorTable table = TableOf({100000, 7, 7, 7, 50000});
  const Layout a = Build(table, 4, {});
  const Layout b = Build(table, 4, {});
  ASSERT_EQ(a.chunks.size(), b.chunks.size());
  for (size_t i = 0; i < a.chunks.size(); ++i) {
    EXPECT_EQ(a.chunks[i].shard, b.chunks[i].shard);
    EXPECT_EQ(a.chunks[i].bundle, b.chunks[i].bundle);
  }
}

TEST(Layout, ClosesBundlesOfManyTinyTensors) {
  const Layout layout = Build(TableOf(std::vector<int64_t>(kBundleChunksMax * 2 + 1, 1)), 1, {});
  ASSERT_EQ(layout.bundles[0].size(), 3u);
  EXPECT_EQ(layout.bundles[0][2].chunks.size(), 1u);
}

TEST(Layout, CutsMatricesBetweenRows) {
  TensorTable table = TableOf({100, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  table[1].shape = {30, 4, 3, 3};  // This matrix has 36 columns.
  // A chunk can hold 1,747 rows, so there are three equal chunks.
  table[2].shape = {5000, 300};
  table[3].shape = {3, kChunkElementsMax + 1};  // A row is too long for a chunk.
  table[4].shape = {30, 36};                    // Whole rows are not requested for this tensor.
  table[5].shape = {1, 5000};                   // Only one row.
  table[6].shape = {5000, 1};                   // Only one column.
  table[7].shape = {2, kChunkElementsMax};      // A row just fits in a chunk.
  table[8].shape = {1, 20, 30};                 // A matrix of 20 rows.
  table[9].shape = {20, 30, 2};                 // The second dimension is outermost in storage.
  table[9].strides = {2, 40, 1};
  LayoutParameters parameters;
  parameters.chunk_elements = 700;
  const Layout layout =
      Build(table, 3, parameters, {true, true, true, true, false, true, true, true, true, true});
  std::vector<uint64_t> next(table.size());
  std::vector<std::vector<uint32_t>> rows(table.size());
  for (const Chunk& chunk : layout.chunks) {
    EXPECT_EQ(chunk.offset, next[chunk.tensor]);
    next[chunk.tensor] += chunk.count;
    if (chunk.rows == 0) {
      EXPECT_LE(chunk.count, parameters.chunk_elements);
      continue;
    }
    rows[chunk.tensor].push_back(chunk.rows);
    EXPECT_LE(chunk.count, kChunkElementsMax);
    EXPECT_EQ(chunk.count % chunk.rows, 0u);
  }
  for (size_t t = 0; t < table.size(); ++t) EXPECT_EQ(next[t], table[t].elements()) << t;
  EXPECT_THAT(rows[1], ElementsAre(30));
  EXPECT_THAT(rows[2], ElementsAre(1667, 1667, 1666));
  EXPECT_THAT(rows[7], ElementsAre(1, 1));
  EXPECT_THAT(rows[8], ElementsAre(20));
  EXPECT_THAT(rows[9], ElementsAre(30));
  for (const size_t flat : {0u, 3u, 4u, 5u, 6u}) EXPECT_TRUE(rows[flat].empty()) << flat;
  EXPECT_EQ(BuildLayout(table, 1, parameters, {true}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Layout, RefusesWhatIsOutOfRange) {
  const auto refusal = [](const TensorTable& table, uint32_t shards, LayoutParameters parameters) {
    const absl::StatusOr<Layout> layout = BuildLayout(table, shards, parameters);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  const TensorTable table = TableOf({5});
  EXPECT_THAT(refusal(table, 0, {}), HasSubstr("number of shards is 0"));
  EXPECT_THAT(refusal(table, kMaxShards + 1, {}), HasSubstr("1 to 256"));
  EXPECT_THAT(refusal(table, 1, {0, 1}), HasSubstr("chunk_elements is 0"));
  EXPECT_THAT(refusal(table, 1, {kChunkElementsMax + 1, 1}), HasSubstr("chunk_elements"));
  EXPECT_THAT(refusal(table, 1, {1, 0}), HasSubstr("bundle_elements is 0"));
  EXPECT_THAT(refusal(table, 1, {1, kBundleElementsMax + 1}), HasSubstr("bundle_elements"));
  EXPECT_THAT(refusal({}, 1, {}), HasSubstr("no tensors"));
  LayoutParameters fragments;
  fragments.fragments = 0;
  EXPECT_THAT(refusal(table, 1, fragments), HasSubstr("fragments is 0; it must be 1 to 64"));
  fragments.fragments = 2;
  EXPECT_THAT(refusal(table, 1, fragments),
              HasSubstr("2 fragments, but the model has only 1 chunks"));
  EXPECT_THAT(refusal(TableOf({int64_t{1} << 40}), 1, {}), HasSubstr("make chunks larger"));
}

TensorTable TableWithBuffers(const std::vector<int64_t>& trained,
                             const std::vector<int64_t>& buffers) {
  TensorTable table = TableOf(trained);
  for (size_t i = 0; i < buffers.size(); ++i) {
    table.push_back(
        {absl::StrCat("buffer", i), {buffers[i]}, {}, DType::kFloat32, TensorRole::kBuffer});
  }
  return table;
}

TEST(Layout, BuffersHaveBundlesOfTheirOwnAfterAllOthers) {
  const TensorTable table = TableWithBuffers({8, 8}, {4, 4, 8});
  const Layout layout = Build(table, 1, {.chunk_elements = 8, .bundle_elements = 16});
  // The first bundle would have space for a buffer, but buffers must be in a bundle of their own.
  ASSERT_EQ(layout.bundles[0].size(), 2u);
  EXPECT_THAT(layout.bundles[0][0].chunks, ElementsAre(1, 0));
  EXPECT_FALSE(layout.bundles[0][0].buffers);
  EXPECT_THAT(layout.bundles[0][1].chunks, ElementsAre(4, 3, 2));
  EXPECT_TRUE(layout.bundles[0][1].buffers);
}

TEST(Layout, NoBundleIsOfBothRolesAndBuffersAreLast) {
  CounterRandom random(11);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const auto sizes = [&](uint64_t least) {
      std::vector<int64_t> some;
      for (uint64_t n = least + random.Below(8); n > 0; --n) {
        some.push_back(static_cast<int64_t>(1 + random.Below(uint64_t{1} << random.Below(12))));
      }
      return some;
    };
    const TensorTable table = TableWithBuffers(sizes(1), sizes(0));
    const LayoutParameters parameters = {
        .chunk_elements = static_cast<uint32_t>(1 + random.Below(3000)),
        .bundle_elements = static_cast<uint32_t>(1 + random.Below(9000))};
    const Layout layout = Build(table, static_cast<uint32_t>(1 + random.Below(5)), parameters);
    ExpectCovers(table, parameters, layout);
    size_t seen = 0;
    for (const std::vector<Bundle>& bundles : layout.bundles) {
      bool after_buffers = false;
      for (const Bundle& bundle : bundles) {
        EXPECT_FALSE(after_buffers && !bundle.buffers);
        after_buffers = bundle.buffers;
        EXPECT_TRUE(!bundle.chunks.empty() || bundles.size() == 1);
        for (const uint32_t id : bundle.chunks) {
          EXPECT_EQ(layout.chunks[id].tensor >= TrainedTensors(table), bundle.buffers);
          ++seen;
        }
      }
    }
    EXPECT_EQ(seen, layout.chunks.size());
  }
}

// A table without buffers must have the same chunks and bundles as before tensors had roles.
TEST(Layout, WithoutBuffersNothingChanged) {
  CounterRandom random(5);
  std::vector<int64_t> sizes;
  for (int i = 0; i < 60; ++i) sizes.push_back(static_cast<int64_t>(1 + random.Below(70000)));
  const Layout layout = Build(TableOf(sizes), 5, {.chunk_elements = 3000, .bundle_elements = 9000});
  Fnv1a hash;
  for (const Chunk& chunk : layout.chunks) {
    for (const uint64_t number : {uint64_t{chunk.tensor}, chunk.offset, uint64_t{chunk.count},
                                  uint64_t{chunk.shard}, uint64_t{chunk.bundle}}) {
      hash.Add(number);
    }
  }
  for (const std::vector<Bundle>& bundles : layout.bundles) {
    for (const Bundle& bundle : bundles) {
      for (const uint32_t id : bundle.chunks) hash.Add(uint64_t{id});
    }
  }
  EXPECT_EQ(hash.value(), 0x7DF97CB5B6AE6268u);
}

}  // namespace
}  // namespace sluice::protocol
