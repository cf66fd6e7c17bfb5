// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/small_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::net {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, const char* flag,
                                          size_t bytes_max) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes(bytes_max + 1, '\0');
  if (file) file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file && !file.eof()) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": cannot read ", path, " (", errno == 0 ? "no file" : std::strerror(errno), ")"));
  }
  bytes.resize(static_cast<size_t>(file.gcount()));
  if (bytes.size() <= bytes_max) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " is larger than ", bytes_max,
                                                 " bytes; check that it is the right file"));
}

}  // namespace sluice::net
