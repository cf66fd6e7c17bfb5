// SPDX-License-Identifier: Apache-2.0
// The notices of both guards of contributions.
#pragma once

#include <cstdint>
#include <string>

#include "job/guard_spec.h"
#include "server/shard/notice.h"

namespace sluice::server {

// A warning about a rank's contributions.
Notice RankNotice(uint64_t step, uint32_t rank, std::string text);
// Says that a contribution has `ratio` times the median norm, and what happens to it.
Notice OutlierNotice(const job::GuardSpec& spec, uint64_t step, uint32_t rank, double ratio);

}  // namespace sluice::server
