// SPDX-License-Identifier: Apache-2.0
// Check: prints the source location and aborts when an invariant of Sluice's own code is broken.
// Never use it for bytes from a network, a file or a user: invalid bytes must result in a Status.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice {

[[noreturn]] void CheckFailed(absl::string_view what, const char* file, int line);

// The built-in functions give the caller's file and line. Clang 14 has no std::source_location.
inline void Check(bool holds, absl::string_view what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!holds) CheckFailed(what, file, line);
}

}  // namespace sluice
