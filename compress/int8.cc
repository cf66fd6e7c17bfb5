#include "compress/int8.h"

#include <bit>
#include <limits>

#include "compress/accumulator.h"
#include "compress/float_bits.h"
#include "compress/payload.h"
#include "compress/vectorized.h"

namespace sluice {
namespace {

constexpr size_t kBlock = 256;
// The scales a frame may hold besides 0: normal, so that values of a block are decided at full
// precision, and such that 127 of them are finite.
constexpr uint16_t kSmallestScale = 0x0080;
constexpr uint16_t kLargestScale = 0x7C01;
static_assert(127.0 * std::bit_cast<float>(uint32_t{kLargestScale} << 16) <=
              std::numeric_limits<float>::max());

size_t Blocks(size_t count) { return (count + kBlock - 1) / kBlock; }
size_t PayloadSize(size_t count) { return Blocks(count) * sizeof(uint16_t) + count; }

// Adding it rounds a small float to an integer, to nearest even, and leaves that in the low bits.
constexpr float kRounder = 0x1.8p23f;

// Makes the accumulator in place and returns the largest magnitude's bits.
SLUICE_VECTORIZED uint32_t AccumulateBlock(const float* __restrict gradient,
                                           float* __restrict residual, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    residual[i] += gradient[i];
    largest = std::max(largest, MagnitudeBits(residual[i]));
  }
  return largest;
}

SLUICE_VECTORIZED void QuantizeBlock(float scale, float inverse, float* __restrict residual,
                                     std::byte* __restrict codes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float acc = residual[i];
    const int32_t rounded =
        std::bit_cast<int32_t>(acc * inverse + kRounder) - std::bit_cast<int32_t>(kRounder);
    const int32_t code = std::clamp(rounded, -127, 127);
    StoreAt(codes, i, static_cast<int8_t>(code));
    residual[i] = acc - static_cast<float>(code) * scale;
  }
}

SLUICE_VECTORIZED void AddBlock(float scale, const std::byte* __restrict codes,
                                float* __restrict sum, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    sum[i] += static_cast<float>(LoadAt<int8_t>(codes, i)) * scale;
  }
}

// 0 if all codes are 0; -1 if one of them is -128.
SLUICE_VECTORIZED int LargestCode(const std::byte* codes, size_t count) {
  uint8_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t code = LoadAt<uint8_t>(codes, i);
    const uint8_t magnitude = (code & 0x80) != 0 ? static_cast<uint8_t>(-code) : code;
    largest = std::max(largest, magnitude);
  }
  return largest == 128 ? -1 : largest;
}

uint16_t ScaleFor(uint32_t largest_bits) {
  const float exact = std::bit_cast<float>(largest_bits) / 127;
  const uint32_t up = (std::bit_cast<uint32_t>(exact) + 0xFFFF) >> 16;
  if (up < kSmallestScale) return 0;
  return static_cast<uint16_t>(std::min(up, uint32_t{kLargestScale}));
}

class Int8Codec final : public Codec {
 public:
  FormatId format() const override { return FormatId::kInt8; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return PayloadSize(count); }

  absl::Status Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    absl::Status finite = CheckAccumulator(input.gradient, input.residual);
    if (!finite.ok()) return finite;
    const size_t size = input.gradient.size();
    const size_t start = out->size();
    out->resize(start + PayloadSize(size));
    std::byte* const scales = out->data() + start;
    std::byte* const codes = scales + Blocks(size) * sizeof(uint16_t);
    ForEachTile<kBlock>(
        input, [&](size_t at, const float* gradient, float* residual, size_t count) {
          const uint16_t scale = ScaleFor(AccumulateBlock(gradient, residual, count));
          StoreAt(scales, at / kBlock, scale);
          if (scale == 0) {
            std::memset(codes + at, 0, count);
            return;
          }
          QuantizeBlock(FromBfloat(scale), 1 / FromBfloat(scale), residual, codes + at, count);
        });
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Codec> MakeInt8(const CodecSpec&) { return std::make_unique<Int8Codec>(); }

absl::Status ValidateInt8(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != PayloadSize(count)) {
    return PayloadSizeError("int8", count, PayloadSize(count), payload.size());
  }
  const std::byte* const codes = payload.data() + Blocks(count) * sizeof(uint16_t);
  for (size_t block = 0; block < Blocks(count); ++block) {
    const uint16_t scale = LoadAt<uint16_t>(payload.data(), block);
    if (scale != 0 && (scale < kSmallestScale || scale > kLargestScale)) {
      return absl::InvalidArgumentError(
          absl::StrCat("int8 payload: the scale of block ", block, " is out of range"));
    }
    const int largest =
        LargestCode(codes + block * kBlock, std::min(kBlock, count - block * kBlock));
    if (largest < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("int8 payload: block ", block, " holds the unused code -128"));
    }
    if ((largest == 0) != (scale == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("int8 payload: block ", block, " has ",
                       scale == 0 ? "codes without a scale" : "a scale without codes"));
    }
  }
  return absl::OkStatus();
}

void DecodeAddInt8(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const std::byte* const codes = payload.data() + Blocks(sum.size()) * sizeof(uint16_t);
  for (size_t at = 0; at < sum.size(); at += kBlock) {
    const uint16_t scale = LoadAt<uint16_t>(payload.data(), at / kBlock);
    if (scale == 0) continue;
    AddBlock(FromBfloat(scale), codes + at, sum.data() + at, std::min(kBlock, sum.size() - at));
  }
}

}  // namespace sluice
