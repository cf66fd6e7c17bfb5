// SPDX-License-Identifier: Apache-2.0
// Messages between a shard and the coordinator as plain types. The pure cores on both sides use
// them, because cores do not include protobuf. docs/protocol.md defines the rules.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/log_level.h"
#include "protocol/disk_wait.h"
#include "protocol/job_phase.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

// A shard's first message to the coordinator.
struct ShardArrival {
  std::string job_name;
  uint64_t job_hash = 0;
  uint32_t shard = 0;
  std::string address;
  uint64_t server_incarnation = 0;
  std::string software_version;
  // The run and the term that the process already serves. They are meaningless if `running` is
  // false.
  uint64_t job_uid = 0;
  uint32_t term = 0;
  bool running = false;
  // A random number that identifies this start of the process.
  uint64_t nonce = 0;

  friend bool operator==(const ShardArrival&, const ShardArrival&) = default;
};

// One shard's estimate of its link to one worker. Rates are in bytes per second. Latencies are
// one-way times in seconds, half of a round trip. An unknown figure is 0.
struct LinkFigures {
  double up_rate = 0;
  double up_latency_s = 0;
  double down_rate = 0;
  double down_latency_s = 0;
  // How much later this worker's last frames arrived than those of the first rank, summed over
  // steps. compute_late_s is the part of the delay that longer computing causes. network_late_s is
  // the rest, which the worker's link or encoder causes.
  double compute_late_s = 0;
  double network_late_s = 0;

  friend bool operator==(const LinkFigures&, const LinkFigures&) = default;
};

// A rank whose contributions to a shard differ from those of the other ranks.
struct SuspectRank {
  uint32_t rank = 0;
  bool opposes = false;  // They point against the others'. Otherwise their norms are too large.
  bool counts = false;   // They count in full all the same.

  friend bool operator==(const SuspectRank&, const SuspectRank&) = default;
};

// A shard's request to renew its lease.
struct ShardHealthReport {
  uint64_t highest_closed_step = 0;
  uint64_t highest_open_step = 0;
  uint64_t elements = 0;
  uint64_t in_flight_bytes = 0;
  // First step whose results the shard still keeps. 0 means that the shard keeps none.
  uint64_t results_from = 0;
  // For each rank, the time between its last contribution and its last result of a step, summed
  // over the steps since the shard started.
  std::vector<double> waited_seconds{};
  // One for each rank.
  std::vector<LinkFigures> links{};
  DiskWait disk_wait{};
  std::vector<SuspectRank> suspects{};  // Ascending by rank.

  friend bool operator==(const ShardHealthReport&, const ShardHealthReport&) = default;
};

// The state of a shard of the job that wrote a checkpoint.
struct FormerState {
  CheckpointPart part;
  std::string address;  // Address of the server that has the part.

  friend bool operator==(const FormerState&, const FormerState&) = default;
};

// A command to start a term on a shard.
struct StartShard {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t first_step = 1;
  TensorTable table;
  LayoutParameters layout;
  uint32_t generation = 0;
  // One for each rank.
  std::vector<uint64_t> incarnations{};
  uint64_t window_bytes = 0;
  uint64_t coordinator_incarnation = 0;
  bool parameters_agree = true;
  // Step of the job checkpoint that the shard restores. 0 means that the shard restores none.
  uint64_t restore_step = 0;
  // True if the other processes are at a later step. The workers then send the steps after
  // restore_step again.
  bool replay = false;
  // Number of ranks that wrote the restored checkpoint.
  uint32_t restore_world_size = 0;
  // Only with store `shards`, if as many shards wrote the checkpoint: the shard's own part.
  CheckpointPart restore_part{};
  // Only with store `shards`, if another number of shards wrote the checkpoint: the states of all
  // those shards, by shard.
  std::vector<FormerState> former_states{};

  friend bool operator==(const StartShard&, const StartShard&) = default;
};

// A command that sets the incarnations of the workers that hold the ranks, by rank. 0 means that
// the rank is free.
struct SetMembers {
  uint32_t generation = 0;
  std::vector<uint64_t> incarnations{};

  friend bool operator==(const SetMembers&, const SetMembers&) = default;
};

// A command that lets the shard drop results up to this step, because a complete checkpoint after
// this step exists.
struct ReleaseResults {
  uint64_t durable_step = 0;

  friend bool operator==(const ReleaseResults&, const ReleaseResults&) = default;
};

// A command that is sent only with store `shards`. The shard removes its parts of all checkpoints
// whose step is below `before` and not in `steps`.
struct KeepCheckpoints {
  std::vector<uint64_t> steps;
  uint64_t before = 0;

  friend bool operator==(const KeepCheckpoints&, const KeepCheckpoints&) = default;
};

// A command that makes shard 0 announce a job checkpoint. The checkpoint's step is at least
// minimum_step and at least two steps after the open step.
struct NameCheckpoint {
  uint64_t minimum_step = 0;

  friend bool operator==(const NameCheckpoint&, const NameCheckpoint&) = default;
};

// A command that ends all earlier terms. A StartShard command of this term follows.
struct SuspendShard {
  uint32_t term = 0;
  std::string reason;

  friend bool operator==(const SuspendShard&, const SuspendShard&) = default;
};

// A command that reports the end of the job.
struct EndShard {
  JobPhase phase = JobPhase::kFinished;
  std::string reason;

  friend bool operator==(const EndShard&, const EndShard&) = default;
};

// A command to read and verify a part of a complete checkpoint, because a worker reports that it
// cannot read the part. The shard answers with PartExamined. With store `path`, the part may be the
// manifest (kManifestName).
struct ExaminePart {
  CheckpointPart part;

  friend bool operator==(const ExaminePart&, const ExaminePart&) = default;
};

// A command that sets the lowest level that the shard's process logs.
struct SetLogLevel {
  LogLevel lowest = LogLevel::kInfo;

  friend bool operator==(const SetLogLevel&, const SetLogLevel&) = default;
};

// Any command from the coordinator to a shard.
using ShardCommand = std::variant<StartShard, EndShard, NameCheckpoint, SuspendShard, SetMembers,
                                  ReleaseResults, KeepCheckpoints, ExaminePart, SetLogLevel>;

// A shard's answer to ExaminePart. `part.error` is empty if the part is intact.
struct PartExamined {
  CheckpointPart part;
};

}  // namespace sluice::protocol
