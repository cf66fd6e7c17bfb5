// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/sparse_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float_bits.h"
#include "compress/coding/payload.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/cast.h"
#include "compress/simd/values.h"

namespace sluice::compress {
namespace {

constexpr size_t kShortFloatSize = 3;
constexpr int kTopNibble = 7;
constexpr int kTopByte = 127;

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
  return std::bit_cast<float>(LargestMagnitudeBits(values.data(), nullptr, values.size()));
}

// The sum is computed in fp64 and in lanes of a fixed order. Therefore it cannot overflow, and
// every machine gets the same sum.
float MeanMagnitude(absl::Span<const float> values) {
  const double sum = SumOfMagnitudes(values.data(), values.size());
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

float OneDown(float level) { return std::bit_cast<float>(std::bit_cast<uint32_t>(level) - 0x100); }

void AppendHalves(absl::Span<float> values, std::byte* codes) {
  constexpr size_t kTile = 256;
  constexpr float kZeros[kTile] = {};
  uint16_t halves[kTile];
  for (size_t at = 0; at < values.size(); at += kTile) {
    const size_t size = std::min(kTile, values.size() - at);
    ToFp16(kZeros, values.data() + at, {}, halves, size);
    std::memcpy(codes + at * sizeof(uint16_t), halves, size * sizeof(uint16_t));
  }
}

bool HasFloor(ValueFormat format) {
  return format == ValueFormat::kInt4 || format == ValueFormat::kTwoBit;
}

// Returns the levels of 2bit: the mean magnitudes on both sides of a border. The border starts at
// the mean magnitude, and each step moves it to the middle between the means (Lloyd 1982).
ValueLevels TwoMeans(absl::Span<const float> values) {
  constexpr int kSteps = 2;
  double low = MeanMagnitude(values);
  double high = low;
  for (int step = 0; step <= kSteps; ++step) {
    const double border = (low + high) / 2;
    double sums[2] = {0, 0};
    size_t counts[2] = {0, 0};
    for (const float value : values) {
      const double magnitude = std::abs(value);
      const size_t side = magnitude < border ? 0 : 1;
      sums[side] += magnitude;
      ++counts[side];
    }
    if (counts[0] == 0 || counts[1] == 0) break;
    low = sums[0] / static_cast<double>(counts[0]);
    high = sums[1] / static_cast<double>(counts[1]);
  }
  // The floor is at least the smallest level, as for `sign`.
  ValueLevels levels;
  levels.floor = std::max(ToShortFloat(static_cast<float>(low)), std::bit_cast<float>(0x100));
  levels.step = ToShortFloat(std::max(static_cast<float>(high) - levels.floor, 0.0f));
  if (!IsFinite(levels.floor + levels.step)) levels.step = OneDown(levels.step);
  return levels;
}

// The nearer of the two levels; the upper one in the middle.
int TwoBitStep(const ValueLevels& levels, float value) {
  const float above = std::abs(value) - levels.floor;
  return levels.step > 0 && above + above >= levels.step ? 1 : 0;
}

float TwoBitValue(const ValueLevels& levels, unsigned code) {
  const float magnitude = levels.floor + static_cast<float>(code & 1) * levels.step;
  return (code & 2) != 0 ? -magnitude : magnitude;
}

void AppendTwoBits(const ValueLevels& levels, absl::Span<float> values, std::byte* codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const unsigned code =
        static_cast<unsigned>(TwoBitStep(levels, values[i])) | (values[i] < 0 ? 2U : 0U);
    codes[i / 4] |= static_cast<std::byte>(code << (2 * (i % 4)));
    values[i] -= TwoBitValue(levels, code);
  }
}

void DecodeTwoBits(const ValueLevels& levels, absl::Span<const std::byte> codes, size_t first,
                   absl::Span<float> values) {
  const float table[] = {TwoBitValue(levels, 0), TwoBitValue(levels, 1), TwoBitValue(levels, 2),
                         TwoBitValue(levels, 3)};
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = first + i;
    values[i] = table[(static_cast<unsigned>(codes[at / 4]) >> (2 * (at % 4))) & 3];
  }
}

