// The one list of codecs: tests, benches, --help and the job file's checks walk it. Adding a codec
// is one line there (and one in format_table.cc), one .h/.cc pair, one section in
// docs/wire-format.md and docs/compression.md.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::compress {

enum class LevelKind {
  kNone,
  kShare,       // (0, 1], or in percent.
  kPositive,    // Any finite number above 0.
  kInteger,     // From level_min to level_max.
  kPowerOfTwo,  // Likewise.
  kRatio,       // A number from level_min to level_max and an x, as in 10x.
};

// How frames of several senders become one result.
enum class Aggregation {
  kAdditive,   // The mean of what they decode to; any frame can be decoded alone.
  kVote,       // The sign of their sum.
  kSketch,     // Tables are added; the receiver recovers the largest from them.
  kPerSender,  // Additive, but the receiver remembers what each sender sent.
};

struct CodecEntry {
  CodecId id;
  absl::string_view name;     // As in specs.
  absl::string_view example;  // A whole spec that works.
  absl::string_view summary;  // One line for --help.
  LevelKind level;
  absl::string_view level_name;  // density, threshold, bits ...; empty: it takes none.
  double level_min;
  double level_max;
  uint32_t options;  // The CodecOption bits it takes.
  bool values;       // Takes a +value format.
  Aggregation aggregation;
  std::unique_ptr<Codec> (*make)(const CodecSpec& spec);
};

absl::Span<const CodecEntry> Codecs();

// Never null: every CodecId is in the table.
const CodecEntry& FindCodec(CodecId id);

std::unique_ptr<Codec> MakeCodec(const CodecSpec& spec);

// What a codec with these options is, whatever its level.
struct CodecTraits {
  bool lossless = false;
  bool unbiased = false;  // The expectation of what is decoded is what was encoded.
  bool clips = false;     // Cuts the largest few, so that it is unbiased where there are none.
  // |decoded - acc| <= |acc|, with certainty, so that feedback is stable; for one that is unbiased
  // too, where it is used with feedback. Values below the least that fp16:sr and natural can say
  // are the exception: at random they become that least, which is what they then err by.
  bool contractive = false;
  bool sparse = false;  // Leaves elements out, which arrive in later steps if at all.
};
CodecTraits TraitsOf(CodecId codec, uint32_t options);

// For unbiased codecs: the expectation of |decoded - x|^2 is at most this times |x|^2, for any x of
// which nothing is cut.
double VarianceBound(const CodecSpec& spec);

// What goes with the codec where the spec names nothing: feedback where it is biased.
CompensatorId UsualCompensator(CodecId codec, uint32_t options);

// Why the two do not go together; empty if they do.
absl::string_view CompensatorRefusal(CodecId codec, uint32_t options, CompensatorId compensator);

// Why the spec cannot be a downlink codec; empty if it can.
absl::string_view DownlinkRefusal(const CodecSpec& spec);

absl::Span<const CompensatorId> Compensators();
absl::string_view CompensatorName(CompensatorId compensator);

}  // namespace sluice::compress
