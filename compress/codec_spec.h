// SPDX-License-Identifier: Apache-2.0
// CodecSpec: one line of text that names a codec, its level, its options and its compensator, for
// example `topk:1%+int4`, `int8:minmax,sr`, `ternary:0.5/noef`,
// `topk:0.1%/dgc:0.9,clip=4,warmup=400`.
//
//   spec        := codec [":" argument {"," argument}] ["+" values] ["/" compensator]
//   argument    := level | option            (the level comes first; some codecs need one)
//   compensator := name [":" argument {"," argument}]
//
// Specs need no quoting in a shell. ToString(ParseCodecSpec(s)) is the canonical form: it omits the
// codec's defaults, and parsing it gives the same spec.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::compress {

// Codecs in specs. Specs do not appear on the wire: frames contain a FormatId.
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

enum class ValueFormat : uint8_t { kFp16 = 0, kInt4 = 1, kInt8 = 2, kSign = 3, kTwoBit = 4 };

// Bits of CodecSpec::options.
enum CodecOption : uint32_t {
  kStochastic = 1,  // sr: stochastic rounding, which is unbiased.
  // minmax: the scale covers the block's range and not only its largest magnitude.
  kMinMax = 2,
  kE5m2 = 4,  // e5m2: 5 bits of exponent and 2 of mantissa (fp8).
  // scope=tensor: one threshold per tensor instead of one for all tensors.
  kTensorScope = 8,
  // unbiased: the sent values are scaled up to compensate for the values that are not sent
  // (randomk).
  kUnbiased = 16,
  // index=..: the coding of positions (position_coding.h). A spec has at most one of these options.
  // Without one, the encoder uses the smallest coding.
  kIndexRice = 32,
  kIndexPacked = 64,
  kIndexBytes = 128,
  kIndexBitmap = 256,
  kIndex = kIndexRice | kIndexPacked | kIndexBytes | kIndexBitmap,
  // scope=block: the density holds in each block of 4096 elements instead of in each chunk
  // (block_selection.h).
  kBlockScope = 512,
};

enum class CompensatorId : uint8_t { kErrorFeedback, kNone, kDgc, kEf21, kDiana };

struct CompensatorSpec {
  CompensatorId id = CompensatorId::kErrorFeedback;
  // ef: the residual is multiplied by this factor before each encoding (compensator.h). In (0, 1);
  // 0 keeps all of it. dgc: the momentum, in [0, 1). diana: the step size of the memory, in (0, 1];
  // 0 derives the step size from the codec's variance (difference.h).
  double level = 0;
  // dgc: clips a chunk's gradient to this multiple of its usual norm (dgc.h). Greater than 1, or 0
  // to disable clipping.
  double clip = 0;
  // dgc: number of steps in which the density falls from 25% to the codec's density.
  uint32_t warmup = 0;

  friend bool operator==(const CompensatorSpec&, const CompensatorSpec&) = default;
};

struct CodecSpec {
  CodecId codec = CodecId::kNone;
  double level = 0;  // CodecEntry::level defines the meaning.
  uint32_t options = 0;
  ValueFormat values = ValueFormat::kFp16;  // Only for sparse codecs.
  CompensatorSpec compensator = {};

  bool has(CodecOption option) const { return (options & option) != 0; }
  // Returns true if a compensator keeps dropped values and sends them later.
  bool error_feedback() const { return compensator.id != CompensatorId::kNone; }

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// Parses a spec. Fails with INVALID_ARGUMENT if it is invalid. The message quotes the text, marks
// the character with a caret on the line below, and states the expected input. For an unknown name,
// the message suggests the nearest known name. The function also refuses a compensator that the
// codec cannot use; the message gives the reason.
absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text);

std::string ToString(const CodecSpec& spec);

}  // namespace sluice::compress
