// SPDX-License-Identifier: Apache-2.0
// The only list of codecs, with all facts that other code needs. Tests, benches, --help and the job
// file's checks iterate over this list. A new codec needs one row in codec_table.cc (and one in
// format_table.cc), one .h/.cc pair, and one section each in docs/wire-format.md and
// docs/compression.md.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_facts.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

enum class LevelKind {
  kNone,
  // A share in (0, 1], or a percentage.
  kShare,
  // Any finite number above 0.
  kPositive,
  // From level_min to level_max.
  kInteger,
  // A power of two from level_min to level_max.
  kPowerOfTwo,
  // A number from level_min to level_max with the suffix x, as in 10x.
  kRatio,
};

// The rule that turns the frames of several senders into one result.
enum class Aggregation {
  // The mean of the decoded values. Any frame can be decoded alone.
  kAdditive,
  // The sign of the sum.
  kVote,
  // The receiver adds tables and recovers the largest elements from the sum.
  kSketch,
  // Additive, but the receiver keeps a memory for each sender.
  kPerSender,
};

struct CodecEntry {
  CodecId id;
  absl::string_view name;     // The codec's name in specs.
  absl::string_view example;  // A complete, valid spec.
  absl::string_view summary;  // One line for --help.
  LevelKind level;
  // For example density, threshold or bits. Empty if the codec has no level.
  absl::string_view level_name;
  double level_min;
  double level_max;
  uint32_t options;  // The CodecOption bits that the codec accepts.
  bool values;       // True if the codec accepts a +value format.
  Aggregation aggregation;
  std::unique_ptr<Codec> (*make)(const CodecSpec& spec);
  CodecFacts facts;
};

absl::Span<const CodecEntry> Codecs();

// Returns the codec's entry. Never returns null, because the table has every CodecId.
const CodecEntry& FindCodec(CodecId id);

std::unique_ptr<Codec> MakeCodec(const CodecSpec& spec);

// Returns true if plans may replace or choose the codec.
bool MayChange(CodecId codec);

// Returns the names of these codecs, such as "none, fp16 and topk"; `last` separates the last name.
std::string CodecsOfPlans(absl::string_view last = " and ");

CodecTraits TraitsOf(CodecId codec, uint32_t options);

// Returns a variance bound b of an unbiased codec: for any x that is not clipped, the expectation
// of |decoded - x|^2 is at most b times |x|^2.
double VarianceBound(const CodecSpec& spec);

// Returns the default compensator of a codec, which is feedback for biased codecs.
CompensatorId UsualCompensator(CodecId codec, uint32_t options);

// Returns the reason why the codec and the compensator cannot be combined, or an empty string if
// they can.
absl::string_view CompensatorRefusal(CodecId codec, uint32_t options, CompensatorId compensator);

// Returns the reason why the spec cannot be a downlink codec, or an empty string if it can.
absl::string_view DownlinkRefusal(const CodecSpec& spec);

absl::Span<const CompensatorId> Compensators();
absl::string_view CompensatorName(CompensatorId compensator);

}  // namespace sluice::compress
