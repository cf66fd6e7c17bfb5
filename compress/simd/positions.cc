// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/positions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/positions.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/fixed_width-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SumQuotients(const uint32_t* HWY_RESTRICT numbers, size_t count, int shift,
                  QuotientSums* HWY_RESTRICT result) {
  const hn::ScalableTag<uint32_t> du;
  const auto third = hn::Set(du, 43691);  // 2^17 / 3, rounded up.
  hn::Vec<decltype(du)> sums[kDivisorCount];
  for (auto& sum : sums) sum = hn::Zero(du);
  auto largest = hn::Zero(du);
  const auto add = [&](auto number) HWY_ATTR {
    largest = hn::Max(largest, number);
    const auto one = hn::ShiftRightSame(number, shift);
    const auto two = hn::ShiftRight<1>(one);
    const auto four = hn::ShiftRight<2>(one);
    sums[0] = hn::Add(sums[0], one);
    sums[1] = hn::Add(sums[1], two);
    sums[2] = hn::Add(sums[2], four);
    sums[3] = hn::Add(sums[3], hn::ShiftRight<3>(one));
    sums[4] = hn::Add(sums[4], hn::ShiftRight<17>(hn::Mul(one, third)));
    sums[5] = hn::Add(sums[5], hn::ShiftRight<17>(hn::Mul(two, third)));
    sums[6] = hn::Add(sums[6], hn::ShiftRight<17>(hn::Mul(four, third)));
  };
  const size_t lanes = hn::Lanes(du);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) add(hn::LoadU(du, numbers + i));
  uint32_t rest[hn::MaxLanes(du)] = {};
  for (size_t j = 0; i + j < count; ++j) rest[j] = numbers[i + j];
  add(hn::LoadU(du, rest));
  for (size_t j = 0; j < kDivisorCount; ++j) {
    uint32_t each[hn::MaxLanes(du)];
    hn::StoreU(sums[j], du, each);
    result->sums[j] = 0;
    for (size_t lane = 0; lane < lanes; ++lane) result->sums[j] += each[lane];
  }
  result->largest = hn::GetLane(hn::MaxOfLanes(du, largest));
}

HWY_INLINE int ParameterOfBlock(const uint32_t* HWY_RESTRICT numbers) {
  const hn::CappedTag<uint32_t, kRiceBlock> du;
  auto sum = hn::LoadU(du, numbers);
  for (size_t i = hn::Lanes(du); i < kRiceBlock; i += hn::Lanes(du)) {
    sum = hn::Add(sum, hn::LoadU(du, numbers + i));
  }
  return BlockParameter(hn::GetLane(hn::SumOfLanes(du, sum)));
}

// Calls fn(numbers, count) for each block. Zeros after the numbers fill an incomplete block.
template <class Fn>
HWY_INLINE void ForEachBlock(const uint32_t* HWY_RESTRICT numbers, size_t count, Fn fn) {
  size_t i = 0;
  for (; i + kRiceBlock <= count; i += kRiceBlock) fn(numbers + i, kRiceBlock);
  if (i == count) return;
  uint32_t rest[kRiceBlock] = {};
  for (size_t j = 0; i + j < count; ++j) rest[j] = numbers[i + j];
  fn(rest, count - i);
}

BlockSizes SizeOfBlocks(const uint32_t* HWY_RESTRICT numbers, size_t count) {
  const hn::CappedTag<uint32_t, kRiceBlock> du;
  auto quotients = hn::Zero(du);
  BlockSizes sizes = {};
  ForEachBlock(numbers, count, [&](const uint32_t* block, size_t size) HWY_ATTR {
    const int parameter = ParameterOfBlock(block);
    sizes.low_bytes += (size * static_cast<size_t>(parameter) + 7) / 8;
    for (size_t i = 0; i < kRiceBlock; i += hn::Lanes(du)) {
      quotients = hn::Add(quotients, hn::ShiftRightSame(hn::LoadU(du, block + i), parameter));
    }
  });
  uint32_t lanes[hn::MaxLanes(du)];
  hn::StoreU(quotients, du, lanes);
  for (size_t i = 0; i < hn::Lanes(du); ++i) sizes.quotients += lanes[i];
  return sizes;
}

