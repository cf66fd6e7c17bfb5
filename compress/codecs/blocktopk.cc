// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/blocktopk.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/index_coding.h"
#include "compress/coding/placed_values.h"

namespace sluice::compress {
namespace {

constexpr int kLeastBits = 2;
constexpr int kMostBits = 12;
constexpr size_t kLargestBlock = size_t{1} << kMostBits;

size_t Blocks(size_t count, int bits) { return (count + (size_t{1} << bits) - 1) >> bits; }

// Returns the position of the first element with the largest magnitude. The function finds the
// maximum first, because that loop vectorises.
uint32_t LargestOf(const float* acc, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, MagnitudeBits(acc[i]));
  uint32_t at = 0;
  while (MagnitudeBits(acc[at]) != largest) ++at;
  return at;
}

class BlockTopKCodec final : public Codec {
 public:
  BlockTopKCodec(int bits, ValueFormat format) : bits_(bits), format_(format) {}

  FormatId format() const override { return FormatId::kBlockTopK; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    const size_t blocks = Blocks(count, bits_);
    return 1 + MaxPlacedBytes(format_, blocks) + RemainderBytes(blocks, bits_);
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t blocks = Blocks(input.gradient.size(), bits_);
    EncodeScratch& scratch = *input.scratch;
    if (scratch.positions.size() < blocks) scratch.positions.resize(blocks);
    if (scratch.numbers.size() < blocks) scratch.numbers.resize(blocks);
    if (scratch.values.size() < blocks) scratch.values.resize(blocks);
    ForEachTile<kLargestBlock>(input, [&](size_t at, const float* gradient, float* acc,
                                          size_t size) {
      for (size_t i = 0; i < size; ++i) acc[i] = gradient[i] + acc[i];
      for (size_t first = 0; first < size; first += size_t{1} << bits_) {
        const size_t block = (at + first) >> bits_;
        const uint32_t best = LargestOf(acc + first, std::min(size - first, size_t{1} << bits_));
        scratch.positions[block] = best;
        scratch.values[block] = acc[first + best];
      }
    });
    size_t kept = 0;
    for (size_t block = 0; block < blocks; ++block) {
      scratch.numbers[kept] = scratch.positions[block];
      kept += IsPlaced(scratch.values[block]) ? 1 : 0;
    }
    const absl::Span<float> values = absl::MakeSpan(scratch.values).first(blocks);
    out->push_back(static_cast<std::byte>(bits_));
    AppendPlaced(format_, values, &scratch, out);
    AppendRemainders(absl::MakeConstSpan(scratch.numbers).first(kept), bits_, out);
    if (input.kept != nullptr) *input.kept += kept;
    if (input.residual.empty()) return;
    for (size_t block = 0; block < blocks; ++block) {
      input.residual[(block << bits_) + scratch.positions[block]] = values[block];
    }
  }

 private:
  const int bits_;
  const ValueFormat format_;
};

// The parts of a payload.
struct BlockTopKParts {
  int bits = 0;
  PlacedValues values;
  absl::Span<const std::byte> positions;
};

// Splits the payload. Returns a description of the error, or an empty string. The ranges of
// positions are not checked.
absl::string_view SplitBlockTopK(absl::Span<const std::byte> payload, size_t count,
                                 BlockTopKParts* parts) {
  ByteReader reader(payload);
  parts->bits = reader.Read<uint8_t>();
  if (parts->bits < kLeastBits || parts->bits > kMostBits) {
    return "its blocks are not of 4 to 4096 elements";
  }
  const absl::string_view wrong = ReadPlaced(&reader, Blocks(count, parts->bits), &parts->values);
  if (!wrong.empty()) return wrong;
  parts->positions = reader.ReadBytes(reader.remaining());
  if (!IsPadded(parts->positions,
                uint64_t{parts->values.kept} * static_cast<uint64_t>(parts->bits))) {
    return "its plane of positions has the wrong size, or padding that is not zero";
  }
  return "";
}

}  // namespace

std::unique_ptr<Codec> MakeBlockTopK(const CodecSpec& spec) {
  const auto block = static_cast<uint32_t>(spec.level);
  Check(std::has_single_bit(block), "a block is a power of two");
  return std::make_unique<BlockTopKCodec>(std::countr_zero(block), spec.values);
}

absl::Status ValidateBlockTopK(absl::Span<const std::byte> payload, size_t count) {
  BlockTopKParts parts;
  const absl::string_view wrong = SplitBlockTopK(payload, count, &parts);
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat("blocktopk payload: ", wrong));
  // Only the last block may be shorter than the others, so only its position can be outside the
  // chunk.
  const size_t last = parts.values.places;
  if (last == 0 || !parts.values.present(last - 1)) return absl::OkStatus();
  RemainderReader positions(parts.positions, parts.bits);
  uint32_t position = 0;
  for (size_t i = 0; i < parts.values.kept; ++i) position = positions.Next();
  if (((last - 1) << parts.bits) + position < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("blocktopk payload: the last block's position ",
                                                 position, " is beyond the ", count, " elements"));
}

void DecodeAddBlockTopK(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  BlockTopKParts parts;
  Check(SplitBlockTopK(payload, sum.size(), &parts).empty(), "only validated payloads are decoded");
  RemainderReader positions(parts.positions, parts.bits);
  ForEachPlaced(parts.values, [&](size_t block, float value) {
    sum[(block << parts.bits) + positions.Next()] += value;
  });
}

}  // namespace sluice::compress
