#include "compress/topk.h"

#include <algorithm>
#include <array>

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

constexpr size_t kTile = 1024;
constexpr size_t kShortFloatSize = 3;
constexpr int kTopMagnitude = 7;
constexpr uint32_t kSmallestShortBits = 0x100;

// The 16 values of a nibble: bits 0-2 are the magnitude, bit 3 the sign. `delta` has at most 16
// significant bits, so the product is exact and the sum is rounded once.
std::array<float, 16> NibbleValues(float tau, float delta) {
  std::array<float, 16> values{};
  for (int q = 0; q <= kTopMagnitude; ++q) {
    values[q] = tau + static_cast<float>(q) * delta;
    values[q + 8] = -values[q];
  }
  return values;
}

struct Levels {
  float tau = 0;
  float delta = 0;
};

Levels ChooseLevels(float tau, float largest) {
  Levels levels{.tau = tau};
  if (largest <= tau) return levels;
  levels.delta = ToShortFloatUp((largest - tau) / kTopMagnitude);
  if (!IsFinite(tau + kTopMagnitude * levels.delta)) {
    levels.delta = std::bit_cast<float>(std::bit_cast<uint32_t>(levels.delta) - 0x100);
  }
  return levels;
}

uint8_t ToNibble(float acc, const Levels& levels) {
  const float above = std::abs(acc) - levels.tau;
  const int half_steps = levels.delta > 0 ? static_cast<int>(above / levels.delta * 2) : 0;
  const int q = (half_steps + 1) / 2;
  return static_cast<uint8_t>(std::min(q, kTopMagnitude) | (acc < 0 ? 8 : 0));
}

// Makes the accumulator in place and flags, with 1 in a byte, what reaches `tau`.
SLUICE_VECTORIZED void SelectTile(float tau, const float* __restrict gradient,
                                  float* __restrict residual, uint8_t* __restrict flags,
                                  size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float acc = gradient[i] + residual[i];
    residual[i] = acc;
    flags[i] = std::abs(acc) >= tau ? 1 : 0;
  }
}

// What was kept of a chunk, in order.
struct Selection {
  std::vector<uint32_t> gaps;
  std::vector<std::byte> values;
};

// Puts nibbles into bytes, the lower one first.
void AppendNibble(uint8_t nibble, size_t index, std::vector<std::byte>* out) {
  if (index % 2 == 0) {
    out->push_back(static_cast<std::byte>(nibble));
  } else {
    out->back() |= static_cast<std::byte>(nibble << 4);
  }
}

Selection Select(const EncodeInput& input, float tau, const Levels* levels, size_t expected) {
  Selection selection;
  selection.gaps.reserve(expected);
  selection.values.reserve(levels != nullptr ? expected / 2 + 1 : expected * 2);
  const std::array<float, 16> nibbles =
      levels != nullptr ? NibbleValues(levels->tau, levels->delta) : std::array<float, 16>();
  size_t next = 0;
  ForEachTile<kTile>(input,
                     [&](size_t start, const float* gradient, float* residual, size_t count) {
                       alignas(64) uint8_t flags[kTile];
                       if (count < kTile) std::memset(flags, 0, sizeof(flags));
                       SelectTile(tau, gradient, residual, flags, count);
                       ForEachFlag(flags, count, [&](size_t i) {
                         const float acc = residual[i];
                         if (levels != nullptr) {
                           const uint8_t nibble = ToNibble(acc, *levels);
                           AppendNibble(nibble, selection.gaps.size(), &selection.values);
                           residual[i] = acc - nibbles[nibble];
                         } else {
                           const uint16_t half = ToHalf(acc);
                           ByteWriter(&selection.values).Write(half);
                           residual[i] = acc - FromHalf(half);
                         }
                         selection.gaps.push_back(static_cast<uint32_t>(start + i - next));
                         next = start + i + 1;
                       });
                     });
  return selection;
}