void PackBlocks(const uint32_t* HWY_RESTRICT numbers, size_t count,
                uint8_t* HWY_RESTRICT parameters, uint8_t* HWY_RESTRICT lows) {
  size_t index = 0;
  ForEachBlock(numbers, count, [&](const uint32_t* block, size_t size) HWY_ATTR {
    const int parameter = ParameterOfBlock(block);
    const auto nibble = static_cast<uint8_t>(parameter);
    if (index % 2 == 0) {
      parameters[index / 2] = nibble;
    } else {
      parameters[index / 2] |= static_cast<uint8_t>(nibble << 4);
    }
    ++index;
    if (parameter == 0) return;
    if (size == kRiceBlock) {
      PackTwoGroups(block, parameter, lows);
    } else {
      PackBits(block, size, parameter, lows);
    }
    lows += (size * static_cast<size_t>(parameter) + 7) / 8;
  });
}

// Appends numbers in unary. May write zeros after the last number.
class UnaryWriter {
 public:
  explicit UnaryWriter(uint8_t* plane) : at_(plane) {}

  // Appends sixteen numbers. The fast path is for small numbers.
  HWY_INLINE void AddTwoGroups(const uint32_t* HWY_RESTRICT quotients) {
#if HWY_TARGET == HWY_SCALAR
    AddGroup(quotients);
    AddGroup(quotients + kGroup);
#else
    const hn::CappedTag<uint64_t, kGroup> du;
    const hn::Repartition<uint32_t, decltype(du)> du32;
    const auto one = hn::Set(du, 1);
    // A shift by 64 or more is undefined, hence the mask. Numbers that large take the slow path.
    const auto shift = [&](auto word, auto by)
                           HWY_ATTR { return hn::Shl(word, hn::And(by, hn::Set(du, 63))); };
    uint64_t bits[kGroup], sizes[kGroup];
    auto largest = hn::Zero(du32);
    for (size_t i = 0; i < kGroup; i += hn::Lanes(du)) {
      const auto both = hn::LoadU(du32, quotients + 2 * i);
      largest = hn::Max(largest, both);
      const auto first = hn::And(hn::BitCast(du, both), hn::Set(du, 0xFFFFFFFF));
      const auto last = hn::Add(hn::Add(first, one), hn::ShiftRight<32>(hn::BitCast(du, both)));
      const auto pairs = hn::Or(shift(one, first), shift(one, last));
      const auto pair_sizes = hn::Add(last, one);
      // Places the upper neighbour's bits above the lower's. Only the lower lane's result is used.
      const auto above = shift(hn::Reverse2(du, pairs), pair_sizes);
      hn::StoreU(hn::Or(pairs, above), du, bits + i);
      hn::StoreU(hn::Add(pair_sizes, hn::Reverse2(du, pair_sizes)), du, sizes + i);
    }
    const auto most = hn::Set(du32, kAtOnce / 4 - 1);
    if (HWY_UNLIKELY(!hn::AllTrue(du32, hn::Eq(hn::Max(largest, most), most)))) {
      AddGroup(quotients);
      AddGroup(quotients + kGroup);
      return;
    }
    for (size_t i = 0; i < kGroup; i += 4) {
      const auto low = static_cast<int>(sizes[i]), high = static_cast<int>(sizes[i + 2]);
      if (HWY_LIKELY(low + high <= static_cast<int>(kAtOnce))) {
        Put(bits[i] | (bits[i + 2] << low), low + high);
      } else {
        Put(bits[i], low);
        Put(bits[i + 2], high);
      }
    }
#endif
  }
  HWY_INLINE void AddGroup(const uint32_t* HWY_RESTRICT quotients) {
    uint64_t bits = 0, sum = 0;
    for (size_t i = kGroup; i-- > 0;) {
      // The first number gets the lowest bits. Sums that lose bits here are too large to use them.
      bits = (2 * bits + 1) << (quotients[i] % 64);
      sum += quotients[i];
    }
    if (HWY_LIKELY(sum + kGroup <= kAtOnce)) return Put(bits, static_cast<int>(sum + kGroup));
    for (size_t i = 0; i < kGroup; ++i) Add(quotients[i]);
  }
  HWY_INLINE void Add(uint32_t quotient) {
    const uint64_t bit = static_cast<uint64_t>(filled_) + quotient;
    if (bit >= 8) {
      // The bytes in between are already zeros.
      at_ += bit / 8;
      rest_ = 0;
    }
    filled_ = static_cast<int>(bit % 8);
    rest_ |= uint64_t{1} << filled_;
    Put(0, 1);
  }

 private:
  // Largest number of bits that fits in a word together with up to 7 earlier bits.
  static constexpr uint64_t kAtOnce = 56;

