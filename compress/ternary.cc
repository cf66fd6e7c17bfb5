#include "compress/ternary.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "compress/accumulator.h"
#include "compress/index_coding.h"
#include "compress/payload.h"
#include "compress/position_coding.h"
#include "compress/simd/ternary.h"

namespace sluice {
namespace {

constexpr size_t kBlock = kTernaryBlock;
constexpr size_t kTileBlocks = 16;
constexpr size_t kHeaderSize = 14;

constexpr int32_t kSmallestScale = 1;
constexpr int32_t kLargestScale = kTernaryScaleMax;
constexpr uint64_t kFoldedEnd = uint64_t{kLargestScale + 1} * 2;

// Scales are coded as steps from the scale before, small ones first: 0, -1, 1, -2, 2 ...
uint32_t FoldSign(int32_t step) {
  return (static_cast<uint32_t>(step) << 1) ^ static_cast<uint32_t>(step >> 31);
}
int64_t UnfoldSign(uint64_t folded) {
  return static_cast<int64_t>(folded >> 1) ^ -static_cast<int64_t>(folded & 1);
}

size_t Blocks(size_t count) { return (count + kBlock - 1) / kBlock; }

// What is kept of a chunk, in order, in buffers that are large enough for any.
struct Selection {
  uint32_t* gaps;
  std::byte* signs;       // The sign plane.
  uint32_t* scale_steps;  // Of blocks that keep something.
  size_t kept = 0;
  size_t scales = 0;
  size_t next = 0;  // Where the next gap counts from.
  int32_t last_scale = 0;
  uint64_t sign_bits = 0;  // That do not fill a word yet.
};

void KeepBlock(const TernaryBlock& block, size_t start, Selection* selection) {
  const auto scale = static_cast<int32_t>(block.scale);
  if (scale < kSmallestScale) return;
  selection->scale_steps[selection->scales++] = FoldSign(scale - selection->last_scale);
  selection->last_scale = scale;
  uint32_t* const gaps = selection->gaps;
  size_t kept = selection->kept, next = selection->next;
  uint64_t sign_bits = selection->sign_bits;
  for (size_t word = 0; word < kBlock / 64; ++word) {
    const uint64_t negative = block.negative[word];
    const size_t base = start + 64 * word;
    for (uint64_t bits = block.kept[word]; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<size_t>(std::countr_zero(bits));
      gaps[kept] = static_cast<uint32_t>(base + bit - next);
      next = base + bit + 1;
      sign_bits |= ((negative >> bit) & 1) << (kept % 64);
      if (++kept % 64 == 0) {
        std::memcpy(selection->signs + kept / 8 - sizeof(sign_bits), &sign_bits, sizeof(sign_bits));
        sign_bits = 0;
      }
    }
  }
  selection->kept = kept;
  selection->next = next;
  selection->sign_bits = sign_bits;
}

template <typename T>
T* AtLeast(std::vector<T>* buffer, size_t size) {
  if (buffer->size() < size) buffer->resize(size);
  return buffer->data();
}

Selection Select(const EncodeInput& input, float share) {
  const size_t size = input.gradient.size();
  Selection selection{
      .gaps = AtLeast(&input.scratch->numbers, size),
      .signs = reinterpret_cast<std::byte*>(AtLeast(&input.scratch->bytes, size / 8 + 8)),
      .scale_steps = AtLeast(&input.scratch->positions, Blocks(size))};
  TernaryBlock blocks[kTileBlocks];
  ForEachTile<kTileBlocks * kBlock>(
      input, [&](size_t start, const float* gradient, float* residual, size_t count) {
        const size_t whole = count / kBlock;
        EncodeTernary(gradient, residual, share, blocks, whole);
        for (size_t i = 0; i < whole; ++i) KeepBlock(blocks[i], start + i * kBlock, &selection);
        const size_t at = whole * kBlock;
        if (at == count) return;
        // Zeros to the end of the last block change nothing.
        float last[2][kBlock] = {};
        std::copy(gradient + at, gradient + count, last[0]);
        std::copy(residual + at, residual + count, last[1]);
        EncodeTernary(last[0], last[1], share, blocks, 1);
        std::copy(last[1], last[1] + (count - at), residual + at);
        KeepBlock(blocks[0], start + at, &selection);
      });
  std::memcpy(selection.signs + selection.kept / 64 * 8, &selection.sign_bits, 8);
  return selection;
}

// A payload taken apart; spans are of the right sizes, nothing else is checked.
struct Parts {
  PositionPlanes positions;
  int scale_parameter = 0;
  size_t scales = 0;
  absl::Span<const std::byte> signs;
  absl::Span<const std::byte> scale_remainders;
  absl::Span<const std::byte> scale_unary;
};

// False if the bytes do not suffice, or the coding or the parameter is out of range.
bool Split(absl::Span<const std::byte> payload, Parts* parts) {
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

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("ternary payload: ", what));
}

absl::Status CheckPlanes(const Parts& parts, size_t count) {
  const absl::string_view problem = PositionProblem(parts.positions, count);
  if (!problem.empty()) return Bad(problem);
  if (parts.scales == 0 && parts.scale_parameter != 0) {
    return Bad("it has a parameter but no scales that are coded with it");
  }
  if (!IsPadded(parts.scale_remainders, uint64_t{parts.scales} * parts.scale_parameter) ||
      !IsUnaryPlane(parts.scale_unary, parts.scales)) {
    return Bad("its scale planes do not hold as many scales as it says");
  }
  if (!IsPadded(parts.signs, parts.positions.kept)) return Bad("padding is not zero");
  return absl::OkStatus();
}

// Calls fn(scale code) until it returns false. 0 is an impossible code.
template <typename Fn>
void ForEachScale(const Parts& parts, Fn fn) {
  int64_t scale = 0;
  ForEachRice(parts.scale_remainders, parts.scale_unary, parts.scale_parameter,
              [&](uint64_t folded) {
                // No step between scales is as large as that; adding one could overflow.
                scale = folded < kFoldedEnd ? scale + UnfoldSign(folded) : 0;
                return fn(scale);
              });
}

// The word at a byte of a plane, with zeros after its end.
uint64_t SignsAt(absl::Span<const std::byte> signs, size_t byte) {
  uint64_t word = 0;
  std::memcpy(&word, signs.data() + byte, std::min(signs.size() - byte, sizeof(word)));
  return word;
}

class TernaryCodec final : public Codec {
 public:
  explicit TernaryCodec(const CodecSpec& spec)
      : share_(static_cast<float>(spec.level)), index_(IndexModeOf(spec)) {}

