// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/terngrad.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/plane_blocks.h"
#include "compress/simd/accumulate.h"

namespace sluice::compress {
namespace {

constexpr size_t kTernGradBlock = kStochasticBlock;
constexpr float kTernGradSmallestScale = 0x1p-126f;  // The inverse of this scale is finite.
constexpr double kClip = 2.5;
constexpr size_t kTernGradHeaderSize = 5;
constexpr uint8_t kBitmap = 0;  // Any other value is a Rice parameter plus 1.

// Calls fn(position) for each set bit of a bitmap, in order.
template <typename Fn>
void ForEachBit(absl::Span<const std::byte> bitmap, Fn fn) {
  for (size_t at = 0; at < bitmap.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bitmap.data() + at, std::min<size_t>(8, bitmap.size() - at));
    for (; word != 0; word &= word - 1) {
      fn(at * 8 + static_cast<size_t>(std::countr_zero(word)));
    }
  }
}

template <typename T>
T* AtLeast(std::vector<T>* buffer, size_t size) {
  if (buffer->size() < size) buffer->resize(size);
  return buffer->data();
}

// Returns the scale, rounded up to 16 significant bits, or 0 if there is nothing to send.
float ScaleOf(const EncodeInput& input) {
  const size_t size = input.gradient.size();
  const float* const residual = input.residual.empty() ? nullptr : input.residual.data();
  const float largest =
      std::bit_cast<float>(LargestMagnitudeBits(input.gradient.data(), residual, size));
  double squares = 0;
  float zeros[kTernGradBlock] = {};
  for (size_t at = 0; at < size; at += kTernGradBlock) {
    const size_t count = std::min(kTernGradBlock, size - at);
    squares += SumOfSquares(input.gradient.data() + at, residual == nullptr ? zeros : residual + at,
                            count);
  }
  const double clip = kClip * std::sqrt(squares / static_cast<double>(std::max<size_t>(size, 1)));
  const float scale = clip < largest ? static_cast<float>(clip) : largest;
  return scale < kTernGradSmallestScale ? 0 : ToShortFloatUp(scale);
}

// The parts of a payload. The spans have the right sizes; nothing else has been checked.
struct TernGradParts {
  float scale = 0;
  bool bitmap = false;
  int parameter = 0;
  size_t kept = 0;
  absl::Span<const std::byte> positions;  // Either a bitmap or the remainder plane.
  absl::Span<const std::byte> signs;
  absl::Span<const std::byte> unary;

