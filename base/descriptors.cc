// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include <sys/resource.h>

namespace sluice {

uint64_t DescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return limit.rlim_cur;
}

DescriptorLimits RaiseDescriptorLimit() {
  const uint64_t before = DescriptorLimit();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return {.before = before, .now = DescriptorLimit()};
}

}  // namespace sluice
