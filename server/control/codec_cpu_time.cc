#include "server/control/codec_cpu_time.h"

#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
namespace {

// Cost in nanoseconds per element.
struct Nanoseconds {
  double encode = 0;  // Encoding, feedback and checksum.
  double add = 0;     // Adding a frame to a sum or to parameters.
};

Nanoseconds CostOf(const compress::CodecSpec& spec, const CodecRateDistortion& price) {
  switch (spec.codec) {
    case compress::CodecId::kNone:
      return {0.7, 0.5};
    case compress::CodecId::kFp16:
    case compress::CodecId::kBf16:
      return {1.0, 0.3};
    case compress::CodecId::kInt8:
      return {1.4, 0.15};
    case compress::CodecId::kInt4:
    case compress::CodecId::kInt2:
      return {1.5, 0.15};
    case compress::CodecId::kSign:
    case compress::CodecId::kOneBit:
      return {1.2, 0.15};
    case compress::CodecId::kTernary:
      return {1.2 + price.bits, price.bits};
    case compress::CodecId::kEden:
      return {3.5, 3};
    // Sparse codecs must find the threshold, and each kept element costs a cache miss.
    default:
      return {1.25 + 12 * spec.level, 7.4 * spec.level};
  }
}

}  // namespace

absl::StatusOr<CodecCpuTime> UsualCost(const compress::CodecSpec& spec, uint64_t elements,
                                       uint64_t shard_elements, uint32_t ranks) {
  const absl::StatusOr<CodecRateDistortion> price = PriceOf(spec);
  if (!price.ok()) return price.status();
  const Nanoseconds one = CostOf(spec, *price);
  const double whole = 1e-9 * static_cast<double>(elements);
  const double part = 1e-9 * static_cast<double>(shard_elements);
  return CodecCpuTime{.spec = spec,
                      .encode_s = whole * one.encode,
                      .server_s = part * (ranks * one.add + one.encode),
                      .apply_s = whole * one.add};
}

}  // namespace sluice::server
