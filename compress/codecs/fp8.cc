// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/fp8.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/simd/cast.h"
#include "compress/simd/linear.h"

namespace sluice::compress {
namespace {

constexpr size_t kFp8Block = kLinearBlock;
constexpr uint16_t kFp8SmallestScale = 0x0080;  // The smallest normal number.

size_t Fp8Blocks(size_t count) { return (count + kFp8Block - 1) / kFp8Block; }
size_t PayloadSize(size_t count) { return 1 + Fp8Blocks(count) * sizeof(uint16_t) + count; }

const Fp8Format& FormatOf(bool e5m2) { return e5m2 ? kFp8E5m2 : kFp8E4m3; }
float LargestOf(bool e5m2) { return e5m2 ? 57344.0f : 448.0f; }

// Returns the largest bf16 scale for which the format's largest value is finite.
uint16_t LargestScale(bool e5m2) {
  return static_cast<uint16_t>(
      std::bit_cast<uint32_t>(std::numeric_limits<float>::max() / LargestOf(e5m2)) >> 16);
}

class Fp8Codec final : public Codec {
 public:
  Fp8Codec(bool e5m2, bool stochastic) : e5m2_(e5m2), stochastic_(stochastic) {}

  FormatId format() const override { return FormatId::kFp8; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return PayloadSize(count); }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t size = input.gradient.size();
    const size_t start = out->size();
    out->resize(start + PayloadSize(size));
    std::byte* const payload = out->data() + start;
    payload[0] = std::byte{e5m2_};
    auto* const codes =
        reinterpret_cast<uint8_t*>(payload) + 1 + Fp8Blocks(size) * sizeof(uint16_t);
    ForEachTile<kFp8Block>(
        input, [&](size_t at, const float* gradient, float* residual, size_t count) {
          const float largest = std::bit_cast<float>(AccumulateBlock(gradient, residual, count));
          const uint16_t scale = ScaleFor(largest);
          StoreAt(payload + 1, at / kFp8Block, scale);
          if (scale == 0) {
            std::memset(codes + at, 0, count);
            return;
          }
          const CastRounding rounding = {stochastic_, input.own_key, static_cast<uint32_t>(at)};
          ToFp8(FormatOf(e5m2_), FromBfloat(scale), 1 / FromBfloat(scale), rounding, residual,
                codes + at, count);
        });
  }

 private:
  // Returns the scale, rounded up so that the largest value is not clipped. Returns 0 for blocks
  // whose scale would be subnormal.
  uint16_t ScaleFor(float largest) const {
    const float exact = largest / LargestOf(e5m2_);
    const uint32_t up = (std::bit_cast<uint32_t>(exact) + 0xFFFF) >> 16;
    if (up < kFp8SmallestScale) return 0;
    return static_cast<uint16_t>(std::min(up, uint32_t{LargestScale(e5m2_)}));
  }

  const bool e5m2_;
  const bool stochastic_;
};

}  // namespace

std::unique_ptr<Codec> MakeFp8(const CodecSpec& spec) {
  return std::make_unique<Fp8Codec>(spec.has(kE5m2), spec.has(kStochastic));
}

absl::Status ValidateFp8(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != PayloadSize(count)) {
    return PayloadSizeError("fp8", count, PayloadSize(count), payload.size());
  }
  const auto variant = static_cast<int>(payload[0]);
  if (variant > 1) {
    return absl::InvalidArgumentError(absl::StrCat("fp8 payload: variant ", variant,
                                                   "; valid variants are 0 (e4m3) and 1 (e5m2)"));
  }
  const bool e5m2 = variant == 1;
  const auto* const codes =
      reinterpret_cast<const uint8_t*>(payload.data()) + 1 + Fp8Blocks(count) * sizeof(uint16_t);
  for (size_t block = 0; block < Fp8Blocks(count); ++block) {
    const uint8_t* const begin = codes + block * kFp8Block;
    const uint8_t* const end = begin + std::min(kFp8Block, count - block * kFp8Block);
    const uint16_t scale = LoadAt<uint16_t>(payload.data() + 1, block);
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("fp8 payload: block ", block, " has ", what));
    };
    if (scale != 0 && (scale < kFp8SmallestScale || scale > LargestScale(e5m2))) {
      return bad("a scale that is out of range");
    }
    uint8_t any = 0, largest = 0;
    for (const uint8_t* code = begin; code != end; ++code) {
      any |= *code;
      largest = std::max(largest, static_cast<uint8_t>(*code & 0x7F));
    }
    if (scale == 0 && any != 0) return bad("codes without a scale");
    if (largest > FormatOf(e5m2).largest) return bad("a value that is not finite");
  }
  return absl::OkStatus();
}

void DecodeAddFp8(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const Fp8Format& format = FormatOf(payload[0] == std::byte{1});
  const auto* const codes = reinterpret_cast<const uint8_t*>(payload.data()) + 1 +
                            Fp8Blocks(sum.size()) * sizeof(uint16_t);
  for (size_t at = 0; at < sum.size(); at += kFp8Block) {
    const uint16_t scale = LoadAt<uint16_t>(payload.data() + 1, at / kFp8Block);
    if (scale == 0) continue;
    AddFp8(format, FromBfloat(scale), codes + at, sum.data() + at,
           std::min(kFp8Block, sum.size() - at));
  }
}

}  // namespace sluice::compress
