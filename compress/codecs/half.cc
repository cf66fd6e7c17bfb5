// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/half.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/simd/cast.h"

namespace sluice::compress {
namespace {

constexpr size_t kHalfTile = 2048;
constexpr uint16_t kFp16Infinity = 0x7C00;
constexpr uint16_t kBf16Infinity = 0x7F80;

// Calls fn(first element, codes, count) for each tile of codes. Tiles have the alignment that
// kernels need; a payload may lack it.
template <typename Fn>
void ForEachCodeTile(absl::Span<const std::byte> payload, size_t count, Fn fn) {
  uint16_t codes[kHalfTile];
  for (size_t at = 0; at < count; at += kHalfTile) {
    const size_t size = std::min(kHalfTile, count - at);
    std::memcpy(codes, payload.data() + at * sizeof(uint16_t), size * sizeof(uint16_t));
    fn(at, codes, size);
  }
}

absl::Status ValidateHalves(absl::string_view codec, uint16_t infinity,
                            absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != count * sizeof(uint16_t)) {
    return PayloadSizeError(codec, count, count * sizeof(uint16_t), payload.size());
  }
  uint16_t largest = 0;
  ForEachCodeTile(payload, count, [&](size_t, const uint16_t* codes, size_t size) {
    largest = std::max(largest, LargestHalf(codes, size));
  });
  if (largest < infinity) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(codec, " payload holds a value that is not finite"));
}

class HalfCodec final : public Codec {
 public:
  HalfCodec(FormatId format, bool stochastic) : format_(format), stochastic_(stochastic) {}

  FormatId format() const override { return format_; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return count * sizeof(uint16_t); }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const auto encode = format_ == FormatId::kFp16 ? &ToFp16 : &ToBf16;
    const bool alone = input.residual.empty() && !stochastic_;
    const auto encode_tile = [&](size_t at, const float* gradient, float* residual, size_t count) {
      uint16_t codes[kHalfTile];
      const CastRounding rounding = {stochastic_, input.own_key, static_cast<uint32_t>(at)};
      encode(gradient, residual, rounding, codes, count);
      // insert() is faster than resize(), which would first clear the bytes.
      const auto* const bytes = reinterpret_cast<const std::byte*>(codes);
      out->insert(out->end(), bytes, bytes + count * sizeof(uint16_t));
    };
    if (!alone) return ForEachTile<kHalfTile>(input, encode_tile);
    const size_t size = input.gradient.size();
    for (size_t at = 0; at < size; at += kHalfTile) {
      encode_tile(at, input.gradient.data() + at, nullptr, std::min(kHalfTile, size - at));
    }
  }

 private:
  const FormatId format_;
  const bool stochastic_;
};

}  // namespace

std::unique_ptr<Codec> MakeHalf(const CodecSpec& spec) {
  const FormatId format = spec.codec == CodecId::kFp16 ? FormatId::kFp16 : FormatId::kBf16;
  return std::make_unique<HalfCodec>(format, spec.has(kStochastic));
}

absl::Status ValidateFp16(absl::Span<const std::byte> payload, size_t count) {
  return ValidateHalves("fp16", kFp16Infinity, payload, count);
}
void DecodeAddFp16(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  ForEachCodeTile(payload, sum.size(), [&](size_t at, const uint16_t* codes, size_t size) {
    AddFp16(codes, sum.data() + at, size);
  });
}
void DecodeAddPartFp16(absl::Span<const std::byte> payload, size_t, size_t first,
                       absl::Span<float> sum) {
  DecodeAddFp16(payload.subspan(first * sizeof(uint16_t)), sum);
}

absl::Status ValidateBf16(absl::Span<const std::byte> payload, size_t count) {
  return ValidateHalves("bf16", kBf16Infinity, payload, count);
}
void DecodeAddBf16(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  ForEachCodeTile(payload, sum.size(), [&](size_t at, const uint16_t* codes, size_t size) {
    AddBf16(codes, sum.data() + at, size);
  });
}
void DecodeAddPartBf16(absl::Span<const std::byte> payload, size_t, size_t first,
                       absl::Span<float> sum) {
  DecodeAddBf16(payload.subspan(first * sizeof(uint16_t)), sum);
}

}  // namespace sluice::compress
