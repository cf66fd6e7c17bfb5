// SPDX-License-Identifier: Apache-2.0
// Float arrays that are far larger than any cache and aligned like tensors.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "hwy/aligned_allocator.h"

namespace sluice::bench {

inline constexpr size_t kChunk = 65536;      // Elements; the default in jobs.
inline constexpr size_t kChunks = 512;       // 128 MiB per array.
inline constexpr size_t kChunksInSlice = 8;  // At least a tenth of a millisecond of work.
inline constexpr size_t kSlices = kChunks / kChunksInSlice;
inline constexpr size_t kSlack = 4096;  // Spare elements, so that passes can shift the gradients.

class FloatArray {
 public:
  explicit FloatArray(size_t size) : size_(size), data_(hwy::AllocateAligned<float>(size)) {
    for (size_t i = 0; i < size; ++i) data_[i] = 0;
  }
  absl::Span<float> span() { return {data_.get(), size_}; }
  absl::Span<const float> span() const { return {data_.get(), size_}; }
  absl::Span<float> chunk(size_t i) { return span().subspan(i * kChunk, kChunk); }

 private:
  size_t size_;
  hwy::AlignedFreeUniquePtr<float[]> data_;
};

// Memory of one sender: gradients and residuals.
struct Side {
  FloatArray gradient{kChunks * kChunk + kSlack};
  FloatArray residual{kChunks * kChunk};
};

// The memory of both members of every pair. Both have the same heavy-tailed gradients.
struct Memory {
  Memory();
  Side measured;
  Side against;
};

}  // namespace sluice::bench
