// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/position_coding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "compress/coding/index_coding.h"

namespace sluice::compress {
namespace {

constexpr uint8_t kThirdsByteMax = 242;  // 3^5 - 1.

// A bitmap is written bit by bit if it has at least this many bits for each set bit.
constexpr uint64_t kSparseBitmap = 4;

bool IsCoding(uint8_t coding) {
  if (coding < kThirdsFirst) return true;
  if (coding < kCodesFirst) return ParameterOf(coding) <= kThirdsParameterMax;
  return (coding > kCodesFirst && WidthOf(coding) <= kCodeWidthMax) || coding == kBlocksCoding;
}

// Returns the number of codes of `width` bits that the gaps take.
uint64_t CodesOf(absl::Span<const uint32_t> gaps, int width, uint32_t largest) {
  const uint32_t escape = (uint32_t{1} << width) - 1;
  uint64_t codes = gaps.size();
  if (largest < escape) return codes;
  if (uint64_t{largest} < (uint64_t{1} << (2 * width)) - 1 && width < 16) {
    // The shift equals x / escape, because all x are below 2^(2 width) - 1.
    for (const uint32_t x : gaps) codes += (x + (x >> width) + 1) >> width;
    return codes;
  }
  for (const uint32_t x : gaps) codes += x / escape;
  return codes;
}

// The sums that ChoosePositions needs.
struct GapSums {
  absl::Span<const uint32_t> gaps;

