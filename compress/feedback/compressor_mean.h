// CompressorMean: what a job's senders begin with when others, fewer or more, go on in their place.
// All begin with the mean of what the old ones' compensators remember (residuals, and the memories
// and momenta beside them), so that the mean over the new senders is the mean over the old: nothing
// that was owed is lost or doubled. One old sender at a time is in memory. Not thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/compressor.h"

namespace sluice::compress {

class CompressorMean {
 public:
  // The next old sender, in the order of ranks. `as_rest`: thresholds and the codecs' own states
  // are taken from this one; those of codecs whose receiver remembers each sender begin anew.
  // INVALID_ARGUMENT: it had other chunks than those before.
  absl::Status Add(SavedCompressor saved, bool as_rest);
  // Last. FAILED_PRECONDITION: nothing was added, or nothing as_rest.
  absl::StatusOr<SavedCompressor> Take();

 private:
  uint32_t senders_ = 0;
  std::vector<ChunkConfig> configs_;
  std::vector<SavedState> sums_;  // By chunk, of compensators' lists.
  SavedCompressor rest_;
  bool has_rest_ = false;
};

}  // namespace sluice::compress
