// CodecSpec: the one line that names a codec, its level and its compensator, e.g. `topk:1%+int4`,
// `ternary:0.5/noef`.
//
//   spec     := codec [":" argument] ["+" values] {"/" compensator}
//   argument := number | number "%"
//
// Shell-safe by design. ToString(ParseCodecSpec(s)) is canonical: parsing it again gives the same
// spec.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compress/codec.h"

namespace sluice {

enum class ValueFormat : uint8_t { kFp16 = 0, kInt4 = 1 };

struct CodecSpec {
  CodecId codec = CodecId::kNone;
  double level = 0;  // topk: density; ternary: threshold as a share of the block's maximum; else 0.
  ValueFormat values = ValueFormat::kFp16;  // topk only.
  bool error_feedback = true;               // Off with /noef.

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// INVALID_ARGUMENT quotes the text, points at the character (a caret line below it), says what was
// expected and, for an unknown name, which known one is nearest.
absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text);

// The equal form of a map: {codec: topk, level: 1%, values: int4, feedback: false}. Unknown keys
// and values are INVALID_ARGUMENT and named. (`density` and `threshold` are accepted for `level`
// where they are what it means.)
absl::StatusOr<CodecSpec> CodecSpecFromMap(const std::map<std::string, std::string>& entries);

std::string ToString(const CodecSpec& spec);

}  // namespace sluice
