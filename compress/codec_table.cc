// SPDX-License-Identifier: Apache-2.0
#include "compress/codec_table.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
#include "compress/coding/low_rank.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress {
namespace {

using gpu::Algorithm;
using gpu::Coding;

bool IsStochastic(uint32_t options) { return (options & kStochastic) != 0; }

// Traits of codecs.
CodecTraits NoTraits(uint32_t) { return {}; }
CodecTraits Lossless(uint32_t) { return {.lossless = true, .unbiased = true, .contractive = true}; }
CodecTraits Rounds(uint32_t options) {
  return {.unbiased = IsStochastic(options), .contractive = true};
}
// Random rounding may change every element of a block by almost one step.
CodecTraits RoundsCoarsely(uint32_t options) {
  return {.unbiased = IsStochastic(options), .contractive = !IsStochastic(options)};
}
CodecTraits Unbiased(uint32_t) { return {.unbiased = true}; }
CodecTraits UnbiasedButClips(uint32_t) { return {.unbiased = true, .clips = true}; }
// With feedback, eden uses the scale with the least error instead of the unbiased scale.
CodecTraits UnbiasedContractive(uint32_t) { return {.unbiased = true, .contractive = true}; }
CodecTraits Contractive(uint32_t) { return {.contractive = true}; }
CodecTraits Sparse(uint32_t) { return {.contractive = true, .sparse = true}; }
// countsketch may publish a value for an element that is zero. That value is at most the contents
// of the element's cells.
CodecTraits SparseNotContractive(uint32_t) { return {.sparse = true}; }
CodecTraits RandomKTraits(uint32_t options) {
  const bool unbiased = (options & kUnbiased) != 0;
  return {.unbiased = unbiased, .contractive = !unbiased, .sparse = true};
}

// Returns the variance for blocks of `block` elements that are randomly rounded to multiples of a
// step = largest magnitude / `codes`. The variance of an element is at most step^2 / 4, or step
// times |x| if that is less.
double VarianceOfCodes(double block, double codes) {
  return std::min(block / (4 * codes * codes), std::sqrt(block) / (2 * codes));
}

// Returns the variance for randomly rounded floats with `mantissa` bits of mantissa. At the bottom
// of an octave, this is a quarter of the square of a step.
double VarianceOfFloats(int mantissa) { return std::exp2(-2 * mantissa) / 4; }

template <int kMantissa>
double FloatVariance(const CodecSpec&) {
  return VarianceOfFloats(kMantissa);
}
double Fp8Variance(const CodecSpec& spec) { return VarianceOfFloats(spec.has(kE5m2) ? 2 : 3); }
template <int kBits>
double LinearVariance(const CodecSpec& spec) {
  constexpr double kBlock = 256;
  // The step derives from max - min, whose square is at most 2 |x|^2. Zero is not one of the codes.
  if (spec.has(kMinMax)) return kBlock / (2 * std::pow(std::exp2(kBits) - 1, 2));
  return VarianceOfCodes(kBlock, std::exp2(kBits - 1) - 1);
}
double QsgdVariance(const CodecSpec& spec) {
  return VarianceOfCodes(512, std::exp2(spec.level - 1) - 1);
}
// The variance is sum |x| (s - |x|), with s at most 2.5 times the root mean square.
double TernGradVariance(const CodecSpec&) { return 1.5; }
double NaturalVariance(const CodecSpec&) { return 0.125; }
double RandomKVariance(const CodecSpec& spec) { return std::ceil(1 / spec.level) - 1; }

// Prices.
constexpr CodecPrice kNonePrice = {.bits = 32, .error = 0, .encode_ns = 0.7, .add_ns = 0.5};
constexpr CodecPrice kHalfPrice = {.bits = 16, .error = 1e-6, .encode_ns = 1.0, .add_ns = 0.3};
constexpr CodecPrice kInt8Price = {.bits = 8.13, .error = 5e-5, .encode_ns = 1.4, .add_ns = 0.15};
constexpr CodecPrice kInt4Price = {.bits = 4.13, .error = 0.011, .encode_ns = 1.5, .add_ns = 0.15};
constexpr CodecPrice kInt2Price = {.bits = 1.7, .error = 0.53, .encode_ns = 1.5, .add_ns = 0.15};
constexpr CodecPrice kSignPrice = {.bits = 1.03, .error = 0.36, .encode_ns = 1.2, .add_ns = 0.15};
template <const CodecPrice& kPrice>
CodecPrice Priced(const CodecSpec&) {
  return kPrice;
}

// Shares of the values that a codec sends.
double All(const CodecSpec&) { return 1; }
double AlmostNone(const CodecSpec&) { return 0; }
double LevelSent(const CodecSpec& spec) { return spec.level; }
double OneOfLevelSent(const CodecSpec& spec) { return 1 / spec.level; }

bool Always(const CodecSpec&) { return true; }
bool Never(const CodecSpec&) { return false; }
bool UpToTwoBits(const CodecSpec& spec) { return spec.level <= 2; }

// Algorithms of GPUs.
template <Algorithm kAlgorithm>
void On(const CodecSpec&, size_t, uint32_t, Coding* coding) {
  coding->algorithm = kAlgorithm;
}
template <Algorithm kAlgorithm>
void WithLevelOnGpu(const CodecSpec& spec, size_t, uint32_t, Coding* coding) {
  coding->algorithm = kAlgorithm;
  coding->bits = static_cast<uint8_t>(spec.level);
}
void Fp8OnGpu(const CodecSpec& spec, size_t, uint32_t, Coding* coding) {
  coding->algorithm = spec.has(kE5m2) ? Algorithm::kFp8E5m2 : Algorithm::kFp8;
}
template <uint8_t kBits>
void LinearOnGpu(const CodecSpec& spec, size_t, uint32_t, Coding* coding) {
  coding->algorithm = spec.has(kMinMax) ? Algorithm::kMinMax : Algorithm::kLinear;
  coding->bits = kBits;
}
void TernaryOnGpu(const CodecSpec& spec, size_t, uint32_t, Coding* coding) {
  coding->algorithm = Algorithm::kTernary;
  coding->share = static_cast<float>(spec.level);
}
void BlockTopKOnGpu(const CodecSpec& spec, size_t, uint32_t, Coding* coding) {
  coding->algorithm = Algorithm::kBlockTopK;
  coding->bits = static_cast<uint8_t>(std::countr_zero(static_cast<uint32_t>(spec.level)));
}
void RandomKOnGpu(const CodecSpec& spec, size_t, uint32_t, Coding* coding) {
  coding->algorithm = Algorithm::kRandomK;
  coding->unbiased = spec.has(kUnbiased);
}
void PowerSgdOnGpu(const CodecSpec& spec, size_t count, uint32_t rows, Coding* coding) {
  const auto rank = static_cast<size_t>(spec.level);
  const bool is_matrix = LowRankShapeFor(count, rows, rank).rows > 0;
  coding->algorithm = is_matrix ? Algorithm::kPowerSgd : Algorithm::kFp16;
  if (is_matrix) coding->bits = static_cast<uint8_t>(rank);
}

constexpr CodecFacts Facts(decltype(CodecFacts::traits) traits,
                           decltype(CodecFacts::variance) variance,
                           decltype(CodecFacts::price) price,
                           decltype(CodecFacts::density_in_plans) density_in_plans,
                           decltype(CodecFacts::share_sent) share_sent,
                           decltype(CodecFacts::one_bit) one_bit,
                           decltype(CodecFacts::coarse) coarse, decltype(CodecFacts::gpu) gpu) {
  return {.traits = traits,
          .variance = variance,
          .price = price,
          .density_in_plans = density_in_plans,
          .share_sent = share_sent,
          .one_bit = one_bit,
          .coarse = coarse,
          .gpu = gpu};
}

constexpr CodecEntry kCodecs[] = {
    {CodecId::kNone, "none", "none", "unchanged fp32", LevelKind::kNone, "", 0, 0, 0, false,
     Aggregation::kAdditive, &MakeNone,
     Facts(&Lossless, nullptr, &Priced<kNonePrice>, false, &All, false, &Never,
           &On<Algorithm::kFp32>)},
    {CodecId::kFp16, "fp16", "fp16", "IEEE half precision: 2x, for small tensors and as baseline",
     LevelKind::kNone, "", 0, 0, kStochastic, false, Aggregation::kAdditive, &MakeHalf,
     Facts(&Rounds, &FloatVariance<10>, &Priced<kHalfPrice>, false, &All, false, &Never,
           &On<Algorithm::kFp16>)},
    {CodecId::kBf16, "bf16", "bf16", "upper half of fp32: 2x, no overflow, 8 bits of precision",
     LevelKind::kNone, "", 0, 0, kStochastic, false, Aggregation::kAdditive, &MakeHalf,
     Facts(&Rounds, &FloatVariance<7>, &Priced<kHalfPrice>, false, &All, false, &Never,
           &On<Algorithm::kBf16>)},
    {CodecId::kInt8, "int8", "int8", "8 bits with a scale per 256 elements: 4x", LevelKind::kNone,
     "", 0, 0, kStochastic | kMinMax, false, Aggregation::kAdditive, &MakeLinear,
     Facts(&Rounds, &LinearVariance<8>, &Priced<kInt8Price>, false, &All, false, &Never,
           &LinearOnGpu<8>)},
    {CodecId::kFp8, "fp8", "fp8", "8-bit floats (e4m3, or e5m2) with a scale per 256 elements: 4x",
     LevelKind::kNone, "", 0, 0, kStochastic | kE5m2, false, Aggregation::kAdditive, &MakeFp8,
     Facts(&Rounds, &Fp8Variance, nullptr, false, &All, false, &Never, &Fp8OnGpu)},
    {CodecId::kInt4, "int4", "int4", "4 bits with a scale per 256 elements: 8x", LevelKind::kNone,
     "", 0, 0, kStochastic | kMinMax, false, Aggregation::kAdditive, &MakeLinear,
     Facts(&RoundsCoarsely, &LinearVariance<4>, &Priced<kInt4Price>, false, &All, false, &Never,
           &LinearOnGpu<4>)},
    {CodecId::kInt2, "int2", "int2", "-1, 0 or 1 times the largest of 256 elements: 15x",
     LevelKind::kNone, "", 0, 0, kStochastic, false, Aggregation::kAdditive, &MakeLinear,
     Facts(&RoundsCoarsely, &LinearVariance<2>, &Priced<kInt2Price>, false, &All, false, &Always,
           &LinearOnGpu<2>)},
    {CodecId::kQsgd, "qsgd", "qsgd:4", "unbiased: 2 to 8 bits, rounded at random: 8x at 4",
     LevelKind::kInteger, "bits", 2, 8, 0, false, Aggregation::kAdditive, &MakeQsgd,
     Facts(&Unbiased, &QsgdVariance, nullptr, false, &All, false, &Never,
           &WithLevelOnGpu<Algorithm::kQsgd>)},
    {CodecId::kTernGrad, "terngrad", "terngrad",
     "random signs, unbiased except for the largest values: about 25x", LevelKind::kNone, "", 0, 0,
     0, false, Aggregation::kAdditive, &MakeTernGrad,
     Facts(&UnbiasedButClips, &TernGradVariance, nullptr, false, &All, false, &Never, nullptr)},
    {CodecId::kNatural, "natural", "natural",
     "unbiased: powers of two, rounded at random: about 6x", LevelKind::kNone, "", 0, 0, 0, false,
     Aggregation::kAdditive, &MakeNatural,
     Facts(&UnbiasedContractive, &NaturalVariance, nullptr, false, &All, false, &Never,
           &On<Algorithm::kNatural>)},
    {CodecId::kSignSgd, "signsgd", "signsgd",
     "signs only; the shard answers with the majority's sign: 31x, for small rates",
     LevelKind::kNone, "", 0, 0, 0, false, Aggregation::kVote, &MakeSignSgd,
     Facts(&NoTraits, nullptr, nullptr, false, &All, false, &Never, &On<Algorithm::kSignSgd>)},
    {CodecId::kSign, "sign", "sign", "signs and the mean magnitude of 1024 elements: 31x",
     LevelKind::kNone, "", 0, 0, 0, false, Aggregation::kAdditive, &MakeSign,
     Facts(&Contractive, nullptr, &Priced<kSignPrice>, false, &AlmostNone, true, &Always,
           &On<Algorithm::kSign>)},
    {CodecId::kOneBit, "onebit", "onebit",
     "1-bit SGD: signs and two means, above zero and below: 31x", LevelKind::kNone, "", 0, 0, 0,
     false, Aggregation::kAdditive, &MakeOneBit,
     Facts(&Contractive, nullptr, &Priced<kSignPrice>, false, &AlmostNone, true, &Always,
           &On<Algorithm::kOneBit>)},
    {CodecId::kTernary, "ternary", "ternary:0.5",
     "signs of values that reach a share of their block's largest: about 50x at 0.5",
     LevelKind::kShare, "threshold", 0, 1, kIndex, false, Aggregation::kAdditive, &MakeTernary,
     Facts(&Sparse, nullptr, &TernaryPrice, false, &AlmostNone, false, &Never, &TernaryOnGpu)},
    {CodecId::kTopK, "topk", "topk:1%+int4",
     "the largest elements, values fp16, +int8, +int4, +2bit or +sign: about 210x at 1%+int4",
     LevelKind::kShare, "density", 0, 1, kTensorScope | kIndex, true, Aggregation::kAdditive,
     &MakeTopK,
     Facts(&Sparse, nullptr, &SparsePrice, true, &LevelSent, false, &Never,
           &On<Algorithm::kThreshold>)},
    {CodecId::kTopKExact, "topk_exact", "topk_exact:1%+int4",
     "exactly the largest of each chunk, or with scope=block of each 64 x 64 tile: slower",
     LevelKind::kShare, "density", 0, 1, kBlockScope | kIndex, true, Aggregation::kAdditive,
     &MakeTopKExact,
     Facts(&Sparse, nullptr, &SparsePrice, true, &LevelSent, false, &Never, nullptr)},
    {CodecId::kThreshold, "threshold", "threshold:1e-3+int4",
     "all elements of at least this magnitude: bytes follow the gradients' size",
     LevelKind::kPositive, "threshold", 0, 0, kIndex, true, Aggregation::kAdditive, &MakeThreshold,
     Facts(&Sparse, nullptr, nullptr, false, &AlmostNone, false, &Never,
           &On<Algorithm::kThreshold>)},
    {CodecId::kBlockTopK, "blocktopk", "blocktopk:64",
     "the largest element of each block: about 93x at 64, and cheap to find",
     LevelKind::kPowerOfTwo, "block", 4, 4096, 0, true, Aggregation::kAdditive, &MakeBlockTopK,
     Facts(&Sparse, nullptr, nullptr, false, &OneOfLevelSent, false, &Never, &BlockTopKOnGpu)},
    {CodecId::kRandomK, "randomk", "randomk:5%",
     "a random share of elements, equal for all senders: no positions; 40x at 5%",
     LevelKind::kShare, "density", 0, 1, kUnbiased, true, Aggregation::kAdditive, &MakeRandomK,
     Facts(&RandomKTraits, &RandomKVariance, nullptr, false, &LevelSent, false, &Never,
           &RandomKOnGpu)},
    {CodecId::kCountSketch, "countsketch", "countsketch:10x",
     "tables that shards add and search for the largest; topk is better at equal bytes",
     LevelKind::kRatio, "ratio", 2, 100, 0, false, Aggregation::kSketch, &MakeCountSketch,
     Facts(&SparseNotContractive, nullptr, nullptr, false, &AlmostNone, false, &Never, nullptr)},
    {CodecId::kLsh, "lsh", "lsh",
     "one gain per block with the direction of an earlier block, int8 for others: from 4x",
     LevelKind::kNone, "", 0, 0, 0, false, Aggregation::kPerSender, &MakeLsh,
     Facts(&Contractive, nullptr, nullptr, false, &All, false, &Never, nullptr)},
    {CodecId::kPowerSgd, "powersgd", "powersgd:4",
     "matrices as products of two thin ones, from one power iteration per step",
     LevelKind::kInteger, "rank", 1, 32, 0, false, Aggregation::kAdditive, &MakePowerSgd,
     Facts(&Contractive, nullptr, nullptr, false, &All, false, &Always, &PowerSgdOnGpu)},
    {CodecId::kEden, "eden", "eden:2",
     "1 to 4 bits after a random rotation, unbiased without feedback: 16x at 2",
     LevelKind::kInteger, "bits", 1, 4, 0, false, Aggregation::kAdditive, &MakeEden,
     Facts(&UnbiasedContractive, &EdenVariance, &EdenPrice, false, &All, false, &Never,
           &WithLevelOnGpu<Algorithm::kEden>)},
    {CodecId::kIntSum, "intsum", "intsum:4",
     "2, 4 or 8 bits in steps all senders share: the shard adds integers; 8x at 4",
     LevelKind::kPowerOfTwo, "bits", 2, 8, 0, false, Aggregation::kAdditive, &MakeIntSum,
     Facts(&Contractive, nullptr, nullptr, false, &All, false, &UpToTwoBits,
           &WithLevelOnGpu<Algorithm::kIntSum>)},
};
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
  return FindCodec(codec).facts.traits.value()(options);
}

double VarianceBound(const CodecSpec& spec) {
  double (*const variance)(const CodecSpec&) = FindCodec(spec.codec).facts.variance;
  return variance == nullptr ? 0 : variance(spec);
}

bool MayChange(CodecId codec) { return FindCodec(codec).facts.price.value() != nullptr; }

std::string CodecsOfPlans(absl::string_view last) {
  std::vector<absl::string_view> names;
  for (const CodecEntry& entry : kCodecs) {
    if (MayChange(entry.id)) names.push_back(entry.name);
  }
  const absl::string_view end = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), last, end);
}

}  // namespace sluice::compress
