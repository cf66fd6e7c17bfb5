#include "server/control/codec_cost.h"

#include "server/control/codec_price.h"

namespace sluice::server {
namespace {

// Nanoseconds an element.
struct Nanoseconds {
  double encode = 0;  // With feedback and checksum.
  double add = 0;     // A frame to a sum, or to parameters.
};

Nanoseconds CostOf(const compress::CodecSpec& spec, const CodecPrice& price) {
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
    default:  // A sparse one: finding the threshold, and every kept element a miss of the caches.
      return {1.25 + 12 * spec.level, 7.4 * spec.level};
  }
}

}  // namespace

absl::StatusOr<CodecCost> UsualCost(const compress::CodecSpec& spec, uint64_t elements,
                                    uint64_t shard_elements, uint32_t ranks) {
  const absl::StatusOr<CodecPrice> price = PriceOf(spec);
  if (!price.ok()) return price.status();
  const Nanoseconds one = CostOf(spec, *price);
  const double whole = 1e-9 * static_cast<double>(elements);
  const double part = 1e-9 * static_cast<double>(shard_elements);
  return CodecCost{.spec = spec,
                   .encode_s = whole * one.encode,
                   .server_s = part * (ranks * one.add + one.encode),
                   .apply_s = whole * one.add};
}

}  // namespace sluice::server
