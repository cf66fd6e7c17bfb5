// SPDX-License-Identifier: Apache-2.0
// Parent: the process that started this one and holds the other end of this process's standard
// input. It sends the job there; end of input means that the parent has ended.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice::server {

// Reads a job from `fd` up to a line `...`, which ends a YAML document, or up to the end of the
// input. Blocks until then. Fails with INVALID_ARGUMENT if the text is larger than a job file may
// be.
absl::StatusOr<std::string> ReadJobText(int fd);

// Returns true if the other end of `fd` is closed. Does not block. Discards available input.
bool HasEnded(int fd);

}  // namespace sluice::server
