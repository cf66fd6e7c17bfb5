// SPDX-License-Identifier: Apache-2.0
#include "compress/codecs/linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/float_bits.h"
#include "compress/coding/accumulator.h"
#include "compress/coding/payload.h"
#include "compress/simd/intsum.h"
#include "compress/simd/linear.h"

namespace sluice::compress {
namespace {

constexpr size_t kLinearTileBlocks = 16;

size_t LinearBlocks(size_t count) { return (count + kLinearBlock - 1) / kLinearBlock; }
size_t LinearCodeBytes(size_t count, int bits) {
  return (count * static_cast<size_t>(bits) + 7) / 8;
}

// Scales are bf16 numbers with 8 significant bits. A frame's scales must be 0 or normal numbers,
// because subnormal scales would be less precise. The largest code times the scale must be finite.
constexpr uint16_t kLinearSmallestScale = 0x0080;
constexpr float BfloatOf(uint16_t scale) { return std::bit_cast<float>(uint32_t{scale} << 16); }
constexpr uint16_t LargestScale(int most) {
  const double limit = double{std::numeric_limits<float>::max()} / most;
  uint16_t scale = 0x7F7F;
  while (double{BfloatOf(scale)} > limit) --scale;
  return scale;
}
constexpr int MostOf(int bits) { return (1 << (bits - 1)) - 1; }
// The largest scale for each width of codes, indexed by bits.
constexpr uint16_t kLargestScales[] = {0, 0, LargestScale(1),  0, LargestScale(7), 0,
                                       0, 0, LargestScale(127)};
static_assert(kLargestScales[8] == 0x7C01);

// Returns the scale, rounded up so that no value of the block is clipped.
uint16_t ScaleFor(float exact, uint16_t largest) {
  const uint32_t up = (std::bit_cast<uint32_t>(exact) + 0xFFFF) >> 16;
  if (up < kLinearSmallestScale) return 0;
  return static_cast<uint16_t>(std::min(up, uint32_t{largest}));
}

absl::Status BadLinear(absl::string_view format, size_t block, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(format, " payload: block ", block, " has ", what));
}

// Returns true if all bits after the last code of a block of `count` codes are 0.
bool LinearIsPadded(const uint8_t* packed, int bits, size_t count) {
  const size_t size = LinearCodeBytes(count, bits);
  for (size_t i = count; i < size * 8 / static_cast<size_t>(bits); ++i) {
    const size_t shift = i / size * static_cast<size_t>(bits);
    if ((packed[i % size] >> shift & ((1 << bits) - 1)) != 0) return false;
  }
  return true;
}

// The payload contains a bf16 scale per block, then the codes of each block (simd/intsum.h).
template <int kBits>
struct Symmetric {
  static constexpr int kMost = MostOf(kBits);
  static size_t PayloadSize(size_t count) {
    return LinearBlocks(count) * sizeof(uint16_t) + LinearCodeBytes(count, kBits);
  }
  static const uint8_t* Codes(absl::Span<const std::byte> payload, size_t count) {
    return reinterpret_cast<const uint8_t*>(payload.data()) +
           LinearBlocks(count) * sizeof(uint16_t);
  }
};

template <int kBits>
class SymmetricCodec final : public Codec {
 public:
  SymmetricCodec(FormatId format, bool stochastic) : format_(format), stochastic_(stochastic) {}

