// CodecSpec: the one line that names a codec, its level, its options and its compensator, e.g.
// `topk:1%+int4`, `int8:minmax,sr`, `ternary:0.5/noef`, `topk:0.1%/dgc:0.9,clip=4,warmup=400`.
//
//   spec        := codec [":" argument {"," argument}] ["+" values] ["/" compensator]
//   argument    := level | option            (the level first; codecs that take one need it)
//   compensator := name [":" argument {"," argument}]
//
// Shell-safe by design. ToString(ParseCodecSpec(s)) is canonical: parsing it again gives the same
// spec, and what is the codec's usual choice is left out.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::compress {

// Not on the wire: frames name a FormatId.
enum class CodecId : uint8_t {
  kNone,
  kFp16,
  kBf16,
  kFp8,
  kInt8,
  kInt4,
  kInt2,
  kQsgd,
  kTernGrad,
  kNatural,
  kSignSgd,
  kSign,
  kOneBit,
  kTernary,
  kTopK,
  kTopKExact,
  kThreshold,
  kBlockTopK,
  kRandomK,
  kCountSketch,
  kLsh,
  kPowerSgd,
  kEden,
  kIntSum,
};

enum class ValueFormat : uint8_t { kFp16 = 0, kInt4 = 1, kInt8 = 2, kSign = 3 };

// Bits of CodecSpec::options.
enum CodecOption : uint32_t {
  kStochastic = 1,   // sr: stochastic rounding, unbiased.
  kMinMax = 2,       // minmax: the block's range instead of its largest magnitude.
  kE5m2 = 4,         // e5m2: 5 bits of exponent, 2 of mantissa (fp8).
  kTensorScope = 8,  // scope=tensor: a threshold per tensor instead of one over all.
  kUnbiased = 16,    // unbiased: what is sent is scaled up for what is not (randomk).
  // index=..: how positions are coded (position_coding.h); at most one, none: what is smallest.
  kIndexRice = 32,
  kIndexPacked = 64,
  kIndexBytes = 128,
  kIndexBitmap = 256,
  kIndex = kIndexRice | kIndexPacked | kIndexBytes | kIndexBitmap,
};

enum class CompensatorId : uint8_t { kErrorFeedback, kNone, kDgc, kEf21, kDiana };

struct CompensatorSpec {
  CompensatorId id = CompensatorId::kErrorFeedback;
  double level = 0;     // dgc: momentum, [0, 1); diana: step size of its memory, (0, 1], or 0: from
                        // the codec's variance (difference.h).
  double clip = 0;      // dgc: gradients of a chunk are clipped to this many times their usual norm
                        // (dgc.h), above 1; 0: never.
  uint32_t warmup = 0;  // dgc: steps over which the density falls from 25% to the codec's.

  friend bool operator==(const CompensatorSpec&, const CompensatorSpec&) = default;
};

struct CodecSpec {
  CodecId codec = CodecId::kNone;
  double level = 0;  // What it means: CodecEntry::level.
  uint32_t options = 0;
  ValueFormat values = ValueFormat::kFp16;  // Of sparse codecs.
  CompensatorSpec compensator = {};

  bool has(CodecOption option) const { return (options & option) != 0; }
  // Lost values are kept and sent later, in whatever way.
  bool error_feedback() const { return compensator.id != CompensatorId::kNone; }

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// INVALID_ARGUMENT quotes the text, points at the character (a caret line below it), says what was
// expected and, for an unknown name, which known one is nearest. A codec with a compensator that
// cannot go with it is refused with the reason.
absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text);

std::string ToString(const CodecSpec& spec);

}  // namespace sluice::compress
