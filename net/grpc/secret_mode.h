// SPDX-License-Identifier: Apache-2.0
// Finds files of secrets that more users than necessary can read or change.
#pragma once

#include <sys/types.h>

#include <string>

namespace sluice::net {

// Returns whether a file with this mode exposes a secret: others may use it, its group may change
// it, or its group may read it although this process's user owns it and could prevent that. The
// group may read a file of another user, because a Kubernetes Secret belongs to root and has mode
// 0440.
bool ExposesSecret(mode_t mode, bool own);

// Returns a warning if the file exposes its secret, or an empty string. `flag` names the file.
std::string ExposedSecretWarning(const char* flag, const std::string& path);

}  // namespace sluice::net
