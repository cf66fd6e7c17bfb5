// SPDX-License-Identifier: Apache-2.0
// A folder for one test, which can become a small disk.
#pragma once

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::testing::TempDir() + "/sluice_XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Writes the file and returns its path. Replaces an existing file atomically.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = Path(name);
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }

  // Mounts a disk of 256 KiB on the folder. Returns false if this process is not allowed to.
  bool BecomeSmallDisk() {
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=256k") == 0;
    return mounted_;
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Overwrites the file in place. Some file systems flush a file that is truncated and rewritten to
// disk, which is slow.
inline void WriteText(const std::string& path, absl::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::app).close();
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (std::filesystem::file_size(path) != text.size()) {
    std::filesystem::resize_file(path, text.size());
  }
}

// Returns the names of all files below `path`, without folders.
inline std::vector<std::string> AllFiles(const std::string& path) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_directory()) files.push_back(entry.path().filename().string());
  }
  return files;
}

}  // namespace sluice
