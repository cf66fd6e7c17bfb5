// PlanBytes: what a step's frames come to under a plan, as control reckons it.
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
  double down = 0;           // To each rank.
};

// By the prices of server/control/codec_price.h. None: there is a codec whose price is not known.
std::optional<PlanBytes> BytesUnder(const protocol::CompressionPlan& plan,
                                    const protocol::CompressionSpec& compression,
                                    const protocol::TensorTable& table, uint32_t ranks);

}  // namespace sluice::server
