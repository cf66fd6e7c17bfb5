// Rice coding of small unsigned numbers in two planes: the low bits of all numbers at a fixed
// width, and their quotients in unary. Split planes decode faster than one bit stream. Sorted
// positions are coded as gaps.
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

// As ChooseRice of index_plan.h.
RicePlan ChooseRice(absl::Span<const uint32_t> numbers);

void AppendRemainders(absl::Span<const uint32_t> numbers, int parameter,
                      std::vector<std::byte>* out);
// Appends exactly BytesFor(plan.unary_bits) bytes.
void AppendUnary(absl::Span<const uint32_t> numbers, const RicePlan& plan,
                 std::vector<std::byte>* out);

// True if all bits of `plane` from `bits` on are 0 and there is no byte beyond them.
bool IsPadded(absl::Span<const std::byte> plane, uint64_t bits);

// True if `unary` holds exactly `count` numbers and ends with the byte of the last.
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

// Calls fn(number) for the numbers of two planes, as 64 bits: a plane that lies holds numbers of
// any size. Ends early if `fn` returns false.
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
      // In two steps: a shift by 64 is undefined.
      word = (word >> zeros) >> 1;
      used += zeros + 1;
    }
    quotient += static_cast<uint64_t>(64 - used);
  }
}

// As ForEachRice a batch at a time, from planes that hold numbers below 2^32 and do not lie.
class RiceReader {
 public:
  static constexpr size_t kBatch = 64;

  RiceReader(absl::Span<const std::byte> remainders, absl::Span<const std::byte> unary,
             int parameter)
      : remainders_(remainders), unary_(unary), parameter_(parameter) {}

  // The next one; there must be one.
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
  uint64_t next_ = 0;  // The bit after the last one.
  OnesCursor cursor_;
  size_t at_ = 0, filled_ = 0;
  uint32_t numbers_[kBatch + kUnpackSlack];
};

// As ForEachRice, for the gaps of ascending positions: fn(position).
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
