// SPDX-License-Identifier: Apache-2.0
#include "protocol/checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/crc32c.h"

namespace sluice::protocol {
namespace {

// Piece size for reading and writing. A background writer has one piece in flight.
constexpr size_t kPiece = 4 << 20;

absl::Status FileError(int error, absl::string_view doing, absl::string_view path) {
  const std::string what =
      absl::StrCat("cannot ", doing, " ", path, ": ", std::generic_category().message(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(absl::StrCat(what, "; free space on its disk"));
    case ENOENT:
      return absl::NotFoundError(what);
    case EIO:
      return absl::DataLossError(what);
    default:
      return absl::UnavailableError(what);
  }
}

// Converts an error for writers: if the file no longer exists, another process has removed it.
absl::Status WriteError(int error, absl::string_view doing, absl::string_view path) {
  const absl::Status status = FileError(error, doing, path);
  if (!absl::IsNotFound(status)) return status;
  return absl::UnavailableError(absl::StrCat(status.message(), "; was its folder removed?"));
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { static_cast<void>(Close()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int get() const { return descriptor_; }
  bool ok() const { return descriptor_ >= 0; }
  // Returns 0 or the error. Some file systems report a full disk only when the file is closed.
  int Close() {
    const int descriptor = std::exchange(descriptor_, -1);
    if (descriptor < 0 || ::close(descriptor) == 0) return 0;
    return errno;
  }

 private:
  int descriptor_;
};

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

absl::Status SyncFolder(const std::string& path) {
  File folder(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
  if (!folder.ok()) return WriteError(errno, "open the folder", path);
  // Some network file systems do not support fsync on a folder and make names durable immediately.
  if (::fsync(folder.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return absl::OkStatus();
  return WriteError(errno, "make durable the folder", path);
}

absl::Status WriteAll(int file, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), std::min(bytes.size(), kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteError(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
    // Starts writing to the device now, so that the final sync has less to write.
    static_cast<void>(::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
  }
  return absl::OkStatus();
}

// Returns true if this error of link() means that the file system cannot make a hard link.
bool HasNoSecondNames(int error) {
  return error == EPERM || error == ENOTSUP || error == ENOSYS || error == EMLINK;
}

// Returns a name that no earlier call in this process has returned.
std::string UnfinishedName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return absl::StrCat(path, ".", ::getpid(), "-", counter.fetch_add(1), kUnfinishedSuffix);
}

// Creates a separate temporary file beside `path`. Two writers of the same path never share a
// temporary file, even on different machines.
absl::StatusOr<std::string> CreateBeside(const std::string& path, int* descriptor) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = UnfinishedName(path);
    *descriptor = OpenRetrying(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (*descriptor >= 0) return name;
    if (errno != EEXIST) return WriteError(errno, "create", name);
  }
  return absl::UnavailableError(absl::StrCat("cannot create a file beside ", path, ": ", kAttempts,
                                             " unfinished files exist; remove them"));
}

// Calls `take(span)` for each piece that has been read.
template <typename Take>
absl::Status ReadThrough(const std::string& path, uint64_t piece_size, const Take& take) {
  File file(OpenRetrying(path, O_RDONLY));
  if (!file.ok()) return FileError(errno, "open", path);
  std::vector<std::byte> buffer(std::clamp<uint64_t>(piece_size, 1, kPiece));
  while (true) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) return absl::OkStatus();
    absl::Status taken = take(absl::MakeConstSpan(buffer).first(static_cast<size_t>(got)));
    if (!taken.ok()) return taken;
  }
}

}  // namespace

absl::Status MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return SyncFolder(FolderOf(path));
  if (errno == ENOENT && FolderOf(path) != path) {
    absl::Status made = MakeFolder(FolderOf(path));
    if (!made.ok()) return made;
    if (::mkdir(path.c_str(), 0777) == 0) return SyncFolder(FolderOf(path));
  }
  const int error = errno;
  struct stat facts {};
  if (error == EEXIST && ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
    // The process that created this folder may not have synced it yet. If this process is not
    // allowed to open the parent folder, another process has already synced it.
    static_cast<void>(SyncFolder(FolderOf(path)));
    return absl::OkStatus();
  }
  return WriteError(error, "make the folder", path);
}

absl::StatusOr<DurableFile> DurableFile::Create(const std::string& path) {
  int descriptor = -1;
  absl::StatusOr<std::string> unfinished = CreateBeside(path, &descriptor);
  if (!unfinished.ok()) return unfinished.status();
  return DurableFile(path, *std::move(unfinished), descriptor);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      unfinished_(std::exchange(other.unfinished_, "")),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      checksum_(other.checksum_) {}

DurableFile::~DurableFile() {
  const File closes(descriptor_);
  if (!unfinished_.empty()) static_cast<void>(::unlink(unfinished_.c_str()));
}

absl::Status DurableFile::Append(absl::string_view bytes) {
  absl::Status written = WriteAll(descriptor_, bytes, unfinished_);
  if (!written.ok()) return written;
  bytes_ += bytes.size();
  checksum_ = ExtendCrc32c(checksum_, bytes);
  return absl::OkStatus();
}

absl::Status DurableFile::Sync() {
  File file(std::exchange(descriptor_, -1));
  if (::fsync(file.get()) != 0) return WriteError(errno, "make durable", unfinished_);
  // Drops the cached pages, because the bytes should be read back from the device and training
  // needs the memory.
  static_cast<void>(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED));
  const int error = file.Close();
  return error == 0 ? absl::OkStatus() : WriteError(error, "close", unfinished_);
}

absl::StatusOr<uint32_t> DurableFile::Finish(const MayReplace& may_replace) {
  absl::Status done = Sync();
  if (done.ok()) done = ReadBack();
  if (done.ok() && may_replace) done = may_replace();
  if (done.ok()) done = Rename(path_);
  if (!done.ok()) return done;
  return checksum_;
}

absl::StatusOr<std::string> DurableFile::FinishBeside() {
  absl::Status done = Sync();
  if (done.ok()) done = ReadBack();
  if (!done.ok()) return done;
  std::string path = path_;
  if (::link(unfinished_.c_str(), path_.c_str()) == 0) {
    static_cast<void>(::unlink(std::exchange(unfinished_, "").c_str()));
    done = SyncFolder(FolderOf(path_));
  } else if (const int error = errno; error == EEXIST && HasTheSame(path_)) {
    // The file was written twice, or the reply to the call that created the name was lost on a
    // network.
    done = SyncFolder(FolderOf(path_));
  } else if (error == EEXIST || HasNoSecondNames(error)) {
    path = OwnPath(path_, bytes_, checksum_);
    done = Rename(path);
  } else {
    done = WriteError(error, "link to its name", unfinished_);
  }
  if (!done.ok()) return done;
  return path;
}

absl::Status DurableFile::Rename(const std::string& path) {
  if (::rename(unfinished_.c_str(), path.c_str()) != 0) {
    return WriteError(errno, "rename to its name", unfinished_);
  }
  unfinished_.clear();
  return SyncFolder(FolderOf(path));
}

bool DurableFile::HasTheSame(const std::string& path) const {
  const absl::StatusOr<FileFacts> found = ChecksumFile(path);
  return found.ok() && found->bytes == bytes_ && found->checksum == checksum_;
}

// Reads the file back while it still has its temporary name. An existing file under the final name
// stays untouched until the new file is verified.
absl::Status DurableFile::ReadBack() const {
  const absl::StatusOr<FileFacts> found = ChecksumFile(unfinished_);
  if (absl::IsNotFound(found.status())) return WriteError(ENOENT, "read back", unfinished_);
  if (!found.ok()) return found.status();
  if (found->bytes == bytes_ && found->checksum == checksum_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("what was written for ", path_, " reads back differently; check its disk"));
}

std::string OwnPath(const std::string& path, uint64_t bytes, uint32_t checksum) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return absl::StrCat(path.substr(0, path.size() - extension.size()), ".", bytes, "-",
                      absl::Hex(checksum, absl::kZeroPad8), extension);
}

absl::Status NameToo(const std::string& existing, const std::string& path) {
  const std::string aside = UnfinishedName(path);
  const std::string target = std::filesystem::path(existing).filename().string();
  int made = ::link(existing.c_str(), aside.c_str());
  if (made != 0 && HasNoSecondNames(errno)) made = ::symlink(target.c_str(), aside.c_str());
  if (made != 0) return WriteError(errno, "give a second name to", existing);
  const int error = ::rename(aside.c_str(), path.c_str()) == 0 ? 0 : errno;
  // The temporary name still exists if both names referred to the same file.
  static_cast<void>(::unlink(aside.c_str()));
  return error == 0 ? SyncFolder(FolderOf(path)) : WriteError(error, "rename to its name", aside);
}

absl::StatusOr<uint32_t> WriteDurably(const std::string& path, absl::string_view bytes,
                                      const MayReplace& may_replace) {
  absl::StatusOr<DurableFile> file = DurableFile::Create(path);
  if (!file.ok()) return file.status();
  absl::Status written = file->Append(bytes);
  if (!written.ok()) return written;
  return file->Finish(may_replace);
}

absl::StatusOr<FileFacts> StatFile(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return FileError(errno, "open", path);
  if (!S_ISREG(facts.st_mode)) return absl::DataLossError(absl::StrCat(path, " is not a file"));
  return FileFacts{.bytes = static_cast<uint64_t>(facts.st_size)};
}

absl::StatusOr<FileFacts> ChecksumFile(const std::string& path) {
  absl::StatusOr<FileFacts> facts = StatFile(path);
  if (!facts.ok()) return facts;
  const uint64_t expected = std::exchange(facts->bytes, 0);
  const absl::Status read = ReadThrough(path, expected, [&](absl::Span<const std::byte> piece) {
    facts->bytes += piece.size();
    facts->checksum = ExtendCrc32c(facts->checksum, piece);
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  return facts;
}

absl::Status ReadPieces(const std::string& path, size_t piece_bytes,
                        const std::function<absl::Status(absl::string_view)>& take) {
  return ReadThrough(path, piece_bytes, [&](absl::Span<const std::byte> piece) {
    return take({reinterpret_cast<const char*>(piece.data()), piece.size()});
  });
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit) {
  const absl::StatusOr<FileFacts> facts = StatFile(path);
  if (!facts.ok()) return facts.status();
  const absl::Status too_large =
      absl::DataLossError(absl::StrCat(path, " is larger than ", limit, " bytes"));
  if (facts->bytes > limit) return too_large;
  std::string bytes;
  bytes.reserve(facts->bytes);
  const absl::Status read = ReadThrough(path, facts->bytes, [&](absl::Span<const std::byte> piece) {
    if (piece.size() > limit - bytes.size()) return too_large;
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  return bytes;
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  if (error) return FileError(error.value(), "list the folder", path);
  return names;
}

void RemoveUnfinished(const std::string& path) {
  const std::string start = std::filesystem::path(path).filename().string() + ".";
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(FolderOf(path));
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, start) || !absl::EndsWith(name, kUnfinishedSuffix)) continue;
    static_cast<void>(::unlink(absl::StrCat(FolderOf(path), "/", name).c_str()));
  }
}

absl::Status RemoveDurably(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return SyncFolder(FolderOf(path));
  return errno == ENOENT ? absl::OkStatus() : WriteError(errno, "remove", path);
}

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  const auto removed = std::filesystem::remove_all(path, error);
  if (error) return WriteError(error.value(), "remove the folder", path);
  return removed == 0 ? absl::OkStatus() : SyncFolder(FolderOf(path));
}

}  // namespace sluice::protocol
