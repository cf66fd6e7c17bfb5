// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/ternary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/index_coding.h"
#include "compress/coding/payload.h"
#include "compress/coding/position_coding.h"
#include "compress/simd/ternary.h"

namespace sluice::compress {
namespace {

struct PricePoint {
  double level, bits, error;
};
constexpr PricePoint kPrices[] = {
    {0.35, 0.90, 0.40}, {0.5, 0.68, 0.53}, {0.7, 0.45, 0.70}, {0.9, 0.28, 0.90}};

// Returns the prices at a level, between the measured points.
PricePoint PricesAt(double level) {
  const PricePoint* above = kPrices;
  while (above != std::end(kPrices) && above->level < level) ++above;
  if (above == std::begin(kPrices)) return *above;
  if (above == std::end(kPrices)) return above[-1];
  const PricePoint& below = above[-1];
  const double share = (level - below.level) / (above->level - below.level);
  return {level, std::lerp(below.bits, above->bits, share),
          std::lerp(below.error, above->error, share)};
}

constexpr size_t kTernaryTileBlocks = 16;
constexpr size_t kTernaryHeaderSize = 14;

constexpr int32_t kTernarySmallestScale = 1;
constexpr int32_t kTernaryLargestScale = kTernaryScaleMax;
constexpr uint64_t kFoldedEnd = uint64_t{kTernaryLargestScale + 1} * 2;

// Codes a scale as the difference from the previous scale, in the order 0, -1, 1, -2, 2 ..., so
// that small differences have small codes.
uint32_t FoldSign(int32_t step) {
  return (static_cast<uint32_t>(step) << 1) ^ static_cast<uint32_t>(step >> 31);
}
int64_t UnfoldSign(uint64_t folded) {
  return static_cast<int64_t>(folded >> 1) ^ -static_cast<int64_t>(folded & 1);
}

size_t TernaryBlocks(size_t count) { return (count + kTernaryBlock - 1) / kTernaryBlock; }

// The kept elements of a chunk, in order, in the scratch buffer.
struct Selection {
  // The format is in simd/ternary.h.
  absl::Span<const uint32_t> entries;
  // Contains an entry only for blocks that keep an element.
  absl::Span<const uint32_t> scale_steps;

