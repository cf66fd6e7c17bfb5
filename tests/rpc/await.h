// AwaitThat: how tests wait for what another thread brings about.
#pragma once

#include <chrono>
#include <thread>

namespace sluice {

// Looks every millisecond. One that looked all the time would hold up what it waits for: it takes
// the locks that the others need, and a processor.
template <typename Condition>
void AwaitThat(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace sluice
