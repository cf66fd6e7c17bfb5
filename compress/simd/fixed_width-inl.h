// SPDX-License-Identifier: Apache-2.0
// Packs fixed-width numbers into bits and unpacks them, for compress/simd/positions.h. Included
// once per instruction set.
#if defined(SLUICE_COMPRESS_SIMD_FIXED_WIDTH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_COMPRESS_SIMD_FIXED_WIDTH_INL_H_
#undef SLUICE_COMPRESS_SIMD_FIXED_WIDTH_INL_H_
#else
#define SLUICE_COMPRESS_SIMD_FIXED_WIDTH_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "compress/simd/positions.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight numbers of b bits take b bytes, so groups of eight are independent.
constexpr size_t kGroup = 8;
constexpr size_t kSumBlock = 256;

HWY_INLINE uint64_t Load64(const uint8_t* HWY_RESTRICT from) {
  uint64_t word;
  hwy::CopyBytes<sizeof(word)>(from, &word);
  return word;
}
HWY_INLINE void Store64(uint64_t word, uint8_t* HWY_RESTRICT to) {
  hwy::CopyBytes<sizeof(word)>(&word, to);
}

// Packs eight numbers of 1 to 15 bits.
HWY_INLINE void PackGroup(const uint32_t* HWY_RESTRICT numbers, int width,
                          uint8_t* HWY_RESTRICT out) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t low = 0, high = 0;
  for (int i = 0; i < 4; ++i) {
    low |= (numbers[i] & mask) << (i * width);
    high |= (numbers[i + 4] & mask) << (i * width);
  }
  const int half = 4 * width;
  Store64(low | (high << half), out);
  Store64(high >> (64 - half), out + 8);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void PackTwoGroups(const uint32_t* HWY_RESTRICT numbers, int width,
                              uint8_t* HWY_RESTRICT out) {
  PackGroup(numbers, width, out);
  PackGroup(numbers + kGroup, width, out + width);
}
#else
// Packs two groups as PackGroup does, with pairs of numbers in vectors.
HWY_INLINE void PackTwoGroups(const uint32_t* HWY_RESTRICT numbers, int width,
                              uint8_t* HWY_RESTRICT out) {
  const hn::CappedTag<uint64_t, kGroup> du;
  const hn::Repartition<uint32_t, decltype(du)> du32;
  const auto one = hn::Set(du32, (1U << width) - 1);
  const auto two = hn::Set(du, (uint64_t{1} << (2 * width)) - 1);
  uint64_t pairs[kGroup];
  for (size_t i = 0; i < kGroup; i += hn::Lanes(du)) {
    const auto low = hn::BitCast(du, hn::And(hn::LoadU(du32, numbers + 2 * i), one));
    hn::StoreU(hn::And(hn::Or(low, hn::ShiftRightSame(low, 32 - width)), two), du, pairs + i);
  }
  const int half = 4 * width;
  for (size_t i = 0; i < kGroup; i += 4, out += width) {
    const uint64_t low = pairs[i] | (pairs[i + 1] << (2 * width));
    const uint64_t high = pairs[i + 2] | (pairs[i + 3] << (2 * width));
    Store64(low | (high << half), out);
    Store64(high >> (64 - half), out + 8);
  }
}
#endif

inline void PackBits(const uint32_t* HWY_RESTRICT numbers, size_t count, int width,
                     uint8_t* HWY_RESTRICT out) {
  if (width == 0) return;
  size_t i = 0;
  if (width == 16) {
    for (; i + 4 <= count; i += 4, out += 8) {
      uint64_t word = 0;
      for (size_t j = 0; j < 4; ++j) word |= uint64_t{numbers[i + j] & 0xFFFF} << (16 * j);
      Store64(word, out);
    }
  } else if (width < 16) {
    for (; i + 2 * kGroup <= count; i += 2 * kGroup, out += ptrdiff_t{2} * width) {
      PackTwoGroups(numbers + i, width, out);
    }
    for (; i + kGroup <= count; i += kGroup, out += width) PackGroup(numbers + i, width, out);
  }
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t word = 0;
  int filled = 0;
  for (; i < count; ++i) {
    word |= (numbers[i] & mask) << filled;
    filled += width;
    for (; filled >= 8; filled -= 8, word >>= 8) *out++ = static_cast<uint8_t>(word);
  }
  if (filled > 0) *out = static_cast<uint8_t>(word);
}

inline void UnpackBits(const uint8_t* HWY_RESTRICT plane, size_t size, size_t count, int width,
                       uint32_t* HWY_RESTRICT numbers) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  const auto bytes = static_cast<size_t>(width);
  size_t i = 0, at = 0;
  if (width <= 8) {
    for (; i < count && at + 8 <= size; i += kGroup, at += bytes) {
      const uint64_t word = Load64(plane + at);
      for (size_t j = 0; j < kGroup; ++j) {
        numbers[i + j] = static_cast<uint32_t>((word >> (j * bytes)) & mask);
      }
    }
  } else if (width <= 16) {
    const size_t half = 4 * bytes;
    for (; i < count && at + bytes + 8 <= size; i += kGroup, at += bytes) {
      const uint64_t low = Load64(plane + at);
      const uint64_t high = Load64(plane + at + half / 8) >> (half % 8);
      for (size_t j = 0; j < 4; ++j) {
        numbers[i + j] = static_cast<uint32_t>((low >> (j * bytes)) & mask);
        numbers[i + j + 4] = static_cast<uint32_t>((high >> (j * bytes)) & mask);
      }
    }
  }
  for (uint64_t bit = uint64_t{i} * bytes; i < count; ++i, bit += bytes) {
    const size_t byte = bit / 8;
    uint64_t word = 0;
    if (byte < size) {
      const size_t left = HWY_MIN(size - byte, sizeof(word));
      for (size_t j = 0; j < left; ++j) word |= uint64_t{plane[byte + j]} << (8 * j);
    }
    numbers[i] = static_cast<uint32_t>((word >> (bit % 8)) & mask);
  }
}

inline BitsTotal SumOfBits(const uint8_t* HWY_RESTRICT plane, size_t size, size_t count,
                           int width) {
  BitsTotal total;
  if (width == 0) return total;
  const uint32_t largest = static_cast<uint32_t>((uint64_t{1} << width) - 1);
  uint32_t numbers[kSumBlock + kUnpackSlack];
  for (size_t i = 0; i < count; i += kSumBlock) {
    const size_t here = HWY_MIN(count - i, kSumBlock);
    const size_t at = i / 8 * static_cast<size_t>(width);
    UnpackBits(plane + at, size - at, here, width, numbers);
    uint32_t full = 0;
    uint64_t sum = 0;
    for (size_t j = 0; j < here; ++j) {
      sum += numbers[j];
      full += numbers[j] == largest ? 1 : 0;
    }
    total.sum += sum;
    total.full += full;
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#endif
