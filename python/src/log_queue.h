// SPDX-License-Identifier: Apache-2.0
// LogQueue: passes log lines to Python. A thread that logs may hold a lock for which a thread with
// the GIL waits. Therefore logging threads never take the GIL: they append their lines to the
// queue, and Python fetches them. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/session.h"

namespace sluice::python {

class LogQueue {
 public:
  // (level, component, text); the level is 0 for debug, 1 for info, 2 for warning and 3 for error.
  using Line = std::tuple<int, std::string, std::string>;

  void Add(client::LogLevel level, std::string_view component, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (lines_.size() == kLinesMax) lines_.pop_front();
    lines_.emplace_back(static_cast<int>(level), component, text);
  }
  // Returns the lines since the last call, oldest first. If there were more than kLinesMax lines,
  // the oldest are lost.
  std::vector<Line> Take() {
    const std::lock_guard lock(mutex_);
    std::vector<Line> taken(std::make_move_iterator(lines_.begin()),
                            std::make_move_iterator(lines_.end()));
    lines_.clear();
    return taken;
  }

 private:
  static constexpr size_t kLinesMax = 1000;
  std::mutex mutex_;
  std::deque<Line> lines_;
};

}  // namespace sluice::python
