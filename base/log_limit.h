// LogLimit: at most one line a second of a kind that others can cause as often as they like. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace sluice {

class LogLimit {
 public:
  // None: not now. Otherwise how many lines were left out since the last one.
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
