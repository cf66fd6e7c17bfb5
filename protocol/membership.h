// SPDX-License-Identifier: Apache-2.0
// Messages between a worker and the coordinator as plain types. The pure cores on both sides use
// them, because cores do not include protobuf. docs/protocol.md defines the rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/log_level.h"
#include "protocol/compression_plan.h"
#include "protocol/disk_wait.h"
#include "protocol/exchange.h"
#include "protocol/job_phase.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

// A worker's request to hold a rank.
struct WorkerJoin {
  std::string job_name;
  uint64_t job_hash = 0;
  // A random number that identifies this start of the worker.
  uint64_t nonce = 0;
  uint32_t rank = 0;
  TensorTable table;
  std::string parameters_sha256;
  std::string software_version;
  std::string host;
  uint32_t pid = 0;

  friend bool operator==(const WorkerJoin&, const WorkerJoin&) = default;
};

// The address and identity of the process that serves a shard.
struct ShardPlace {
  uint32_t shard = 0;
  std::string address;
  uint64_t server_incarnation = 0;

  friend bool operator==(const ShardPlace&, const ShardPlace&) = default;
};

// The coordinator's reply that admits a worker to the job.
struct JoinGrant {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint32_t generation = 0;
  uint32_t world_size = 0;
  uint64_t first_step = 1;
  LayoutParameters layout;
  std::vector<ShardPlace> shards{};
  uint64_t window_bytes = 0;
  bool parameters_agree = true;
  // Step of the job checkpoint that the worker restores. 0 means that the worker restores none.
  uint64_t restore_step = 0;
  // Number of ranks that wrote that checkpoint.
  uint32_t restore_world_size = 0;
  // The parts that the worker restores; see JoinReply in coordinator.proto.
  std::vector<CheckpointPart> restore_parts{};
  absl::Duration lease;
  absl::Duration heartbeat;
  // Incarnation of the coordinator.
  uint64_t server_incarnation = 0;
  // True if the worker joins a job that is already at a later step. The worker begins with the
  // parameters of the checkpoint and without residuals.
  bool late_joiner = false;
  // See JoinReply in coordinator.proto.
  std::vector<uint32_t> members{};
  // Compression plan of the job's first step. Null in jobs without plans.
  std::shared_ptr<const CompressionPlan> plan{};
};

// Progress that a worker reports for display. Byte counts are sums since the start of the job.
struct MemberProgress {
  uint64_t step = 0;
  uint64_t total_steps = 0;
  uint32_t epoch = 0;
  double loss = 0;
  double samples_per_second = 0;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t dense_bytes_up = 0;
  uint64_t dense_bytes_down = 0;
  double step_ms_p50 = 0;
  // Accuracy between 0 and 1. Negative before the first test.
  double validation_metric = -1;
  uint64_t skipped_bundles = 0;
  // Estimated seconds until the end of the job. Absent if the worker has no estimate.
  std::optional<double> seconds_left{};
  // Sum of squares of the worker's residuals at the last measurement. 0 if the worker does not
  // measure residuals.
  double residual_energy = 0;

  friend bool operator==(const MemberProgress&, const MemberProgress&) = default;
};

// How a worker spent its time, summed over the `steps` steps since it joined.
struct MemberTimings {
  uint64_t steps = 0;
  // All time that the fields below do not include.
  double compute_seconds = 0;
  // Time spent waiting for the worker's own encoder.
  double encode_seconds = 0;
  double decode_seconds = 0;
  // Time spent waiting for the link, the shards or other workers.
  double exchange_seconds = 0;

  friend bool operator==(const MemberTimings&, const MemberTimings&) = default;
};

// A worker's request to renew its lease.
struct WorkerHeartbeat {
  Sender sender;
  MemberProgress progress;
  MemberTimings timings{};
  // Time since the last progress, not counting time spent waiting for other processes.
  absl::Duration since_progress{};
  // The step after which the parameters were hashed. 0 means that there is no hash.
  uint64_t parameters_hash_step = 0;
  std::string parameters_sha256;
  // First step whose requests the worker still keeps. 0 means that the worker keeps none.
  uint64_t replay_from = 0;
  // The worker's newest checkpoint parts. Each part is durable or has failed.
  std::vector<CheckpointPart> parts{};
  // For each shard, the highest server_incarnation that the worker knows.
  std::vector<uint64_t> known_shards{};
  // Step of the checkpoint that the worker is reading. 0 means that the worker is reading none.
  uint64_t restoring_step = 0;
  DiskWait disk_wait{};

  friend bool operator==(const WorkerHeartbeat&, const WorkerHeartbeat&) = default;
};

// A worker's message that it is leaving the job.
struct WorkerLeave {
  // The message carries only these fields of `last`: the sender, the progress, the timings and the
  // hash of the parameters.
  WorkerHeartbeat last;
  // False if the worker gave up before the end of the job.
  bool finished = false;
  std::string reason;

  friend bool operator==(const WorkerLeave&, const WorkerLeave&) = default;
};

// State of the job in the coordinator's replies to a worker. A reply to Leave carries only the
// phase, the failure and the term.
struct JobState {
  JobPhase phase = JobPhase::kWaiting;
  std::string failure;
  uint32_t generation = 0;
  // If this term is above the worker's term, the job was rolled back and the worker must join
  // again.
  uint32_t term = 0;
  // Step of the newest complete checkpoint. 0 means that there is none.
  uint64_t durable_step = 0;
  // Lists all shards in a reply to a worker that does not know the current process of some shard.
  // Otherwise empty.
  std::vector<ShardPlace> shards{};
  // Lowest level that the worker logs from now on. Unset if nothing changes.
  std::optional<LogLevel> log_level{};

  friend bool operator==(const JobState&, const JobState&) = default;
};

// The coordinator's answer to a heartbeat.
struct HeartbeatReply {
  JobState job;
  // Incarnation of the coordinator.
  uint64_t server_incarnation = 0;

  friend bool operator==(const HeartbeatReply&, const HeartbeatReply&) = default;
};

}  // namespace sluice::protocol
