#include "compress/eden.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "compress/accumulator.h"
#include "compress/float_bits.h"
#include "compress/payload.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/rotation.h"

namespace sluice {
namespace {

constexpr size_t kKeySize = sizeof(uint64_t);
// Then a byte: bits of a code, and the number of rotations from this bit on.
constexpr int kRotationsShift = 4;
constexpr size_t kScalesAt = kKeySize + 1;
constexpr size_t kScaleSize = 3;  // The upper bytes of an fp32.

// Block sizes from the first element on: as many as fit of the largest, then each smaller one at
// most once; what is left, below kRotatedMin, is not rotated.
size_t BlockSize(size_t left) { return std::min(std::bit_floor(left), kRotatedMax); }
size_t RotatedCount(size_t count) { return count - count % kRotatedMin; }
size_t Blocks(size_t count) {
  return count / kRotatedMax +
         static_cast<size_t>(std::popcount(count % kRotatedMax / kRotatedMin));
}
size_t PayloadSize(size_t count, int bits) {
  return kScalesAt + kScaleSize * Blocks(count) +
         RotatedCount(count) / 8 * static_cast<size_t>(bits) +
         (count - RotatedCount(count)) * sizeof(float);
}

// Scales: normal numbers, below what could overflow with the largest sum of magnitudes.
constexpr float kSmallestScale = 0x1p-126f;
constexpr float kLargestScale = 0x1p98f;
static_assert(double{kRotatedMax} * kRotatedMax * 700 * kLargestScale <
              std::numeric_limits<float>::max());

void StoreScale(std::byte* at, float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale) >> 8;
  std::memcpy(at, &bits, kScaleSize);
}
float LoadScale(const std::byte* at) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, kScaleSize);
  return std::bit_cast<float>(bits << 8);
}

// The random rotations of one block.
class Rotation {
 public:
  // The block begins at element `at` of the chunk.
  Rotation(uint64_t key, int rotations, size_t at, size_t size)
      : rotations_(rotations), size_(size) {
    for (int rotation = 0; rotation < rotations; ++rotation) {
      // Words of the SplitMix64 generator that begins at the key; 2^32 of them for each rotation.
      const uint64_t first = (static_cast<uint64_t>(rotation) << 32) + at / 64 + 1;
      for (size_t i = 0; i < size / 64; ++i) {
        signs_[rotation][i] = MixBits(key + 0x9E3779B97F4A7C15u * (first + i));
      }
    }
  }

  // y = scale times x, rotated. Returns the energy of scale times x, which is also the variance of
  // each y[i] after one rotation; after two that is less by the factor `size`.
  float Forward(const float* x, float scale, float* y) const {
    const float energy = FlipSigns(x, signs_[0], scale, y, size_);
    WalshHadamard(y, size_);
    if (rotations_ == 1) return energy;
    FlipSigns(y, signs_[1], 1 / static_cast<float>(size_), y, size_);
    WalshHadamard(y, size_);
    return energy;
  }

  // sum += scale times q, rotated back (and times `size`). Overwrites q.
  void AddBack(float* q, float scale, float* sum) const {
    WalshHadamard(q, size_);
    if (rotations_ == 2) {
      FlipSigns(q, signs_[1], 1, q, size_);
      WalshHadamard(q, size_);
    }
    AddFlipped(q, signs_[0], scale, sum, size_);
  }

 private:
  const int rotations_;
  const size_t size_;
  uint64_t signs_[2][kRotatedMax / 64];
};

// 2^-k where the largest is from 2^k on, as far as both are normal: nothing overflows or vanishes
// on the way.
float Normalizer(uint32_t largest_bits) {
  const int field = std::clamp(254 - static_cast<int>(largest_bits >> 23), 1, 253);
  return std::bit_cast<float>(static_cast<uint32_t>(field) << 23);
}

// Of a block whose normalised values have this energy; `unbiased` goes with two rotations. 0: it
// cannot be sent.
float ScaleFor(const RotatedSums& sums, float energy, float normalizer, size_t size,
               bool unbiased) {
  if (!(energy > 0) || !(sums.product > 0)) return 0;
  const float scale =
      (unbiased ? energy / sums.product : sums.product / sums.energy) / static_cast<float>(size);
  const float scaled = ToShortFloat(scale) * (1 / normalizer);
  return scaled < kSmallestScale ? 0 : std::min(scaled, kLargestScale);
}

struct Block {
  std::byte* scale;
  uint8_t* planes;
};

class EdenCodec final : public Codec {
 public:
  explicit EdenCodec(int bits) : bits_(bits) {}

