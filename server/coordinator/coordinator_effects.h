// SPDX-License-Identifier: Apache-2.0
// Effects of a Coordinator, which its caller carries out in order.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"
#include "server/shard/notice.h"

namespace sluice::server {

using JoinToken = uint64_t;        // Identifies a Join call that waits for its answer; never 0.
using ControlStreamId = uint64_t;  // Identifies an Attach stream of a shard; never 0.
using CheckpointToken = uint64_t;  // Identifies a waiting RequestCheckpoint call; never 0.

// In a rack: all workers and shards of `term` have joined, and the previous term is over. The
// caller must call StartRackTerm with the step that the term begins with.
struct AskParent {
  uint32_t term = 0;
  protocol::TensorTable table;
};
// In a rack: all workers of `term` have finished. Call FinishParent when the parent has finished.
struct LeaveParent {
  uint32_t term = 0;
};
struct AnswerJoin {
  JoinToken token = 0;
  absl::StatusOr<protocol::JoinGrant> grant;
};
struct CommandShard {
  ControlStreamId stream = 0;
  uint64_t sequence = 0;
  protocol::ShardCommand command;
};
// Close the stream with this error.
struct RefuseShard {
  ControlStreamId stream = 0;
  absl::Status why;
};
// Make the record durable before carrying out any later effect. If that fails, call Fail.
struct PersistRun {
  protocol::RunRecord record;
};
// Write the manifest durably, then call CheckpointWritten.
struct WriteCheckpoint {
  protocol::CheckpointManifest manifest;
};
// Remove the files of the checkpoint after this step from disk.
struct DropCheckpoint {
  uint64_t step = 0;
};
// The answer to RequestCheckpoint: the step of a checkpoint that became complete after the request.
struct AnswerCheckpoint {
  CheckpointToken token = 0;
  absl::StatusOr<uint64_t> step;
};
using CoordinatorEffect =
    std::variant<AnswerJoin, CommandShard, RefuseShard, PersistRun, WriteCheckpoint, DropCheckpoint,
                 AnswerCheckpoint, AskParent, LeaveParent, Notice>;
using CoordinatorEffects = std::vector<CoordinatorEffect>;

}  // namespace sluice::server
