// Median: the middle one of some values, of an even number the upper one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace sluice::server {

// Of at least one value.
inline double Median(std::vector<double> values) {
  Check(!values.empty(), "a median is of some values");
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice::server
