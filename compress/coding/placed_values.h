// Values whose places the receiver knows, some of which may be 0: a bit per place says which are
// there, if not all are, and the rest is sparse_values.h. docs/wire-format.md has the layout.
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

// Below 2^-141 there is no level that a frame could hold: such values count as 0.
inline bool IsPlaced(float value) { return MagnitudeBits(value) >= 0x100; }

// Upper bound for `places` values.
size_t MaxPlacedBytes(ValueFormat format, size_t places);

// Appends `values`, one per place and all finite, and puts in each one's place what its code loses:
// value - decoded. Uses scratch->floats and scratch->bytes.
void AppendPlaced(ValueFormat format, absl::Span<float> values, EncodeScratch* scratch,
                  std::vector<std::byte>* out);

// As read from a payload.
struct PlacedValues {
  ValueFormat format = ValueFormat::kFp16;
  ValueLevels levels;
  size_t places = 0;
  size_t kept = 0;                       // Places whose value is not 0.
  absl::Span<const std::byte> presence;  // Empty: all are there.
  absl::Span<const std::byte> codes;

  bool present(size_t place) const {
    if (presence.empty()) return true;
    return ((static_cast<unsigned>(presence[place / 8]) >> (place % 8)) & 1) != 0;
  }
};

// Takes the values of `places` places off `reader`. What is wrong with them; empty: nothing.
absl::string_view ReadPlaced(ByteReader* reader, size_t places, PlacedValues* values);

// fn(place, value) for all places, in order, whose value is not 0.
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
