// SPDX-License-Identifier: Apache-2.0
// Reads small settings files.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::net {

// Returns the whole file. Fails with INVALID_ARGUMENT if the file cannot be read or is larger than
// `bytes_max`; the message names `flag`, the file and the problem.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, const char* flag,
                                          size_t bytes_max);

}  // namespace sluice::net