  FormatId format() const override { return format_; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    return Symmetric<kBits>::PayloadSize(count);
  }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t start = out->size();
    out->resize(start + LinearBlocks(input.gradient.size()) * sizeof(uint16_t));
    ForEachTile<kLinearTileBlocks * kLinearBlock>(input, [&](size_t at, const float* gradient,
                                                             float* residual, size_t count) {
      uint16_t scales[kLinearTileBlocks];
      uint8_t packed[kLinearTileBlocks * kLinearBlock * kBits / 8];
      const size_t whole = stochastic_ ? 0 : count / kLinearBlock;
      EncodeLinearBlocks(gradient, residual, kBits, kLargestScales[kBits], scales, packed, whole);
      for (size_t done = whole * kLinearBlock; done < count; done += kLinearBlock) {
        scales[done / kLinearBlock] = EncodeBlock(
            input, at + done, gradient + done, residual + done,
            packed + LinearCodeBytes(done, kBits), std::min(kLinearBlock, count - done));
      }
      std::memcpy(out->data() + start + at / kLinearBlock * sizeof(uint16_t), scales,
                  LinearBlocks(count) * sizeof(uint16_t));
      // insert() is faster than resize(), which would first clear the bytes.
      const auto* const bytes = reinterpret_cast<const std::byte*>(packed);
      out->insert(out->end(), bytes, bytes + LinearCodeBytes(count, kBits));
    });
  }

 private:
  // Returns the scale, or 0 if all codes are 0.
  uint16_t EncodeBlock(const EncodeInput& input, size_t at, const float* gradient, float* acc,
                       uint8_t* packed, size_t count) const {
    const float largest = std::bit_cast<float>(AccumulateBlock(gradient, acc, count));
    const uint16_t scale = ScaleFor(largest / Symmetric<kBits>::kMost, kLargestScales[kBits]);
    if (scale == 0) {
      std::memset(packed, 0, LinearCodeBytes(count, kBits));
      return 0;
    }
    int8_t local[kLinearBlock];
    int8_t* const codes = kBits == 8 ? reinterpret_cast<int8_t*>(packed) : local;
    const float step = BfloatOf(scale);
    if (stochastic_) {
      QuantizeBlockStochastic(step, 1 / step, Symmetric<kBits>::kMost, input.own_key,
                              static_cast<uint32_t>(at), acc, codes, count);
    } else {
      QuantizeBlock(step, 1 / step, Symmetric<kBits>::kMost, acc, codes, count);
    }
    if constexpr (kBits < 8) PackCodes(codes, kBits, packed, count);
    // Random rounding may round all values of a block to zero. Rounding to nearest always keeps the
    // largest value.
    return stochastic_ && LargestCode(codes, count) == 0 ? 0 : scale;
  }

  const FormatId format_;
  const bool stochastic_;
};

template <int kBits>
absl::Status ValidateSymmetric(absl::string_view format, absl::Span<const std::byte> payload,
                               size_t count) {
  const size_t wanted = Symmetric<kBits>::PayloadSize(count);
  if (payload.size() != wanted) return PayloadSizeError(format, count, wanted, payload.size());
  const uint8_t* packed = Symmetric<kBits>::Codes(payload, count);
  for (size_t block = 0; block < LinearBlocks(count); ++block) {
    const size_t size = std::min(kLinearBlock, count - block * kLinearBlock);
    const uint16_t scale = LoadAt<uint16_t>(payload.data(), block);
    if (scale != 0 && (scale < kLinearSmallestScale || scale > kLargestScales[kBits])) {
      return BadLinear(format, block, "a scale that is out of range");
    }
    int8_t local[kLinearBlock];
    const auto* codes = reinterpret_cast<const int8_t*>(packed);
    if constexpr (kBits < 8) {
      UnpackCodes(packed, kBits, local, size);
      codes = local;
    }
    const int largest = LargestCode(codes, size);
    if (largest > Symmetric<kBits>::kMost) return BadLinear(format, block, "an unused code");
    if ((largest == 0) != (scale == 0)) {
      return BadLinear(format, block,
                       scale == 0 ? "codes without a scale" : "a scale without codes");
    }
    if (kBits < 8 && !LinearIsPadded(packed, kBits, size)) {
      return BadLinear(format, block, "bits after its last code");
    }
    packed += LinearCodeBytes(size, kBits);
  }
  return absl::OkStatus();
}

