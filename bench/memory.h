// Arrays of floats, far larger than any cache and aligned as tensors are.
#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "hwy/aligned_allocator.h"

namespace sluice::bench {

inline constexpr size_t kChunk = 65536;      // Elements; the default of a job.
inline constexpr size_t kChunks = 512;       // 128 MiB an array.
inline constexpr size_t kChunksInSlice = 8;  // A tenth of a millisecond or more of work.
inline constexpr size_t kSlices = kChunks / kChunksInSlice;
inline constexpr size_t kSlack = 4096;  // Elements by which gradients move from pass to pass.

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

// What one sender works on: gradients and what is owed.
struct Side {
  FloatArray gradient{kChunks * kChunk + kSlack};
  FloatArray residual{kChunks * kChunk};
};

// Both sides of all pairs. The gradients are equal and heavy-tailed.
struct Memory {
  Memory();
  Side measured;
  Side against;
};

}  // namespace sluice::bench
