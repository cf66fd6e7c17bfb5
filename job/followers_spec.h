// SPDX-License-Identifier: Apache-2.0
// FollowersSpec: who may read the parameters of a running job (section `followers` of a job file).
#pragma once

#include <cstdint>
#include <vector>

#include "compress/element_type.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

struct FollowersSpec {
  // Number formats that followers may ask for. Empty if the job has no followers.
  std::vector<compress::ElementType> types;
  uint64_t every = protocol::defaults::kFollowersEvery;  // Exchanges from one version to the next.
  // A shard or a relay accepts this many followers.
  uint32_t max_connected = protocol::defaults::kFollowersMaxConnected;

  bool enabled() const { return !types.empty(); }
};

}  // namespace sluice::job
