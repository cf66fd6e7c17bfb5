// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/part_reader.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "server/shard/redistribution.h"

namespace sluice::server {
namespace {

// Pause before a damaged part is read a second time, because an error of the disk or its network
// may be temporary.
constexpr absl::Duration kReadAgain = absl::Milliseconds(300);

}  // namespace

PartReader::PartReader(const job::JobSpec* job, uint32_t shard, Fetch fetch, const Clock* clock)
    : job_(*job),
      checkpoint_(job_.checkpoint),
      shard_(shard),
      fetch_(std::move(fetch)),
      clock_(clock) {}

absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> PartReader::Read(
    const protocol::StartShard& start) {
  {
    MutexLock lock(&mutex_);
    if (attempts_.step != start.restore_step || attempts_.term != start.term) {
      attempts_ = {.step = start.restore_step, .term = start.term, .since = clock_->Now()};
    }
  }
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> read = TryToRead(start);
  if (absl::IsDataLoss(read.status())) {
    absl::SleepFor(kReadAgain);
    read = TryToRead(start);
  }
  const bool may_pass = absl::IsUnavailable(read.status()) || absl::IsNotFound(read.status());
  MutexLock lock(&mutex_);
  if (may_pass && clock_->Now() - attempts_.since < job_.server.rejoin_timeout) {
    attempts_.trouble = std::string(read.status().message());
    return absl::UnavailableError(absl::StrCat("the checkpoint after step ", start.restore_step,
                                               " cannot be read now: ", read.status().message()));
  }
  attempts_ = Attempts();
  if (read.ok() || absl::IsFailedPrecondition(read.status())) return read;
  return absl::DataLossError(read.status().message());
}

protocol::DiskWait PartReader::NowAtDisk() const {
  MutexLock lock(&mutex_);
  if (attempts_.step == 0) return {};
  return {
      .what = absl::StrCat("its part of the checkpoint after step ", attempts_.step, " to be read"),
      .lasts = clock_->Now() - attempts_.since,
      .trouble = attempts_.trouble};
}

// A part belongs to the term in which it was written, and only the manifest contains that term.
absl::StatusOr<std::vector<protocol::FormerState>> PartReader::FindStates(
    const protocol::StartShard& start) const {
  if (checkpoint_.at_shards()) {
    if (!start.former_states.empty()) return start.former_states;
    std::vector<protocol::FormerState> states(job_.shards);
    states[shard_].part = start.restore_part;
    return states;
  }
  const absl::StatusOr<protocol::CheckpointManifest> manifest =
      protocol::ReadManifest(checkpoint_.dir, start.restore_step);
  if (!manifest.ok()) return manifest.status();
  std::vector<protocol::FormerState> states(manifest->shards);
  for (uint32_t shard = 0; shard < manifest->shards; ++shard) {
    if (manifest->shards == job_.shards && shard != shard_) continue;
    absl::StatusOr<protocol::CheckpointPart> part =
        protocol::FindPart(*manifest, protocol::ShardPartName(shard, manifest->term));
    if (!part.ok()) return part.status();
    states[shard].part = *std::move(part);
  }
  return states;
}

// This server stands in for some of the servers that the job no longer has.
absl::Status PartReader::FormerServersAreHere(size_t former_shards) const {
  if (!checkpoint_.at_shards()) return absl::OkStatus();
  for (uint32_t server = shard_ + job_.shards; server < former_shards; server += job_.shards) {
    const std::string folder = protocol::PartsFolder(checkpoint_.dir, server);
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the run had ", former_shards, " shards and continues with ", job_.shards,
                     ", and the parts of former shard ", server, " are not on this server: copy ",
                     "checkpoint.dir/shard-", server, " of that server to ", folder,
                     ", or continue with the former number of shards"));
  }
  return absl::OkStatus();
}

absl::StatusOr<protocol::ShardSnapshot> PartReader::ReadState(const protocol::FormerState& state,
                                                              uint64_t job_uid) const {
  const protocol::CheckpointPart& part = state.part;
  const bool is_remote = checkpoint_.at_shards() && protocol::ServerOf(part, job_.shards) != shard_;
  if (is_remote && fetch_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(part.name, " is on server ", part.server,
                                                      ", and this server reads only its own"));
  }
  const std::string folder = protocol::PartsFolder(checkpoint_, part.server);
  const absl::StatusOr<std::string> bytes =
      is_remote ? fetch_(state, job_uid) : protocol::ReadPart(folder, part);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<protocol::ShardSnapshot> snapshot = protocol::ParseShardSnapshot(*bytes);
  if (snapshot.ok()) return snapshot;
  return absl::Status(snapshot.status().code(), absl::StrCat(protocol::PartPath(folder, part), ": ",
                                                             snapshot.status().message()));
}

absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> PartReader::TryToRead(
    const protocol::StartShard& start) const {
  if (!checkpoint_.enabled()) {
    return absl::FailedPreconditionError(
        "the coordinator begins with a checkpoint, but this server's job file has no "
        "checkpoint.dir");
  }
  const absl::StatusOr<std::vector<protocol::FormerState>> states = FindStates(start);
  if (!states.ok()) return states.status();
  for (const protocol::FormerState& state : *states) {
    const protocol::CheckpointPart& part = state.part;
    const bool is_needed = states->size() != job_.shards || &state == &(*states)[shard_];
    if (!is_needed || (part.step == start.restore_step && part.error.empty())) continue;
    return absl::DataLossError(absl::StrCat("the manifest of the checkpoint after step ",
                                            start.restore_step, " has no state of shard ",
                                            &state - states->data()));
  }
  if (states->size() == job_.shards) {
    absl::StatusOr<protocol::ShardSnapshot> own = ReadState((*states)[shard_], start.job_uid);
    if (!own.ok()) return own.status();
    return std::make_shared<const protocol::ShardSnapshot>(*std::move(own));
  }
  if (const absl::Status here = FormerServersAreHere(states->size()); !here.ok()) return here;
  absl::StatusOr<Redistribution> redistribution =
      Redistribution::Create({.shard = shard_,
                              .former_shards = static_cast<uint32_t>(states->size()),
                              .shards = job_.shards,
                              .table = start.table,
                              .compression = job_.exchange.compression});
  if (!redistribution.ok()) return redistribution.status();
  for (const uint32_t source : redistribution->sources()) {
    absl::StatusOr<protocol::ShardSnapshot> former = ReadState((*states)[source], start.job_uid);
    if (!former.ok()) return former.status();
    const absl::Status added = redistribution->Add(*std::move(former));
    // Every checkpoint of the run would fail in the same way.
    if (!added.ok()) return absl::FailedPreconditionError(added.message());
  }
  absl::StatusOr<protocol::ShardSnapshot> state = redistribution->Take();
  if (!state.ok()) return state.status();
  return std::make_shared<const protocol::ShardSnapshot>(*std::move(state));
}

}  // namespace sluice::server
