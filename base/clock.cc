// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <chrono>

namespace sluice {

absl::Time SteadyClock::Now() const {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return absl::UnixEpoch() + absl::FromChrono(since);
}

}  // namespace sluice
