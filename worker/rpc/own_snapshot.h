// The state that a rank begins with: its part of a job checkpoint, or, if other ranks than now
// wrote it, what all of theirs together give; found and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"

namespace sluice::worker {

// Where states of ranks after one step are to be read.
struct SnapshotSource {
  uint64_t step = 0;
  uint32_t world_size = 0;  // Ranks that wrote it.
  // Of the one rank that is asked for, or of all that wrote one, by rank.
  std::vector<protocol::CheckpointPart> states;
  std::function<absl::StatusOr<std::string>(const protocol::CheckpointPart&)> read;
};

// In a folder that the servers and workers share. DATA_LOSS: the checkpoint is damaged, and where;
// one from before may be whole. Any other error is not the checkpoint's: no such folder here,
// another run's, a newer version's.
// `elastic`: some ranks may have written none.
absl::StatusOr<SnapshotSource> FindInFolder(const std::string& dir, uint64_t step,
                                            const protocol::Sender& sender, bool elastic);

// As `sender`'s rank of `world_size` begins. Of another world size: all begin with the mean of what
// the uplinks remembered (compress/feedback/compressor_mean.h), and rank r with the rest as rank r
// modulo their number had it. One state at a time is in memory beside what it gives. Errors as
// above.
absl::StatusOr<protocol::WorkerSnapshot> ReadSnapshot(const SnapshotSource& source,
                                                      const protocol::Sender& sender,
                                                      uint32_t world_size);

// The same in a job whose workers come and go: the rank's own state, or, of a learner and of a rank
// that wrote none, the lowest rank's without its uplink: who was not there owes nothing, and what a
// learner's rank owed at that step it may have sent since.
absl::StatusOr<protocol::WorkerSnapshot> ReadElasticSnapshot(const SnapshotSource& source,
                                                             const protocol::Sender& sender,
                                                             bool learner);

}  // namespace sluice::worker
