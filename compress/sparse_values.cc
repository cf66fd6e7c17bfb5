#include "compress/sparse_values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compress/float_bits.h"
#include "compress/payload.h"

namespace sluice {
namespace {

constexpr size_t kShortFloatSize = 3;
constexpr int kTopNibble = 7;
constexpr int kTopByte = 127;
constexpr size_t kLanes = 8;

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

float Largest(absl::Span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, MagnitudeBits(value));
  return std::bit_cast<float>(largest);
}

// In fp64 and lanes of a fixed order: it cannot overflow, and every machine adds the same.
float MeanMagnitude(absl::Span<const float> values) {
  double lanes[kLanes] = {};
  for (size_t i = 0; i < values.size(); ++i) lanes[i % kLanes] += std::abs(double{values[i]});
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

float OneDown(float level) { return std::bit_cast<float>(std::bit_cast<uint32_t>(level) - 0x100); }

// The 16 values of a nibble: bits 0-2 are the magnitude, bit 3 the sign. `step` has at most 16
// significant bits, so the product is exact and the sum is rounded once.
std::array<float, 16> NibbleValues(const ValueLevels& levels) {
  std::array<float, 16> values{};
  for (int q = 0; q <= kTopNibble; ++q) {
    values[q] = levels.floor + static_cast<float>(q) * levels.step;
    values[q + 8] = -values[q];
  }
  return values;
}

uint8_t ToNibble(float value, const ValueLevels& levels) {
  if (!(levels.step > 0)) return value < 0 ? 8 : 0;
  const float above = std::max(std::abs(value) - levels.floor, 0.0f);
  // Halves up. A step that was rounded to nothing would make this large.
  const int half_steps = static_cast<int>(std::min(above / levels.step * 2, 2.0f * kTopNibble));
  const int q = (half_steps + 1) / 2;
  return static_cast<uint8_t>(std::min(q, kTopNibble) | (value < 0 ? 8 : 0));
}

int8_t ToByte(float value, float step) {
  if (!(step > 0)) return 0;
  const float scaled = std::clamp(value / step, -127.0f, 127.0f);
  return static_cast<int8_t>(std::nearbyint(scaled));
}

void AppendHalves(absl::Span<float> values, std::byte* codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = ToHalf(values[i]);
    StoreAt(codes, i, half);
    values[i] -= FromHalf(half);
  }
}

void AppendBytes(const ValueLevels& levels, absl::Span<float> values, std::byte* codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int8_t code = ToByte(values[i], levels.step);
    StoreAt(codes, i, code);
    values[i] -= static_cast<float>(code) * levels.step;
  }
}

void AppendNibbles(const ValueLevels& levels, absl::Span<float> values, std::byte* codes) {
  const std::array<float, 16> decoded = NibbleValues(levels);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t nibble = ToNibble(values[i], levels);
    codes[i / 2] |= static_cast<std::byte>(nibble << (i % 2 * 4));
    values[i] -= decoded[nibble];
  }
}

void AppendSigns(const ValueLevels& levels, absl::Span<float> values, std::byte* codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const bool negative = std::signbit(values[i]);
    codes[i / 8] |= static_cast<std::byte>((negative ? 1 : 0) << (i % 8));
    values[i] -= negative ? -levels.step : levels.step;
  }
}

bool IsLevel(float level) { return level > 0 && IsFinite(level); }

bool IsZeroPadded(absl::Span<const std::byte> codes, uint64_t bits) {
  return bits % 8 == 0 || (static_cast<unsigned>(codes.back()) >> (bits % 8)) == 0;
}

}  // namespace

size_t LevelBytes(ValueFormat format) {
  switch (format) {
    case ValueFormat::kFp16:
      return 0;
    case ValueFormat::kInt4:
      return 2 * kShortFloatSize;
    case ValueFormat::kInt8:
    case ValueFormat::kSign:
      return kShortFloatSize;
  }
  return 0;
}

size_t ValueBytes(ValueFormat format, size_t kept) {
  switch (format) {
    case ValueFormat::kFp16:
      return kept * sizeof(uint16_t);
    case ValueFormat::kInt4:
      return (kept + 1) / 2;
    case ValueFormat::kInt8:
      return kept;
    case ValueFormat::kSign:
      return (kept + 7) / 8;
  }
  return 0;
}