template <int kBits>
void DecodeAddSymmetric(absl::Span<const std::byte> payload, size_t elements, size_t first,
                        absl::Span<float> sum) {
  static_assert(kPartUnit % kLinearBlock == 0);
  const uint8_t* packed =
      Symmetric<kBits>::Codes(payload, elements) + LinearCodeBytes(first, kBits);
  for (size_t at = 0; at < sum.size(); at += kLinearBlock) {
    const size_t size = std::min(kLinearBlock, sum.size() - at);
    const uint16_t scale = LoadAt<uint16_t>(payload.data(), (first + at) / kLinearBlock);
    if (scale != 0) {
      int8_t local[kLinearBlock];
      const auto* codes = reinterpret_cast<const int8_t*>(packed);
      if constexpr (kBits < 8) {
        UnpackCodes(packed, kBits, local, size);
        codes = local;
      }
      AddScaledCodes(codes, BfloatOf(scale), sum.data() + at, size);
    }
    packed += LinearCodeBytes(size, kBits);
  }
}

template <int kBits>
void DecodeAddAllSymmetric(absl::Span<const absl::Span<const std::byte>> payloads,
                           absl::Span<float> sum) {
  const size_t whole = sum.size() / kLinearBlock;
  const size_t step = LinearCodeBytes(kLinearBlock, kBits);
  for (; !payloads.empty(); payloads.remove_prefix(std::min(payloads.size(), kLinearFramesMax))) {
    const auto some = payloads.first(std::min(payloads.size(), kLinearFramesMax));
    for (size_t block = 0; block < whole; ++block) {
      const uint8_t* blocks[kLinearFramesMax];
      float scales[kLinearFramesMax];
      size_t frames = 0;
      for (const absl::Span<const std::byte> payload : some) {
        const uint16_t scale = LoadAt<uint16_t>(payload.data(), block);
        if (scale == 0) continue;
        blocks[frames] = Symmetric<kBits>::Codes(payload, sum.size()) + block * step;
        scales[frames++] = BfloatOf(scale);
      }
      // This may prefetch beyond a payload's end, which is harmless.
      AddScaledBlocks(blocks, scales, frames, kBits, 2 * step, sum.data() + block * kLinearBlock);
    }
    const size_t rest = sum.size() - whole * kLinearBlock;
    if (rest == 0) continue;
    for (const absl::Span<const std::byte> payload : some) {
      const uint16_t scale = LoadAt<uint16_t>(payload.data(), whole);
      if (scale == 0) continue;
      int8_t codes[kLinearBlock];
      UnpackCodes(Symmetric<kBits>::Codes(payload, sum.size()) + whole * step, kBits, codes, rest);
      AddScaledCodes(codes, BfloatOf(scale), sum.data() + whole * kLinearBlock, rest);
    }
  }
}

// The payload contains a byte with the number of bits per code, then the least value and the scale
// of each block, both in bf16, then the codes of each block.
size_t MinMaxSize(size_t count, int bits) {
  return 1 + LinearBlocks(count) * 2 * sizeof(uint16_t) + LinearCodeBytes(count, bits);
}

// Rounds to a bf16 that is not above x.
uint16_t BfloatBelow(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0xFFFF) == 0 || (bits & kSignBit) == 0) return static_cast<uint16_t>(bits >> 16);
  return static_cast<uint16_t>(std::min((bits >> 16) + 1, uint32_t{0xFF7F}));
}

// Half of the largest float. With this limit, a block's range is finite for any least value.
constexpr float kRangeLimit = std::numeric_limits<float>::max() / 2;
constexpr float kLeastMin = -0x1p127f;  // -kRangeLimit, rounded down to bf16.

class MinMaxCodec final : public Codec {
 public:
  MinMaxCodec(int bits, bool stochastic) : bits_(bits), stochastic_(stochastic) {}