void WriteShortFloat(float value, std::vector<std::byte>* out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) >> 8;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&bits);
  out->insert(out->end(), bytes, bytes + kShortFloatSize);
}

float ReadShortFloat(ByteReader* reader) {
  uint32_t bits = reader->Read<uint8_t>();
  bits |= uint32_t{reader->Read<uint8_t>()} << 8;
  bits |= uint32_t{reader->Read<uint8_t>()} << 16;
  return std::bit_cast<float>(bits << 8);
}

size_t ValueBytes(ValueFormat format, size_t kept) {
  return format == ValueFormat::kInt4 ? (kept + 1) / 2 : kept * sizeof(uint16_t);
}

// A payload taken apart; spans are of the right sizes, nothing else is checked.
struct Parts {
  ValueFormat format = ValueFormat::kFp16;
  int parameter = 0;
  size_t kept = 0;
  Levels levels;
  absl::Span<const std::byte> remainders;
  absl::Span<const std::byte> values;
  absl::Span<const std::byte> unary;
};

// False if the bytes do not suffice or the parameter is out of range.
bool Split(absl::Span<const std::byte> payload, Parts* parts) {
  ByteReader reader(payload);
  parts->format = static_cast<ValueFormat>(reader.Read<uint8_t>());
  parts->parameter = reader.Read<uint8_t>();
  parts->kept = reader.Read<uint32_t>();
  if (parts->parameter > kRiceParameterMax) return false;
  if (parts->format == ValueFormat::kInt4) {
    parts->levels.tau = ReadShortFloat(&reader);
    parts->levels.delta = ReadShortFloat(&reader);
  }
  parts->remainders = reader.ReadBytes(RemainderBytes(parts->kept, parts->parameter));
  parts->values = reader.ReadBytes(ValueBytes(parts->format, parts->kept));
  if (!reader.ok()) return false;
  parts->unary = reader.ReadBytes(reader.remaining());
  return true;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("topk payload: ", what));
}

absl::Status CheckValues(const Parts& parts) {
  if (parts.format == ValueFormat::kFp16) {
    for (size_t i = 0; i < parts.kept; ++i) {
      if ((LoadAt<uint16_t>(parts.values.data(), i) & 0x7C00) == 0x7C00) {
        return Bad(absl::StrCat("value ", i, " is not finite"));
      }
    }
    return absl::OkStatus();
  }
  const Levels& levels = parts.levels;
  if (parts.kept == 0) {
    if (levels.tau == 0 && levels.delta == 0) return absl::OkStatus();
    return Bad("it has levels but no values");
  }
  if (!(levels.tau > 0) || !(levels.delta >= 0) ||
      !IsFinite(levels.tau + kTopMagnitude * levels.delta)) {
    return Bad("its levels are out of range");
  }
  if (!IsPadded(parts.values, uint64_t{parts.kept} * 4)) return Bad("padding is not zero");
  return absl::OkStatus();
}

class TopKCodec final : public Codec {
 public:
  TopKCodec(double density, ValueFormat format) : density_(density), format_(format) {}

  FormatId format() const override { return FormatId::kSparse; }
  bool lossless() const override { return false; }
  double density() const override { return density_; }
  size_t MaxPayloadSize(size_t count, uint32_t) const override {
    // With all kept, positions are a bitmap at worst; each plane may end in a broken byte.
    return kHeaderMax + BytesFor(count) + 2 + ValueBytes(format_, count);
  }

