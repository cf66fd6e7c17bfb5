// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/restore_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/feedback/residual_merge.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::worker {
namespace {

absl::StatusOr<protocol::WorkerSnapshot> ReadState(const SnapshotSource& source,
                                                   const protocol::CheckpointPart& part,
                                                   uint64_t job_uid, uint32_t rank) {
  const absl::StatusOr<std::string> bytes = source.read(part);
  if (!bytes.ok()) return bytes.status();
  const std::string name = absl::StrCat(part.name, " of step ", source.step);
  absl::StatusOr<protocol::WorkerSnapshot> snapshot = protocol::ParseWorkerSnapshot(*bytes);
  if (!snapshot.ok()) {
    return absl::Status(snapshot.status().code(),
                        absl::StrCat(name, ": ", snapshot.status().message()));
  }
  if (snapshot->rank != rank || snapshot->step != source.step || snapshot->job_uid != job_uid) {
    return absl::DataLossError(absl::StrCat(name, " holds the state of rank ", snapshot->rank,
                                            " after step ", snapshot->step, " of run ",
                                            snapshot->job_uid, ", expected rank ", rank,
                                            " after step ", source.step, " of run ", job_uid));
  }
  return snapshot;
}

}  // namespace

absl::StatusOr<SnapshotSource> FindInFolder(const std::string& dir, uint64_t step,
                                            const protocol::Sender& sender, bool elastic) {
  if (dir.empty()) {
    return absl::FailedPreconditionError(
        "this worker's job file has no checkpoint.dir: give all servers and workers of a job the "
        "same one");
  }
  absl::StatusOr<protocol::CheckpointManifest> manifest = protocol::ReadManifest(dir, step);
  if (absl::IsNotFound(manifest.status())) {
    return absl::NotFoundError(
        absl::StrCat(manifest.status().message(),
                     "; the coordinator found it there: checkpoint.dir must be one "
                     "folder that all servers and workers see"));
  }
  if (!manifest.ok()) return manifest.status();
  if (manifest->job_uid != sender.job_uid) {
    return absl::FailedPreconditionError(absl::StrCat(
        protocol::StepFolder(dir, step), " is of run ", manifest->job_uid, ", but this is run ",
        sender.job_uid, ": checkpoint.dir must be one folder that all servers and workers see"));
  }
  SnapshotSource source;
  source.step = step;
  source.world_size = manifest->world_size;
  for (uint32_t rank = 0; rank < manifest->world_size; ++rank) {
    absl::StatusOr<protocol::CheckpointPart> part =
        protocol::FindPart(*manifest, protocol::WorkerPartName(rank, manifest->term));
    if (!part.ok() && elastic) continue;
    if (!part.ok()) return part.status();
    source.states.push_back(*std::move(part));
  }
  source.read = [dir](const protocol::CheckpointPart& part) {
    return protocol::ReadPart(dir, part);
  };
  return source;
}

absl::StatusOr<protocol::WorkerSnapshot> ReadSnapshot(const SnapshotSource& source,
                                                      const protocol::Sender& sender,
                                                      uint32_t world_size) {
  const bool all = source.states.size() == source.world_size;
  if (!all && (source.states.size() != 1 || source.world_size != world_size)) {
    return absl::DataLossError(absl::StrCat("the manifest of step ", source.step, " lists ",
                                            source.states.size(), " states of ", source.world_size,
                                            " ranks"));
  }
  if (source.world_size == world_size) {
    return ReadState(source, source.states[all ? sender.rank : 0], sender.job_uid, sender.rank);
  }
  compress::ResidualMerge mean;
  protocol::WorkerSnapshot result;
  for (uint32_t rank = 0; rank < source.world_size; ++rank) {
    absl::StatusOr<protocol::WorkerSnapshot> state =
        ReadState(source, source.states[rank], sender.job_uid, rank);
    if (!state.ok()) return state.status();
    const bool as_rest = rank == sender.rank % source.world_size;
    const absl::Status added = mean.Add(std::move(state->uplink), as_rest);
    if (!added.ok()) return added;
    if (as_rest) result = *std::move(state);
  }
  absl::StatusOr<compress::SavedCompressor> uplink = mean.Take();
  if (!uplink.ok()) return uplink.status();
  result.rank = sender.rank;
  result.uplink = *std::move(uplink);
  return result;
}

absl::StatusOr<protocol::WorkerSnapshot> ReadElasticSnapshot(const SnapshotSource& source,
                                                             const protocol::Sender& sender,
                                                             bool late_joiner) {
  // The checkpoint's job had fewer ranks.
  if (!late_joiner && sender.rank >= source.world_size) {
    return ReadElasticSnapshot(source, sender, true);
  }
  for (uint32_t rank = late_joiner ? 0 : sender.rank; rank < source.world_size; ++rank) {
    const auto own = std::find_if(source.states.begin(), source.states.end(),
                                  [&](const protocol::CheckpointPart& part) {
                                    return part.name == protocol::WorkerPartName(rank, part.term);
                                  });
    if (!late_joiner && own == source.states.end())
      return ReadElasticSnapshot(source, sender, true);
    if (own == source.states.end()) continue;
    absl::StatusOr<protocol::WorkerSnapshot> state = ReadState(source, *own, sender.job_uid, rank);
    if (!state.ok() || !late_joiner) return state;
    state->rank = sender.rank;
    state->uplink = compress::SavedCompressor();
    return state;
  }
  return absl::DataLossError(
      absl::StrCat("the manifest of step ", source.step, " lists no rank's state"));
}

}  // namespace sluice::worker
