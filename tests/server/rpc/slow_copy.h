// SPDX-License-Identifier: Apache-2.0
// SlowCopy: delays the copy for a snapshot until a test releases it.
#pragma once

#include <chrono>
#include <functional>
#include <future>

namespace sluice::server {

inline constexpr std::chrono::seconds kCopyPatience{30};

class SlowCopy {
 public:
  // Returns a function for ShardHost::Options::before_copy. It delays one copy.
  std::function<void()> hook() {
    return [this] {
      begun_.set_value();
      end_.get_future().wait();
    };
  }
  // Returns false if no copy began within kCopyPatience.
  bool AwaitBegin() {
    return begun_.get_future().wait_for(kCopyPatience) == std::future_status::ready;
  }
  void LetEnd() { end_.set_value(); }

 private:
  std::promise<void> begun_, end_;
};

}  // namespace sluice::server