  absl::Status Encode(const EncodeInput& input, std::vector<std::byte>* out) const override {
    const absl::StatusOr<float> largest = LargestMagnitude(input.gradient, input.residual);
    if (!largest.ok()) return largest.status();
    if (input.magnitudes != nullptr) input.magnitudes->Add(input.gradient, input.residual);
    const float tau = Threshold(input);
    const Levels levels = ChooseLevels(tau, *largest);
    const size_t expected =
        static_cast<size_t>(density_ * 1.5 * static_cast<double>(input.gradient.size())) + 64;
    const Selection selection =
        Select(input, tau, format_ == ValueFormat::kInt4 ? &levels : nullptr, expected);
    Write(selection, levels, out);
    if (input.kept != nullptr) *input.kept += selection.gaps.size();
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kHeaderMax = 6 + 2 * kShortFloatSize;

  // Above 0, so that zeros are never sent.
  float Threshold(const EncodeInput& input) const {
    float threshold = input.threshold;
    if (!(threshold > 0)) {
      MagnitudeHistogram own;
      own.Add(input.gradient, input.residual);
      threshold = own.ThresholdFor(density_);
    }
    return std::max(ToShortFloat(threshold), std::bit_cast<float>(kSmallestShortBits));
  }

  void Write(const Selection& selection, const Levels& levels, std::vector<std::byte>* out) const {
    const size_t kept = selection.gaps.size();
    const RicePlan plan = ChooseRice(selection.gaps);
    ByteWriter writer(out);
    writer.Write(static_cast<uint8_t>(format_));
    writer.Write(static_cast<uint8_t>(plan.parameter));
    writer.Write(static_cast<uint32_t>(kept));
    if (format_ == ValueFormat::kInt4) {
      WriteShortFloat(kept > 0 ? levels.tau : 0, out);
      WriteShortFloat(kept > 0 ? levels.delta : 0, out);
    }
    AppendRemainders(selection.gaps, plan.parameter, out);
    writer.WriteBytes(selection.values);
    AppendUnary(selection.gaps, plan, out);
  }

  const double density_;
  const ValueFormat format_;
};

}  // namespace

std::unique_ptr<Codec> MakeTopK(const CodecSpec& spec) {
  Check(spec.level > 0 && spec.level <= 1, "a density is above 0 and at most 1");
  return std::make_unique<TopKCodec>(spec.level, spec.values);
}

absl::Status ValidateTopK(absl::Span<const std::byte> payload, size_t count) {
  Parts parts;
  if (!Split(payload, &parts)) return Bad("its planes do not fit into its bytes");
  if (parts.format != ValueFormat::kFp16 && parts.format != ValueFormat::kInt4) {
    return Bad("unknown value format");
  }
  absl::Status values = CheckValues(parts);
  if (!values.ok()) return values;
  if (parts.kept == 0 && parts.parameter != 0) return Bad("it has a parameter but no positions");
  if (!IsPadded(parts.remainders, uint64_t{parts.kept} * parts.parameter) ||
      !IsUnaryPlane(parts.unary, parts.kept)) {
    return Bad("its position planes do not hold as many positions as it says");
  }
  bool inside = true;
  ForEachPosition(parts.remainders, parts.unary, parts.parameter, [&](uint64_t position) {
    inside = position < count;
    return inside;
  });
  return inside ? absl::OkStatus() : Bad(absl::StrCat("a position is not below ", count));
}

void DecodeAddTopK(absl::Span<const std::byte> payload, absl::Span<float> sum) {
  Parts parts;
  Check(Split(payload, &parts), "only validated payloads are decoded");
  size_t index = 0;
  if (parts.format == ValueFormat::kFp16) {
    ForEachPosition(parts.remainders, parts.unary, parts.parameter, [&](uint64_t position) {
      sum[position] += FromHalf(LoadAt<uint16_t>(parts.values.data(), index++));
      return true;
    });
    return;
  }
  const std::array<float, 16> values = NibbleValues(parts.levels.tau, parts.levels.delta);
  ForEachPosition(parts.remainders, parts.unary, parts.parameter, [&](uint64_t position) {
    const unsigned pair = static_cast<unsigned>(parts.values[index / 2]);
    sum[position] += values[(pair >> (index % 2 * 4)) & 15];
    ++index;
    return true;
  });
}

}  // namespace sluice
