// SPDX-License-Identifier: Apache-2.0
// Decides who may write a part of a checkpoint.
#pragma once

#include <cstdint>

#include "protocol/snapshot.h"

namespace sluice::protocol {

// Returns true if a worker of this rank may write the part: its own state or, if it is rank 0, a
// file for people.
inline bool MayWritePart(uint32_t rank, const CheckpointPart& part) {
  const bool is_state = part.name.starts_with("worker-") || part.name.starts_with("shard-");
  return is_state ? part.name == WorkerPartName(rank, part.term) : rank == 0;
}

}  // namespace sluice::protocol
