// SPDX-License-Identifier: Apache-2.0
// The messages that carry an update in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compress/element_type.h"
#include "follow/model_assembly.h"
#include "follow/weights_version.h"
#include "sluice/v1/weights.pb.h"

namespace sluice::follow {

// Returns the limit for the bytes of one update of a shard: an anchor is the largest.
uint64_t LargestUpdate(const ModelParts& parts, size_t shard, compress::ElementType type);

// Writes the part of `update` that begins at `at` into `message`. Returns where the next part
// begins.
size_t WritePart(const WeightsUpdate& update, size_t at, v1::FollowReply* message);

// Puts the parts of updates together.
class UpdateParts {
 public:
  // Larger updates are refused.
  explicit UpdateParts(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Fails with INVALID_ARGUMENT if the parts do not fit together.
  absl::Status Add(const v1::FollowReply& message);
  bool complete() const { return !update_.empty() && update_.size() == expected_; }
  // Returns the complete update, and begins the next one.
  std::vector<std::byte> Take() { return std::exchange(update_, {}); }

 private:
  const uint64_t bytes_max_;
  uint64_t expected_ = 0;
  std::vector<std::byte> update_;
};

}  // namespace sluice::follow
