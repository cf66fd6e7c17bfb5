// SPDX-License-Identifier: Apache-2.0
// AwaitThat: lets a test wait for an effect of another thread.
#pragma once

#include <chrono>
#include <thread>

#include "base/check.h"

namespace sluice {

// Checks the condition every millisecond. A busy loop would delay the effect, because it would take
// locks and a processor that other threads need. Aborts with the caller's line after four minutes,
// before the test's time limit ends it without one.
template <typename Condition>
void AwaitThat(const Condition& condition, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
  constexpr int kChecksMax = 240'000;
  for (int check = 0; !condition(); ++check) {
    Check(check < kChecksMax, "the state that a test waits for was not reached", file, line);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace sluice
