// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace sluice {

void CheckFailed(absl::string_view what, const char* file, int line) {
  const std::string text(what);
  std::fprintf(stderr, "%s:%d: invariant broken: %s (please report this)\n", file, line,
               text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace sluice
