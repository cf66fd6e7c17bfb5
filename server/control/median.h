// SPDX-License-Identifier: Apache-2.0
// Median: the middle value, or the upper of the two middle values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace sluice::server {

// `values` must not be empty.
inline double Median(std::vector<double> values) {
  Check(!values.empty(), "a median is of some values");
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice::server
