// SPDX-License-Identifier: Apache-2.0
// WeightsDescription: how a job's parameters are divided among its shards, for followers, which
// read them while the job runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/element_type.h"
#include "follow/model_assembly.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

struct WeightsDescription {
  std::string job;
  uint64_t job_uid = 0;
  TensorTable table;
  LayoutParameters layout;
  std::vector<bool> whole_rows;  // By tensor; empty if none is set. See BuildLayout.
  // Address of each shard. An empty one stands for the address that sent the description.
  std::vector<std::string> addresses;
  std::vector<compress::ElementType> types;  // Offered to followers.

  uint32_t shards() const { return static_cast<uint32_t>(addresses.size()); }
  friend bool operator==(const WeightsDescription&, const WeightsDescription&) = default;
};

// Returns how the trained tensors of the table are divided. Buffers are left out: shards keep no
// values of them. Fails with INVALID_ARGUMENT if a tensor has a name or a shape that patches do not
// allow (follow/tensor_layout.h).
absl::StatusOr<follow::ModelParts> PartsOfWeights(const TensorTable& table, const Layout& layout);

// Does the same for a description. Fails also if the table cannot be divided.
absl::StatusOr<follow::ModelParts> PartsOfWeights(const WeightsDescription& description);

}  // namespace sluice::protocol