  bool negative(size_t index) const {
    return (static_cast<unsigned>(signs[index / 8]) >> (index % 8) & 1) != 0;
  }
};

bool SplitTernGrad(absl::Span<const std::byte> payload, size_t count, TernGradParts* parts) {
  ByteReader reader(payload);
  const auto coding = reader.Read<uint8_t>();
  parts->scale = reader.Read<float>();
  parts->bitmap = coding == kBitmap;
  if (parts->bitmap) {
    parts->positions = reader.ReadBytes(BytesFor(count));
    ForEachBit(parts->positions, [&](size_t) { ++parts->kept; });
    parts->signs = reader.ReadBytes(BytesFor(parts->kept));
    return reader.ok() && reader.remaining() == 0;
  }
  parts->parameter = coding - 1;
  if (parts->parameter > kRiceParameterMax) return false;
  parts->kept = reader.Read<uint32_t>();
  parts->positions = reader.ReadBytes(RemainderBytes(parts->kept, parts->parameter));
  parts->signs = reader.ReadBytes(BytesFor(parts->kept));
  if (!reader.ok()) return false;
  parts->unary = reader.ReadBytes(reader.remaining());
  return true;
}

class TernGradCodec final : public Codec {
 public:
  FormatId format() const override { return FormatId::kTernGrad; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return kTernGradHeaderSize + 2 * BytesFor(count);
  }
  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override;
};

void TernGradCodec::Encode(const EncodeInput& input, std::vector<std::byte>* out) const {
  const size_t size = input.gradient.size();
  const float scale = ScaleOf(input);
  auto* const bitmap =
      reinterpret_cast<std::byte*>(AtLeast(&input.scratch->bytes, BytesFor(size) + kPlaneBytes));
  uint32_t* const gaps = AtLeast(&input.scratch->numbers, size);
  uint32_t* const negative = AtLeast(&input.scratch->positions, size);
  size_t kept = 0, next = 0;
  ForEachPaddedBlock<kTernGradBlock>(
      input, [&](size_t at, const float* gradient, float* residual, size_t count) {
        uint32_t codes[kTernGradBlock];
        uint8_t planes[2 * kPlaneBytes];
        RoundToSteps(gradient, residual, scale, scale == 0 ? 0 : 1 / scale, 1, input.own_key,
                     static_cast<uint32_t>(at), codes);
        PackPlanes(codes, 0, 1, planes);
        std::memcpy(bitmap + at / 8, planes + kPlaneBytes, BytesFor(count));
        ForEachBit(absl::MakeConstSpan(bitmap + at / 8, BytesFor(count)), [&](size_t i) {
          gaps[kept] = static_cast<uint32_t>(at + i - next);
          negative[kept++] = codes[i] >> 31;
          next = at + i + 1;
        });
      });
  const RicePlan plan = ChooseRice(absl::MakeConstSpan(gaps, kept));
  const size_t rice =
      sizeof(uint32_t) + RemainderBytes(kept, plan.parameter) + BytesFor(plan.unary_bits);
  const bool coded = rice < BytesFor(size);
  ByteWriter writer(out);
  writer.Write(static_cast<uint8_t>(coded ? plan.parameter + 1 : kBitmap));
  writer.Write(scale);
  if (coded) {
    writer.Write(static_cast<uint32_t>(kept));
    AppendRemainders(absl::MakeConstSpan(gaps, kept), plan.parameter, out);
  } else {
    out->insert(out->end(), bitmap, bitmap + BytesFor(size));
  }
  AppendRemainders(absl::MakeConstSpan(negative, kept), 1, out);
  if (coded) AppendUnary(absl::MakeConstSpan(gaps, kept), plan, out);
}

absl::Status BadTernGrad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("terngrad payload: ", what));
}

}  // namespace

std::unique_ptr<Codec> MakeTernGrad(const CodecSpec&) { return std::make_unique<TernGradCodec>(); }

absl::Status ValidateTernGrad(absl::Span<const std::byte> payload, size_t count) {
  TernGradParts parts;
  if (!SplitTernGrad(payload, count, &parts))
    return BadTernGrad("its planes do not fit into its bytes");
  const auto bits = std::bit_cast<uint32_t>(parts.scale);
  const bool in_range =
      bits >= std::bit_cast<uint32_t>(kTernGradSmallestScale) && bits < kInfinityBits;
  if ((bits != 0 && !in_range) || (bits & 0xFF) != 0)
    return BadTernGrad("its scale is out of range");
  if (bits == 0 && parts.kept > 0) return BadTernGrad("it has values but no scale");
  if (!IsPadded(parts.signs, parts.kept)) return BadTernGrad("padding is not zero");
  if (parts.bitmap) {
    return IsPadded(parts.positions, count) ? absl::OkStatus() : BadTernGrad("padding is not zero");
  }
  if (parts.kept == 0 && parts.parameter != 0)
    return BadTernGrad("it has a parameter but no positions");
  if (!IsPadded(parts.positions, uint64_t{parts.kept} * static_cast<uint64_t>(parts.parameter)) ||
      !IsUnaryPlane(parts.unary, parts.kept)) {
    return BadTernGrad("its position planes do not hold the announced number of positions");
  }
  bool valid = true;
  ForEachPosition(parts.positions, parts.unary, parts.parameter, [&](uint64_t position) {
    valid = position < count;
    return valid;
  });
  return valid ? absl::OkStatus() : BadTernGrad(absl::StrCat("a position is not below ", count));
}

void DecodeAddTernGrad(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  TernGradParts parts;
  Check(SplitTernGrad(payload, sum.size(), &parts), "only validated payloads are decoded");
  size_t index = 0;
  const auto add = [&](size_t position) {
    sum[position] += parts.negative(index++) ? -parts.scale : parts.scale;
  };
  if (parts.bitmap) return ForEachBit(parts.positions, add);
  ForEachPosition(parts.positions, parts.unary, parts.parameter, [&](uint64_t position) {
    add(static_cast<size_t>(position));
    return true;
  });
}

}  // namespace sluice::compress
