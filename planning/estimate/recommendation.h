// SPDX-License-Identifier: Apache-2.0
// Recommendation: searches codecs, shards, placements, relays and local steps with the model, and
// chooses with reasons.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planning/estimate/estimate.h"

namespace sluice::planning {

// A choice may take this much longer than the fastest one, if it loses less of the gradients or
// needs fewer machines.
inline constexpr double kWithin = 0.03;
// Local steps change the algorithm, so they are recommended only if the best exchange in each step
// leaves less than this share of the time to computing.
inline constexpr double kLocalStepsBelow = 0.7;

struct SearchLimits {
  bool codecs = true;       // Otherwise, those of the scenario.
  bool shards = true;       // Otherwise, the scenario's number.
  bool placement = true;    // Otherwise, the scenario's placement.
  bool relays = true;       // Considers relays if there are sites; otherwise, as in the scenario.
  bool local_steps = true;  // Otherwise, as in the scenario.
};

struct Choice {
  Scenario scenario{};
  Estimate estimate{};
};

struct Reason {
  std::string what;    // "codec up", "shards", ...
  std::string choice;  // "int8"
  std::string why;
};

struct Recommendation {
  Choice choice{};
  Choice fastest{};  // Of all considered choices that are of the same kind (with or without local
                     // steps).
  std::vector<Reason> reasons{};
  size_t considered = 0;
};

// Considers these codecs, from the mildest to the strongest (docs/choosing-a-codec.md): fp16, int8,
// int4, ternary:0.5, and topk:1%+int4 up with topk:3%+int4 down. Fails as EstimateOf does.
absl::StatusOr<Recommendation> Recommend(const Scenario& scenario, const MachineFigures& machine,
                                         const SearchLimits& limits);

}  // namespace sluice::planning
