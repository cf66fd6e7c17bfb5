// SPDX-License-Identifier: Apache-2.0
// The limit on this process's file descriptors, as the kernel enforces it. The limit covers
// sockets, files and the descriptors that libraries use.
#pragma once

#include <cstdint>

namespace sluice {

uint64_t DescriptorLimit();

struct DescriptorLimits {
  uint64_t before = 0;
  uint64_t now = 0;
};

// Raises the limit to the highest value that this process may set. Child processes inherit the
// limit. The usual limit of 1,024 protects programs that use select(); Sluice does not use it. Call
// this function at the start of main.
DescriptorLimits RaiseDescriptorLimit();

}  // namespace sluice
