// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/archive.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/launch/child_process.h"

namespace sluice::cli {
namespace {

constexpr int kPollMilliseconds = 100;

// A new folder that only its owner can enter. The destructor removes it with all files.
class PrivateFolder {
 public:
  static absl::StatusOr<PrivateFolder> Create(const std::string& parent) {
    std::string path = absl::StrCat(parent, "/sluice-debug-XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) {  // With mode 0700.
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the folder ", path));
    }
    return PrivateFolder(std::move(path));
  }
  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

absl::Status WriteFiles(const std::string& root, const std::vector<BundleContents::Entry>& files) {
  for (const BundleContents::Entry& file : files) {
    const std::filesystem::path path = std::filesystem::path(root) / file.name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot create ", path.parent_path().string(), ": ", error.message()));
    }
    absl::StatusOr<NewFile> created = NewFile::Create(path.string());
    if (!created.ok()) return created.status();
    if (absl::Status status = created->Write(file.text); !status.ok()) return status;
    if (absl::Status status = created->Keep(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RunTar(const std::string& folder, const ArchiveOptions& options,
                    absl::FunctionRef<bool()> stopped) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> tar = ChildProcess::Start(
      {.name = "tar",
       .command = {"/usr/bin/env", "tar", "-czf", folder + "/archive", "-C", folder, options.name},
       .environment = options.environment,
       .log_path = folder + "/log",
       .on_line = {}});
  if (!tar.ok()) return tar.status();
  while (!(*tar)->Reap()) {
    if (stopped()) return absl::CancelledError("stopped by a signal");
    pollfd output{.fd = (*tar)->output_fd(), .events = POLLIN, .revents = 0};
    ::poll(&output, 1, kPollMilliseconds);
    (*tar)->ReadOutput();
  }
  if (ExitCode(*(*tar)->wait_status()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the program tar ",
                                             DescribeEnd(*(*tar)->wait_status()), ": ",
                                             absl::StrJoin((*tar)->LastLines(), "; ")));
}

}  // namespace

NewFile::NewFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  return NewFile(path, fd);
}

absl::Status NewFile::Write(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status NewFile::Copy(const std::string& path) {
  const int from = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (from < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  std::array<char, 65536> buffer;
  absl::Status status;
  while (status.ok()) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    if (got <= 0) break;
    status = Write(std::string(buffer.data(), static_cast<size_t>(got)));
  }
  ::close(from);
  return status;
}

absl::Status NewFile::Keep() {
  if (::close(std::exchange(fd_, -1)) == 0) return absl::OkStatus();
  const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  ::unlink(path_.c_str());
  return status;
}

absl::Status WriteArchive(const std::vector<BundleContents::Entry>& files,
                          const ArchiveOptions& options, absl::FunctionRef<bool()> stopped,
                          NewFile* out) {
  const absl::StatusOr<PrivateFolder> folder = PrivateFolder::Create(options.temporary_folder);
  if (!folder.ok()) return folder.status();
  absl::Status status = WriteFiles(folder->path() + "/" + options.name, files);
  if (status.ok()) status = RunTar(folder->path(), options, stopped);
  if (status.ok()) status = out->Copy(folder->path() + "/archive");
  return status;
}

}  // namespace sluice::cli
