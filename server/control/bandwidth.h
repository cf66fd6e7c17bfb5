// SPDX-License-Identifier: Apache-2.0
// The policy `bandwidth`: loses as little as the links allow without making a step longer.
//
// The target is either a step time or communication that is hidden behind computing. LinkBudget
// turns the target into bytes for each rank and for the results. A bit allocation turns the bytes
// into codecs. With a single sparse candidate, one threshold covers all tensors. Otherwise the
// allocation picks a candidate for each tensor so as to minimize the loss.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/job_defaults.h"
#include "server/control/bit_allocation.h"
#include "server/control/policy.h"

namespace sluice::server {

struct BandwidthOptions {
  uint32_t ranks = 1;
  std::vector<ControlledTensor> tensors{};
  // Codecs that a plan may choose. If the only candidate is sparse, a plan changes its density.
  std::vector<compress::CodecSpec> candidates{};
  SparseAllocation sparse{};  // The codec is taken from `candidates`.
  // The codec that is used until the links are known.
  compress::CodecSpec first{};
  // Target time of a step. If unset, the target is the compute time.
  std::optional<double> step_time_s{};
  // The share of computing that can hide communication. This share extends from the first gradients
  // to the end of the backward pass.
  double overlap = protocol::defaults::kControlOverlap;
};

// Fails with INVALID_ARGUMENT if there is no rank or tensor, if a candidate's price is not known,
// or if the step time or the overlap is out of range. The message names the fault.
absl::StatusOr<std::unique_ptr<Policy>> MakeBandwidthPolicy(BandwidthOptions options);

}  // namespace sluice::server
