// SPDX-License-Identifier: Apache-2.0
// Rice coding of small unsigned numbers in two planes: the low bits of all numbers at a fixed
// width, and their quotients in unary. Separate planes are faster to decode than one bit stream.
// Sorted positions are coded as gaps.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "compress/coding/index_plan.h"
#include "compress/simd/positions.h"

namespace sluice::compress {

// Chooses the parameter as ChooseRice in index_plan.h does.
RicePlan ChooseRice(absl::Span<const uint32_t> numbers);

void AppendRemainders(absl::Span<const uint32_t> numbers, int parameter,
                      std::vector<std::byte>* out);
// Appends exactly BytesFor(plan.unary_bits) bytes.
void AppendUnary(absl::Span<const uint32_t> numbers, const RicePlan& plan,
                 std::vector<std::byte>* out);

// Returns true if all bits of `plane` from bit `bits` on are 0 and no byte follows them.
bool IsPadded(absl::Span<const std::byte> plane, uint64_t bits);

// Returns true if `unary` contains exactly `count` numbers and ends with the byte that contains the
// end of the last number.
bool IsUnaryPlane(absl::Span<const std::byte> unary, size_t count);

// Reads numbers of `width` bits from a plane. Never reads outside the plane.
class RemainderReader {
 public:
  RemainderReader(absl::Span<const std::byte> plane, int width)
      : plane_(plane), width_(width), mask_((uint64_t{1} << width) - 1) {}

  uint32_t Next() {
    const size_t byte = static_cast<size_t>(bit_ / 8);
    uint64_t word = 0;
    if (byte + sizeof(word) <= plane_.size()) {
      std::memcpy(&word, plane_.data() + byte, sizeof(word));
    } else if (byte < plane_.size()) {
      std::memcpy(&word, plane_.data() + byte, plane_.size() - byte);
    }
    word >>= bit_ % 8;
    bit_ += static_cast<uint64_t>(width_);
    return static_cast<uint32_t>(word & mask_);
  }

 private:
  const absl::Span<const std::byte> plane_;
  const int width_;
  const uint64_t mask_;
  uint64_t bit_ = 0;
};

// Calls fn(number) for each number in the two planes, and stops if `fn` returns false. Numbers have
// 64 bits, because a malformed plane may contain numbers of any size.
template <typename Fn>
void ForEachRice(absl::Span<const std::byte> remainders, absl::Span<const std::byte> unary,
                 int parameter, Fn fn) {
  RemainderReader low(remainders, parameter);
  uint64_t quotient = 0;
  for (size_t at = 0; at < unary.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    const size_t size = unary.size() - at < sizeof(word) ? unary.size() - at : sizeof(word);
    std::memcpy(&word, unary.data() + at, size);
    int used = 0;
    while (word != 0) {
      const int zeros = std::countr_zero(word);
      quotient += static_cast<uint64_t>(zeros);
      if (!fn((quotient << parameter) + low.Next())) return;
      quotient = 0;
      // The code shifts in two steps, because a shift by 64 is undefined.
      word = (word >> zeros) >> 1;
      used += zeros + 1;
    }
    quotient += static_cast<uint64_t>(64 - used);
  }
}

// Reads the same numbers as ForEachRice, but in batches. The planes must be valid and all numbers
// below 2^32.
class RiceReader {
 public:
  static constexpr size_t kBatch = 64;

  RiceReader(absl::Span<const std::byte> remainders, absl::Span<const std::byte> unary,
             int parameter)
      : remainders_(remainders), unary_(unary), parameter_(parameter) {}

  // Returns the next number. Must not be called after the last number.
  uint32_t Next() {
    if (at_ == filled_) Fill();
    return numbers_[at_++];
  }

 private:
  void Fill();

  const absl::Span<const std::byte> remainders_;
  const absl::Span<const std::byte> unary_;
  const int parameter_;
  size_t done_ = 0;
  uint64_t next_ = 0;  // Index of the first unread bit.
  OnesCursor cursor_;
  size_t at_ = 0, filled_ = 0;
  uint32_t numbers_[kBatch + kUnpackSlack];
};

// Works like ForEachRice for the gaps of ascending positions, but calls fn(position).
template <typename Fn>
void ForEachPosition(absl::Span<const std::byte> remainders, absl::Span<const std::byte> unary,
                     int parameter, Fn fn) {
  uint64_t next = 0;
  ForEachRice(remainders, unary, parameter, [&](uint64_t gap) {
    const uint64_t position = next + gap;
    next = position + 1;
    return fn(position);
  });
}

}  // namespace sluice::compress
