// The one list of codecs: tests, benches, --help and decoding walk it. Adding a codec is one line
// there, one .h/.cc pair, one row in docs/wire-format.md and docs/compression.md.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice {

struct CodecEntry {
  CodecId id;
  absl::string_view name;     // As in specs.
  absl::string_view example;  // A whole spec that works.
  absl::string_view summary;  // One line for --help.
  std::unique_ptr<Codec> (*make)(const CodecSpec& spec);
  // Any bytes are allowed. OK only if `payload` is exactly an encoding of `count` finite values.
  absl::Status (*validate)(absl::Span<const std::byte> payload, size_t count);
  // Adds the decoded values to `sum`. Only for payloads that `validate` accepted for sum.size()
  // elements.
  void (*decode_add)(absl::Span<const std::byte> payload, absl::Span<float> sum);
};

absl::Span<const CodecEntry> Codecs();

// nullptr for an id that no codec has.
const CodecEntry* FindCodec(CodecId id);

// Never null: a parsed spec names a codec of the table.
std::unique_ptr<Codec> MakeCodec(const CodecSpec& spec);

}  // namespace sluice
