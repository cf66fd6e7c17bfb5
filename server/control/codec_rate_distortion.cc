// SPDX-License-Identifier: Apache-2.0
#include "server/control/codec_rate_distortion.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/codec_table.h"

namespace sluice::server {

absl::StatusOr<compress::CodecPrice> PriceOf(const compress::CodecSpec& spec) {
  compress::CodecPrice (*const price)(const compress::CodecSpec&) =
      compress::FindCodec(spec.codec).facts.price;
  if (price != nullptr) return price(spec);
  return absl::InvalidArgumentError(
      absl::StrCat("a plan cannot choose ", compress::ToString(spec),
                   ": its bytes and its error are not known to control; use one of ",
                   compress::CodecsOfPlans(", ")));
}

}  // namespace sluice::server
