// AwaitThat: lets a test wait for an effect of another thread.
#pragma once

#include <chrono>
#include <thread>

namespace sluice {

// Checks the condition every millisecond. A busy loop would delay the effect, because it would take
// locks and a processor that other threads need.
template <typename Condition>
void AwaitThat(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace sluice
