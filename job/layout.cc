#include "job/layout.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// Codecs work on blocks of so many elements: a cut inside one would cost a second scale.
constexpr uint64_t kCutMultiple = 256;

absl::Status CheckRange(absl::string_view what, uint64_t value, uint64_t largest) {
  if (value >= 1 && value <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layout: ", what, " is ", value, "; it must be 1 to ", largest));
}

uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Elements of each chunk of a tensor but the last.
uint64_t CutSize(uint64_t elements, uint64_t largest) {
  const uint64_t even = DivideUp(elements, DivideUp(elements, largest));
  return std::min(DivideUp(even, kCutMultiple) * kCutMultiple, largest);
}

absl::Status CutTensors(const TensorTable& table, uint32_t chunk_elements, Layout* layout) {
  uint64_t chunks = 0;
  for (const TensorInfo& tensor : table) {
    chunks += DivideUp(tensor.elements(), CutSize(tensor.elements(), chunk_elements));
  }
  if (chunks > kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("layout: ", chunks, " chunks of ",
                                                   chunk_elements, " elements; the limit is ",
                                                   kMaxChunks, "; make chunks larger"));
  }
  layout->chunks.reserve(chunks);
  for (uint32_t t = 0; t < table.size(); ++t) {
    const uint64_t elements = table[t].elements();
    const uint64_t size = CutSize(elements, chunk_elements);
    for (uint64_t at = 0; at < elements; at += size) {
      Chunk& chunk = layout->chunks.emplace_back();
      chunk.tensor = t;
      chunk.offset = at;
      chunk.count = static_cast<uint32_t>(std::min(size, elements - at));
    }
  }
  return absl::OkStatus();
}

void PlaceChunks(uint32_t shards, std::vector<Chunk>* chunks) {
  std::vector<uint32_t> by_size(chunks->size());
  for (uint32_t id = 0; id < by_size.size(); ++id) by_size[id] = id;
  std::stable_sort(by_size.begin(), by_size.end(), [chunks](uint32_t a, uint32_t b) {
    return (*chunks)[a].count > (*chunks)[b].count;
  });
  using Load = std::pair<uint64_t, uint32_t>;  // (elements, shard); the least is on top.
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (uint32_t shard = 0; shard < shards; ++shard) loads.emplace(0, shard);
  for (const uint32_t id : by_size) {
    Chunk& chunk = (*chunks)[id];
    const auto [elements, shard] = loads.top();
    loads.pop();
    chunk.shard = shard;
    loads.emplace(elements + chunk.count, shard);
  }
}

void FillBundles(uint32_t bundle_elements, Layout* layout) {
  for (size_t left = layout->chunks.size(); left > 0; --left) {
    const auto id = static_cast<uint32_t>(left - 1);
    Chunk& chunk = layout->chunks[id];
    std::vector<Bundle>& bundles = layout->bundles[chunk.shard];
    if (bundles.empty() || bundles.back().elements >= bundle_elements ||
        bundles.back().chunks.size() >= kBundleChunksMax) {
      bundles.emplace_back();
    }
    chunk.bundle = static_cast<uint32_t>(bundles.size() - 1);
    bundles.back().chunks.push_back(id);
    bundles.back().elements += chunk.count;
  }
}

}  // namespace

absl::StatusOr<Layout> BuildLayout(const TensorTable& table, uint32_t shards,
                                   const LayoutParameters& parameters) {
  for (const absl::Status& status :
       {ValidateTensorTable(table), CheckRange("the number of shards", shards, kMaxShards),
        CheckRange("chunk_elements", parameters.chunk_elements, kChunkElementsMax),
        CheckRange("bundle_elements", parameters.bundle_elements, kBundleElementsMax)}) {
    if (!status.ok()) return status;
  }
  Layout layout;
  const absl::Status cut = CutTensors(table, parameters.chunk_elements, &layout);
  if (!cut.ok()) return cut;
  PlaceChunks(shards, &layout.chunks);
  layout.bundles.resize(shards);
  FillBundles(parameters.bundle_elements, &layout);
  return layout;
}

}  // namespace sluice
