// SPDX-License-Identifier: Apache-2.0
// LogLimit: limits one kind of log line to one line per second, so that other processes cannot
// flood the log. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace sluice {

class LogLimit {
 public:
  // Returns nullopt if the caller must omit the line. Otherwise returns the number of lines that
  // were omitted since the last written line.
  std::optional<uint64_t> Say(absl::Time now) {
    if (now < next_) {
      ++left_out_;
      return std::nullopt;
    }
    next_ = now + absl::Seconds(1);
    return std::exchange(left_out_, 0);
  }

 private:
  absl::Time next_ = absl::InfinitePast();
  uint64_t left_out_ = 0;
};

}  // namespace sluice
