// SPDX-License-Identifier: Apache-2.0
#include "worker/scalars/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

}  // namespace

absl::StatusOr<AppendedFile> AppendedFile::Open(const std::string& path, uint64_t keep) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
  if (descriptor < 0) return Failed("open", path);
  AppendedFile file(path, descriptor, 0);
  struct stat facts = {};
  if (::fstat(descriptor, &facts) != 0) return Failed("examine", path);
  file.size_ = std::min<uint64_t>(keep, static_cast<uint64_t>(facts.st_size));
  if (static_cast<uint64_t>(facts.st_size) > file.size_ &&
      ::ftruncate(descriptor, static_cast<off_t>(file.size_)) != 0) {
    return Failed("cut", path);
  }
  return file;
}

AppendedFile::AppendedFile(AppendedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

AppendedFile::~AppendedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status AppendedFile::Append(absl::string_view record) {
  uint64_t at = size_;
  while (!record.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, record.data(), record.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const absl::Status failed = Failed("write to", path_);
      // If this fails too, the next record overwrites the partial one.
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_, static_cast<off_t>(size_));
      return failed;
    }
    record.remove_prefix(static_cast<size_t>(written));
    at += static_cast<uint64_t>(written);
  }
  size_ = at;
  return absl::OkStatus();
}

}  // namespace sluice::worker
