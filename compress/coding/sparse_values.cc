// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/sparse_values.h"

#include <algorithm>
#include <bit>
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

bool IsLevel(float level) { return level > 0 && IsFinite(level); }

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
      return ToBytes(levels.step, values.data(), reinterpret_cast<int8_t*>(codes), values.size());
    case ValueFormat::kInt4:
      return ToNibbles(levels.floor, levels.step, values.data(), reinterpret_cast<uint8_t*>(codes),
                       values.size());
    case ValueFormat::kSign:
      return ToSignBits(levels.step, values.data(), reinterpret_cast<uint8_t*>(codes),
                        values.size());
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
  }
}

}  // namespace sluice::compress
