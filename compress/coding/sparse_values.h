// Values of sparse codecs: what was kept of a chunk, in one of four formats. docs/wire-format.md
// has the layouts.
//
//   fp16  IEEE half
//   int8  code * step, code from -127 to 127; step = largest / 127
//   int4  ±(floor + q * step), q from 0 to 7: all that was kept is at least `floor`
//   sign  ±step, the mean magnitude (STC, Sattler et al. 2019)
//
// Levels have at most 16 significant bits.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

struct ValueLevels {
  float floor = 0;  // int4.
  float step = 0;   // int8, int4, sign.
};

// Of levels in a frame, and of `kept` values.
size_t LevelBytes(ValueFormat format);
size_t ValueBytes(ValueFormat format, size_t kept);

// The levels for `values`, all finite and none 0; int4: none smaller than `floor` in magnitude, but
// for rounding. With no values all levels are 0.
ValueLevels ChooseLevels(ValueFormat format, absl::Span<const float> values, float floor);

void AppendLevels(ValueFormat format, const ValueLevels& levels, std::vector<std::byte>* out);
// False if the bytes do not suffice.
bool ReadLevels(ValueFormat format, ByteReader* reader, ValueLevels* levels);

// Appends the codes of `values`, and puts in each value's place what its code loses: value -
// decoded.
void AppendValues(ValueFormat format, const ValueLevels& levels, absl::Span<float> values,
                  std::vector<std::byte>* out);

// What is wrong with levels and codes of `kept` values; empty: nothing. `codes` has ValueBytes.
absl::string_view WhatIsWrong(ValueFormat format, const ValueLevels& levels, size_t kept,
                              absl::Span<const std::byte> codes);

// Writes `values.size()` decoded values, from number `first` on. For codes that are not wrong.
void DecodeValues(ValueFormat format, const ValueLevels& levels, absl::Span<const std::byte> codes,
                  size_t first, absl::Span<float> values);

}  // namespace sluice::compress
