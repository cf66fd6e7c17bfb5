// SPDX-License-Identifier: Apache-2.0
// FetchMetrics: reads /metrics of a process over plain HTTP.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::cli {

struct MetricsLimits {
  absl::Duration time = absl::Seconds(5);  // Limit for all addresses of the name together.
  size_t bytes = 8 << 20;                  // Maximum size of the answer.
};

// `address` is HOST:PORT or [IPv6]:PORT. The call blocks for at most the time limit and the
// system's own limit for looking up HOST.
absl::StatusOr<std::string> FetchMetrics(const std::string& address, const MetricsLimits& limits);

// Returns the body of a complete HTTP answer with status 200. Pure.
absl::StatusOr<std::string> BodyOf(absl::string_view answer);

}  // namespace sluice::cli
