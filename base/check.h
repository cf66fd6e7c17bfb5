// Check: a broken invariant of our own code ends the process, with the place.
// Never for bytes that came from a network, a file or a user: those get a Status.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice {

[[noreturn]] void CheckFailed(absl::string_view what, const char* file, int line);

// The built-ins give the caller's place. Clang 14 has no std::source_location.
inline void Check(bool holds, absl::string_view what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!holds) CheckFailed(what, file, line);
}

}  // namespace sluice
