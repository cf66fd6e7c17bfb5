#include "compress/none.h"

#include "compress/float_bits.h"
#include "compress/payload.h"
#include "compress/vectorized.h"

namespace sluice {
namespace {

SLUICE_VECTORIZED void FlushTile(const float* __restrict gradient, float* __restrict residual,
                                 std::byte* __restrict out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    StoreAt<float>(out, i, gradient[i] + residual[i]);
    residual[i] = 0;
  }
}

SLUICE_VECTORIZED uint32_t LargestBits(const std::byte* payload, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, LoadAt<uint32_t>(payload, i) & ~kSignBit);
  }
  return largest;
}

SLUICE_VECTORIZED void AddFloats(const std::byte* __restrict payload, float* __restrict sum,
                                 size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += LoadAt<float>(payload, i);
}

class NoneCodec final : public Codec {
 public:
  FormatId format() const override { return FormatId::kNone; }
  bool lossless() const override { return true; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return count * sizeof(float); }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t count = input.gradient.size();
    const size_t at = out->size();
    out->resize(at + count * sizeof(float));
    if (input.residual.empty()) {
      if (count > 0) std::memcpy(out->data() + at, input.gradient.data(), count * sizeof(float));
    } else {
      FlushTile(input.gradient.data(), input.residual.data(), out->data() + at, count);
    }
  }
};

}  // namespace

std::unique_ptr<Codec> MakeNone(const CodecSpec&) { return std::make_unique<NoneCodec>(); }

absl::Status ValidateNone(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() != count * sizeof(float)) {
    return PayloadSizeError("none", count, count * sizeof(float), payload.size());
  }
  if (LargestBits(payload.data(), count) >= kInfinityBits) {
    return absl::InvalidArgumentError("none payload holds a value that is not finite");
  }
  return absl::OkStatus();
}

void DecodeAddNone(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  AddFloats(payload.data(), sum.data(), sum.size());
}

}  // namespace sluice
