#include "compress/codec_table.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compress/codecs/blocktopk.h"
#include "compress/codecs/countsketch.h"
#include "compress/codecs/eden.h"
#include "compress/codecs/fp8.h"
#include "compress/codecs/half.h"
#include "compress/codecs/intsum.h"
#include "compress/codecs/linear.h"
#include "compress/codecs/lsh.h"
#include "compress/codecs/natural.h"
#include "compress/codecs/none.h"
#include "compress/codecs/powersgd.h"
#include "compress/codecs/qsgd.h"
#include "compress/codecs/randomk.h"
#include "compress/codecs/sign.h"
#include "compress/codecs/sparse.h"
#include "compress/codecs/ternary.h"
#include "compress/codecs/terngrad.h"

namespace sluice::compress {
namespace {

constexpr CodecEntry kCodecs[] = {
    {CodecId::kNone, "none", "none", "unchanged fp32", LevelKind::kNone, "", 0, 0, 0, false,
     Aggregation::kAdditive, &MakeNone},
    {CodecId::kFp16, "fp16", "fp16", "IEEE half precision: 2x, for small tensors and as baseline",
     LevelKind::kNone, "", 0, 0, kStochastic, false, Aggregation::kAdditive, &MakeHalf},
    {CodecId::kBf16, "bf16", "bf16", "upper half of fp32: 2x, no overflow, 8 bits of precision",
     LevelKind::kNone, "", 0, 0, kStochastic, false, Aggregation::kAdditive, &MakeHalf},
    {CodecId::kInt8, "int8", "int8", "8 bits with a scale per 256 elements: 4x", LevelKind::kNone,
     "", 0, 0, kStochastic | kMinMax, false, Aggregation::kAdditive, &MakeLinear},
    {CodecId::kFp8, "fp8", "fp8", "8-bit floats (e4m3, or e5m2) with a scale per 256 elements: 4x",
     LevelKind::kNone, "", 0, 0, kStochastic | kE5m2, false, Aggregation::kAdditive, &MakeFp8},
    {CodecId::kInt4, "int4", "int4", "4 bits with a scale per 256 elements: 8x", LevelKind::kNone,
     "", 0, 0, kStochastic | kMinMax, false, Aggregation::kAdditive, &MakeLinear},
    {CodecId::kInt2, "int2", "int2", "-1, 0 or 1 times the largest of 256 elements: 15x",
     LevelKind::kNone, "", 0, 0, kStochastic, false, Aggregation::kAdditive, &MakeLinear},
    {CodecId::kQsgd, "qsgd", "qsgd:4", "unbiased: 2 to 8 bits, rounded at random: 8x at 4",
     LevelKind::kInteger, "bits", 2, 8, 0, false, Aggregation::kAdditive, &MakeQsgd},
    {CodecId::kTernGrad, "terngrad", "terngrad",
     "random signs, unbiased except for the largest values: about 25x", LevelKind::kNone, "", 0, 0,
     0, false, Aggregation::kAdditive, &MakeTernGrad},
    {CodecId::kNatural, "natural", "natural",
     "unbiased: powers of two, rounded at random: about 6x", LevelKind::kNone, "", 0, 0, 0, false,
     Aggregation::kAdditive, &MakeNatural},
    {CodecId::kSignSgd, "signsgd", "signsgd",
     "signs only; the shard answers with the majority's sign: 31x, for small rates",
     LevelKind::kNone, "", 0, 0, 0, false, Aggregation::kVote, &MakeSignSgd},
    {CodecId::kSign, "sign", "sign", "signs and the mean magnitude of 1024 elements: 31x",
     LevelKind::kNone, "", 0, 0, 0, false, Aggregation::kAdditive, &MakeSign},
    {CodecId::kOneBit, "onebit", "onebit",
     "1-bit SGD: signs and two means, above zero and below: 31x", LevelKind::kNone, "", 0, 0, 0,
     false, Aggregation::kAdditive, &MakeOneBit},
    {CodecId::kTernary, "ternary", "ternary:0.5",
     "signs of values that reach a share of their block's largest: about 50x at 0.5",
     LevelKind::kShare, "threshold", 0, 1, kIndex, false, Aggregation::kAdditive, &MakeTernary},
    {CodecId::kTopK, "topk", "topk:1%+int4",
     "the largest share of elements, values fp16, +int8, +int4 or +sign: about 210x at 1%+int4",
     LevelKind::kShare, "density", 0, 1, kTensorScope | kIndex, true, Aggregation::kAdditive,
     &MakeTopK},
    {CodecId::kTopKExact, "topk_exact", "topk_exact:1%+int4",
     "exactly the largest share of each chunk: slower, and no better than topk", LevelKind::kShare,
     "density", 0, 1, kIndex, true, Aggregation::kAdditive, &MakeTopKExact},
    {CodecId::kThreshold, "threshold", "threshold:1e-3+int4",
     "all elements of at least this magnitude: bytes follow the gradients' size",
     LevelKind::kPositive, "threshold", 0, 0, kIndex, true, Aggregation::kAdditive, &MakeThreshold},
    {CodecId::kBlockTopK, "blocktopk", "blocktopk:64",
     "the largest element of each block: about 93x at 64, and cheap to find",
     LevelKind::kPowerOfTwo, "block", 4, 4096, 0, true, Aggregation::kAdditive, &MakeBlockTopK},
    {CodecId::kRandomK, "randomk", "randomk:5%",
     "a random share of elements, equal for all senders: no positions; 40x at 5%",
     LevelKind::kShare, "density", 0, 1, kUnbiased, true, Aggregation::kAdditive, &MakeRandomK},
    {CodecId::kCountSketch, "countsketch", "countsketch:10x",
     "tables that shards add and search for the largest; topk is better at equal bytes",
     LevelKind::kRatio, "ratio", 2, 100, 0, false, Aggregation::kSketch, &MakeCountSketch},
    {CodecId::kLsh, "lsh", "lsh",
     "one gain per block with the direction of an earlier block, int8 for others: from 4x",
     LevelKind::kNone, "", 0, 0, 0, false, Aggregation::kPerSender, &MakeLsh},
    {CodecId::kPowerSgd, "powersgd", "powersgd:4",
     "matrices as products of two thin ones, from one power iteration per step",
     LevelKind::kInteger, "rank", 1, 32, 0, false, Aggregation::kAdditive, &MakePowerSgd},
    {CodecId::kEden, "eden", "eden:2",
     "1 to 4 bits after a random rotation, unbiased without feedback: 16x at 2",
     LevelKind::kInteger, "bits", 1, 4, 0, false, Aggregation::kAdditive, &MakeEden},
    {CodecId::kIntSum, "intsum", "intsum:4",
     "2, 4 or 8 bits in steps all senders share: the shard adds integers; 8x at 4",
     LevelKind::kPowerOfTwo, "bits", 2, 8, 0, false, Aggregation::kAdditive, &MakeIntSum},
};

constexpr CompensatorId kCompensators[] = {CompensatorId::kErrorFeedback, CompensatorId::kNone,
                                           CompensatorId::kDgc, CompensatorId::kEf21,
                                           CompensatorId::kDiana};

// Returns the variance for blocks of `block` elements that are randomly rounded to multiples of a
// step = largest magnitude / `codes`. The variance of an element is at most step^2 / 4, or step
// times |x| if that is less.
double VarianceOfCodes(double block, double codes) {
  return std::min(block / (4 * codes * codes), std::sqrt(block) / (2 * codes));
}

// Returns the variance for randomly rounded floats with `mantissa` bits of mantissa. At the bottom
// of an octave, this is a quarter of the square of a step.
double VarianceOfFloats(int mantissa) { return std::exp2(-2 * mantissa) / 4; }

}  // namespace

absl::Span<const CodecEntry> Codecs() { return kCodecs; }

const CodecEntry& FindCodec(CodecId id) {
  for (const CodecEntry& entry : kCodecs) {
    if (entry.id == id) return entry;
  }
  Check(false, "every codec is in the table");
  return kCodecs[0];
}

std::unique_ptr<Codec> MakeCodec(const CodecSpec& spec) { return FindCodec(spec.codec).make(spec); }

CodecTraits TraitsOf(CodecId codec, uint32_t options) {
  const bool stochastic = (options & kStochastic) != 0;
  switch (codec) {
    case CodecId::kNone:
      return {.lossless = true, .unbiased = true, .contractive = true};
    case CodecId::kFp16:
    case CodecId::kBf16:
    case CodecId::kFp8:
    case CodecId::kInt8:
      return {.unbiased = stochastic, .contractive = true};
    case CodecId::kInt4:
    case CodecId::kInt2:
      // Random rounding may change every element of a block by almost one step.
      return {.unbiased = stochastic, .contractive = !stochastic};
    case CodecId::kNatural:
      return {.unbiased = true, .contractive = true};
    case CodecId::kQsgd:
      return {.unbiased = true};
    case CodecId::kTernGrad:
      return {.unbiased = true, .clips = true};
    case CodecId::kEden:
      // With feedback, the codec uses the scale with the least error instead of the unbiased scale.
      return {.unbiased = true, .contractive = true};
    case CodecId::kSignSgd:
      return {};
    case CodecId::kSign:
    case CodecId::kOneBit:
    case CodecId::kIntSum:
    case CodecId::kLsh:
    case CodecId::kPowerSgd:
      return {.contractive = true};
    case CodecId::kTernary:
    case CodecId::kTopK:
    case CodecId::kTopKExact:
    case CodecId::kThreshold:
    case CodecId::kBlockTopK:
      return {.contractive = true, .sparse = true};
    case CodecId::kCountSketch:
      // The codec may publish a value for an element that is zero. That value is at most the
      // contents of the element's cells.
      return {.sparse = true};
    case CodecId::kRandomK: {
      const bool unbiased = (options & kUnbiased) != 0;
      return {.unbiased = unbiased, .contractive = !unbiased, .sparse = true};
    }
  }
  return {};
}

double VarianceBound(const CodecSpec& spec) {
  constexpr double kLinearBlock = 256;
  // These constants hold for any x, because the random rotation makes the values Gaussian.
  constexpr double kEden[] = {0.571, 0.1328, 0.0358, 0.00959};
  const double codes = std::exp2(spec.level - 1) - 1;
  switch (spec.codec) {
    case CodecId::kFp16:
      return VarianceOfFloats(10);
    case CodecId::kBf16:
      return VarianceOfFloats(7);
    case CodecId::kFp8:
      return VarianceOfFloats(spec.has(kE5m2) ? 2 : 3);
    case CodecId::kInt8:
    case CodecId::kInt4:
    case CodecId::kInt2: {
      const int bits = spec.codec == CodecId::kInt8 ? 8 : spec.codec == CodecId::kInt4 ? 4 : 2;
      // The step derives from max - min, whose square is at most 2 |x|^2. Zero is not one of the
      // codes.
      if (spec.has(kMinMax)) return kLinearBlock / (2 * std::pow(std::exp2(bits) - 1, 2));
      return VarianceOfCodes(kLinearBlock, std::exp2(bits - 1) - 1);
    }
    case CodecId::kQsgd:
      return VarianceOfCodes(512, codes);
    case CodecId::kTernGrad:
      // The variance is sum |x| (s - |x|), with s at most 2.5 times the root mean square.
      return 1.5;
    case CodecId::kNatural:
      return 0.125;
    case CodecId::kEden:
      return kEden[static_cast<size_t>(spec.level) - 1];
    case CodecId::kRandomK:
      return std::ceil(1 / spec.level) - 1;
    default:
      return 0;
  }
}

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
      if (!traits.unbiased)
        return "it needs an unbiased codec: sr, qsgd, terngrad, natural, eden, or randomk with "
               "unbiased";
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
