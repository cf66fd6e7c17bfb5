// SPDX-License-Identifier: Apache-2.0
#include "protocol/layout.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::protocol {
namespace {

// Block size of the codecs, in elements. A cut inside a block would need a second scale.
constexpr uint64_t kCutMultiple = 256;

absl::Status CheckRange(absl::string_view what, uint64_t value, uint64_t largest) {
  if (value >= 1 && value <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layout: ", what, " is ", value, "; it must be 1 to ", largest));
}

uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

struct Cut {
  uint64_t size = 0;  // Number of elements of each chunk of a tensor, except the last chunk.
  // Number of elements of a row if chunks consist of whole rows; otherwise 0.
  uint64_t columns = 0;
};

Cut FlatCut(uint64_t elements, uint64_t largest) {
  const uint64_t even = DivideUp(elements, DivideUp(elements, largest));
  return {.size = std::min(DivideUp(even, kCutMultiple) * kCutMultiple, largest)};
}

// Returns the number of rows when the tensor's storage is viewed as a matrix: the size of the
// outermost dimension with more than one element. All other dimensions form the columns. Returns 1
// if there are no other dimensions.
uint64_t MatrixRows(const TensorInfo& tensor) {
  uint64_t rows = 1;
  int64_t widest = 0;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] < 2) continue;
    const int64_t stride = tensor.strides.empty() ? (rows == 1 ? 1 : 0) : tensor.strides[d];
    if (stride <= widest) continue;
    widest = stride;
    rows = static_cast<uint64_t>(tensor.shape[d]);
  }
  return rows == tensor.elements() ? 1 : rows;
}

Cut CutOf(const TensorInfo& tensor, uint64_t chunk_elements, bool whole_rows) {
  const uint64_t elements = tensor.elements();
  const uint64_t rows = whole_rows ? MatrixRows(tensor) : 1;
  const uint64_t columns = elements / rows;
  if (rows == 1 || columns > kChunkElementsMax) return FlatCut(elements, chunk_elements);
  const uint64_t chunks = DivideUp(rows, kChunkElementsMax / columns);
  return {.size = DivideUp(rows, chunks) * columns, .columns = columns};
}

absl::Status CutTensors(const TensorTable& table, uint64_t chunk_elements,
                        const std::vector<bool>& whole_rows, Layout* layout) {
  const auto cut_of = [&](size_t t) {
    return CutOf(table[t], chunk_elements, !whole_rows.empty() && whole_rows[t]);
  };
  uint64_t chunks = 0;
  for (size_t t = 0; t < table.size(); ++t) {
    chunks += DivideUp(table[t].elements(), cut_of(t).size);
  }
  if (chunks > kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("layout: ", chunks, " chunks of ",
                                                   chunk_elements, " elements; the limit is ",
                                                   kMaxChunks, "; make chunks larger"));
  }
  layout->chunks.reserve(chunks);
  for (uint32_t t = 0; t < table.size(); ++t) {
    const uint64_t elements = table[t].elements();
    const Cut cut = cut_of(t);
    for (uint64_t at = 0; at < elements; at += cut.size) {
      Chunk& chunk = layout->chunks.emplace_back();
      chunk.tensor = t;
      chunk.offset = at;
      chunk.count = static_cast<uint32_t>(std::min(cut.size, elements - at));
      if (cut.columns > 0) chunk.rows = static_cast<uint32_t>(chunk.count / cut.columns);
    }
  }
  return absl::OkStatus();
}

// Returns the ids of the chunks, the largest first.
std::vector<uint32_t> BySize(const std::vector<Chunk>& chunks) {
  std::vector<uint32_t> by_size(chunks.size());
  for (uint32_t id = 0; id < by_size.size(); ++id) by_size[id] = id;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&chunks](uint32_t a, uint32_t b) { return chunks[a].count > chunks[b].count; });
  return by_size;
}

// Returns the smallest chunk size that a tenth of a fragment allows, or `chunk_elements` if it is
// smaller.
uint64_t ChunkElements(const TensorTable& table, const LayoutParameters& parameters) {
  if (parameters.fragments == 1) return parameters.chunk_elements;
  const uint64_t tenth = TrainedElements(table) / (uint64_t{10} * parameters.fragments);
  return std::min<uint64_t>(parameters.chunk_elements,
                            std::max(tenth / kCutMultiple * kCutMultiple, kCutMultiple));
}

// Requires `by_size` as from BySize. Fails if a fragment gets no chunk.
absl::Status ChooseFragments(const std::vector<uint32_t>& by_size, uint32_t trained,
                             uint32_t fragments, std::vector<Chunk>* chunks) {
  std::vector<uint64_t> elements(fragments);
  for (const uint32_t id : by_size) {
    Chunk& chunk = (*chunks)[id];
    if (chunk.tensor >= trained) continue;
    const auto least = std::min_element(elements.begin(), elements.end());
    chunk.fragment = static_cast<uint32_t>(least - elements.begin());
    *least += chunk.count;
  }
  if (fragments == 1 || elements.back() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layout: ", fragments, " fragments, but the model has only ",
                   std::find(elements.begin(), elements.end(), 0) - elements.begin(),
                   " chunks: use fewer fragments, or none"));
}

