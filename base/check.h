// Check: a broken invariant of our own code ends the process, with the place.
// Never for bytes that came from a network, a file or a user: those get a Status.
#pragma once

#include <source_location>

#include "absl/strings/string_view.h"

namespace sluice {

[[noreturn]] void CheckFailed(absl::string_view what, const std::source_location& where);

inline void Check(bool holds, absl::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!holds) CheckFailed(what, where);
}

}  // namespace sluice
