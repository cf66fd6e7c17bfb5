// SPDX-License-Identifier: Apache-2.0
// The only list of payload formats: the ids in frame headers, and the functions that read payloads.
// A new format needs one line in format_table.cc and one section in docs/wire-format.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice::compress {
namespace gpu {
struct AddendKind;
}  // namespace gpu

// These numbers are on the wire: never renumber or reuse them. Several codecs may write one format.
enum class FormatId : uint8_t {
  kNone = 0,
  kFp16 = 1,
  kBf16 = 2,
  kInt8 = 3,
  kSparse = 4,
  kTernary = 5,
  kFp8 = 6,
  kInt4 = 7,
  kInt2 = 8,
  kMinMax = 9,
  kQsgd = 10,
  kTernGrad = 11,
  kNatural = 12,
  kSign = 13,
  kOneBit = 14,
  kBlockTopK = 15,
  kRandomK = 16,
  kSketch = 17,
  kLsh = 18,
  kLowRank = 19,
  kRotated = 20,
  kIntSum = 21,
  // This format contains no values. It contains the exponents that senders of intsum use in their
  // next step.
  kExponents = 22,
};

// Receives elements of a chunk: their ascending positions, and as many values.
using TakeBatch =
    absl::FunctionRef<void(const uint32_t* positions, absl::Span<const float> values)>;

struct FormatEntry {
  FormatId id;
  absl::string_view name;  // Name in error messages.
  // Accepts any bytes. Returns OK only if `payload` is exactly an encoding of `count` finite
  // values.
  absl::Status (*validate)(absl::Span<const std::byte> payload, size_t count);
  // Adds the decoded values to `sum`. `validate` must have accepted the payload for sum.size()
  // elements. Null for formats whose decoding needs a state; an Aggregator reads such formats.
  void (*decode_add)(absl::Span<const std::byte> payload, absl::Span<float> sum);
  // Returns the kernel that adds such a payload on a GPU. Payloads of other formats are decoded on
  // the host and added as fp32.
  gpu::AddendKind (*on_gpu)(absl::Span<const std::byte> payload);
  // Gives the same bits as calling decode_add for each payload in turn, but is faster. May be null.
  void (*decode_add_all)(absl::Span<const absl::Span<const std::byte>> payloads,
                         absl::Span<float> sum) = nullptr;
  // Works like decode_add, but multiplies the decoded values by `scale`. Null for formats that
  // would need a second pass for the multiplication.
  void (*decode_add_scaled)(absl::Span<const std::byte> payload, float scale,
                            absl::Span<float> sum) = nullptr;
  // Adds the decoded values of elements `first` to first + sum.size() - 1 to `sum`. `validate` must
  // have accepted the payload for `count` elements, and `first` must be a multiple of kPartUnit.
  // Null for formats that would need to read the preceding elements.
  void (*decode_add_part)(absl::Span<const std::byte> payload, size_t count, size_t first,
                          absl::Span<float> sum) = nullptr;
  // These two are set for sparse formats whose values can be read without their positions.
  // Returns an estimate of the sum of squares of all decoded values, from a `share` of them that
  // begins at the fraction `from` (both 0 to 1). With a share of 1, it is exact.
  double (*estimate_squares)(absl::Span<const std::byte> payload, double from,
                             double share) = nullptr;
  // Passes the positions and the values of all elements in the payload to `take`, in batches.
  void (*for_each_batch)(absl::Span<const std::byte> payload, TakeBatch take) = nullptr;
};

// Returns true if a receiver that adds the senders' frames can accept the format: its frames
// contain values and can be decoded alone.
inline bool IsAddend(const FormatEntry& format) {
  return format.decode_add != nullptr && format.id != FormatId::kExponents;
}

// Returns the format's entry, or nullptr for an unknown id.
const FormatEntry* FindFormat(FormatId id);

}  // namespace sluice::compress
