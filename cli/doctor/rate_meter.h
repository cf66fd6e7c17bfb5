// SPDX-License-Identifier: Apache-2.0
// RateMeter: the rate at which blocks arrive. Pure.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sluice::cli {

struct DoctorLimits {
  absl::Duration measuring = absl::Seconds(3);  // The longest time for one direction.
  uint64_t bytes = 256 << 20;                   // The most bytes in one direction.
  absl::Duration patience = absl::Seconds(10);  // For a connection, and for an answer.
};

// A connection starts slowly, so the rate omits the first third of a complete measurement.
class RateMeter {
 public:
  explicit RateMeter(const DoctorLimits& limits) : limits_(limits) {}

  void Add(uint64_t bytes, absl::Time now) {
    if (blocks_++ == 0) {
      first_ = from_ = now;
      from_bytes_ = bytes;
    } else if (from_ == first_ && now - first_ >= limits_.measuring / 3) {
      from_ = now;
      from_bytes_ = bytes_ + bytes;
    }
    bytes_ += bytes;
    last_ = now;
  }
  // True if the limits are reached.
  bool full() const {
    return blocks_ > 0 && (bytes_ >= limits_.bytes || last_ - first_ >= limits_.measuring);
  }
  // Returns 0 if too few blocks arrived.
  double bytes_per_second() const {
    if (last_ > from_) return Rate(bytes_ - from_bytes_, last_ - from_);
    return blocks_ > 1 && last_ > first_ ? Rate(bytes_, last_ - first_) : 0;
  }

 private:
  static double Rate(uint64_t bytes, absl::Duration time) {
    return static_cast<double>(bytes) / absl::ToDoubleSeconds(time);
  }

  const DoctorLimits limits_;
  uint64_t blocks_ = 0;
  uint64_t bytes_ = 0;
  absl::Time first_;
  absl::Time last_;
  absl::Time from_;  // Bytes after this block count.
  uint64_t from_bytes_ = 0;
};

}  // namespace sluice::cli
