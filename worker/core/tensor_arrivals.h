// SPDX-License-Identifier: Apache-2.0
// TensorArrivals: the tensors of a step whose results have all arrived. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "protocol/layout.h"

namespace sluice::worker {

class TensorArrivals {
 public:
  TensorArrivals(const protocol::Layout& layout, size_t tensors) : chunks_(tensors) {
    for (const protocol::Chunk& chunk : layout.chunks) ++chunks_[chunk.tensor];
    StartStep();
  }

  void StartStep() {
    missing_ = chunks_;
    arrived_.clear();
  }
  // Records the result of one chunk of the tensor.
  void Add(uint32_t tensor) {
    if (--missing_[tensor] == 0) arrived_.push_back(tensor);
  }
  bool HasAll(uint32_t tensor) const { return tensor < missing_.size() && missing_[tensor] == 0; }
  // Returns the tensors that arrived since the last call in this step.
  std::vector<uint32_t> Take() { return std::exchange(arrived_, {}); }

 private:
  std::vector<uint32_t> chunks_;   // By tensor.
  std::vector<uint32_t> missing_;  // By tensor: chunks without a result in this step.
  std::vector<uint32_t> arrived_;
};

}  // namespace sluice::worker
