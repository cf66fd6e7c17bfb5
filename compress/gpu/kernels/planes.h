// SPDX-License-Identifier: Apache-2.0
// Planes of numbers as in docs/wire-format.md, written by a block of threads. Each byte is written
// by a single thread, so planes may begin at any byte and no atomic operations are needed.
#pragma once

#include "base/device_functions.h"
#include "compress/coding/index_plan.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/gpu/kernels/scan.h"

namespace sluice::compress::gpu {

// Packs the lowest `width` bits (0 to 31) of number(i) for `count` numbers, beginning with number
// `first`. The calling thread writes these bytes completely.
template <class Number>
constexpr void PackRun(uint32_t first, uint32_t count, int width, uint8_t* out, Number number) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t word = 0;
  int filled = 0;
  for (uint32_t i = first; i < first + count; ++i) {
    word |= (number(i) & mask) << filled;
    for (filled += width; filled >= 8; filled -= 8, word >>= 8) *out++ = static_cast<uint8_t>(word);
  }
  if (filled > 0) *out = static_cast<uint8_t>(word);
}

// Packs all numbers. Each thread packs eight numbers at once, which fill whole bytes.
template <class Block, class Number>
constexpr void WritePacked(Block& block, uint32_t count, int width, uint8_t* out, Number number) {
  if (width == 0) return;
  block.ForEach([&](int thread) {
    for (uint32_t i = 8 * thread; i < count; i += 8 * kThreadsOf<Block>) {
      PackRun(i, Min(count - i, uint32_t{8}), width, out + uint64_t{i} / 8 * width, number);
    }
  });
}

// Writes each number in unary, as quotient(i) zeros and a one, to BytesFor(bits) bytes. `ends` must
// have space for `count` numbers. The thread whose one is the first in a byte writes that byte.
// Ends with a Sync.
template <class Block, class Quotient>
constexpr void WriteUnary(Block& block, uint32_t count, uint64_t bits, uint32_t* ends,
                          uint8_t* plane, Quotient quotient) {
  const auto bytes = static_cast<uint32_t>(BytesFor(bits));
  block.ForEach([&](int thread) {
    for (uint32_t i = thread; i < bytes; i += kThreadsOf<Block>) plane[i] = 0;
  });
  ForEachSum(
      block, count, [&](uint32_t i) { return quotient(i) + 1; },
      [&](uint32_t i, uint32_t before) { ends[i] = before + quotient(i); });
  block.ForEach([&](int thread) {
    for (uint32_t i = thread; i < count; i += kThreadsOf<Block>) {
      const uint32_t byte = ends[i] / 8;
      if (i > 0 && ends[i - 1] / 8 == byte) continue;
      unsigned ones = 0;
      for (uint32_t j = i; j < count && ends[j] / 8 == byte; ++j) ones |= 1U << (ends[j] % 8);
      plane[byte] = static_cast<uint8_t>(ones);
    }
  });
  block.Sync();
}

}  // namespace sluice::compress::gpu