  // Appends bits without a branch: stores a whole word and keeps the bits of the incomplete byte.
  HWY_INLINE void Put(uint64_t bits, int count) {
    const uint64_t word = rest_ | (bits << filled_);
    Store64(word, at_);
    filled_ += count;
    at_ += filled_ / 8;
    rest_ = word >> (filled_ / 8 * 8);
    filled_ %= 8;
  }

  uint8_t* at_;        // The byte that is not full yet.
  int filled_ = 0;     // Number of used bits in that byte.
  uint64_t rest_ = 0;  // Values of the used bits.
};

void SetOnesOfBlocks(const uint32_t* HWY_RESTRICT numbers, size_t count,
                     uint8_t* HWY_RESTRICT plane) {
  UnaryWriter writer(plane);
  ForEachBlock(numbers, count, [&](const uint32_t* block, size_t size) HWY_ATTR {
    const int parameter = ParameterOfBlock(block);
    uint32_t quotients[kRiceBlock];
    for (size_t i = 0; i < kRiceBlock; ++i) quotients[i] = block[i] >> parameter;
    if (size == kRiceBlock) {
      writer.AddTwoGroups(quotients);
    } else {
      for (size_t i = 0; i < size; ++i) writer.Add(quotients[i]);
    }
  });
}

// Appends the quotient of each number in unary. `fn(number)` must return the quotient.
template <class Fn>
HWY_INLINE void AddUnary(const uint32_t* HWY_RESTRICT numbers, size_t count,
                         UnaryWriter* HWY_RESTRICT writer, Fn fn) {
  size_t i = 0;
  for (; i + 2 * kGroup <= count; i += 2 * kGroup) {
    uint32_t quotients[2 * kGroup];
    for (size_t j = 0; j < 2 * kGroup; ++j) quotients[j] = fn(numbers[i + j]);
    writer->AddTwoGroups(quotients);
  }
  for (; i < count; ++i) writer->Add(fn(numbers[i]));
}

void SetOnes(const uint32_t* HWY_RESTRICT numbers, size_t count, int shift, bool by_three,
             uint8_t* HWY_RESTRICT plane) {
  UnaryWriter writer(plane);
  if (by_three) {
    AddUnary(numbers, count, &writer, [shift](uint32_t x) HWY_ATTR { return (x >> shift) / 3; });
  } else {
    AddUnary(numbers, count, &writer, [shift](uint32_t x) HWY_ATTR { return x >> shift; });
  }
}

void PackThirds(const uint32_t* HWY_RESTRICT numbers, size_t count, int shift,
                uint8_t* HWY_RESTRICT out) {
  constexpr size_t kPart = 320;
  // Byte 4 of the product with five digits is d0 + 3 d1 + 9 d2 + 27 d3 + 81 d4. No lower byte
  // causes a carry.
  constexpr uint64_t kWeights = 81 | (27 << 8) | (9 << 16) | (3 << 24) | (uint64_t{1} << 32);
  while (count > 0) {
    const size_t size = HWY_MIN(count, kPart);
    uint8_t digits[kPart + 8] = {};
    for (size_t i = 0; i < size; ++i) digits[i] = static_cast<uint8_t>((numbers[i] >> shift) % 3);
    for (size_t i = 0; i < size; i += 5) {
      *out++ = static_cast<uint8_t>(((Load64(digits + i) & 0xFFFFFFFFFF) * kWeights) >> 32);
    }
    numbers += size;
    count -= size;
  }
}

size_t FindOnes(const uint8_t* HWY_RESTRICT plane, size_t size, size_t wanted,
                OnesCursor* HWY_RESTRICT cursor, uint32_t* HWY_RESTRICT ones) {
  OnesCursor at = *cursor;
  size_t found = 0;
  while (true) {
    const size_t here = hwy::PopCount(at.word);
    const auto base = static_cast<uint32_t>(at.base);
    if (found + here > wanted) break;
    // Eight values are written at once without a test for each. Later writes overwrite the excess.
    for (size_t i = 0; i < here; i += kGroup) {
      for (size_t j = 0; j < kGroup; ++j) {
        ones[found + i + j] =
            base +
            static_cast<uint32_t>(at.word == 0 ? 0 : hwy::Num0BitsBelowLS1Bit_Nonzero64(at.word));
        at.word &= at.word - 1;
      }
    }
    found += here;
    if (at.next >= size) {
      at.word = 0;
      break;
    }
    at.base = uint64_t{at.next} * 8;
    if (at.next + 8 <= size) {
      at.word = Load64(plane + at.next);
    } else {
      at.word = 0;
      for (size_t j = at.next; j < size; ++j) at.word |= uint64_t{plane[j]} << (8 * (j - at.next));
    }
    at.next += 8;
  }
  while (found < wanted && at.word != 0) {
    ones[found++] = static_cast<uint32_t>(at.base) +
                    static_cast<uint32_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(at.word));
    at.word &= at.word - 1;
  }
  *cursor = at;
  return found;
}

