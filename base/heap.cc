#include "base/heap.h"

#include <malloc.h>

namespace sluice {

void KeepFreedMemory() {
#if defined(__GLIBC__)
  constexpr int kLargest = 32 << 20;  // Of what comes from the heap; glibc allows no more.
  constexpr int kKept = 256 << 20;
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, kLargest));
  static_cast<void>(::mallopt(M_TRIM_THRESHOLD, kKept));
#endif
}

}  // namespace sluice
