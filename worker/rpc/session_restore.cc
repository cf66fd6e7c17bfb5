// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/session_restore.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "protocol/snapshot.h"
#include "worker/rpc/restore_source.h"
#include "worker/rpc/store_client.h"

namespace sluice::worker {
namespace {

// First pause between attempts to read a checkpoint; it doubles up to kReadAgainMax.
constexpr absl::Duration kReadAgainMin = absl::Milliseconds(250);
constexpr absl::Duration kReadAgainMax = absl::Seconds(2);
// Attempts before a checkpoint is reported as damaged, because a disk or its network may fail once.
constexpr int kDamagedTries = 2;

absl::StatusOr<SnapshotSource> FindSnapshots(const RemoteSessionOptions& options,
                                             const Membership& membership, StoreClient* store) {
  if (store == nullptr) {
    return FindInFolder(options.checkpoint.dir, membership.restore_step, membership.sender,
                        options.exchange.elastic());
  }
  return SnapshotSource{
      .step = membership.restore_step,
      .world_size = membership.restore_world_size,
      .states = membership.restore_parts,
      .read = [store, timeout = options.server.rejoin_timeout](
                  const protocol::CheckpointPart& part) { return store->Get(part, timeout); }};
}

absl::StatusOr<RestoredState> TryRestore(const RemoteSessionOptions& options,
                                         const Membership& membership, RemoteSession* session,
                                         std::string* last_read) {
  *last_read = std::string(protocol::kManifestName);
  absl::StatusOr<SnapshotSource> source = FindSnapshots(options, membership, session->store());
  if (!source.ok()) return source.status();
  source->read = [read = std::move(source->read), last_read](const protocol::CheckpointPart& part) {
    *last_read = part.name;
    return read(part);
  };
  if (options.may_restore) {
    // A relay whose rack lacks the checkpoint reports its own part.
    if (!source->states.empty()) {
      *last_read = protocol::WorkerPartName(membership.sender.rank, source->states.front().term);
    }
    const absl::Status may = options.may_restore(membership.restore_step);
    if (!may.ok()) return may;
  }
  absl::StatusOr<protocol::WorkerSnapshot> snapshot =
      options.exchange.elastic()
          ? ReadElasticSnapshot(*source, membership.sender, membership.late_joiner)
          : ReadSnapshot(*source, membership.sender, membership.world_size);
  if (!snapshot.ok()) return snapshot.status();
  // The state has no uplink if it is another rank's.
  if (!snapshot->uplink.chunks.empty()) {
    const absl::Status restored = session->steps().Restore(snapshot->uplink);
    if (!restored.ok()) return restored;
  }
  const absl::Status planned = session->steps().SetPlans(snapshot->plans);
  if (!planned.ok()) return planned;
  return RestoredState{.trainer = std::move(snapshot->trainer), .world_size = source->world_size};
}

}  // namespace

absl::StatusOr<RestoredState> RestoreSession(const RemoteSessionOptions& options,
                                             const Membership& membership, RemoteSession* session,
                                             std::string* last_read) {
  const absl::Time until = options.clock->Now() + options.server.rejoin_timeout;
  absl::Duration pause = kReadAgainMin;
  std::string told;
  for (int tries = 1;; ++tries) {
    absl::StatusOr<RestoredState> restored = TryRestore(options, membership, session, last_read);
    const absl::Status& status = restored.status();
    // The directory may become available again.
    const bool may_pass = absl::IsUnavailable(status) || absl::IsNotFound(status);
    const bool again =
        may_pass ? options.clock->Now() < until : absl::IsDataLoss(status) && tries < kDamagedTries;
    if (!again) return restored;
    if (status.message() != told) {
      told = std::string(status.message());
      options.logger.Warning("the checkpoint after step ", membership.restore_step,
                             " cannot be read now: ", told, "; retrying");
    }
    session->RestoreFails(status.message());
    if (!session->steps().SleepFor(pause)) return session->steps().status();
    pause = std::min(2 * pause, kReadAgainMax);
  }
}

}  // namespace sluice::worker
