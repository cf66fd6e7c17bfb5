// SPDX-License-Identifier: Apache-2.0
// Reads data files, whole or in part.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::worker {

// Returns the size of a regular file. Fails with NOT_FOUND if the file does not exist, and with
// INVALID_ARGUMENT if the path is a folder or another object that cannot be read like a file.
// Errors name the path.
absl::StatusOr<uint64_t> DataFileBytes(const std::string& path);

// Returns the file's first `most` bytes, or the whole file if it is shorter. Errors are those of
// DataFileBytes, and DATA_LOSS if the file cannot be read.
absl::StatusOr<std::string> ReadDataStart(const std::string& path, uint64_t most);

// Returns the whole file. Also fails with INVALID_ARGUMENT if it is larger than `limit`.
absl::StatusOr<std::string> ReadDataFile(const std::string& path, uint64_t limit);

}  // namespace sluice::worker
