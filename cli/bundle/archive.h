// SPDX-License-Identifier: Apache-2.0
// Writes a debug bundle as a .tar.gz file that only its owner can read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/bundle/contents.h"

namespace sluice::cli {

// A new file with mode 0600. The destructor removes it unless Keep() was called.
class NewFile {
 public:
  // Fails with ALREADY_EXISTS if there is a file or a link at `path`.
  static absl::StatusOr<NewFile> Create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  absl::Status Write(const std::string& text);
  // Appends the content of the file at `path`.
  absl::Status Copy(const std::string& path);
  // Closes the file, which then stays. Fails if its content cannot be written.
  absl::Status Keep();
  const std::string& path() const { return path_; }

 private:
  NewFile(std::string path, int fd);

  std::string path_;
  int fd_;
};

struct ArchiveOptions {
  std::string name;              // Folder of all files in the archive.
  std::string temporary_folder;  // Where a private folder is made, and removed in all cases.
  std::vector<std::string> environment;  // The environment of `tar`. Its PATH must contain `tar`.
};

// Writes the archive into `out`. Calls `stopped` often while `tar` runs. Fails with CANCELLED
// if `stopped` returns true.
absl::Status WriteArchive(const std::vector<BundleContents::Entry>& files,
                          const ArchiveOptions& options, absl::FunctionRef<bool()> stopped,
                          NewFile* out);

}  // namespace sluice::cli
