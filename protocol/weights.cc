// SPDX-License-Identifier: Apache-2.0
#include "protocol/weights.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::protocol {
namespace {

// Returns the dimensions of a tensor from the outermost in storage to the innermost, or nothing for
// a row-major tensor.
std::vector<size_t> StorageOrder(const TensorInfo& tensor) {
  if (tensor.strides.empty()) return {};
  std::vector<size_t> order(tensor.shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Dimensions of size 1 may have any stride. Their place does not matter.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensor.strides[a] > tensor.strides[b]; });
  return std::is_sorted(order.begin(), order.end()) ? std::vector<size_t>{} : order;
}

}  // namespace

absl::StatusOr<follow::ModelParts> PartsOfWeights(const TensorTable& table, const Layout& layout) {
  follow::ModelParts parts;
  const uint32_t trained = TrainedTensors(table);
  for (uint32_t i = 0; i < trained; ++i) {
    parts.model.push_back(
        {.name = table[i].name, .shape = {table[i].shape.begin(), table[i].shape.end()}});
    parts.storage_order.push_back(StorageOrder(table[i]));
  }
  const absl::StatusOr<uint64_t> elements = follow::CheckLayout(parts.model);
  if (!elements.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("followers cannot read this model: ", elements.status().message()));
  }
  for (const std::vector<Bundle>& bundles : layout.bundles) {
    std::vector<follow::TensorPiece>& shard = parts.shards.emplace_back();
    for (const Bundle& bundle : bundles) {
      if (bundle.buffers) continue;
      for (const uint32_t id : bundle.chunks) {
        const Chunk& chunk = layout.chunks[id];
        shard.push_back({.tensor = chunk.tensor, .offset = chunk.offset, .count = chunk.count});
      }
    }
  }
  return parts;
}

absl::StatusOr<follow::ModelParts> PartsOfWeights(const WeightsDescription& description) {
  const absl::StatusOr<Layout> layout = BuildLayout(description.table, description.shards(),
                                                    description.layout, description.whole_rows);
  if (!layout.ok()) return layout.status();
  return PartsOfWeights(description.table, *layout);
}

}  // namespace sluice::protocol
