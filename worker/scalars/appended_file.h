// AppendedFile: a file that grows by whole records, each of which readers see at once.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::worker {

// A record that could not be written whole (a full disk) is taken back, and the next may be tried.
// Nothing is synced: a power cut may cost the last records. Errors name the file.
class AppendedFile {
 public:
  // Makes it, or keeps its first `keep` bytes, of those that there are.
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
  uint64_t size_;  // Of whole records.
};

}  // namespace sluice::worker