  FormatId format() const override { return FormatId::kMinMax; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override { return MinMaxSize(count, bits_); }

  void Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const size_t size = input.gradient.size();
    const size_t start = out->size();
    out->resize(start + MinMaxSize(size, bits_));
    std::byte* const payload = out->data() + start;
    payload[0] = static_cast<std::byte>(bits_);
    std::byte* const levels = payload + 1;
    auto* packed = reinterpret_cast<uint8_t*>(levels) + LinearBlocks(size) * 2 * sizeof(uint16_t);
    ForEachTile<kLinearBlock>(
        input, [&](size_t at, const float* gradient, float* residual, size_t count) {
          const ValueRange range = AccumulateRange(gradient, residual, count);
          // Values beyond the limit are clipped. Adding 0.0f turns -0.0f into 0.0f, because the
          // minimum of two zeros with different signs is unspecified.
          uint16_t least = BfloatBelow(std::max(range.least, -kRangeLimit) + 0.0f);
          const float reach = std::min(range.largest, kRangeLimit) - BfloatOf(least);
          const int most = (1 << bits_) - 1;
          const uint16_t scale =
              reach > 0 ? ScaleFor(reach / static_cast<float>(most), ScaleLimit(bits_)) : 0;
          // The range is too narrow for a scale. If all elements decoded to the least value, the
          // result would be larger in magnitude than the elements.
          if (scale == 0 && range.least < std::min(range.largest, 0.0f)) least = 0;
          StoreAt(levels, 2 * (at / kLinearBlock), least);
          StoreAt(levels, 2 * (at / kLinearBlock) + 1, scale);
          EncodeBlock(input, at, BfloatOf(least), BfloatOf(scale), residual, packed, count);
          packed += LinearCodeBytes(count, bits_);
        });
  }

  // Returns the largest scale for which least + most * scale is finite.
  static uint16_t ScaleLimit(int bits) {
    return static_cast<uint16_t>(LargestScale((1 << bits) - 1));
  }

 private:
  void EncodeBlock(const EncodeInput& input, size_t at, float least, float scale, float* acc,
                   uint8_t* packed, size_t count) const {
    uint8_t codes[kLinearBlock];
    const int most = (1 << bits_) - 1;
    const float inverse = scale == 0 ? 0 : 1 / scale;
    if (stochastic_) {
      QuantizeRangeStochastic(least, scale, inverse, most, input.own_key, static_cast<uint32_t>(at),
                              acc, codes, count);
    } else {
      QuantizeRange(least, scale, inverse, most, acc, codes, count);
    }
    PackCodes(reinterpret_cast<const int8_t*>(codes), bits_, packed, count);
  }

  const int bits_;
  const bool stochastic_;
};

}  // namespace

std::unique_ptr<Codec> MakeLinear(const CodecSpec& spec) {
  const bool stochastic = spec.has(kStochastic);
  const int bits = spec.codec == CodecId::kInt8 ? 8 : spec.codec == CodecId::kInt4 ? 4 : 2;
  if (spec.has(kMinMax)) return std::make_unique<MinMaxCodec>(bits, stochastic);
  if (bits == 8) return std::make_unique<SymmetricCodec<8>>(FormatId::kInt8, stochastic);
  if (bits == 4) return std::make_unique<SymmetricCodec<4>>(FormatId::kInt4, stochastic);
  return std::make_unique<SymmetricCodec<2>>(FormatId::kInt2, stochastic);
}

absl::Status ValidateInt8(absl::Span<const std::byte> payload, size_t count) {
  return ValidateSymmetric<8>("int8", payload, count);
}
void DecodeAddInt8(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  DecodeAddSymmetric<8>(payload, sum.size(), 0, sum);
}
void DecodeAddPartInt8(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum) {
  DecodeAddSymmetric<8>(payload, count, first, sum);
}
void DecodeAddAllInt8(absl::Span<const absl::Span<const std::byte>> payloads,
                      absl::Span<float> sum) {
  DecodeAddAllSymmetric<8>(payloads, sum);
}
absl::Status ValidateInt4(absl::Span<const std::byte> payload, size_t count) {
  return ValidateSymmetric<4>("int4", payload, count);
}
void DecodeAddInt4(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  DecodeAddSymmetric<4>(payload, sum.size(), 0, sum);
}
void DecodeAddPartInt4(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum) {
  DecodeAddSymmetric<4>(payload, count, first, sum);
}
void DecodeAddAllInt4(absl::Span<const absl::Span<const std::byte>> payloads,
                      absl::Span<float> sum) {
  DecodeAddAllSymmetric<4>(payloads, sum);
}
absl::Status ValidateInt2(absl::Span<const std::byte> payload, size_t count) {
  return ValidateSymmetric<2>("int2", payload, count);
}
void DecodeAddInt2(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  DecodeAddSymmetric<2>(payload, sum.size(), 0, sum);
}
void DecodeAddPartInt2(absl::Span<const std::byte> payload, size_t count, size_t first,
                       absl::Span<float> sum) {
  DecodeAddSymmetric<2>(payload, count, first, sum);
}
void DecodeAddAllInt2(absl::Span<const absl::Span<const std::byte>> payloads,
                      absl::Span<float> sum) {
  DecodeAddAllSymmetric<2>(payloads, sum);
}

