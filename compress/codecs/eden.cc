// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/eden.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/rotated_blocks.h"
#include "compress/simd/rotation.h"

namespace sluice::compress {
namespace {

constexpr size_t kKeySize = RotatedPayload::kKeySize;
constexpr size_t kScaleSize = RotatedPayload::kScaleSize;

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
  // `at` is the position of the block's first element in the chunk.
  Rotation(uint64_t key, int rotations, size_t at, size_t size)
      : rotations_(rotations), size_(size) {
    for (int rotation = 0; rotation < rotations; ++rotation) {
      for (size_t i = 0; i < size / 64; ++i) {
        signs_[rotation][i] = RotationSigns(key, rotation, at + i * 64);
      }
    }
  }

  // Computes y = rotated (scale * x). Returns the energy of scale * x. After one rotation, this
  // energy is also the variance of each y[i]; after two rotations, the variance is smaller by the
  // factor `size`.
  float Forward(const float* x, float scale, float* y) const {
    const float energy = FlipSigns(x, signs_[0], scale, y, size_);
    WalshHadamard(y, size_);
    if (rotations_ == 1) return energy;
    FlipSigns(y, signs_[1], 1 / static_cast<float>(size_), y, size_);
    WalshHadamard(y, size_);
    return energy;
  }

  // Rotates q back and adds the result times `scale` (and times `size`) to `sum`. Overwrites q.
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

struct Block {
  std::byte* scale;
  uint8_t* planes;
};

class EdenCodec final : public Codec {
 public:
  explicit EdenCodec(int bits) : bits_(bits) {}

  FormatId format() const override { return FormatId::kRotated; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return RotatedPayload{count, bits_}.size();
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t count = input.gradient.size();
    const RotatedPayload layout{count, bits_};
    const size_t start = out->size();
    out->resize(start + layout.size());
    std::byte* const payload = out->data() + start;
    StoreAt(payload, 0, input.own_key);
    const int rotations = input.residual.empty() ? 2 : 1;
    payload[kKeySize] =
        static_cast<std::byte>(bits_ | rotations << RotatedPayload::kRotationsShift);
    size_t at = 0;
    for (size_t size = 0; at < RotatedCount(count); at += size) {
      size = RotatedBlockSize(count - at);
      EncodeBlock(input, at, size,
                  {payload + layout.ScaleAt(at),
                   reinterpret_cast<uint8_t*>(payload + layout.PlanesAt(at))});
    }
    std::byte* const rest = payload + layout.RestAt();
    for (size_t i = 0; at < count; ++at, ++i) {
      const bool feedback = !input.residual.empty();
      StoreAt(rest, i, input.gradient[at] + (feedback ? input.residual[at] : 0.0f));
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
    const float normalizer = PowerThatNormalizes(LargestMagnitudeBits(acc, nullptr, size));
    const float energy = rotation.Forward(acc, normalizer, y);
    const float variance = feedback ? energy : energy / static_cast<float>(size);
    const RotatedSums sums =
        QuantizeRotated(y, std::sqrt(variance) * 0x1p-8f, bits_, out.planes, size);
    const float scale = RotatedScale(sums, energy, normalizer, size, !feedback);
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
  return static_cast<int>(payload[kKeySize]) & ((1 << RotatedPayload::kRotationsShift) - 1);
}
int RotationsOf(absl::Span<const std::byte> payload) {
  return static_cast<int>(payload[kKeySize]) >> RotatedPayload::kRotationsShift;
}

absl::Status PayloadError(size_t block, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("rotated payload: block ", block, " has ", what));
}

}  // namespace

// The values hold for any x, because the random rotation makes the values Gaussian.
double EdenVariance(const CodecSpec& spec) {
  constexpr double kVariances[] = {0.571, 0.1328, 0.0358, 0.00959};
  return kVariances[static_cast<size_t>(spec.level) - 1];
}

CodecPrice EdenPrice(const CodecSpec& spec) {
  // With the scale that minimizes the error, for 1 to 4 bits.
  constexpr double kErrors[] = {0.363, 0.1175, 0.0345, 0.0095};
  return {.bits = spec.level + 3.0 / 128,
          .error = kErrors[std::clamp(static_cast<int>(spec.level), 1, 4) - 1],
          .encode_ns = 3.5,
          .add_ns = 3};
}

std::unique_ptr<Codec> MakeEden(const CodecSpec& spec) {
  return std::make_unique<EdenCodec>(static_cast<int>(spec.level));
}

absl::Status ValidateRotated(absl::Span<const std::byte> payload, size_t count) {
  if (payload.size() <= kKeySize) {
    return PayloadSizeError("rotated", count, RotatedPayload{count, 1}.size(), payload.size());
  }
  const int bits = BitsOf(payload), rotations = RotationsOf(payload);
  if (bits < 1 || bits > 4 || rotations < 1 || rotations > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotated payload: codes of ", bits, " bits, ", rotations,
                     " rotations; valid are 1 to 4 bits and 1 or 2 rotations"));
  }
  const RotatedPayload layout{count, bits};
  if (payload.size() != layout.size()) {
    return PayloadSizeError("rotated", count, layout.size(), payload.size());
  }
  size_t size = 0;
  for (size_t at = 0; at < RotatedCount(count); at += size) {
    size = RotatedBlockSize(count - at);
    const std::byte* const planes = payload.data() + layout.PlanesAt(at);
    const size_t bytes = size / 8 * static_cast<size_t>(bits);
    const float scale = LoadScale(payload.data() + layout.ScaleAt(at));
    const bool empty = std::bit_cast<uint32_t>(scale) == 0;
    if (!empty && !(scale >= kSmallestRotatedScale && scale <= kLargestRotatedScale)) {
      return PayloadError(RotatedBlocks(at), "a scale that is out of range");
    }
    if (empty &&
        std::any_of(planes, planes + bytes, [](std::byte b) { return b != std::byte{0}; })) {
      return PayloadError(RotatedBlocks(at), "codes without a scale");
    }
  }
  for (size_t i = 0; i < count % kRotatedMin; ++i) {
    if (IsFinite(LoadAt<float>(payload.data() + layout.RestAt(), i))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rotated payload: element ", RotatedCount(count) + i, " is not finite"));
  }
  return absl::OkStatus();
}

void DecodeAddRotated(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const auto key = LoadAt<uint64_t>(payload.data(), 0);
  const RotatedPayload layout{sum.size(), BitsOf(payload)};
  float y[kRotatedMax];
  size_t at = 0;
  for (size_t size = 0; at < RotatedCount(sum.size()); at += size) {
    size = RotatedBlockSize(sum.size() - at);
    const float scale = LoadScale(payload.data() + layout.ScaleAt(at));
    if (scale == 0) continue;
    const auto* const planes = reinterpret_cast<const uint8_t*>(payload.data());
    ExpandRotated(planes + layout.PlanesAt(at), layout.bits, y, size);
    Rotation(key, RotationsOf(payload), at, size).AddBack(y, scale, sum.data() + at);
  }
  const std::byte* const rest = payload.data() + layout.RestAt();
  for (size_t i = 0; at < sum.size(); ++at, ++i) sum[at] += LoadAt<float>(rest, i);
}

}  // namespace sluice::compress
