// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/placed_values.h"

#include <bit>
#include <cstdint>

#include "base/float_bits.h"
#include "compress/coding/index_coding.h"

namespace sluice::compress {
namespace {

// Two levels of 3 bytes each.
constexpr size_t kLevelsMax = 6;

}  // namespace

size_t MaxPlacedBytes(ValueFormat format, size_t places) {
  return 2 + kLevelsMax + BytesFor(places) + ValueBytes(format, places);
}

void AppendPlaced(ValueFormat format, absl::Span<float> values, EncodeScratch* scratch,
                  std::vector<std::byte>* out) {
  if (scratch->floats.size() < values.size()) scratch->floats.resize(values.size());
  size_t kept = 0;
  uint32_t smallest = kInfinityBits;
  for (const float value : values) {
    if (!IsPlaced(value)) continue;
    smallest = std::min(smallest, MagnitudeBits(value));
    scratch->floats[kept++] = value;
  }
  const absl::Span<float> there = absl::MakeSpan(scratch->floats).first(kept);
  const bool gaps = kept < values.size();
  const float floor = ToShortFloat(std::bit_cast<float>(smallest));
  const ValueLevels levels = ChooseLevels(format, there, floor);
  ByteWriter writer(out);
  writer.Write(static_cast<uint8_t>(format));
  writer.Write(static_cast<uint8_t>(gaps ? 1 : 0));
  AppendLevels(format, levels, out);
  if (gaps) {
    const size_t at = out->size();
    out->resize(at + BytesFor(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const unsigned bit = IsPlaced(values[i]) ? 1 : 0;
      (*out)[at + i / 8] |= static_cast<std::byte>(bit << (i % 8));
    }
  }
  AppendValues(format, levels, there, out);
  size_t next = 0;
  for (float& value : values) {
    if (IsPlaced(value)) value = there[next++];
  }
}

absl::string_view ReadPlaced(ByteReader* reader, size_t places, PlacedValues* values) {
  values->format = static_cast<ValueFormat>(reader->Read<uint8_t>());
  const auto gaps = reader->Read<uint8_t>();
  if (!IsValueFormat(values->format)) return "its value format is unknown";
  if (gaps > 1) return "its flag for missing values is neither 0 nor 1";
  if (!ReadLevels(values->format, reader, &values->levels)) return "it is too short";
  values->places = values->kept = places;
  values->presence = {};
  if (gaps == 1) {
    values->presence = reader->ReadBytes(BytesFor(places));
    if (!reader->ok()) return "it is too short";
    if (!IsPadded(values->presence, places)) return "padding is not zero";
    values->kept = 0;
    for (const std::byte byte : values->presence) {
      values->kept += static_cast<size_t>(std::popcount(static_cast<unsigned>(byte)));
    }
    if (values->kept == places) return "it announces missing values, but none is missing";
  }
  values->codes = reader->ReadBytes(ValueBytes(values->format, values->kept));
  if (!reader->ok()) return "it is too short";
  return WhatIsWrong(values->format, values->levels, values->kept, values->codes);
}

}  // namespace sluice::compress
