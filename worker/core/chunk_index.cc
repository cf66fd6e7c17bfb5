// SPDX-License-Identifier: Apache-2.0
#include "worker/core/chunk_index.h"

namespace sluice::worker {

ChunkIndex::ChunkIndex(const protocol::Layout& layout, size_t tensors) : layout_(layout) {
  first_.assign(tensors + 1, static_cast<uint32_t>(layout.chunks.size()));
  for (size_t id = layout.chunks.size(); id-- > 0;) {
    first_[layout.chunks[id].tensor] = static_cast<uint32_t>(id);
  }
  position_.resize(layout.chunks.size());
  for (const std::vector<protocol::Bundle>& bundles : layout.bundles) {
    for (const protocol::Bundle& bundle : bundles) {
      for (uint32_t i = 0; i < bundle.chunks.size(); ++i) position_[bundle.chunks[i]] = i;
    }
  }
}

}  // namespace sluice::worker
