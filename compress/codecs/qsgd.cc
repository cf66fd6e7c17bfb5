// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/qsgd.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/coding/plane_blocks.h"
#include "compress/simd/accumulate.h"

namespace sluice::compress {
namespace {

constexpr size_t kQsgdBlock = kStochasticBlock;
constexpr int kBitsMin = 2, kBitsMax = 8;
constexpr uint16_t kSmallestStep = 0x0080;  // 2^-126, whose inverse is finite.

size_t QsgdBlocks(size_t count) { return (count + kQsgdBlock - 1) / kQsgdBlock; }
size_t PlanesAt(size_t count) { return 1 + 2 * QsgdBlocks(count); }
size_t QsgdPayloadSize(size_t count, int bits) {
  const size_t last = count % kQsgdBlock;
  return PlanesAt(count) +
         static_cast<size_t>(bits) * (count / kQsgdBlock * kPlaneBytes + BytesFor(last));
}

uint32_t Most(int bits) { return (uint32_t{1} << (bits - 1)) - 1; }

// Returns the largest bf16 step for which all codes are finite.
uint16_t LargestStep(int bits) {
  const float exact = std::numeric_limits<float>::max() / static_cast<float>(Most(bits));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);
}

// Returns the step, rounded up to bf16 so that the largest element's code is not clipped. Returns 0
// if the step would be subnormal.
uint16_t StepFor(uint32_t largest_bits, int bits) {
  const float exact = std::bit_cast<float>(largest_bits) / static_cast<float>(Most(bits));
  const uint32_t step = (std::bit_cast<uint32_t>(exact) + 0xFFFF) >> 16;
  if (step < kSmallestStep) return 0;
  return static_cast<uint16_t>(std::min(step, uint32_t{LargestStep(bits)}));
}

class QsgdCodec final : public Codec {
 public:
  explicit QsgdCodec(int bits) : bits_(bits) {}

  FormatId format() const override { return FormatId::kQsgd; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return QsgdPayloadSize(count, bits_);
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t size = input.gradient.size();
    const size_t start = out->size();
    out->resize(start + QsgdPayloadSize(size, bits_));
    std::byte* const payload = out->data() + start;
    payload[0] = static_cast<std::byte>(bits_);
    std::byte* planes_out = payload + PlanesAt(size);
    ForEachPaddedBlock<kQsgdBlock>(input, [&](size_t at, const float* gradient, float* residual,
                                              size_t count) {
      const uint16_t step = StepFor(LargestMagnitudeBits(gradient, residual, kQsgdBlock), bits_);
      const float value = FromBfloat(step);
      uint32_t codes[kQsgdBlock];
      uint8_t planes[kPlanesMax * kPlaneBytes];
      RoundToSteps(gradient, residual, value, step == 0 ? 0 : 1 / value, Most(bits_), input.own_key,
                   static_cast<uint32_t>(at), codes);
      PackPlanes(codes, 0, bits_ - 1, planes);
      StoreAt(payload + 1, at / kQsgdBlock, step);
      CutPlanes(planes, static_cast<size_t>(bits_), count, planes_out);
      planes_out += static_cast<size_t>(bits_) * BytesFor(count);
    });
  }

 private:
  const int bits_;
};

}  // namespace

std::unique_ptr<Codec> MakeQsgd(const CodecSpec& spec) {
  return std::make_unique<QsgdCodec>(static_cast<int>(spec.level));
}

absl::Status ValidateQsgd(absl::Span<const std::byte> payload, size_t count) {
  if (payload.empty()) return PayloadSizeError("qsgd", count, QsgdPayloadSize(count, kBitsMin), 0);
  const int bits = static_cast<int>(payload[0]);
  if (bits < kBitsMin || bits > kBitsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "qsgd payload: codes of ", bits, " bits; valid are ", kBitsMin, " to ", kBitsMax));
  }
  if (payload.size() != QsgdPayloadSize(count, bits)) {
    return PayloadSizeError("qsgd", count, QsgdPayloadSize(count, bits), payload.size());
  }
  const std::byte* at = payload.data() + PlanesAt(count);
  for (size_t block = 0; block < QsgdBlocks(count); ++block) {
    const size_t elements = std::min(kQsgdBlock, count - block * kQsgdBlock);
    uint8_t planes[kPlanesMax * kPlaneBytes];
    PadPlanes(at, static_cast<size_t>(bits), elements, planes);
    at += static_cast<size_t>(bits) * BytesFor(elements);
    absl::string_view wrong = PlaneProblem(planes, static_cast<size_t>(bits), elements);
    const auto step = LoadAt<uint16_t>(payload.data() + 1, block);
    if (step > LargestStep(bits) || (step != 0 && step < kSmallestStep)) {
      wrong = "a step that is out of range";
    } else if (step == 0 &&
               std::any_of(planes,
                           planes + sizeof(planes[0]) * kPlaneBytes * static_cast<size_t>(bits),
                           [](uint8_t byte) { return byte != 0; })) {
      wrong = "codes without a step";
    }
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("qsgd payload: block ", block, " has ", wrong));
  }
  return absl::OkStatus();
}

void DecodeAddQsgd(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const int bits = static_cast<int>(payload[0]);
  const std::byte* at = payload.data() + PlanesAt(sum.size());
  for (size_t start = 0; start < sum.size(); start += kQsgdBlock) {
    const size_t elements = std::min(kQsgdBlock, sum.size() - start);
    uint8_t planes[kPlanesMax * kPlaneBytes];
    uint32_t codes[kQsgdBlock];
    PadPlanes(at, static_cast<size_t>(bits), elements, planes);
    at += static_cast<size_t>(bits) * BytesFor(elements);
    UnpackPlanes(planes, 0, bits - 1, codes);
    const float step = FromBfloat(LoadAt<uint16_t>(payload.data() + 1, start / kQsgdBlock));
    if (elements == kQsgdBlock) {
      AddSteps(codes, step, sum.data() + start);
      continue;
    }
    float last[kQsgdBlock] = {};
    std::copy(sum.begin() + static_cast<ptrdiff_t>(start), sum.end(), last);
    AddSteps(codes, step, last);
    std::copy(last, last + elements, sum.begin() + static_cast<ptrdiff_t>(start));
  }
}

}  // namespace sluice::compress
