// SPDX-License-Identifier: Apache-2.0
// `sluice debug-bundle`: collects what a maintainer needs to understand a job into one archive.
#pragma once

#include <string>
#include <vector>

#include "cli/status.h"

namespace sluice::cli {

struct DebugBundleOptions {
  StatusOptions status{};  // `json` and `watch` are not used.
  std::vector<std::string> log_folders{};
  std::string job_path{};              // Empty: no job file.
  std::vector<std::string> metrics{};  // HOST:PORT of HTTP ports.
  std::string output{};                // Empty: sluice-debug-TIME.tar.gz in the current folder.
  std::string version{};               // Version of this program.
  std::string temporary_folder{};
  std::vector<std::string> environment{};
};

// Prints what is inside and what is missing. Returns the exit code of the program: 0 if the archive
// was written, even if something is missing; 1 if not; 128 + a signal that stopped it.
int MakeDebugBundle(const DebugBundleOptions& options);

}  // namespace sluice::cli
