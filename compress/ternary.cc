#include "compress/ternary.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "compress/accumulator.h"
#include "compress/flags.h"
#include "compress/float_bits.h"
#include "compress/index_coding.h"
#include "compress/payload.h"
#include "compress/vectorized.h"

namespace sluice {
namespace {

constexpr size_t kBlock = 256;
constexpr size_t kHeaderSize = 14;
constexpr size_t kLanes = 8;

// A scale is a float with 3 bits of mantissa: the upper 11 bits below the sign. The feedback takes
// the rounding.
constexpr int kScaleShift = 20;
constexpr int32_t kSmallestScale = 1;
constexpr int32_t kLargestScale = (kInfinityBits >> kScaleShift) - 1;
constexpr uint64_t kFoldedEnd = uint64_t{kLargestScale + 1} * 2;

float FromScale(int32_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << kScaleShift);
}

// To nearest even; 0 is no scale.
int32_t ToScale(float mean) {
  const uint32_t bits = std::bit_cast<uint32_t>(mean);
  const uint32_t half = (1 << (kScaleShift - 1)) - 1;
  const auto code =
      static_cast<int32_t>((bits + half + ((bits >> kScaleShift) & 1)) >> kScaleShift);
  return std::min(code, kLargestScale);
}

// Scales are coded as steps from the scale before, small ones first: 0, -1, 1, -2, 2 ...
uint32_t FoldSign(int32_t step) {
  return (static_cast<uint32_t>(step) << 1) ^ static_cast<uint32_t>(step >> 31);
}
int64_t UnfoldSign(uint64_t folded) {
  return static_cast<int64_t>(folded >> 1) ^ -static_cast<int64_t>(folded & 1);
}

// Makes the accumulator in place and returns its largest magnitude.
SLUICE_VECTORIZED float AccumulateBlock(const float* __restrict gradient,
                                        float* __restrict residual, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    residual[i] += gradient[i];
    largest = std::max(largest, MagnitudeBits(residual[i]));
  }
  return std::bit_cast<float>(largest);
}

// |acc| if it reaches the threshold, else 0. By bits: a choice between doubles would not vectorise.
inline double MagnitudeIfFlagged(float acc, uint32_t tau_bits) {
  const uint32_t bits = MagnitudeBits(acc);
  const uint32_t mask = bits >= tau_bits ? ~uint32_t{0} : 0;
  return static_cast<double>(std::bit_cast<float>(bits & mask));
}

// Flags, with 1 in a byte, what reaches `tau`, and returns the mean of those magnitudes. The sum is
// in double and in lanes of a fixed order: it cannot overflow, and every instruction set adds the
// same.
SLUICE_VECTORIZED float SelectBlock(float tau, const float* __restrict acc,
                                    uint8_t* __restrict flags, size_t count) {
  const uint32_t tau_bits = MagnitudeBits(tau);
  uint32_t selected = 0;
  for (size_t i = 0; i < count; ++i) {
    flags[i] = MagnitudeBits(acc[i]) >= tau_bits ? 1 : 0;
    selected += flags[i];
  }
  double lanes[kLanes] = {};
  const size_t whole = count - count % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += MagnitudeIfFlagged(acc[i + lane], tau_bits);
    }
  }
  for (size_t i = whole; i < count; ++i) {
    lanes[i % kLanes] += MagnitudeIfFlagged(acc[i], tau_bits);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return selected > 0 ? static_cast<float>(sum / selected) : 0;
}

// What was kept of a chunk, in order.
struct Selection {
  std::vector<uint32_t> gaps;
  std::vector<uint8_t> negative;      // 1 or 0 for each gap.
  std::vector<uint32_t> scale_steps;  // Of blocks that keep something.
  size_t next = 0;                    // Where the next gap counts from.
};

void KeepBlock(const uint8_t* flags, float scale, size_t start, float* residual, size_t count,
               Selection* selection) {
  uint32_t gaps[kBlock];
  uint8_t negative[kBlock];
  size_t kept = 0;
  size_t next = selection->next;
  ForEachFlag(flags, count, [&](size_t i) {
    const float acc = residual[i];
    residual[i] = acc - std::copysign(scale, acc);
    negative[kept] = acc < 0 ? 1 : 0;
    gaps[kept] = static_cast<uint32_t>(start + i - next);
    next = start + i + 1;
    ++kept;
  });
  selection->next = next;
  selection->gaps.insert(selection->gaps.end(), gaps, gaps + kept);
  selection->negative.insert(selection->negative.end(), negative, negative + kept);
}