absl::Status ValidateMinMax(absl::Span<const std::byte> payload, size_t count) {
  const int bits = payload.empty() ? 0 : static_cast<int>(payload[0]);
  if (bits != 2 && bits != 4 && bits != 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("minmax payload: codes of ", bits, " bits; valid are 2, 4 and 8"));
  }
  const size_t wanted = MinMaxSize(count, bits);
  if (payload.size() != wanted) return PayloadSizeError("minmax", count, wanted, payload.size());
  const std::byte* const levels = payload.data() + 1;
  const auto* packed =
      reinterpret_cast<const uint8_t*>(levels) + LinearBlocks(count) * 2 * sizeof(uint16_t);
  for (size_t block = 0; block < LinearBlocks(count); ++block) {
    const size_t size = std::min(kLinearBlock, count - block * kLinearBlock);
    const float least = BfloatOf(LoadAt<uint16_t>(levels, 2 * block));
    const uint16_t scale = LoadAt<uint16_t>(levels, 2 * block + 1);
    if (!(least >= kLeastMin && IsFinite(least)) || (least == 0 && std::signbit(least))) {
      return BadLinear("minmax", block, "a least value that is out of range");
    }
    if (scale != 0 && (scale < kLinearSmallestScale || scale > MinMaxCodec::ScaleLimit(bits) ||
                       !IsFinite(least + static_cast<float>((1 << bits) - 1) * BfloatOf(scale)))) {
      return BadLinear("minmax", block, "a scale that is out of range");
    }
    if (!LinearIsPadded(packed, bits, size))
      return BadLinear("minmax", block, "bits after its last code");
    const size_t bytes = LinearCodeBytes(size, bits);
    if (scale == 0 && std::any_of(packed, packed + bytes, [](uint8_t byte) { return byte != 0; })) {
      return BadLinear("minmax", block, "codes without a scale");
    }
    packed += bytes;
  }
  return absl::OkStatus();
}

void DecodeAddMinMax(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  const int bits = static_cast<int>(payload[0]);
  const auto mask = static_cast<uint8_t>((1 << bits) - 1);
  const std::byte* const levels = payload.data() + 1;
  const auto* packed =
      reinterpret_cast<const uint8_t*>(levels) + LinearBlocks(sum.size()) * 2 * sizeof(uint16_t);
  for (size_t at = 0; at < sum.size(); at += kLinearBlock) {
    const size_t size = std::min(kLinearBlock, sum.size() - at);
    uint8_t codes[kLinearBlock];
    UnpackCodes(packed, bits, reinterpret_cast<int8_t*>(codes), size);
    // Unpacking extends signs, but these codes are unsigned.
    for (size_t i = 0; i < size; ++i) codes[i] &= mask;
    AddRange(codes, BfloatOf(LoadAt<uint16_t>(levels, 2 * (at / kLinearBlock))),
             BfloatOf(LoadAt<uint16_t>(levels, 2 * (at / kLinearBlock) + 1)), sum.data() + at,
             size);
    packed += LinearCodeBytes(size, bits);
  }
}

}  // namespace sluice::compress
