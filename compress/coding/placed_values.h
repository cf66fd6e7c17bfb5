// SPDX-License-Identifier: Apache-2.0
// Values at places that the receiver knows. If some of the values are 0, one bit per place marks
// the values that are not 0. In all other respects, the format is as in sparse_values.h.
// docs/wire-format.md defines the layout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "base/float_bits.h"
#include "compress/codec.h"
#include "compress/coding/sparse_values.h"

namespace sluice::compress {

// Returns true if the value is sent. A frame cannot represent a level below 2^-141, so smaller
// values count as 0.
inline bool IsPlaced(float value) { return MagnitudeBits(value) >= 0x100; }

// Returns an upper bound for the number of bytes that `places` values take.
size_t MaxPlacedBytes(ValueFormat format, size_t places);

// Appends `values`, which must be finite, one per place, and replaces each by its rounding error:
// (value - decoded). Uses scratch->floats and scratch->bytes.
void AppendPlaced(ValueFormat format, absl::Span<float> values, EncodeScratch* scratch,
                  std::vector<std::byte>* out);

// The parts of a payload.
struct PlacedValues {
  ValueFormat format = ValueFormat::kFp16;
  ValueLevels levels;
  size_t places = 0;
  // Number of places whose value is not 0.
  size_t kept = 0;
  absl::Span<const std::byte> presence;  // Empty if all values are non-zero.
  absl::Span<const std::byte> codes;

  bool present(size_t place) const {
    if (presence.empty()) return true;
    return ((static_cast<unsigned>(presence[place / 8]) >> (place % 8)) & 1) != 0;
  }
};

// Reads the values of `places` places from `reader`. Returns a description of the error, or an
// empty string.
absl::string_view ReadPlaced(ByteReader* reader, size_t places, PlacedValues* values);

// Calls fn(place, value), in order, for each place whose value is not 0.
template <typename Fn>
void ForEachPlaced(const PlacedValues& values, Fn fn) {
  constexpr size_t kAhead = 256;
  float decoded[kAhead];
  size_t index = 0;
  for (size_t place = 0; place < values.places; ++place) {
    if (!values.present(place)) continue;
    if (index % kAhead == 0) {
      DecodeValues(values.format, values.levels, values.codes, index,
                   absl::MakeSpan(decoded).first(std::min(kAhead, values.kept - index)));
    }
    fn(place, decoded[index % kAhead]);
    ++index;
  }
}

}  // namespace sluice::compress