  FormatId format() const override { return FormatId::kRotated; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return PayloadSize(count, bits_); }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t count = input.gradient.size();
    const size_t start = out->size();
    out->resize(start + PayloadSize(count, bits_));
    std::byte* const payload = out->data() + start;
    StoreAt(payload, 0, input.own_key);
    const int rotations = input.residual.empty() ? 2 : 1;
    payload[kKeySize] = static_cast<std::byte>(bits_ | rotations << kRotationsShift);
    std::byte* scale = payload + kScalesAt;
    std::byte* planes = scale + kScaleSize * Blocks(count);
    size_t at = 0;
    for (; at < RotatedCount(count);) {
      const size_t size = BlockSize(count - at);
      EncodeBlock(input, at, size, {scale, reinterpret_cast<uint8_t*>(planes)});
      scale += kScaleSize;
      planes += size / 8 * static_cast<size_t>(bits_);
      at += size;
    }
    for (size_t i = 0; at < count; ++at, ++i) {
      const bool feedback = !input.residual.empty();
      StoreAt(planes, i, input.gradient[at] + (feedback ? input.residual[at] : 0.0f));
      if (feedback) input.residual[at] = 0;
    }
  }

 private:
  void EncodeBlock(const EncodeInput& input, size_t at, size_t size, const Block& out) const {
    const float* acc = input.gradient.data() + at;
    const bool feedback = !input.residual.empty();
    float* const residual = feedback ? input.residual.data() + at : nullptr;
    if (feedback) {
      for (size_t i = 0; i < size; ++i) residual[i] += acc[i];
      acc = residual;
    }
    const Rotation rotation(input.own_key, feedback ? 1 : 2, at, size);
    float y[kRotatedMax];
    const float normalizer = Normalizer(LargestMagnitudeBits(acc, nullptr, size));
    const float energy = rotation.Forward(acc, normalizer, y);
    const float variance = feedback ? energy : energy / static_cast<float>(size);
    const RotatedSums sums =
        QuantizeRotated(y, std::sqrt(variance) * 0x1p-8f, bits_, out.planes, size);
    const float scale = ScaleFor(sums, energy, normalizer, size, !feedback);
    StoreScale(out.scale, scale);
    if (scale == 0) {
      std::memset(out.planes, 0, size / 8 * static_cast<size_t>(bits_));
      return;
    }
    if (!feedback) return;
    ExpandRotated(out.planes, bits_, y, size);
    rotation.AddBack(y, -scale, residual);
  }

  const int bits_;
};

int BitsOf(absl::Span<const std::byte> payload) {
  return static_cast<int>(payload[kKeySize]) & ((1 << kRotationsShift) - 1);
}
int RotationsOf(absl::Span<const std::byte> payload) {
  return static_cast<int>(payload[kKeySize]) >> kRotationsShift;
}

absl::Status PayloadError(size_t block, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("rotated payload: block ", block, " has ", what));
}

}  // namespace

std::unique_ptr<Codec> MakeEden(const CodecSpec& spec) {
  return std::make_unique<EdenCodec>(static_cast<int>(spec.level));
}

absl::Status ValidateRotated(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() < kScalesAt) {
    return PayloadSizeError("rotated", count, PayloadSize(count, 1), payload.size());
  }
  const int bits = BitsOf(payload), rotations = RotationsOf(payload);
  if (bits < 1 || bits > 4 || rotations < 1 || rotations > 2) {
    return absl::InvalidArgumentError(absl::StrCat("rotated payload: codes of ", bits, " bits, ",
                                                   rotations,
                                                   " rotations; there are 1 to 4 and 1 or 2"));
  }
  if (payload.size() != PayloadSize(count, bits)) {
    return PayloadSizeError("rotated", count, PayloadSize(count, bits), payload.size());
  }
  const std::byte* const scales = payload.data() + kScalesAt;
  const std::byte* planes = scales + kScaleSize * Blocks(count);
  size_t at = 0;
  for (size_t block = 0; at < RotatedCount(count); ++block) {
    const size_t size = BlockSize(count - at);
    const size_t bytes = size / 8 * static_cast<size_t>(bits);
    const float scale = LoadScale(scales + kScaleSize * block);
    const bool empty = std::bit_cast<uint32_t>(scale) == 0;
    if (!empty && !(scale >= kSmallestScale && scale <= kLargestScale)) {
      return PayloadError(block, "a scale that is out of range");
    }
    if (empty &&
        std::any_of(planes, planes + bytes, [](std::byte b) { return b != std::byte{0}; })) {
      return PayloadError(block, "codes without a scale");
    }
    planes += bytes;
    at += size;
  }
  for (size_t i = 0; at + i < count; ++i) {
    if (IsFinite(LoadAt<float>(planes, i))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rotated payload: element ", at + i, " is not finite"));
  }
  return absl::OkStatus();
}

void DecodeAddRotated(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const auto key = LoadAt<uint64_t>(payload.data(), 0);
  const int bits = BitsOf(payload);
  const std::byte* scales = payload.data() + kScalesAt;
  const std::byte* planes = scales + kScaleSize * Blocks(sum.size());
  float y[kRotatedMax];
  size_t at = 0;
  while (at < RotatedCount(sum.size())) {
    const size_t size = BlockSize(sum.size() - at);
    const float scale = LoadScale(scales);
    if (scale != 0) {
      ExpandRotated(reinterpret_cast<const uint8_t*>(planes), bits, y, size);
      Rotation(key, RotationsOf(payload), at, size).AddBack(y, scale, sum.data() + at);
    }
    scales += kScaleSize;
    planes += size / 8 * static_cast<size_t>(bits);
    at += size;
  }
  for (size_t i = 0; at < sum.size(); ++at, ++i) sum[at] += LoadAt<float>(planes, i);
}

}  // namespace sluice
