// SPDX-License-Identifier: Apache-2.0
// TokenBucket: the number of bytes that one direction of a link may carry now. Pure: the caller
// passes the time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice::cli {

class TokenBucket {
 public:
  // The bucket starts full. `burst_bytes` is the number of bytes that an idle link may send at
  // once.
  TokenBucket(double bytes_per_second, double burst_bytes, absl::Time now)
      : rate_(bytes_per_second), burst_(burst_bytes), tokens_(burst_bytes), filled_at_(now) {}

  void Refill(absl::Time now) {
    if (now <= filled_at_) return;
    tokens_ = std::min(burst_, tokens_ + rate_ * absl::ToDoubleSeconds(now - filled_at_));
    filled_at_ = now;
  }
  // Number of whole bytes that may be sent now.
  int64_t available() const { return static_cast<int64_t>(tokens_); }
  // `bytes` must be at most available().
  void Take(int64_t bytes) { tokens_ -= static_cast<double>(bytes); }
  // Returns the time from the last Refill until `bytes` (at most the burst) are available.
  absl::Duration TimeUntil(int64_t bytes) const {
    const double missing = std::min(static_cast<double>(bytes), burst_) - tokens_;
    return missing <= 0 ? absl::ZeroDuration() : absl::Seconds(missing / rate_);
  }

 private:
  double rate_;
  double burst_;
  double tokens_;
  absl::Time filled_at_;
};

}  // namespace sluice::cli
