// How many file descriptors this process may have, as the kernel limits them: sockets, files and
// what the libraries use.
#pragma once

#include <cstdint>

namespace sluice {

uint64_t DescriptorLimit();

struct DescriptorLimits {
  uint64_t before = 0;
  uint64_t now = 0;
};

// Raises the limit to the highest that this process may set: the usual one, 1,024, is that of
// programs from before there was poll(). Children inherit it. For the start of main.
DescriptorLimits RaiseDescriptorLimit();

}  // namespace sluice
