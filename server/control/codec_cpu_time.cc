// SPDX-License-Identifier: Apache-2.0
#include "server/control/codec_cpu_time.h"

#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
absl::StatusOr<CodecCpuTime> UsualCost(const compress::CodecSpec& spec, uint64_t elements,
                                       uint64_t shard_elements, uint32_t ranks) {
  const absl::StatusOr<CodecRateDistortion> price = PriceOf(spec);
  if (!price.ok()) return price.status();
  const double whole = 1e-9 * static_cast<double>(elements);
  const double part = 1e-9 * static_cast<double>(shard_elements);
  return CodecCpuTime{.spec = spec,
                      .encode_s = whole * price->encode_ns,
                      .server_s = part * (ranks * price->add_ns + price->encode_ns),
                      .apply_s = whole * price->add_ns};
}

}  // namespace sluice::server
