// A small file of settings, read whole.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::net {

// INVALID_ARGUMENT names `flag`, the file and what is wrong: it cannot be read, or is larger than
// `bytes_max`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, const char* flag,
                                          size_t bytes_max);

}  // namespace sluice::net
