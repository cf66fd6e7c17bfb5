// SPDX-License-Identifier: Apache-2.0
// HeldParts: workers' parts of checkpoints that neither shard 0 nor a part of a shard has named
// yet. A worker's word alone must not begin a checkpoint: a part of a step that the job never
// reaches would stop all later checkpoints. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "protocol/snapshot.h"

namespace sluice::server {

class HeldParts {
 public:
  // Keeps the newest part of each name. Parts of earlier terms are dropped.
  void Keep(const protocol::CheckpointPart& part);
  // Removes and returns the parts of the checkpoint after `step`: first the files for people, which
  // a checkpoint does not wait for, then states, both by name. Drops parts of earlier steps.
  std::vector<protocol::CheckpointPart> Take(uint64_t step, uint32_t term);
  void Remove(const std::string& name) { parts_.erase(name); }
  // Removes the rank's parts: its state and, for rank 0, the files for people.
  void RemoveRank(uint32_t rank);

 private:
  std::map<std::string, protocol::CheckpointPart> parts_;  // By name; all of one term.
};

}  // namespace sluice::server