  // Returns the number of dropped elements before the last kept one.
  size_t passed() const {
    return entries.empty() ? 0 : (entries.back() & ~kTernaryNegative) + 1 - entries.size();
  }
};

// Replaces the scale codes of all blocks, in place, with the folded steps of the blocks that keep
// an element. Returns the number of blocks that keep an element.
size_t FoldSteps(uint32_t* scales, size_t blocks) {
  size_t size = 0;
  int32_t last = 0;
  for (size_t block = 0; block < blocks; ++block) {
    const auto scale = static_cast<int32_t>(scales[block]);
    if (scale < kTernarySmallestScale) continue;
    scales[size++] = FoldSign(scale - last);
    last = scale;
  }
  return size;
}

Selection SelectTernary(const EncodeInput& input, float share) {
  const size_t size = input.gradient.size();
  uint32_t* const entries = AtLeast(&input.scratch->positions, size + kTernarySlack);
  uint32_t* const scales = AtLeast(&input.scratch->scales, TernaryBlocks(size));
  size_t kept = 0;
  ForEachTile<kTernaryTileBlocks * kTernaryBlock>(
      input, [&](size_t start, const float* gradient, float* residual, size_t count) {
        const size_t whole = count / kTernaryBlock;
        const auto first = static_cast<uint32_t>(start);
        uint32_t* const tile_scales = scales + start / kTernaryBlock;
        kept += EncodeTernary(gradient, residual, share, first, entries + kept, tile_scales, whole);
        const size_t at = whole * kTernaryBlock;
        if (at == count) return;
        // Padding the last block with zeros does not change its codes.
        float last[2][kTernaryBlock] = {};
        std::copy(gradient + at, gradient + count, last[0]);
        std::copy(residual + at, residual + count, last[1]);
        kept += EncodeTernary(last[0], last[1], share, first + static_cast<uint32_t>(at),
                              entries + kept, tile_scales + whole, 1);
        std::copy(last[1], last[1] + (count - at), residual + at);
      });
  return {.entries = {entries, kept},
          .scale_steps = {scales, FoldSteps(scales, TernaryBlocks(size))}};
}

// The parts of a payload. The spans have the right sizes; nothing else has been checked.
struct TernaryParts {
  PositionPlanes positions;
  int scale_parameter = 0;
  size_t scales = 0;
  absl::Span<const std::byte> signs;
  absl::Span<const std::byte> scale_remainders;
  absl::Span<const std::byte> scale_unary;
};

// Splits the payload. Returns false if there are not enough bytes, or if the coding or the
// parameter is out of range.
bool SplitTernary(absl::Span<const std::byte> payload, TernaryParts* parts) {
  ByteReader reader(payload);
  PositionPlanes& positions = parts->positions;
  positions.coding = reader.Read<uint8_t>();
  parts->scale_parameter = reader.Read<uint8_t>();
  positions.kept = reader.Read<uint32_t>();
  parts->scales = reader.Read<uint32_t>();
  const size_t scale_unary_size = reader.Read<uint32_t>();
  if (parts->scale_parameter > kRiceParameterMax) return false;
  if (!ReadFirstPlanes(&reader, &positions)) return false;
  parts->signs = reader.ReadBytes(BytesFor(positions.kept));
  parts->scale_remainders = reader.ReadBytes(RemainderBytes(parts->scales, parts->scale_parameter));
  parts->scale_unary = reader.ReadBytes(scale_unary_size);
  if (!reader.ok()) return false;
  positions.last = reader.ReadBytes(reader.remaining());
  return true;
}

absl::Status BadTernary(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("ternary payload: ", what));
}

absl::Status CheckPlanes(const TernaryParts& parts, size_t count) {
  const absl::string_view problem = PositionProblem(parts.positions, count);
  if (!problem.empty()) return BadTernary(problem);
  if (parts.scales == 0 && parts.scale_parameter != 0) {
    return BadTernary("it has a parameter but no scales that are coded with it");
  }
  if (!IsPadded(parts.scale_remainders, uint64_t{parts.scales} * parts.scale_parameter) ||
      !IsUnaryPlane(parts.scale_unary, parts.scales)) {
    return BadTernary("its scale planes do not hold the announced number of scales");
  }
  if (!IsPadded(parts.signs, parts.positions.kept)) return BadTernary("padding is not zero");
  return absl::OkStatus();
}

// Calls fn(scale code) until `fn` returns false. A code of 0 marks an impossible step.
template <typename Fn>
void ForEachScale(const TernaryParts& parts, Fn fn) {
  int64_t scale = 0;
  ForEachRice(parts.scale_remainders, parts.scale_unary, parts.scale_parameter,
              [&](uint64_t folded) {
                // No step between two valid scales is this large, and adding such a step could
                // overflow.
                scale = folded < kFoldedEnd ? scale + UnfoldSign(folded) : 0;
                return fn(scale);
              });
}

// Returns the word that begins at a byte of a plane. After the plane's end, the word is padded with
// zeros.
uint64_t SignsAt(absl::Span<const std::byte> signs, size_t byte) {
  uint64_t word = 0;
  std::memcpy(&word, signs.data() + byte, std::min(signs.size() - byte, sizeof(word)));
  return word;
}

// `passed` is the sum of the gaps.
void AppendPayload(IndexMode index, absl::Span<const uint32_t> gaps, uint64_t passed,
                   absl::Span<const std::byte> signs, absl::Span<const uint32_t> steps,
                   std::vector<std::byte>* out) {
  const IndexLayout positions = PlanPositions(index, gaps, passed);
  const RicePlan scales = ChooseRice(steps);
  ByteWriter writer(out);
  writer.Write(positions.coding);
  writer.Write(static_cast<uint8_t>(scales.parameter));
  writer.Write(static_cast<uint32_t>(gaps.size()));
  writer.Write(static_cast<uint32_t>(steps.size()));
  writer.Write(static_cast<uint32_t>(BytesFor(scales.unary_bits)));
  AppendFirstPlanes(positions, gaps, out);
  out->insert(out->end(), signs.begin(), signs.end());
  AppendRemainders(steps, scales.parameter, out);
  AppendUnary(steps, scales, out);
  AppendLastPlane(positions, gaps, out);
}

class TernaryCodec final : public Codec {
 public:
  explicit TernaryCodec(const CodecSpec& spec)
      : share_(static_cast<float>(spec.level)), index_(IndexModeOf(spec)) {}

