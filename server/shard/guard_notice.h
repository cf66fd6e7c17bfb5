// What both guards of contributions share: the median that bounds norms, and the notice that names
// a rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/guard_spec.h"
#include "server/shard/notice.h"

namespace sluice::server {

// Returns the median; of an even number of values, the lower of the two in the middle, so that one
// of two groups of equal size cannot raise the bound with its own norms. There must be a value.
double LowerMedian(std::vector<double> values);

// A warning about a rank's contributions.
Notice RankNotice(uint64_t step, uint32_t rank, std::string text);
// Says that a contribution has `ratio` times the median norm, and what happens to it.
Notice OutlierNotice(const job::GuardSpec& spec, uint64_t step, uint32_t rank, double ratio);

}  // namespace sluice::server
