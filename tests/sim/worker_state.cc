// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/worker_state.h"

#include "worker/rpc/restore_source.h"

namespace sluice {

absl::StatusOr<protocol::WorkerSnapshot> ReadWorkerState(
    const SurvivalOptions& options, const protocol::JoinGrant& grant,
    const protocol::Sender& sender, SimDisk* disk,
    const std::function<bool(uint32_t server)>& can_read) {
  disk->NoteRead(std::string(protocol::kManifestName));
  worker::SnapshotSource source;
  source.step = grant.restore_step;
  source.world_size = grant.restore_world_size;
  source.states =
      options.parts_at_shards ? grant.restore_parts : disk->WorkerParts(grant.restore_step);
  source.read = [&](const protocol::CheckpointPart& part) -> absl::StatusOr<std::string> {
    disk->NoteRead(part.name);
    if (can_read(part.server)) return disk->ReadPart(source.step, part.name);
    return absl::UnavailableError("the disk cannot be read");
  };
  if (options.elastic) return worker::ReadElasticSnapshot(source, sender, grant.late_joiner);
  if (options.bug != SurvivalBug::kResidualsNotMerged) {
    return worker::ReadSnapshot(source, sender, options.ranks);
  }
  protocol::Sender old = sender;
  old.rank = sender.rank % source.world_size;
  if (source.states.size() > 1) source.states = {source.states[old.rank]};
  return worker::ReadSnapshot(source, old, source.world_size);
}

}  // namespace sluice
