// SPDX-License-Identifier: Apache-2.0
// LowerMedian: the median of what ranks sent, as a bound for what one rank may have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sluice::server {

// Returns the median; of an even number of values, the lower of the two in the middle, so that one
// of two groups of equal size cannot raise the bound with its own values. There must be a value.
inline double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice::server