void PlaceChunks(const std::vector<uint32_t>& by_size, uint32_t shards, uint32_t fragments,
                 std::vector<Chunk>* chunks) {
  // (elements, turn) of each shard; the smallest pair is on top. Fragment f begins with shard f.
  using Load = std::pair<uint64_t, uint32_t>;
  using Loads = std::priority_queue<Load, std::vector<Load>, std::greater<>>;
  std::vector<Loads> of_fragment(fragments);
  for (Loads& loads : of_fragment) {
    for (uint32_t turn = 0; turn < shards; ++turn) loads.emplace(0, turn);
  }
  for (const uint32_t id : by_size) {
    Chunk& chunk = (*chunks)[id];
    Loads& loads = of_fragment[chunk.fragment];
    const auto [elements, turn] = loads.top();
    loads.pop();
    chunk.shard = (turn + chunk.fragment) % shards;
    loads.emplace(elements + chunk.count, turn);
  }
}

// Fills bundles with those chunks of a fragment whose ids are in [first, last).
void FillBundles(size_t first, size_t last, bool buffers, uint32_t fragment,
                 uint32_t bundle_elements, Layout* layout) {
  for (size_t left = last; left > first; --left) {
    const auto id = static_cast<uint32_t>(left - 1);
    Chunk& chunk = layout->chunks[id];
    if (chunk.fragment != fragment) continue;
    std::vector<Bundle>& bundles = layout->bundles[chunk.shard];
    if (bundles.empty() || bundles.back().elements >= bundle_elements ||
        bundles.back().chunks.size() >= kBundleChunksMax || bundles.back().buffers != buffers ||
        bundles.back().fragment != fragment) {
      Bundle& next = bundles.emplace_back();
      next.buffers = buffers;
      next.fragment = fragment;
    }
    chunk.bundle = static_cast<uint32_t>(bundles.size() - 1);
    bundles.back().chunks.push_back(id);
    bundles.back().elements += chunk.count;
  }
}

// Lets shards without chunks take part in every step.
void FillIdleShards(Layout* layout) {
  for (std::vector<Bundle>& bundles : layout->bundles) {
    if (bundles.empty()) bundles.emplace_back().buffers = true;
  }
}

}  // namespace

std::vector<TensorPart> PartsDue(const Layout& layout, uint32_t trained, uint64_t step) {
  std::vector<TensorPart> parts;
  for (const Chunk& chunk : layout.chunks) {
    if (chunk.tensor >= trained) break;
    if (!IsFragmentDue(layout.fragments, chunk.fragment, step)) continue;
    if (!parts.empty() && parts.back().tensor == chunk.tensor &&
        parts.back().offset + parts.back().count == chunk.offset) {
      parts.back().count += chunk.count;
    } else {
      parts.push_back({.tensor = chunk.tensor, .offset = chunk.offset, .count = chunk.count});
    }
  }
  return parts;
}

absl::StatusOr<Layout> BuildLayout(const TensorTable& table, uint32_t shards,
                                   const LayoutParameters& parameters,
                                   const std::vector<bool>& whole_rows) {
  for (const absl::Status& status :
       {ValidateTensorTable(table), CheckRange("the number of shards", shards, kMaxShards),
        CheckRange("chunk_elements", parameters.chunk_elements, kChunkElementsMax),
        CheckRange("bundle_elements", parameters.bundle_elements, kBundleElementsMax),
        CheckRange("fragments", parameters.fragments, kMaxFragments)}) {
    if (!status.ok()) return status;
  }
  if (!whole_rows.empty() && whole_rows.size() != table.size()) {
    return absl::InvalidArgumentError(absl::StrCat("layout: whole_rows is for ", whole_rows.size(),
                                                   " tensors, there are ", table.size()));
  }
  Layout layout;
  layout.fragments = parameters.fragments;
  const uint64_t chunk_elements = ChunkElements(table, parameters);
  const absl::Status cut = CutTensors(table, chunk_elements, whole_rows, &layout);
  if (!cut.ok()) return cut;
  const uint32_t trained = TrainedTensors(table);
  const std::vector<uint32_t> by_size = BySize(layout.chunks);
  const absl::Status chosen =
      ChooseFragments(by_size, trained, parameters.fragments, &layout.chunks);
  if (!chosen.ok()) return chosen;
  PlaceChunks(by_size, shards, parameters.fragments, &layout.chunks);
  layout.bundles.resize(shards);
  const auto is_trained = [trained](const Chunk& chunk) { return chunk.tensor < trained; };
  const size_t first_buffer = static_cast<size_t>(
      std::partition_point(layout.chunks.begin(), layout.chunks.end(), is_trained) -
      layout.chunks.begin());
  // Gradients and buffers have separate bundles: gradients become available during the backward
  // pass, but buffers may become available only after it.
  for (uint32_t fragment = 0; fragment < parameters.fragments; ++fragment) {
    FillBundles(0, first_buffer, /*buffers=*/false, fragment, parameters.bundle_elements, &layout);
  }
  FillBundles(first_buffer, layout.chunks.size(), /*buffers=*/true, /*fragment=*/0,
              parameters.bundle_elements, &layout);
  FillIdleShards(&layout);
  return layout;
}

}  // namespace sluice::protocol
