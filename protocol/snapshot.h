// What job checkpoints are made of, in plain types, for the cores on both sides: the state after a
// step, part by part. docs/checkpoints.md tells how it lies on disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/compressor.h"
#include "compress/saved_state.h"
#include "protocol/compression_plan.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

// One file of a checkpoint, durable, or why it is not.
struct CheckpointPart {
  uint32_t term = 0;
  uint64_t step = 0;
  std::string name;  // Which part it is; also of its file, unless `file` says otherwise.
  uint64_t bytes = 0;
  uint32_t checksum = 0;  // CRC-32C of the whole file, as read back.
  std::string error;      // Not empty: it could not be written, or not be read.
  uint32_t server = 0;    // With store `shards`: the shard whose server has it.
  // With an error: it was to be restored from and could not be read. Else it could not be written.
  bool unreadable = false;
  // Not empty: its file in the checkpoint's folder, where that of its name is another writer's.
  std::string file{};

  friend bool operator==(const CheckpointPart&, const CheckpointPart&) = default;
};

// A shard's state exactly after `step`.
struct ShardSnapshot {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t shard = 0;
  std::vector<uint64_t> versions;  // By bundle.
  compress::SavedCompressor downlink;
  std::vector<compress::SavedState> aggregators;  // By chunk of the shard, in bundle order.
  // Of jobs whose shards do the updates, in the same order; else empty.
  std::vector<compress::SavedState> replica{};
  // Of jobs whose workers do not wait for each other: the last step of each rank, by bundle, then
  // rank; else empty.
  std::vector<uint64_t> clocks{};
  // Of jobs that make plans: the one that held, and those that were announced.
  std::vector<CompressionPlan> plans{};

  friend bool operator==(const ShardSnapshot&, const ShardSnapshot&) = default;
};

// A rank's state exactly after `step`.
struct WorkerSnapshot {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t rank = 0;
  compress::SavedCompressor uplink;      // What was published up to `step` is observed.
  std::string trainer;                   // As it came through Session::SaveCheckpoint.
  std::vector<CompressionPlan> plans{};  // As in ShardSnapshot.

  friend bool operator==(const WorkerSnapshot&, const WorkerSnapshot&) = default;
};

// A complete checkpoint: written last, when every part is durable.
struct CheckpointManifest {
  std::string job_name;
  uint64_t job_hash = 0;
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t world_size = 0;
  uint32_t shards = 0;
  uint64_t table_hash = 0;
  LayoutParameters layout;
  std::string software_version;
  bool at_shards = false;  // Store `shards`: parts lie with their servers, not with the manifest.
  std::vector<CheckpointPart> parts;  // By name; terms and steps are the manifest's.

  friend bool operator==(const CheckpointManifest&, const CheckpointManifest&) = default;
};

// The worker that holds a rank.
struct RunMember {
  uint64_t nonce = 0;
  uint64_t incarnation = 0;
  std::string host;
  uint32_t pid = 0;
  std::string parameters_sha256;

  friend bool operator==(const RunMember&, const RunMember&) = default;
};

// What the coordinator must not forget: on disk before it is announced.
struct RunRecord {
  std::string job_name;
  uint64_t job_uid = 0;
  uint32_t term = 0;
  bool finished = false;
  // Coordinators of the run so far, which is the number of the last one; 0: one that did not count.
  uint64_t coordinator_incarnation = 0;
  // The term as it was announced; generation 0: it was not yet.
  uint32_t generation = 0;
  uint64_t restore_step = 0;  // What the term began with.
  bool parameters_agree = true;
  TensorTable table{};
  std::vector<RunMember> members{};  // By rank.

  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// "shard-1-term-0.state", "worker-3-term-0.state": terms never write over each other's files.
std::string ShardPartName(uint32_t shard, uint32_t term);
std::string WorkerPartName(uint32_t rank, uint32_t term);

}  // namespace sluice::protocol
