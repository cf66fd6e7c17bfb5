// SPDX-License-Identifier: Apache-2.0
// ChunkIndex: where the chunks of a layout are, by tensor and within their bundles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "protocol/layout.h"

namespace sluice::worker {

class ChunkIndex {
 public:
  // The layout must outlive the index. It has a chunk of each of the `tensors` tensors.
  ChunkIndex(const protocol::Layout& layout, size_t tensors);

  // Returns the tensor's chunks, by offset.
  absl::Span<const protocol::Chunk> Of(uint32_t tensor) const {
    return absl::MakeSpan(layout_.chunks)
        .subspan(first_[tensor], first_[tensor + 1] - first_[tensor]);
  }
  // Returns the chunk's position in its bundle. `chunk` is an element of the layout's list.
  uint32_t position(const protocol::Chunk& chunk) const {
    return position_[static_cast<size_t>(&chunk - layout_.chunks.data())];
  }
  const protocol::Layout& layout() const { return layout_; }

 private:
  const protocol::Layout& layout_;
  std::vector<uint32_t> first_;     // By tensor; the last entry is the number of chunks.
  std::vector<uint32_t> position_;  // By chunk.
};

}  // namespace sluice::worker
