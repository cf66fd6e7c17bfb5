// SPDX-License-Identifier: Apache-2.0
// SteadyDeadline: returns a gRPC deadline by the steady clock, which cannot be adjusted.
#pragma once

#include <grpcpp/support/time.h>

#include "absl/time/time.h"

namespace sluice::net {

inline gpr_timespec SteadyDeadline(absl::Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN));
}

}  // namespace sluice::net
