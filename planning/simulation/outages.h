// SPDX-License-Identifier: Apache-2.0
// Outages of workers, from a trace or drawn from a seed. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planning/simulation/cluster.h"

namespace sluice::planning {

// The most lines of a trace, and the most outages that are drawn.
inline constexpr size_t kOutagesMax = 10'000'000;

// Reads a trace. Each line has a time in seconds, a worker's rank, and `down` or `up`, in order of
// times. A # starts a comment. A worker that does not come back is down until the end of the job.
// Fails with INVALID_ARGUMENT and names the line.
absl::StatusOr<std::vector<Outage>> ParseOutages(absl::string_view trace, uint32_t workers);

struct FailureSpec {
  double mtbf_s = 0;    // Mean time between the failures of one worker; exponential. 0: no failure.
  double repair_s = 0;  // Mean time until it is back; exponential.
};

// Draws the outages that begin before `until_s`. Equal arguments give equal outages. Fails with
// INVALID_ARGUMENT if a time is not positive, and with RESOURCE_EXHAUSTED if there are more than
// kOutagesMax.
absl::StatusOr<std::vector<Outage>> DrawOutages(const FailureSpec& failures, uint32_t workers,
                                                double until_s, uint64_t seed);

}  // namespace sluice::planning
