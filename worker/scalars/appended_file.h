// SPDX-License-Identifier: Apache-2.0
// AppendedFile: a file that grows by whole records. Readers see each record immediately.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::worker {

// If a record cannot be written completely (on a full disk), it is removed, and later records may
// succeed. The file is not synced: a power failure may lose the last records. Errors name the file.
class AppendedFile {
 public:
  // Creates the file, or keeps at most the first `keep` bytes of an existing one.
  static absl::StatusOr<AppendedFile> Open(const std::string& path, uint64_t keep);
  ~AppendedFile();
  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&&) = delete;

  absl::Status Append(absl::string_view record);
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  AppendedFile(std::string path, int descriptor, uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::string path_;
  int descriptor_;
  uint64_t size_;  // Bytes of complete records.
};

}  // namespace sluice::worker