// Computes positions by adding up gaps, four at a time.
class PositionSum {
 public:
  explicit PositionSum(uint32_t run) : run_(run) {}

  // Computes positions[i] = run + lows[i] + (times * quotient << shift), where `quotient` = ones[i]
  // - first - i is the sum of all quotients so far. Each number increases `run` by lows[i] + 1.
  HWY_INLINE void Add(const uint32_t* HWY_RESTRICT ones, const uint32_t* HWY_RESTRICT lows,
                      size_t count, uint32_t first, uint32_t times, int shift,
                      uint32_t* HWY_RESTRICT positions) {
    size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<uint32_t, 4> du;
    auto index = hn::Iota(du, first);
    auto run = hn::Set(du, run_);
    for (; i + 4 <= count; i += 4) {
      const auto quotients = hn::Sub(hn::LoadU(du, ones + i), index);
      const auto highs = hn::ShiftLeftSame(hn::Mul(quotients, hn::Set(du, times)), shift);
      const auto low = hn::LoadU(du, lows + i);
      auto sums = hn::Add(low, hn::Set(du, 1));
      sums = hn::Add(sums, hn::ShiftLeftLanes<1>(du, sums));
      sums = hn::Add(sums, hn::ShiftLeftLanes<2>(du, sums));
      const auto next = hn::Add(run, sums);
      // `sums` counts 1 for the number itself. Only later positions need this 1.
      hn::StoreU(hn::Add(hn::Sub(next, hn::Set(du, 1)), highs), du, positions + i);
      run = hn::Broadcast<3>(next);
      index = hn::Add(index, hn::Set(du, 4));
    }
    run_ = hn::GetLane(run);
#endif
    for (; i < count; ++i) {
      const uint32_t quotient = ones[i] - (first + static_cast<uint32_t>(i));
      positions[i] = run_ + lows[i] + ((quotient * times) << shift);
      run_ += lows[i] + 1;
    }
  }
  uint32_t run() const { return run_; }

 private:
  uint32_t run_;
};

void AddQuotients(const uint32_t* HWY_RESTRICT ones, const uint32_t* HWY_RESTRICT lows,
                  size_t count, uint32_t first, int shift, bool by_three,
                  uint32_t* HWY_RESTRICT run, uint32_t* HWY_RESTRICT positions) {
  PositionSum sum(*run);
  sum.Add(ones, lows, count, first, by_three ? 3 : 1, shift, positions);
  *run = sum.run();
}

void AddBlocks(const uint32_t* HWY_RESTRICT ones, size_t count,
               const uint8_t* HWY_RESTRICT parameters, const uint8_t* HWY_RESTRICT lows,
               size_t lows_size, BlockCursor* HWY_RESTRICT cursor, uint64_t* HWY_RESTRICT run,
               uint32_t* HWY_RESTRICT positions) {
  uint64_t next = *run;
  BlockCursor at = *cursor;
  for (size_t i = 0; i < count; i += kRiceBlock) {
    const size_t size = HWY_MIN(count - i, kRiceBlock);
    const size_t block = (at.done + i) / kRiceBlock;
    const int parameter = (parameters[block / 2] >> (block % 2 * 4)) & 15;
    uint32_t low[kRiceBlock + kUnpackSlack];
    UnpackBits(lows + at.low_at, lows_size - at.low_at, size, parameter, low);
    at.low_at += (size * static_cast<size_t>(parameter) + 7) / 8;
    // With this start, the sum of quotients begins at 0 in each block.
    const auto first = static_cast<uint32_t>(at.done + i) + at.quotients;
    PositionSum sum(static_cast<uint32_t>(next));
    sum.Add(ones + i, low, size, first, 1, parameter, positions + i);
    const uint32_t quotients = ones[i + size - 1] - (first + static_cast<uint32_t>(size) - 1);
    // `next` has 64 bits because malformed quotients can be large. The other terms are small.
    next += sum.run() - static_cast<uint32_t>(next);
    next += uint64_t{quotients} << parameter;
    at.quotients += quotients;
  }
  at.done += count;
  *cursor = at;
  *run = next;
}

