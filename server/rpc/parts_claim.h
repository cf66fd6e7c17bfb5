// SPDX-License-Identifier: Apache-2.0
// PartsClaim: claims a server's folder of parts (store `shards`) for one run. The folder's run.json
// names the run. While run.json is missing or unreadable, the parts may belong to any run, so no
// part is removed. Blocks on the disk. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/mutex.h"

namespace sluice::server {

class PartsClaim {
 public:
  PartsClaim(std::string folder, std::string job_name)
      : folder_(std::move(folder)), job_name_(std::move(job_name)) {}

  // Claims the folder. Fails with FAILED_PRECONDITION if the folder has parts of another run, of an
  // unknown run, or of a newer version. Fails with DATA_LOSS if the record is damaged. Fails with
  // other codes if the record cannot be read or written now; a retry may succeed.
  absl::Status Claim(uint64_t job_uid, uint32_t term);
  // Retries the last Claim. Fails with FAILED_PRECONDITION if there was none.
  absl::Status ClaimAgain();
  // Claims the folder for a term that begins. Fails with FAILED_PRECONDITION if it belongs to
  // another run or its record is damaged. If the disk fails, logs a warning and returns OK.
  absl::Status BeginTerm(uint64_t job_uid, uint32_t term, const Logger& logger);
  // Removes the parts for steps below `before`, except for `steps`. Logs errors.
  void KeepOnly(const std::vector<uint64_t>& steps, uint64_t before, const Logger& logger) const;
  // True once the folder is claimed. Its parts then belong to this run and may be removed.
  bool taken() const;

 private:
  absl::Status TryToClaim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const std::string job_name_;
  mutable Mutex mutex_;
  uint64_t job_uid_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::server
