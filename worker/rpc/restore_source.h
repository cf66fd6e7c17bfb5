// SPDX-License-Identifier: Apache-2.0
// Finds and checks the state that a rank restores: its part of a job checkpoint, or a combination
// of all ranks' parts if another set of ranks wrote it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"

namespace sluice::worker {

// Location of the ranks' states after one step.
struct SnapshotSource {
  uint64_t step = 0;
  uint32_t world_size = 0;  // Number of ranks that wrote the checkpoint.
  // The requested rank's state, or the states of all ranks that wrote one, by rank.
  std::vector<protocol::CheckpointPart> states;
  std::function<absl::StatusOr<std::string>(const protocol::CheckpointPart&)> read;
};

// Finds the states in a folder that servers and workers share. Fails with DATA_LOSS, and names the
// damage, if the checkpoint is damaged; an earlier checkpoint may be intact. Other errors do not
// concern the checkpoint: the folder does not exist here, or it belongs to another run or a newer
// version. With `elastic`, some ranks may have written no state.
absl::StatusOr<SnapshotSource> FindInFolder(const std::string& dir, uint64_t step,
                                            const protocol::Sender& sender, bool elastic);

// Reads the state of `sender`'s rank among `world_size` ranks. If the checkpoint has another world
// size, every rank starts with the mean of the uplinks' residuals
// (compress/feedback/residual_merge.h). Rank r then takes the remaining state of rank r modulo the
// old number of ranks. Holds one state at a time in memory besides the result. Errors are as above.
absl::StatusOr<protocol::WorkerSnapshot> ReadSnapshot(const SnapshotSource& source,
                                                      const protocol::Sender& sender,
                                                      uint32_t world_size);

// Like ReadSnapshot, in a job with elastic membership: reads the rank's own state. A late joiner,
// or a rank that wrote no state, gets the lowest rank's state without the uplink: an absent rank
// has no residual, and a late joiner's rank may have sent that step's residual since.
absl::StatusOr<protocol::WorkerSnapshot> ReadElasticSnapshot(const SnapshotSource& source,
                                                             const protocol::Sender& sender,
                                                             bool late_joiner);

}  // namespace sluice::worker
