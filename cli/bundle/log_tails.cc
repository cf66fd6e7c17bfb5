// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/log_tails.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kSecretFileBytesMax = 64 << 10;
constexpr size_t kEntriesMax = 10'000;  // Maximum number of entries to read in a folder.

struct LogFile {
  std::string name;
  timespec modified{};
};

// Returns the last `most` bytes of a regular file. Follows no link, and does not block at a pipe.
absl::StatusOr<std::string> ReadEnd(const std::string& path, uint64_t most, bool* cut) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, "cannot be read");
  struct stat facts {};
  absl::Status status;
  std::string text;
  if (::fstat(file, &facts) != 0) {
    status = absl::ErrnoToStatus(errno, "cannot be read");
  } else if (!S_ISREG(facts.st_mode)) {
    status = absl::InvalidArgumentError("is not a regular file");
  } else {
    const uint64_t size = static_cast<uint64_t>(facts.st_size);
    const uint64_t skip = size - std::min(size, most);
    *cut = skip > 0;
    text.resize(size - skip);
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t got =
          ::pread(file, text.data() + done, text.size() - done, static_cast<off_t>(skip + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) status = absl::ErrnoToStatus(errno, "cannot be read");
      if (got <= 0) break;  // The file may have become shorter.
      done += static_cast<size_t>(got);
    }
    text.resize(done);
  }
  ::close(file);
  if (!status.ok()) return status;
  return text;
}

bool IsCompressed(absl::string_view name) {
  for (const absl::string_view end : {".gz", ".xz", ".zst", ".bz2", ".zip"}) {
    if (absl::EndsWithIgnoreCase(name, end)) return true;
  }
  return false;
}

// Returns an entry's reason to stay out of the bundle, or an empty text.
std::string WhyNot(const std::string& path, const std::string& name, timespec* modified) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return ::strerror(errno);
  if (!S_ISREG(facts.st_mode)) return "is not a regular file";
  if (IsSecretName(name)) return "its name is that of a secret";
  if (IsCompressed(name)) return "is compressed, so secrets in it cannot be found";
  if (EscapeControls(name) != name) return "its name has control characters";
  *modified = facts.st_mtim;
  return "";
}

std::vector<LogFile> Candidates(const std::string& folder, BundleContents* contents) {
  std::vector<LogFile> files;
  std::vector<std::pair<std::string, std::string>> rejected;
  std::error_code error;
  size_t entries = 0;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (++entries > kEntriesMax) {
      contents->Miss(folder, absl::StrCat("has more than ", kEntriesMax,
                                          " entries; only the first ones were looked at"));
      break;
    }
    const std::string name = entry->path().filename().string();
    LogFile file{.name = name};
    const std::string why = WhyNot(entry->path().string(), name, &file.modified);
    if (why.empty()) {
      files.push_back(std::move(file));
      continue;
    }
    rejected.emplace_back(entry->path().string(), why);
    if (IsSecretName(name)) contents->secrets().AddFile(ReadSecretFile(entry->path().string()));
  }
  if (error) contents->Miss(folder, absl::StrCat("cannot be listed: ", error.message()));
  std::sort(rejected.begin(), rejected.end());
  const size_t listed = std::min(rejected.size(), kLogFilesMax);
  for (size_t i = 0; i < listed; ++i) contents->Miss(rejected[i].first, rejected[i].second);
  if (listed < rejected.size()) {
    contents->Miss(folder, absl::StrCat(rejected.size() - listed,
                                        " further entries are not regular files or look like "
                                        "secrets"));
  }
  std::sort(files.begin(), files.end(), [](const LogFile& a, const LogFile& b) {
    return std::make_tuple(b.modified.tv_sec, b.modified.tv_nsec, a.name) <
           std::make_tuple(a.modified.tv_sec, a.modified.tv_nsec, b.name);
  });
  return files;
}

}  // namespace

void CollectLogs(const std::string& folder, const std::string& prefix, size_t* files_left,
                 BundleContents* contents) {
  const std::vector<LogFile> files = Candidates(folder, contents);
  size_t done = 0;
  for (const LogFile& file : files) {
    if (*files_left == 0) break;
    ++done;
    const std::string path = absl::StrCat(folder, "/", file.name);
    bool cut = false;
    absl::StatusOr<std::string> text = ReadEnd(path, kLogTailBytes, &cut);
    if (!text.ok()) {
      contents->Miss(path, std::string(text.status().message()));
      continue;
    }
    // The first line may be the end of a token, which could not be recognized.
    if (cut) text->erase(0, text->find('\n') == std::string::npos ? 0 : text->find('\n') + 1);
    if (text->find('\0') != std::string::npos) {
      contents->Miss(path, "is not text");
      continue;
    }
    if (HoldsSecret(*text)) {
      contents->Miss(path, "it holds a token or a private key");
      continue;
    }
    contents->Add(absl::StrCat(prefix, "/", file.name), *std::move(text));
    --*files_left;
  }
  if (done < files.size()) {
    contents->Miss(folder, absl::StrCat("its ", files.size() - done, " oldest files: a bundle has ",
                                        kLogFilesMax, " log files at most"));
  }
}

std::string ReadSecretFile(const std::string& path) {
  bool cut = false;
  absl::StatusOr<std::string> text = ReadEnd(path, kSecretFileBytesMax, &cut);
  return text.ok() && !cut ? *std::move(text) : "";
}

}  // namespace sluice::cli
