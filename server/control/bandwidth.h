// The policy `bandwidth`: as faithful as the links allow without a step taking longer for it.
//
// The target is communication hidden behind computing, or a step time. LinkBudget turns it into
// bytes for each rank and for the results; a spending turns bytes into codecs: one threshold over
// all tensors where the candidates are one sparse codec, the least loss over codecs otherwise.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/control/policy.h"
#include "server/control/spending.h"

namespace sluice::server {

struct BandwidthOptions {
  uint32_t ranks = 1;
  std::vector<ControlledTensor> tensors{};
  // What a plan may choose; one of them sparse and no other: its density is what changes.
  std::vector<compress::CodecSpec> candidates{};
  SparseSpending sparse{};  // Its codec is taken from the candidates.
  // Until links are known.
  compress::CodecSpec first{};
  // How long a step may take; none: as long as it computes.
  std::optional<double> step_time_s{};
  // The share of computing that communication can be hidden behind: from the first gradients to
  // the end of backward.
  double overlap = 0.7;
};

// INVALID_ARGUMENT names what is wrong: no rank, no tensor, candidates whose price is not known, a
// step time or an overlap that cannot be.
absl::StatusOr<std::unique_ptr<Policy>> MakeBandwidthPolicy(BandwidthOptions options);

}  // namespace sluice::server
