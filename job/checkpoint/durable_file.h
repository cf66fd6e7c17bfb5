// Files that are whole or absent, whatever happens in between: power cuts, full disks, kill -9.
// Errors name the file. RESOURCE_EXHAUSTED: the disk or a quota is full; NOT_FOUND: what was to be
// read is not there; DATA_LOSS: the device cannot give back what it was given; UNAVAILABLE: any
// other trouble.
// Thread-safe, but for two writers of one path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// A file that is being written has this behind its name; a crash can leave it.
inline constexpr absl::string_view kUnfinishedSuffix = ".unfinished";

// With all folders above it, each durable.
absl::Status MakeFolder(const std::string& path);

// Writes aside, makes the file durable, renames it to `path`, makes the folder durable, reads the
// file back. DATA_LOSS: it came back different and is removed. Gives its CRC-32C.
absl::StatusOr<uint32_t> WriteDurably(const std::string& path, absl::string_view bytes);

struct FileFacts {
  uint64_t bytes = 0;
  uint32_t checksum = 0;  // CRC-32C.
};
// Without the checksum.
absl::StatusOr<FileFacts> StatFile(const std::string& path);
// Reads the file through, in little memory.
absl::StatusOr<FileFacts> ChecksumFile(const std::string& path);

// DATA_LOSS if it is larger than `limit`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit);

// Names of what lies in it, in no order.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// What writers of `path` that were killed left beside it. Only where no other may be writing now.
void RemoveUnfinished(const std::string& path);

// OK if it is not there.
absl::Status RemoveDurably(const std::string& path);
// With all that is in it; links are not followed.
absl::Status RemoveFolder(const std::string& path);

}  // namespace sluice
