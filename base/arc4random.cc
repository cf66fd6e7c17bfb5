// SPDX-License-Identifier: Apache-2.0
// The function of glibc 2.36 that GCC's static C++ library calls for std::random_device. Programs
// that contain this definition also start with glibc 2.34 and 2.35. It is not part of the library
// `base`, because other programs take glibc's.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t number = 0;
  if (getentropy(&number, sizeof number) != 0) std::abort();  // The kernel has no random numbers.
  return number;
}
