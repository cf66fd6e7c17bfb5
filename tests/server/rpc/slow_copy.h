// SlowCopy: a snapshot's copy that takes as long as a test wants.
#pragma once

#include <chrono>
#include <functional>
#include <future>

namespace sluice::server {

inline constexpr std::chrono::seconds kCopyPatience{30};

class SlowCopy {
 public:
  // For ShardHost::Options::before_copy, of the one copy that is made slow.
  std::function<void()> hook() {
    return [this] {
      begun_.set_value();
      end_.get_future().wait();
    };
  }
  // False: no copy had begun when the patience was over.
  bool AwaitBegin() {
    return begun_.get_future().wait_for(kCopyPatience) == std::future_status::ready;
  }
  void LetEnd() { end_.set_value(); }

 private:
  std::promise<void> begun_, end_;
};

}  // namespace sluice::server
