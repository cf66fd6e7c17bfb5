// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/data_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kReadAtOnce = uint64_t{1} << 22;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

absl::StatusOr<uint64_t> DataFileBytes(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(absl::StrCat(
        path, ": cannot be opened: ", error ? error.message() : "No such file or directory"));
  }
  if (!fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, fs::is_directory(status) ? ": is a folder where a file is expected"
                                                    : ": is not a regular file"));
  }
  const uint64_t bytes = fs::file_size(path, error);
  if (error) {
    return absl::DataLossError(absl::StrCat(path, ": cannot be read: ", error.message()));
  }
  return bytes;
}

absl::StatusOr<std::string> ReadDataStart(const std::string& path, uint64_t most) {
  if (absl::StatusOr<uint64_t> bytes = DataFileBytes(path); !bytes.ok()) return bytes.status();
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  std::setvbuf(file.get(), nullptr, _IONBF, 0);
  std::string bytes;
  while (bytes.size() < most) {
    const size_t part = std::min(kReadAtOnce, most - bytes.size());
    const size_t at = bytes.size();
    bytes.resize(at + part);
    const size_t got = std::fread(bytes.data() + at, 1, part, file.get());
    bytes.resize(at + got);
    if (got == part) continue;
    if (std::ferror(file.get()) != 0) {
      return absl::DataLossError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
    }
    break;
  }
  return bytes;
}

absl::StatusOr<std::string> ReadDataFile(const std::string& path, uint64_t limit) {
  absl::StatusOr<std::string> bytes = ReadDataStart(path, limit + 1);
  if (bytes.ok() && bytes->size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is larger than ", limit, " bytes, which is the limit"));
  }
  return bytes;
}

}  // namespace sluice::worker
