// The one list of payload formats: what a frame's header names and how its payload is read.
// Adding a format is one line there and one section in docs/wire-format.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice::compress {

// On the wire: never renumber, never reuse. Several codecs may write one format.
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
  kExponents = 22,  // Decodes to nothing: what intsum's senders need for their next step.
};

struct FormatEntry {
  FormatId id;
  absl::string_view name;  // For errors.
  // Any bytes are allowed. OK only if `payload` is exactly an encoding of `count` finite values.
  absl::Status (*validate)(absl::Span<const std::byte> payload, size_t count);
  // Adds the decoded values to `sum`. Only for payloads that `validate` accepted for sum.size()
  // elements. Null for formats that take state to decode: an Aggregator reads those.
  void (*decode_add)(absl::Span<const std::byte> payload, absl::Span<float> sum);
  // The same bits as decode_add for one payload after the other, faster. Null: there is none.
  void (*decode_add_all)(absl::Span<const absl::Span<const std::byte>> payloads,
                         absl::Span<float> sum) = nullptr;
  // As decode_add, of the decoded values times `scale`. For formats that need no second pass for
  // that; null: the others.
  void (*decode_add_scaled)(absl::Span<const std::byte> payload, float scale,
                            absl::Span<float> sum) = nullptr;
};

// Whether a receiver that adds what senders push can take it: it decodes alone, and to values.
inline bool IsAddend(const FormatEntry& format) {
  return format.decode_add != nullptr && format.id != FormatId::kExponents;
}

absl::Span<const FormatEntry> Formats();

// nullptr for an id that no format has.
const FormatEntry* FindFormat(FormatId id);

}  // namespace sluice::compress