Selection Select(const EncodeInput& input, float share) {
  Selection selection;
  selection.gaps.reserve(input.gradient.size() / 8);
  selection.negative.reserve(input.gradient.size() / 8);
  int32_t last_scale = 0;
  ForEachTile<kBlock>(
      input, [&](size_t start, const float* gradient, float* residual, size_t count) {
        alignas(64) uint8_t flags[kBlock];
        if (count < kBlock) std::memset(flags, 0, sizeof(flags));
        const float largest = AccumulateBlock(gradient, residual, count);
        // Above 0, so that zeros are never kept.
        const float tau = std::max(share * largest, std::numeric_limits<float>::denorm_min());
        const int32_t scale = ToScale(SelectBlock(tau, residual, flags, count));
        if (scale < kSmallestScale) return;
        KeepBlock(flags, FromScale(scale), start, residual, count, &selection);
        selection.scale_steps.push_back(FoldSign(scale - last_scale));
        last_scale = scale;
      });
  return selection;
}

// One bit each, from the lowest.
void AppendSigns(absl::Span<const uint8_t> negative, std::vector<std::byte>* out) {
  for (size_t at = 0; at < negative.size(); at += 8) {
    const size_t count = std::min<size_t>(8, negative.size() - at);
    unsigned bits = 0;
    for (size_t i = 0; i < count; ++i) bits |= unsigned{negative[at + i]} << i;
    out->push_back(static_cast<std::byte>(bits));
  }
}

// A payload taken apart; spans are of the right sizes, nothing else is checked.
struct Parts {
  int position_parameter = 0;
  int scale_parameter = 0;
  size_t kept = 0;
  size_t scales = 0;
  absl::Span<const std::byte> position_remainders;
  absl::Span<const std::byte> signs;
  absl::Span<const std::byte> scale_remainders;
  absl::Span<const std::byte> scale_unary;
  absl::Span<const std::byte> position_unary;
};

// False if the bytes do not suffice or a parameter is out of range.
bool Split(absl::Span<const std::byte> payload, Parts* parts) {
  ByteReader reader(payload);
  parts->position_parameter = reader.Read<uint8_t>();
  parts->scale_parameter = reader.Read<uint8_t>();
  parts->kept = reader.Read<uint32_t>();
  parts->scales = reader.Read<uint32_t>();
  const size_t scale_unary_size = reader.Read<uint32_t>();
  if (parts->position_parameter > kRiceParameterMax) return false;
  if (parts->scale_parameter > kRiceParameterMax) return false;
  parts->position_remainders =
      reader.ReadBytes(RemainderBytes(parts->kept, parts->position_parameter));
  parts->signs = reader.ReadBytes(BytesFor(parts->kept));
  parts->scale_remainders = reader.ReadBytes(RemainderBytes(parts->scales, parts->scale_parameter));
  parts->scale_unary = reader.ReadBytes(scale_unary_size);
  if (!reader.ok()) return false;
  parts->position_unary = reader.ReadBytes(reader.remaining());
  return true;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("ternary payload: ", what));
}

absl::Status CheckPlanes(const Parts& parts) {
  if ((parts.kept == 0 && parts.position_parameter != 0) ||
      (parts.scales == 0 && parts.scale_parameter != 0)) {
    return Bad("it has a parameter but nothing that is coded with it");
  }
  if (!IsPadded(parts.position_remainders, uint64_t{parts.kept} * parts.position_parameter) ||
      !IsUnaryPlane(parts.position_unary, parts.kept)) {
    return Bad("its position planes do not hold as many positions as it says");
  }
  if (!IsPadded(parts.scale_remainders, uint64_t{parts.scales} * parts.scale_parameter) ||
      !IsUnaryPlane(parts.scale_unary, parts.scales)) {
    return Bad("its scale planes do not hold as many scales as it says");
  }
  if (!IsPadded(parts.signs, parts.kept)) return Bad("padding is not zero");
  return absl::OkStatus();
}