ValueLevels ChooseLevels(ValueFormat format, absl::Span<const float> values, float floor) {
  ValueLevels levels;
  if (values.empty() || format == ValueFormat::kFp16) return levels;
  const float largest = Largest(values);
  switch (format) {
    case ValueFormat::kFp16:
      break;
    case ValueFormat::kInt8:
      levels.step = ToShortFloatUp(largest / kTopByte);
      if (!IsFinite(kTopByte * levels.step)) levels.step = OneDown(levels.step);
      break;
    case ValueFormat::kInt4:
      levels.floor = floor;
      if (largest <= floor) break;
      levels.step = ToShortFloatUp((largest - floor) / kTopNibble);
      if (!IsFinite(floor + kTopNibble * levels.step)) levels.step = OneDown(levels.step);
      break;
    case ValueFormat::kSign:
      // Up to the smallest level there is: a mean of subnormals is still a magnitude.
      levels.step = std::max(ToShortFloat(MeanMagnitude(values)), std::bit_cast<float>(0x100));
      break;
  }
  return levels;
}

void AppendLevels(ValueFormat format, const ValueLevels& levels, std::vector<std::byte>* out) {
  if (format == ValueFormat::kInt4) WriteShortFloat(levels.floor, out);
  if (format != ValueFormat::kFp16) WriteShortFloat(levels.step, out);
}

bool ReadLevels(ValueFormat format, ByteReader* reader, ValueLevels* levels) {
  if (format == ValueFormat::kInt4) levels->floor = ReadShortFloat(reader);
  if (format != ValueFormat::kFp16) levels->step = ReadShortFloat(reader);
  return reader->ok();
}

void AppendValues(ValueFormat format, const ValueLevels& levels, absl::Span<float> values,
                  std::vector<std::byte>* out) {
  const size_t at = out->size();
  out->resize(at + ValueBytes(format, values.size()));
  std::byte* const codes = out->data() + at;
  switch (format) {
    case ValueFormat::kFp16:
      return AppendHalves(values, codes);
    case ValueFormat::kInt8:
      return AppendBytes(levels, values, codes);
    case ValueFormat::kInt4:
      return AppendNibbles(levels, values, codes);
    case ValueFormat::kSign:
      return AppendSigns(levels, values, codes);
  }
}

absl::string_view WhatIsWrong(ValueFormat format, const ValueLevels& levels, size_t kept,
                              absl::Span<const std::byte> codes) {
  if (kept == 0) return levels.floor == 0 && levels.step == 0 ? "" : "it has levels but no values";
  switch (format) {
    case ValueFormat::kFp16:
      for (size_t i = 0; i < kept; ++i) {
        if ((LoadAt<uint16_t>(codes.data(), i) & 0x7C00) == 0x7C00) return "a value is not finite";
      }
      return "";
    case ValueFormat::kInt8: {
      if (!IsLevel(levels.step) || !IsFinite(kTopByte * levels.step)) {
        return "its levels are out of range";
      }
      const auto* const bytes = reinterpret_cast<const int8_t*>(codes.data());
      const bool unused = std::find(bytes, bytes + kept, int8_t{-128}) != bytes + kept;
      return unused ? "it has an unused code" : "";
    }
    case ValueFormat::kInt4:
      if (!IsLevel(levels.floor) || !(levels.step >= 0) ||
          !IsFinite(levels.floor + kTopNibble * levels.step)) {
        return "its levels are out of range";
      }
      return IsZeroPadded(codes, uint64_t{kept} * 4) ? "" : "padding is not zero";
    case ValueFormat::kSign:
      if (!IsLevel(levels.step)) return "its levels are out of range";
      return IsZeroPadded(codes, kept) ? "" : "padding is not zero";
  }
  return "unknown value format";
}

void DecodeValues(ValueFormat format, const ValueLevels& levels, absl::Span<const std::byte> codes,
                  size_t first, absl::Span<float> values) {
  switch (format) {
    case ValueFormat::kFp16:
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = FromHalf(LoadAt<uint16_t>(codes.data(), first + i));
      }
      return;
    case ValueFormat::kInt8:
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(LoadAt<int8_t>(codes.data(), first + i)) * levels.step;
      }
      return;
    case ValueFormat::kInt4: {
      const std::array<float, 16> decoded = NibbleValues(levels);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto pair = static_cast<unsigned>(codes[(first + i) / 2]);
        values[i] = decoded[(pair >> ((first + i) % 2 * 4)) & 15];
      }
      return;
    }
    case ValueFormat::kSign:
      for (size_t i = 0; i < values.size(); ++i) {
        const auto bits = static_cast<unsigned>(codes[(first + i) / 8]);
        values[i] = ((bits >> ((first + i) % 8)) & 1) != 0 ? -levels.step : levels.step;
      }
      return;
  }
}

}  // namespace sluice
