// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/none.h"

#include <algorithm>
#include <cstring>

#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/simd/accumulate.h"

namespace sluice::compress {
namespace {

constexpr size_t kNoneTile = 2048;

class NoneCodec final : public Codec {
 public:
  FormatId format() const override { return FormatId::kNone; }
  bool lossless() const override { return true; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return count * sizeof(float); }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    if (input.residual.empty()) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(input.gradient.data());
      out->insert(out->end(), bytes, bytes + input.gradient.size() * sizeof(float));
      return;
    }
    ForEachTile<kNoneTile>(input,
                           [&](size_t, const float* gradient, float* residual, size_t count) {
                             float acc[kNoneTile];
                             for (size_t i = 0; i < count; ++i) {
                               acc[i] = gradient[i] + residual[i];
                               residual[i] = 0;
                             }
                             const auto* const bytes = reinterpret_cast<const std::byte*>(acc);
                             out->insert(out->end(), bytes, bytes + count * sizeof(float));
                           });
  }
};

}  // namespace

std::unique_ptr<Codec> MakeNone(const CodecSpec&) { return std::make_unique<NoneCodec>(); }

absl::Status ValidateNone(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != count * sizeof(float)) {
    return PayloadSizeError("none", count, count * sizeof(float), payload.size());
  }
  uint32_t largest = 0;
  for (size_t at = 0; at < count; at += kNoneTile) {
    // Values are copied, because a payload may not be aligned.
    float floats[kNoneTile];
    const size_t size = std::min(kNoneTile, count - at);
    std::memcpy(floats, payload.data() + at * sizeof(float), size * sizeof(float));
    largest = std::max(largest, LargestMagnitudeBits(floats, nullptr, size));
  }
  if (largest >= kInfinityBits) {
    return absl::InvalidArgumentError("none payload holds a value that is not finite");
  }
  return absl::OkStatus();
}

void DecodeAddNone(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  AddBytes(payload.data(), sum.data(), sum.size());
}

void DecodeAddScaledNone(absl::Span<const std::byte> payload, float scale, absl::Span<float> sum) {
  AddScaledBytes(scale, payload.data(), sum.data(), sum.size());
}

void DecodeAddPartNone(absl::Span<const std::byte> payload, size_t, size_t first,
                       absl::Span<float> sum) {
  AddBytes(payload.data() + first * sizeof(float), sum.data(), sum.size());
}

}  // namespace sluice::compress
