// SPDX-License-Identifier: Apache-2.0
// PlanBytes: the expected bytes of a step's frames under a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/tensor_table.h"

namespace sluice::server {

struct PlanBytes {
  std::vector<double> up{};  // By rank.
  double down = 0;           // Bytes that each rank receives.
};

// Uses the prices of server/control/codec_rate_distortion.h. Returns nothing if a codec's price is
// not known.
std::optional<PlanBytes> BytesUnder(const protocol::CompressionPlan& plan,
                                    const protocol::CompressionSpec& compression,
                                    const protocol::TensorTable& table, uint32_t ranks);

}  // namespace sluice::server
