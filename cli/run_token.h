// SPDX-License-Identifier: Apache-2.0
// RunToken: the secret of a local run. Loopback is open to every user of the machine, so the
// run's processes accept only calls with the token of this file, which only its owner can read.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice::cli {

class RunToken {
 public:
  // Writes a new random token to `token` in `folder`, with mode 0600. Replaces a file of an earlier
  // run.
  static absl::StatusOr<RunToken> Create(const std::string& folder);
  RunToken(RunToken&& other) noexcept;
  RunToken& operator=(RunToken&& other) noexcept;
  // Removes the file, because the token is worthless after the run.
  ~RunToken();

  const std::string& path() const { return path_; }

 private:
  explicit RunToken(std::string path);

  std::string path_;  // Empty after a move.
};

}  // namespace sluice::cli
