// SPDX-License-Identifier: Apache-2.0
#include "cli/run_token.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {
namespace {

constexpr size_t kTokenBytes = 32;

absl::Status Failure(const std::string& path) {
  return absl::ErrnoToStatus(
      errno, absl::StrCat("cannot write the run's token to ", path,
                          ": check the folder, or give a token of your own with --token-file"));
}

}  // namespace

RunToken::RunToken(std::string path) : path_(std::move(path)) {}

RunToken::RunToken(RunToken&& other) noexcept : path_(std::exchange(other.path_, {})) {}

RunToken& RunToken::operator=(RunToken&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

RunToken::~RunToken() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

absl::StatusOr<RunToken> RunToken::Create(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/token");
  std::array<char, kTokenBytes> bytes;
  if (::getentropy(bytes.data(), bytes.size()) != 0) return Failure(path);
  const std::string line =
      absl::StrCat(absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())), "\n");
  // A new file, so that neither the mode of an old file nor a link of another user matters.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Failure(path);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return Failure(path);
  RunToken token(path);
  errno = ENOSPC;  // The reason for a short write, which sets no error.
  const bool written = ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const absl::Status status = written ? absl::OkStatus() : Failure(path);
  const bool closed = ::close(file) == 0;
  if (!status.ok()) return status;
  if (!closed) return Failure(path);
  return token;
}

}  // namespace sluice::cli
