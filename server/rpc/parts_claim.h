// PartsClaim: that a server's folder of parts (store `shards`) is of one run. Which one, run.json
// says: where it cannot be read or is not there, parts may be of any run, and none is removed.
// Blocks on the disk. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace sluice::server {

class PartsClaim {
 public:
  PartsClaim(std::string folder, std::string job_name)
      : folder_(std::move(folder)), job_name_(std::move(job_name)) {}

  // FAILED_PRECONDITION: the folder holds parts of another run, of one that nothing tells, or of a
  // newer version. DATA_LOSS: the record is damaged. Other errors: it cannot be read or written
  // now; the same again may do.
  absl::Status Take(uint64_t job_uid, uint32_t term);
  // Again what was tried last. FAILED_PRECONDITION: nothing was.
  absl::Status TakeAgain();
  // It is taken: what is in it is this run's, and may be removed.
  bool taken() const;

 private:
  absl::Status TryToTake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const std::string job_name_;
  mutable Mutex mutex_;
  uint64_t job_uid_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::server
