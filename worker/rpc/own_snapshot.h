// ReadOwnSnapshot: a worker's part of a job checkpoint, found and checked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "job/exchange.h"
#include "job/snapshot.h"

namespace sluice {

// The state of `sender`'s rank after `step`, from the checkpoints in `dir`. DATA_LOSS: the
// checkpoint is damaged, and where; one from before may be whole. Any other error is not the
// checkpoint's: no such folder here, another run's, a newer version's.
absl::StatusOr<WorkerSnapshot> ReadOwnSnapshot(const std::string& dir, uint64_t step,
                                               const Sender& sender);

}  // namespace sluice
