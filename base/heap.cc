// SPDX-License-Identifier: Apache-2.0
#include "base/heap.h"

#include <malloc.h>

#include <algorithm>

#include "base/cores.h"

namespace sluice {

void KeepFreedMemory() {
#if defined(__GLIBC__)
  // Larger blocks come from mmap instead of the heap. glibc does not allow a larger threshold.
  constexpr int kLargest = 32 << 20;
  constexpr int kKept = 256 << 20;
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, kLargest));
  static_cast<void>(::mallopt(M_TRIM_THRESHOLD, kKept));
  // With fewer arenas than two, the threads of a program on one core would wait for each other.
  static_cast<void>(::mallopt(M_ARENA_MAX, std::max(2, AvailableCores())));
#endif
}

}  // namespace sluice
