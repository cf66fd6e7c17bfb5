#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace sluice {

void CheckFailed(absl::string_view what, const std::source_location& where) {
  const std::string text(what);
  std::fprintf(stderr, "%s:%u: invariant broken: %s (please report this)\n", where.file_name(),
               static_cast<unsigned>(where.line()), text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace sluice