  FormatId format() const override { return FormatId::kTernary; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    // Scale steps have 12 bits; both their planes may end in a broken byte.
    const uint64_t blocks = Blocks(count);
    return kHeaderSize + MaxPositionBytes(index_, count) + BytesFor(count) + BytesFor(blocks * 13) +
           1;
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const Selection selection = Select(input, share_);
    const absl::Span<const uint32_t> gaps(selection.gaps, selection.kept);
    const absl::Span<const uint32_t> steps(selection.scale_steps, selection.scales);
    const PositionPlan positions = PlanPositions(index_, gaps, selection.next - selection.kept);
    const RicePlan scales = ChooseRice(steps);
    ByteWriter writer(out);
    writer.Write(positions.coding);
    writer.Write(static_cast<uint8_t>(scales.parameter));
    writer.Write(static_cast<uint32_t>(gaps.size()));
    writer.Write(static_cast<uint32_t>(steps.size()));
    writer.Write(static_cast<uint32_t>(BytesFor(scales.unary_bits)));
    AppendFirstPlanes(positions, gaps, out);
    out->insert(out->end(), selection.signs, selection.signs + BytesFor(gaps.size()));
    AppendRemainders(steps, scales.parameter, out);
    AppendUnary(steps, scales, out);
    AppendLastPlane(positions, gaps, out);
  }

 private:
  const float share_;
  const IndexMode index_;
};

}  // namespace

std::unique_ptr<Codec> MakeTernary(const CodecSpec& spec) {
  Check(spec.level > 0 && spec.level <= 1, "a threshold is above 0 and at most 1");
  return std::make_unique<TernaryCodec>(spec);
}

absl::Status ValidateTernary(absl::Span<const std::byte> payload, size_t count) {
  Parts parts;
  if (!Split(payload, &parts)) return Bad("its planes do not fit into its bytes");
  absl::Status planes = CheckPlanes(parts, count);
  if (!planes.ok()) return planes;
  bool valid = true;
  ForEachScale(parts, [&](int64_t scale) {
    valid = scale >= kSmallestScale && scale <= kLargestScale;
    return valid;
  });
  if (!valid) return Bad("a scale is out of range");
  uint32_t positions[PositionReader::kBatch];
  PositionReader reader(parts.positions);
  size_t blocks = 0;
  size_t block = std::numeric_limits<size_t>::max();
  while (const size_t read = reader.Read(positions)) {
    for (size_t i = 0; i < read; ++i) {
      blocks += positions[i] / kBlock != block ? 1 : 0;
      block = positions[i] / kBlock;
    }
  }
  if (blocks != parts.scales) {
    return Bad(
        absl::StrCat("its positions are in ", blocks, " blocks, it has ", parts.scales, " scales"));
  }
  return absl::OkStatus();
}

void DecodeAddTernary(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  Parts parts;
  Check(Split(payload, &parts), "only validated payloads are decoded");
  RiceReader steps(parts.scale_remainders, parts.scale_unary, parts.scale_parameter);
  PositionReader reader(parts.positions);
  uint32_t positions[PositionReader::kBatch];
  int32_t code = 0;
  uint32_t scale = 0;  // Its bits.
  uint64_t signs = 0;  // What is left of a word of them.
  size_t index = 0;
  uint64_t block_end = 0;
  while (const size_t count = reader.Read(positions)) {
    for (size_t i = 0; i < count; ++i, ++index, signs >>= 1) {
      const uint32_t position = positions[i];
      if (position >= block_end) {
        code += static_cast<int32_t>(UnfoldSign(steps.Next()));
        scale = static_cast<uint32_t>(code) << kTernaryScaleShift;
        block_end = (uint64_t{position} / kBlock + 1) * kBlock;
      }
      if (index % 64 == 0) signs = SignsAt(parts.signs, index / 8);
      const uint32_t bits = scale ^ (static_cast<uint32_t>(signs) << 31);
      sum[position] += std::bit_cast<float>(bits);
    }
  }
}

}  // namespace sluice
