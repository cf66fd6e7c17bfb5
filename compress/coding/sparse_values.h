// SPDX-License-Identifier: Apache-2.0
// Values of sparse codecs: the kept elements of a chunk, in one of five formats.
// docs/wire-format.md defines the layouts.
//
//   fp16  IEEE half
//   int8  code * step, code from -127 to 127; step = largest / 127
//   int4  ±(floor + q * step), q from 0 to 7; no kept value is below `floor`
//   sign  ±step, the mean magnitude (STC, Sattler et al. 2019)
//   2bit  ±(floor + q * step), q 0 or 1: the mean magnitudes of the small and of the large values.
//         Two steps of Lloyd's algorithm (Lloyd 1982) find the border between them
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
  float floor = 0;  // Only for int4 and 2bit.
  float step = 0;   // For all formats but fp16.
};

constexpr bool IsValueFormat(ValueFormat format) { return format <= ValueFormat::kTwoBit; }

// Returns the number of bytes that `kept` values take in a frame.
size_t ValueBytes(ValueFormat format, size_t kept);

// Returns the levels for `values`, which must be finite and not 0. For int4, no magnitude may be
// below `floor`, except by rounding. If there are no values, all levels are 0.
ValueLevels ChooseLevels(ValueFormat format, absl::Span<const float> values, float floor);

void AppendLevels(ValueFormat format, const ValueLevels& levels, std::vector<std::byte>* out);
// Reads the levels. Returns false if there are not enough bytes.
bool ReadLevels(ValueFormat format, ByteReader* reader, ValueLevels* levels);

// Appends the codes of `values`, and replaces each value by its rounding error (value - decoded).
void AppendValues(ValueFormat format, const ValueLevels& levels, absl::Span<float> values,
                  std::vector<std::byte>* out);

// Checks the levels and the codes of `kept` values. Returns a description of the error, or an empty
// string. `codes` must have ValueBytes bytes.
absl::string_view WhatIsWrong(ValueFormat format, const ValueLevels& levels, size_t kept,
                              absl::Span<const std::byte> codes);

// Decodes `values.size()` values, starting with value number `first`. WhatIsWrong must have
// accepted the codes.
void DecodeValues(ValueFormat format, const ValueLevels& levels, absl::Span<const std::byte> codes,
                  size_t first, absl::Span<float> values);

}  // namespace sluice::compress