// Calls fn(scale code) until it returns false. 0 is an impossible code.
template <typename Fn>
void ForEachScale(const Parts& parts, Fn fn) {
  int64_t scale = 0;
  ForEachRice(parts.scale_remainders, parts.scale_unary, parts.scale_parameter,
              [&](uint64_t folded) {
                // No step between scales is as large as that; adding one could overflow.
                scale = folded < kFoldedEnd ? scale + UnfoldSign(folded) : 0;
                return fn(scale);
              });
}

class TernaryCodec final : public Codec {
 public:
  explicit TernaryCodec(double share) : share_(static_cast<float>(share)) {}

  FormatId format() const override { return FormatId::kTernary; }
  bool lossless() const override { return false; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    // Positions are a bitmap at worst, scale steps have 12 bits; each plane may end in a broken
    // byte.
    const uint64_t blocks = (count + kBlock - 1) / kBlock;
    return kHeaderSize + BytesFor(count) + BytesFor(count) + BytesFor(blocks * 13) + 5;
  }

  absl::Status Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    absl::Status finite = CheckAccumulator(input.gradient, input.residual);
    if (!finite.ok()) return finite;
    const Selection selection = Select(input, share_);
    const RicePlan positions = ChooseRice(selection.gaps);
    const RicePlan scales = ChooseRice(selection.scale_steps);
    ByteWriter writer(out);
    writer.Write(static_cast<uint8_t>(positions.parameter));
    writer.Write(static_cast<uint8_t>(scales.parameter));
    writer.Write(static_cast<uint32_t>(selection.gaps.size()));
    writer.Write(static_cast<uint32_t>(selection.scale_steps.size()));
    writer.Write(static_cast<uint32_t>(BytesFor(scales.unary_bits)));
    AppendRemainders(selection.gaps, positions.parameter, out);
    AppendSigns(selection.negative, out);
    AppendRemainders(selection.scale_steps, scales.parameter, out);
    AppendUnary(selection.scale_steps, scales, out);
    AppendUnary(selection.gaps, positions, out);
    return absl::OkStatus();
  }

 private:
  const float share_;
};

}  // namespace

std::unique_ptr<Codec> MakeTernary(const CodecSpec& spec) {
  Check(spec.level > 0 && spec.level <= 1, "a threshold is above 0 and at most 1");
  return std::make_unique<TernaryCodec>(spec.level);
}

absl::Status ValidateTernary(absl::Span<const std::byte> payload, size_t count) {
  Parts parts;
  if (!Split(payload, &parts)) return Bad("its planes do not fit into its bytes");
  absl::Status planes = CheckPlanes(parts);
  if (!planes.ok()) return planes;
  bool valid = true;
  ForEachScale(parts, [&](int64_t scale) {
    valid = scale >= kSmallestScale && scale <= kLargestScale;
    return valid;
  });
  if (!valid) return Bad("a scale is out of range");
  size_t blocks = 0;
  uint64_t block_end = 0;
  ForEachPosition(parts.position_remainders, parts.position_unary, parts.position_parameter,
                  [&](uint64_t position) {
                    valid = position < count;
                    if (position >= block_end) {
                      ++blocks;
                      block_end = (position / kBlock + 1) * kBlock;
                    }
                    return valid;
                  });
  if (!valid) return Bad(absl::StrCat("a position is not below ", count));
  if (blocks != parts.scales) {
    return Bad(
        absl::StrCat("its positions are in ", blocks, " blocks, it has ", parts.scales, " scales"));
  }
  return absl::OkStatus();
}

void DecodeAddTernary(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  Parts parts;
  Check(Split(payload, &parts), "only validated payloads are decoded");
  std::vector<float> scales;
  scales.reserve(parts.scales);
  ForEachScale(parts, [&](int64_t scale) {
    scales.push_back(FromScale(static_cast<int32_t>(scale)));
    return true;
  });
  size_t index = 0;
  size_t block = 0;
  uint64_t block_end = 0;
  float scale = 0;
  ForEachPosition(parts.position_remainders, parts.position_unary, parts.position_parameter,
                  [&](uint64_t position) {
                    if (position >= block_end) {
                      scale = scales[block++];
                      block_end = (position / kBlock + 1) * kBlock;
                    }
                    const unsigned signs = static_cast<unsigned>(parts.signs[index / 8]);
                    sum[position] += ((signs >> (index % 8)) & 1) != 0 ? -scale : scale;
                    ++index;
                    return true;
                  });
}

}  // namespace sluice
