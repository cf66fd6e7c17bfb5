// SPDX-License-Identifier: Apache-2.0
// The compensators, and the rules on which codecs they suit (codec_table.h).
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/codec_table.h"

namespace sluice::compress {
namespace {

constexpr CompensatorId kCompensators[] = {CompensatorId::kErrorFeedback, CompensatorId::kNone,
                                           CompensatorId::kDgc, CompensatorId::kEf21,
                                           CompensatorId::kDiana};

absl::string_view NeedsUnbiased() {
  static const auto* const reason = [] {
    auto* text = new std::string("it needs an unbiased codec: sr, ");
    for (const CodecEntry& entry : Codecs()) {
      const CodecTraits traits = TraitsOf(entry.id, 0);
      if (traits.unbiased && !traits.lossless) absl::StrAppend(text, entry.name, ", ");
    }
    absl::StrAppend(text, "or randomk with unbiased");
    return text;
  }();
  return *reason;
}

}  // namespace

CompensatorId UsualCompensator(CodecId codec, uint32_t options) {
  if (codec == CodecId::kNone) return CompensatorId::kErrorFeedback;
  const Aggregation aggregation = FindCodec(codec).aggregation;
  if (aggregation == Aggregation::kVote || aggregation == Aggregation::kSketch) {
    return CompensatorId::kNone;
  }
  if (TraitsOf(codec, options).unbiased) return CompensatorId::kNone;
  return CompensatorId::kErrorFeedback;
}

absl::string_view CompensatorRefusal(CodecId codec, uint32_t options, CompensatorId compensator) {
  const CodecTraits traits = TraitsOf(codec, options);
  const Aggregation aggregation = FindCodec(codec).aggregation;
  switch (compensator) {
    case CompensatorId::kNone:
      return "";
    case CompensatorId::kErrorFeedback:
      if (aggregation == Aggregation::kVote) {
        return "a vote has no magnitude, so there is no error to feed back; `sign` is the scaled "
               "variant";
      }
      if (aggregation == Aggregation::kSketch) {
        return "the shard keeps what it does not publish, so the sender must not keep it as well";
      }
      if (!traits.contractive) {
        return "its error can be larger than the gradient, so that feedback would grow without "
               "bound; it is unbiased and needs none";
      }
      return "";
    case CompensatorId::kDgc:
      if (aggregation == Aggregation::kSketch) {
        return "the receiver recovers the largest, so the sender cannot know what was sent";
      }
      if (!traits.sparse || !traits.contractive) {
        return "momentum correction is for codecs that leave elements out until a later step";
      }
      return "";
    case CompensatorId::kEf21:
      if (aggregation != Aggregation::kAdditive) {
        return "both sides must add up the same differences, which needs frames that are summed";
      }
      if (traits.lossless) return "there is no error to compensate";
      if (!traits.contractive) return "it needs a codec whose error is never above its input";
      if (FindCodec(codec).level == LevelKind::kPositive) {
        return "differences below the threshold would never be sent, however long they last";
      }
      return "";
    case CompensatorId::kDiana:
      if (aggregation != Aggregation::kAdditive) {
        return "both sides must add up the same differences, which needs frames that are summed";
      }
      if (traits.lossless) return "there is no error to compensate";
      if (!traits.unbiased) return NeedsUnbiased();
      return "";
  }
  return "";
}

absl::string_view DownlinkRefusal(const CodecSpec& spec) {
  switch (FindCodec(spec.codec).aggregation) {
    case Aggregation::kSketch:
      return "the shard recovers the largest elements itself; send them with a sparse codec";
    case Aggregation::kPerSender:
      return "the receiver must remember what each sender sent, and workers keep no such memory";
    case Aggregation::kAdditive:
    case Aggregation::kVote:
      break;
  }
  switch (spec.compensator.id) {
    case CompensatorId::kDgc:
      return "momentum correction belongs to the workers' gradients";
    case CompensatorId::kEf21:
    case CompensatorId::kDiana:
      return "the receiver must add up the differences, and workers keep no such memory";
    case CompensatorId::kErrorFeedback:
    case CompensatorId::kNone:
      break;
  }
  return "";
}

absl::Span<const CompensatorId> Compensators() { return kCompensators; }

absl::string_view CompensatorName(CompensatorId compensator) {
  switch (compensator) {
    case CompensatorId::kErrorFeedback:
      return "ef";
    case CompensatorId::kNone:
      return "noef";
    case CompensatorId::kDgc:
      return "dgc";
    case CompensatorId::kEf21:
      return "ef21";
    case CompensatorId::kDiana:
      return "diana";
  }
  return "";
}

}  // namespace sluice::compress