  QuotientSums Quotients(int shift) const {
    QuotientSums sums;
    SumQuotients(gaps.data(), gaps.size(), shift, &sums);
    return sums;
  }
  BlockSizes Blocks() const { return SizeOfBlocks(gaps.data(), gaps.size()); }
  uint64_t Codes(int width, uint32_t largest) const { return CodesOf(gaps, width, largest); }
  uint32_t Largest() const { return *std::max_element(gaps.begin(), gaps.end()); }
};

// Table of the five remainders modulo 3 that each byte contains.
struct ThirdsTable {
  uint8_t digits[kThirdsByteMax + 1][kThirdsPerByte];
};
constexpr ThirdsTable MakeThirdsTable() {
  ThirdsTable table{};
  for (unsigned byte = 0; byte <= kThirdsByteMax; ++byte) {
    unsigned rest = byte;
    for (uint8_t& digit : table.digits[byte]) {
      digit = static_cast<uint8_t>(rest % 3);
      rest /= 3;
    }
  }
  return table;
}
constexpr ThirdsTable kThirds = MakeThirdsTable();

// Adds the remainders to `*sum`. Returns false if the plane is invalid.
bool SumThirds(absl::Span<const std::byte> thirds, size_t kept, uint64_t* sum) {
  for (const std::byte byte : thirds) {
    const auto code = static_cast<uint8_t>(byte);
    if (code > kThirdsByteMax) return false;
    for (const uint8_t digit : kThirds.digits[code]) *sum += digit;
  }
  if (kept % kThirdsPerByte == 0) return true;
  const uint8_t* const last = kThirds.digits[static_cast<uint8_t>(thirds.back())];
  return std::all_of(last + kept % kThirdsPerByte, last + kThirdsPerByte,
                     [](uint8_t digit) { return digit == 0; });
}

void WriteCodes(absl::Span<const uint32_t> gaps, int width, std::vector<std::byte>* out) {
  const uint32_t escape = (uint32_t{1} << width) - 1;
  constexpr size_t kCodes = 256;
  uint32_t codes[kCodes];
  size_t filled = 0;
  const auto put = [&](uint32_t code) {
    codes[filled++] = code;
    if (filled < kCodes) return;
    AppendRemainders(codes, width, out);
    filled = 0;
  };
  for (uint32_t gap : gaps) {
    for (; gap >= escape; gap -= escape) put(escape);
    put(gap);
  }
  AppendRemainders(absl::MakeConstSpan(codes, filled), width, out);
}

const uint8_t* Bytes(absl::Span<const std::byte> plane) {
  return reinterpret_cast<const uint8_t*>(plane.data());
}
uint8_t* BytesAt(std::vector<std::byte>* out, size_t at) {
  return reinterpret_cast<uint8_t*>(out->data()) + at;
}

void WriteBlocks(const IndexLayout& plan, absl::Span<const uint32_t> gaps,
                 std::vector<std::byte>* out) {
  const size_t at = out->size();
  out->resize(at + plan.first_bytes + kPackSlack);
  uint8_t* const parameters = BytesAt(out, at);
  PackBlocks(gaps.data(), gaps.size(), parameters, parameters + ParameterBytes(gaps.size()));
  out->resize(at + plan.first_bytes);
}

void SetBits(absl::Span<const uint32_t> gaps, uint8_t* plane) {
  size_t next = 0;
  for (const uint32_t gap : gaps) {
    next += gap;
    plane[next / 8] |= static_cast<uint8_t>(1 << (next % 8));
    ++next;
  }
}

int BlockParameterAt(absl::Span<const std::byte> parameters, size_t block) {
  return static_cast<int>(parameters[block / 2] >> (block % 2 * 4)) & kBlockParameterMax;
}

size_t BlockLowBytes(absl::Span<const std::byte> parameters, size_t kept) {
  size_t bytes = 0;
  for (size_t i = 0; i < kept / kRiceBlock; ++i) {
    bytes += kRiceBlock / 8 * static_cast<size_t>(BlockParameterAt(parameters, i));
  }
  if (kept % kRiceBlock == 0) return bytes;
  return bytes + RemainderBytes(kept % kRiceBlock, BlockParameterAt(parameters, kept / kRiceBlock));
}

constexpr absl::string_view kNotAsMany =
    "its position planes do not hold the announced number of positions";
constexpr absl::string_view kOutside = "a position is not below the number of elements";
constexpr absl::string_view kPadding = "padding is not zero";

absl::string_view QuotientProblem(const PositionPlanes& planes, size_t count) {
  const int parameter = ParameterOf(planes.coding);
  uint64_t thirds = 0;
  if (!IsPadded(planes.lows, uint64_t{planes.kept} * static_cast<uint64_t>(parameter)) ||
      !IsUnaryPlane(planes.last, planes.kept)) {
    return kNotAsMany;
  }
  if (!planes.thirds.empty() && !SumThirds(planes.thirds, planes.kept, &thirds)) {
    return "a remainder by 3 is out of range";
  }
  if (planes.kept == 0) return "";
  const auto last = static_cast<unsigned>(planes.last.back());
  const uint64_t bits = (planes.last.size() - 1) * uint64_t{8} + std::bit_width(last);
  const uint64_t factor = HasThirds(planes.coding) ? 3 : 1;
  const uint64_t quotients = (bits - planes.kept) * factor + thirds;
  // The last position follows from the total, so individual positions need not be computed.
  if (planes.kept > count || quotients > (uint64_t{count} >> parameter)) return kOutside;
  const uint64_t lows =
      SumOfBits(Bytes(planes.lows), planes.lows.size(), planes.kept, parameter).sum;
  return (quotients << parameter) + lows + planes.kept <= count ? "" : kOutside;
}

absl::string_view BlockProblem(const PositionPlanes& planes, size_t count) {
  const size_t kept = planes.kept, blocks = RiceBlocks(kept);
  if (blocks % 2 != 0 && BlockParameterAt(planes.parameters, blocks) != 0) return kPadding;
  if (kept % kRiceBlock != 0) {
    const int parameter = BlockParameterAt(planes.parameters, blocks - 1);
    const size_t bits = kept % kRiceBlock * static_cast<size_t>(parameter);
    if (!IsPadded(planes.lows.last(BytesFor(bits)), bits)) return kPadding;
  }
  if (!IsUnaryPlane(planes.last, kept)) return kNotAsMany;
  if (kept > count || planes.last.size() > BytesFor(count)) return kOutside;
  uint32_t ones[PositionReader::kBatch + kOnesSlack], positions[PositionReader::kBatch];
  OnesCursor at;
  BlockCursor cursor;
  uint64_t run = 0;
  while (const size_t found =
             FindOnes(Bytes(planes.last), planes.last.size(), PositionReader::kBatch, &at, ones)) {
    AddBlocks(ones, found, Bytes(planes.parameters), Bytes(planes.lows), planes.lows.size(),
              &cursor, &run, positions);
    if (run > count) return kOutside;
  }
  return "";
}

uint32_t CodeAt(absl::Span<const std::byte> codes, uint64_t index, int width) {
  const uint64_t bit = index * static_cast<uint64_t>(width);
  uint32_t word = 0;
  const absl::Span<const std::byte> from = codes.subspan(static_cast<size_t>(bit / 8));
  std::memcpy(&word, from.data(), std::min(from.size(), sizeof(word)));
  return (word >> (bit % 8)) & ((1U << width) - 1);
}

absl::string_view CodeProblem(const PositionPlanes& planes, size_t count) {
  const int width = WidthOf(planes.coding);
  const auto bits = static_cast<uint64_t>(width);
  const uint64_t most = planes.last.size() * uint64_t{8} / bits;
  const BitsTotal total = SumOfBits(Bytes(planes.last), planes.last.size(), most, width);
  // The padding of the last byte may look like codes of 0.
  const uint64_t ends = most - total.full;
  if (ends < planes.kept) return "it has fewer positions than announced";
  const uint64_t codes = most - (ends - planes.kept);
  if (!IsPadded(planes.last, codes * bits)) return "it has more positions than announced";
  if (CodeAt(planes.last, codes - 1, width) == (1U << width) - 1)
    return "its last code is incomplete";
  return total.sum + planes.kept <= count ? "" : kOutside;
}

}  // namespace

IndexMode IndexModeOf(const CodecSpec& spec) {
  if (spec.has(kIndexRice)) return IndexMode::kRice;
  if (spec.has(kIndexPacked)) return IndexMode::kPacked;
  if (spec.has(kIndexBytes)) return IndexMode::kBytes;
  if (spec.has(kIndexBitmap)) return IndexMode::kBitmap;
  return IndexMode::kAuto;
}

IndexLayout PlanPositions(IndexMode mode, absl::Span<const uint32_t> gaps, uint64_t gaps_sum) {
  const GapSums sums{gaps};
  return ChoosePositions(mode, gaps.size(), gaps_sum, sums);
}

size_t MaxPositionBytes(IndexMode mode, size_t count) {
  return mode == IndexMode::kBytes ? count : BytesFor(count);
}

void AppendFirstPlanes(const IndexLayout& plan, absl::Span<const uint32_t> gaps,
                       std::vector<std::byte>* out) {
  if (plan.coding == kBlocksCoding) return WriteBlocks(plan, gaps, out);
  if (HasCodes(plan.coding)) return;
  const int parameter = ParameterOf(plan.coding);
  AppendRemainders(gaps, parameter, out);
  if (!HasThirds(plan.coding)) return;
  const size_t at = out->size();
  out->resize(at + ThirdsBytes(gaps.size()));
  PackThirds(gaps.data(), gaps.size(), parameter, BytesAt(out, at));
}

void AppendLastPlane(const IndexLayout& plan, absl::Span<const uint32_t> gaps,
                     std::vector<std::byte>* out) {
  if (HasCodes(plan.coding)) return WriteCodes(gaps, WidthOf(plan.coding), out);
  const size_t at = out->size(), size = BytesFor(plan.last_bits);
  out->resize(at + size + kPackSlack);
  uint8_t* const plane = BytesAt(out, at);
  if (plan.coding == kBlocksCoding) {
    SetOnesOfBlocks(gaps.data(), gaps.size(), plane);
  } else if (plan.coding == 0 && plan.last_bits / kSparseBitmap >= gaps.size()) {
    SetBits(gaps, plane);
  } else {
    SetOnes(gaps.data(), gaps.size(), ParameterOf(plan.coding), HasThirds(plan.coding), plane);
  }
  out->resize(at + size);
}

bool ReadFirstPlanes(ByteReader* reader, PositionPlanes* planes) {
  if (!IsCoding(planes->coding)) return false;
  if (HasCodes(planes->coding)) return true;
  if (planes->coding == kBlocksCoding) {
    planes->parameters = reader->ReadBytes(ParameterBytes(planes->kept));
    if (!reader->ok()) return false;
    planes->lows = reader->ReadBytes(BlockLowBytes(planes->parameters, planes->kept));
    return reader->ok();
  }
  planes->lows = reader->ReadBytes(RemainderBytes(planes->kept, ParameterOf(planes->coding)));
  if (HasThirds(planes->coding)) planes->thirds = reader->ReadBytes(ThirdsBytes(planes->kept));
  return reader->ok();
}

absl::string_view PositionProblem(const PositionPlanes& planes, size_t count) {
  if (planes.kept == 0) {
    if (!planes.last.empty()) return "it has a plane of positions but no positions";
    return planes.coding == 0 ? "" : "it has a coding but no positions";
  }
  if (planes.coding == kBlocksCoding) return BlockProblem(planes, count);
  return HasCodes(planes.coding) ? CodeProblem(planes, count) : QuotientProblem(planes, count);
}

size_t PositionReader::Read(uint32_t* positions) {
  if (done_ == planes_.kept) return 0;
  if (planes_.coding == kBlocksCoding) return ReadBlocks(positions);
  return HasCodes(planes_.coding) ? ReadCodes(positions) : ReadQuotients(positions);
}

size_t PositionReader::ReadBlocks(uint32_t* positions) {
  uint32_t ones[kBatch + kOnesSlack];
  const size_t count = FindOnes(Bytes(planes_.last), planes_.last.size(), kBatch, &ones_, ones);
  AddBlocks(ones, count, Bytes(planes_.parameters), Bytes(planes_.lows), planes_.lows.size(),
            &blocks_, &run_, positions);
  done_ += count;
  return count;
}

size_t PositionReader::ReadQuotients(uint32_t* positions) {
  uint32_t ones[kBatch + kOnesSlack], lows[kBatch + kUnpackSlack];
  const int parameter = ParameterOf(planes_.coding);
  const size_t count = FindOnes(Bytes(planes_.last), planes_.last.size(),
                                std::min(kBatch, planes_.kept - done_), &ones_, ones);
  const size_t at = done_ / 8 * static_cast<size_t>(parameter);
  UnpackBits(Bytes(planes_.lows) + at, planes_.lows.size() - at, count, parameter, lows);
  const bool by_three = HasThirds(planes_.coding);
  if (by_three) {
    const uint8_t* thirds = Bytes(planes_.thirds) + done_ / kThirdsPerByte;
    std::fill_n(lows + count, kThirdsPerByte, 0);
    for (size_t i = 0; i < count; i += kThirdsPerByte, ++thirds) {
      for (size_t j = 0; j < kThirdsPerByte; ++j) {
        lows[i + j] += uint32_t{kThirds.digits[*thirds][j]} << parameter;
      }
    }
  }
  auto run = static_cast<uint32_t>(run_);
  AddQuotients(ones, lows, count, static_cast<uint32_t>(done_), parameter, by_three, &run,
               positions);
  run_ = run;
  done_ += count;
  return count;
}

size_t PositionReader::ReadCodes(uint32_t* positions) {
  const int width = WidthOf(planes_.coding);
  const auto bits = static_cast<size_t>(width);
  auto run = static_cast<uint32_t>(run_);
  size_t found = 0;
  while (found == 0) {
    const size_t at = codes_ / 8 * bits;
    const size_t size = planes_.last.size() - at;
    const size_t count = std::min(kBatch, static_cast<size_t>(size * uint64_t{8} / bits));
    if (width == 8) {
      found = AddBytes(Bytes(planes_.last) + at, count, &run, positions);
    } else {
      uint32_t codes[kBatch + kUnpackSlack];
      UnpackBits(Bytes(planes_.last) + at, size, count, width, codes);
      found = AddCodes(codes, count, (uint32_t{1} << width) - 1, &run, positions);
    }
    codes_ += count;
  }
  run_ = run;
  // The padding of the last byte may look like additional codes.
  found = std::min(found, planes_.kept - done_);
  done_ += found;
  return found;
}

}  // namespace sluice::compress
