// SPDX-License-Identifier: Apache-2.0
// Collects the ends of the log files of a folder for a debug bundle.
#pragma once

#include <cstdint>
#include <string>

#include "cli/bundle/contents.h"

namespace sluice::cli {

inline constexpr uint64_t kLogTailBytes = 1 << 20;
inline constexpr size_t kLogFilesMax = 64;  // In all folders together.

// Adds the newest regular files of `folder`, each cut to the last kLogTailBytes at the beginning of
// a line, as `prefix`/NAME. Takes at most `*files_left` files and subtracts their number. Leaves
// out links, subfolders and files that look like secrets, and lists them as missing. Files with
// names of secrets are read only to remove their tokens from the rest of the bundle.
void CollectLogs(const std::string& folder, const std::string& prefix, size_t* files_left,
                 BundleContents* contents);

// Returns the beginning of a file of at most 64 KiB for Secrets::AddFile, or an empty text if it
// cannot be read or is larger.
std::string ReadSecretFile(const std::string& path);

}  // namespace sluice::cli
