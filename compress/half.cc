#include "compress/half.h"

#include "compress/accumulator.h"
#include "compress/float_bits.h"
#include "compress/payload.h"
#include "compress/vectorized.h"

namespace sluice {
namespace {

constexpr size_t kTile = 1024;
constexpr uint16_t kFp16Infinity = 0x7C00;
constexpr uint16_t kBf16Infinity = 0x7F80;

SLUICE_VECTORIZED void EncodeFp16Tile(const float* __restrict gradient, float* __restrict residual,
                                      std::byte* __restrict out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float acc = gradient[i] + residual[i];
    const uint16_t code = ToHalf(acc);
    StoreAt(out, i, code);
    residual[i] = acc - FromHalf(code);
  }
}

SLUICE_VECTORIZED void EncodeBf16Tile(const float* __restrict gradient, float* __restrict residual,
                                      std::byte* __restrict out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float acc = gradient[i] + residual[i];
    const uint16_t code = ToBfloat(acc);
    StoreAt(out, i, code);
    residual[i] = acc - FromBfloat(code);
  }
}

SLUICE_VECTORIZED void AddFp16(const std::byte* __restrict payload, float* __restrict sum,
                               size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += FromHalf(LoadAt<uint16_t>(payload, i));
}

SLUICE_VECTORIZED void AddBf16(const std::byte* __restrict payload, float* __restrict sum,
                               size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += FromBfloat(LoadAt<uint16_t>(payload, i));
}

SLUICE_VECTORIZED uint16_t LargestMagnitudeCode(const std::byte* payload, size_t count) {
  uint16_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint16_t magnitude = LoadAt<uint16_t>(payload, i) & 0x7FFF;
    largest = std::max(largest, magnitude);
  }
  return largest;
}

absl::Status ValidateHalves(absl::string_view codec, uint16_t infinity,
                            absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != count * sizeof(uint16_t)) {
    return PayloadSizeError(codec, count, count * sizeof(uint16_t), payload.size());
  }
  if (LargestMagnitudeCode(payload.data(), count) >= infinity) {
    return absl::InvalidArgumentError(
        absl::StrCat(codec, " payload holds a value that is not finite"));
  }
  return absl::OkStatus();
}

class HalfCodec final : public Codec {
 public:
  explicit HalfCodec(FormatId id) : id_(id) {}

  FormatId format() const override { return id_; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return count * sizeof(uint16_t); }

  absl::Status Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    absl::Status finite = CheckAccumulator(input.gradient, input.residual);
    if (!finite.ok()) return finite;
    const size_t start = out->size();
    out->resize(start + input.gradient.size() * sizeof(uint16_t));
    const auto encode = id_ == FormatId::kFp16 ? &EncodeFp16Tile : &EncodeBf16Tile;
    ForEachTile<kTile>(input, [&](size_t at, const float* gradient, float* residual, size_t count) {
      encode(gradient, residual, out->data() + start + at * sizeof(uint16_t), count);
    });
    return absl::OkStatus();
  }

 private:
  const FormatId id_;
};

}  // namespace

std::unique_ptr<Codec> MakeFp16(const CodecSpec&) {
  return std::make_unique<HalfCodec>(FormatId::kFp16);
}
absl::Status ValidateFp16(absl::Span<const std::byte> payload, size_t count) {
  return ValidateHalves("fp16", kFp16Infinity, payload, count);
}
void DecodeAddFp16(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  AddFp16(payload.data(), sum.data(), sum.size());
}

std::unique_ptr<Codec> MakeBf16(const CodecSpec&) {
  return std::make_unique<HalfCodec>(FormatId::kBf16);
}
absl::Status ValidateBf16(absl::Span<const std::byte> payload, size_t count) {
  return ValidateHalves("bf16", kBf16Infinity, payload, count);
}
void DecodeAddBf16(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  AddBf16(payload.data(), sum.data(), sum.size());
}

}  // namespace sluice
