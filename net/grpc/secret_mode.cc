// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/secret_mode.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::net {

bool ExposesSecret(mode_t mode, bool own) {
  return (mode & (S_IRWXO | S_IWGRP)) != 0 || (own && (mode & S_IRGRP) != 0);
}

std::string ExposedSecretWarning(const char* flag, const std::string& path) {
  struct stat facts = {};
  if (path.empty() || ::stat(path.c_str(), &facts) != 0) return "";
  if (!ExposesSecret(facts.st_mode, facts.st_uid == ::geteuid())) return "";
  return absl::StrCat(
      flag, ": ", path, " has mode ", absl::StrFormat("%04o", facts.st_mode & 07777),
      ", so other users of this machine can read or change a secret: `chmod 600` it");
}

}  // namespace sluice::net