template <typename Code>
HWY_INLINE size_t PositionsOf(const Code* HWY_RESTRICT codes, size_t count, uint32_t escape,
                              uint32_t* HWY_RESTRICT run, uint32_t* HWY_RESTRICT positions) {
  uint32_t next = *run;
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = codes[i];
    const uint32_t ends = code != escape ? 1 : 0;
    next += code;
    positions[found] = next;
    found += ends;
    next += ends;
  }
  *run = next;
  return found;
}

size_t AddCodes(const uint32_t* codes, size_t count, uint32_t escape, uint32_t* run,
                uint32_t* positions) {
  return PositionsOf(codes, count, escape, run, positions);
}

size_t AddBytes(const uint8_t* codes, size_t count, uint32_t* run, uint32_t* positions) {
  return PositionsOf(codes, count, 255, run, positions);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(PackBits);
void PackBits(const uint32_t* numbers, size_t count, int width, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(PackBits)(numbers, count, width, out);
}

HWY_EXPORT(UnpackBits);
void UnpackBits(const uint8_t* plane, size_t size, size_t count, int width, uint32_t* numbers) {
  HWY_DYNAMIC_DISPATCH(UnpackBits)(plane, size, count, width, numbers);
}

HWY_EXPORT(SumOfBits);
BitsTotal SumOfBits(const uint8_t* plane, size_t size, size_t count, int width) {
  return HWY_DYNAMIC_DISPATCH(SumOfBits)(plane, size, count, width);
}

HWY_EXPORT(SumQuotients);
void SumQuotients(const uint32_t* numbers, size_t count, int shift, QuotientSums* result) {
  HWY_DYNAMIC_DISPATCH(SumQuotients)(numbers, count, shift, result);
}

HWY_EXPORT(SetOnes);
void SetOnes(const uint32_t* numbers, size_t count, int shift, bool by_three, uint8_t* plane) {
  HWY_DYNAMIC_DISPATCH(SetOnes)(numbers, count, shift, by_three, plane);
}

HWY_EXPORT(SizeOfBlocks);
BlockSizes SizeOfBlocks(const uint32_t* numbers, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SizeOfBlocks)(numbers, count);
}

HWY_EXPORT(PackBlocks);
void PackBlocks(const uint32_t* numbers, size_t count, uint8_t* parameters, uint8_t* lows) {
  HWY_DYNAMIC_DISPATCH(PackBlocks)(numbers, count, parameters, lows);
}

HWY_EXPORT(SetOnesOfBlocks);
void SetOnesOfBlocks(const uint32_t* numbers, size_t count, uint8_t* plane) {
  HWY_DYNAMIC_DISPATCH(SetOnesOfBlocks)(numbers, count, plane);
}

HWY_EXPORT(AddBlocks);
void AddBlocks(const uint32_t* ones, size_t count, const uint8_t* parameters, const uint8_t* lows,
               size_t lows_size, BlockCursor* cursor, uint64_t* run, uint32_t* positions) {
  HWY_DYNAMIC_DISPATCH(AddBlocks)(ones, count, parameters, lows, lows_size, cursor, run, positions);
}

HWY_EXPORT(PackThirds);
void PackThirds(const uint32_t* numbers, size_t count, int shift, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(PackThirds)(numbers, count, shift, out);
}

HWY_EXPORT(FindOnes);
size_t FindOnes(const uint8_t* plane, size_t size, size_t wanted, OnesCursor* cursor,
                uint32_t* ones) {
  return HWY_DYNAMIC_DISPATCH(FindOnes)(plane, size, wanted, cursor, ones);
}

HWY_EXPORT(AddQuotients);
void AddQuotients(const uint32_t* ones, const uint32_t* lows, size_t count, uint32_t first,
                  int shift, bool by_three, uint32_t* run, uint32_t* positions) {
  HWY_DYNAMIC_DISPATCH(AddQuotients)(ones, lows, count, first, shift, by_three, run, positions);
}

HWY_EXPORT(AddCodes);
size_t AddCodes(const uint32_t* codes, size_t count, uint32_t escape, uint32_t* run,
                uint32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(AddCodes)(codes, count, escape, run, positions);
}

HWY_EXPORT(AddBytes);
size_t AddBytes(const uint8_t* codes, size_t count, uint32_t* run, uint32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(AddBytes)(codes, count, run, positions);
}

}  // namespace sluice::compress
#endif