bool IsLevel(float level) { return level > 0 && IsFinite(level); }

// Returns true if all of floor + q * step, for q up to `most`, are levels.
bool AreTwoLevels(const ValueLevels& levels, int most) {
  return IsLevel(levels.floor) && levels.step >= 0 &&
         IsFinite(levels.floor + static_cast<float>(most) * levels.step);
}

bool IsZeroPadded(absl::Span<const std::byte> codes, uint64_t bits) {
  return bits % 8 == 0 || (static_cast<unsigned>(codes.back()) >> (bits % 8)) == 0;
}

}  // namespace

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
    case ValueFormat::kTwoBit:
      return (kept + 3) / 4;
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
      // The step is at least the smallest level. Otherwise it could be 0 for subnormal values.
      levels.step = std::max(ToShortFloatUp(largest / kTopByte), std::bit_cast<float>(0x100));
      if (!IsFinite(kTopByte * levels.step)) levels.step = OneDown(levels.step);
      break;
    case ValueFormat::kInt4:
      levels.floor = floor;
      if (largest <= floor) break;
      levels.step = ToShortFloatUp((largest - floor) / kTopNibble);
      if (!IsFinite(floor + kTopNibble * levels.step)) levels.step = OneDown(levels.step);
      break;
    case ValueFormat::kSign:
      // The step is at least the smallest level, because the mean of subnormals could otherwise be
      // rounded to 0.
      levels.step = std::max(ToShortFloat(MeanMagnitude(values)), std::bit_cast<float>(0x100));
      break;
    case ValueFormat::kTwoBit:
      levels = TwoMeans(values);
      break;
  }
  return levels;
}

void AppendLevels(ValueFormat format, const ValueLevels& levels, std::vector<std::byte>* out) {
  if (HasFloor(format)) WriteShortFloat(levels.floor, out);
  if (format != ValueFormat::kFp16) WriteShortFloat(levels.step, out);
}

bool ReadLevels(ValueFormat format, ByteReader* reader, ValueLevels* levels) {
  if (HasFloor(format)) levels->floor = ReadShortFloat(reader);
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
      return ToBytes(levels.step, values.data(), reinterpret_cast<int8_t*>(codes), values.size());
    case ValueFormat::kInt4:
      return ToNibbles(levels.floor, levels.step, values.data(), reinterpret_cast<uint8_t*>(codes),
                       values.size());
    case ValueFormat::kSign:
      return ToSignBits(levels.step, values.data(), reinterpret_cast<uint8_t*>(codes),
                        values.size());
    case ValueFormat::kTwoBit:
      return AppendTwoBits(levels, values, codes);
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
      if (!AreTwoLevels(levels, kTopNibble)) return "its levels are out of range";
      return IsZeroPadded(codes, uint64_t{kept} * 4) ? "" : "padding is not zero";
    case ValueFormat::kTwoBit:
      if (!AreTwoLevels(levels, 1)) return "its levels are out of range";
      return IsZeroPadded(codes, uint64_t{kept} * 2) ? "" : "padding is not zero";
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
      return FromBytes(levels.step, reinterpret_cast<const int8_t*>(codes.data()) + first,
                       values.data(), values.size());
    case ValueFormat::kInt4: {
      const auto* packed = reinterpret_cast<const uint8_t*>(codes.data()) + first / 2;
      if (first % 2 == 1 && !values.empty()) {
        float pair[2];
        FromNibbles(levels.floor, levels.step, packed++, pair, 2);
        values.front() = pair[1];
        values.remove_prefix(1);
      }
      return FromNibbles(levels.floor, levels.step, packed, values.data(), values.size());
    }
    case ValueFormat::kSign:
      return FromSignBits(levels.step, reinterpret_cast<const uint8_t*>(codes.data()), first,
                          values.data(), values.size());
    case ValueFormat::kTwoBit:
      return DecodeTwoBits(levels, codes, first, values);
  }
}

}  // namespace sluice::compress