  FormatId format() const override { return FormatId::kTernary; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    // Scale steps have at most 12 bits. Each of their two planes may end with a partial byte.
    const uint64_t blocks = TernaryBlocks(count);
    return kTernaryHeaderSize + MaxPositionBytes(index_, count) + BytesFor(count) +
           BytesFor(blocks * 13) + 1;
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const Selection selection = SelectTernary(input, share_);
    const size_t size = input.gradient.size(), kept = selection.entries.size();
    uint32_t* const gap_buffer = AtLeast(&input.scratch->numbers, size);
    uint8_t* const signs = AtLeast(&input.scratch->bytes, BytesFor(size));
    SplitEntries(selection.entries.data(), kept, gap_buffer, signs);
    const auto* const sign_plane = reinterpret_cast<const std::byte*>(signs);
    AppendPayload(index_, {gap_buffer, kept}, selection.passed(), {sign_plane, BytesFor(kept)},
                  selection.scale_steps, out);
  }

 private:
  const float share_;
  const IndexMode index_;
};

}  // namespace

CodecPrice TernaryPrice(const CodecSpec& spec) {
  const PricePoint point = PricesAt(spec.level);
  return {.bits = point.bits,
          .error = point.error,
          .encode_ns = 1.2 + point.bits,
          .add_ns = point.bits};
}

std::unique_ptr<Codec> MakeTernary(const CodecSpec& spec) {
  Check(spec.level > 0 && spec.level <= 1, "a threshold is above 0 and at most 1");
  return std::make_unique<TernaryCodec>(spec);
}

absl::Status ValidateTernary(absl::Span<const std::byte> payload, size_t count) {
  TernaryParts parts;
  if (!SplitTernary(payload, &parts)) return BadTernary("its planes do not fit into its bytes");
  absl::Status planes = CheckPlanes(parts, count);
  if (!planes.ok()) return planes;
  bool valid = true;
  ForEachScale(parts, [&](int64_t scale) {
    valid = scale >= kTernarySmallestScale && scale <= kTernaryLargestScale;
    return valid;
  });
  if (!valid) return BadTernary("a scale is out of range");
  uint32_t positions[PositionReader::kBatch];
  PositionReader reader(parts.positions);
  size_t blocks = 0;
  size_t block = std::numeric_limits<size_t>::max();
  while (const size_t read = reader.Read(positions)) {
    for (size_t i = 0; i < read; ++i) {
      blocks += positions[i] / kTernaryBlock != block ? 1 : 0;
      block = positions[i] / kTernaryBlock;
    }
  }
  if (blocks != parts.scales) {
    return BadTernary(
        absl::StrCat("its positions are in ", blocks, " blocks, it has ", parts.scales, " scales"));
  }
  return absl::OkStatus();
}

void DecodeAddTernary(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  TernaryParts parts;
  Check(SplitTernary(payload, &parts), "only validated payloads are decoded");
  RiceReader steps(parts.scale_remainders, parts.scale_unary, parts.scale_parameter);
  PositionReader reader(parts.positions);
  uint32_t positions[PositionReader::kBatch];
  int32_t code = 0;
  uint32_t scale = 0;  // The bits of the scale.
  uint64_t signs = 0;  // The unread bits of a word of signs.
  size_t index = 0;
  uint64_t block_end = 0;
  while (const size_t count = reader.Read(positions)) {
    for (size_t i = 0; i < count; ++i, ++index, signs >>= 1) {
      const uint32_t position = positions[i];
      if (position >= block_end) {
        code += static_cast<int32_t>(UnfoldSign(steps.Next()));
        scale = static_cast<uint32_t>(code) << kTernaryScaleShift;
        block_end = (uint64_t{position} / kTernaryBlock + 1) * kTernaryBlock;
      }
      if (index % 64 == 0) signs = SignsAt(parts.signs, index / 8);
      const uint32_t bits = scale ^ (static_cast<uint32_t>(signs) << 31);
      sum[position] += std::bit_cast<float>(bits);
    }
  }
}

}  // namespace sluice::compress
