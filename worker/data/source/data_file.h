// Files of data as bytes: whole, or their beginning.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::worker {

// The size of a regular file. NOT_FOUND: no such file. INVALID_ARGUMENT: a folder, or another thing
// that cannot be read like a file. Errors name the path.
absl::StatusOr<uint64_t> DataFileBytes(const std::string& path);

// The file's first `most` bytes, or all if there are fewer. Errors as DataFileBytes; DATA_LOSS: it
// cannot be read.
absl::StatusOr<std::string> ReadDataStart(const std::string& path, uint64_t most);

// All of it. INVALID_ARGUMENT too: larger than `limit`.
absl::StatusOr<std::string> ReadDataFile(const std::string& path, uint64_t limit);

}  // namespace sluice::worker
