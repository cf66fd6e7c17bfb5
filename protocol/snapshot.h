// SPDX-License-Identifier: Apache-2.0
// The state after a step, divided into parts as in job checkpoints. The types are plain, for the
// cores on both sides. docs/checkpoints.md describes the layout on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "compress/compressor.h"
#include "compress/saved_state.h"
#include "protocol/compression_plan.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

// Name of the file that lists a checkpoint's parts. No part has this name.
inline constexpr absl::string_view kManifestName = "manifest.json";
// Limit of the length of a part's name.
inline constexpr size_t kPartNameMax = 200;

// One durable file of a checkpoint, or the reason why the file is not durable.
struct CheckpointPart {
  uint32_t term = 0;
  uint64_t step = 0;
  std::string name;  // Name of the part. The file has the same name unless `file` is set.
  uint64_t bytes = 0;
  uint32_t checksum = 0;  // CRC-32C of the whole file, computed when it was read back.
  // Not empty if the part could not be written or read.
  std::string error;
  uint32_t server = 0;  // Only with store `shards`: the shard whose server holds the part.
  // Only with an error: true if a restore could not read the part, false if the part could not be
  // written.
  bool unreadable = false;
  // Name of the file in the checkpoint's folder if another writer's file already has the part's
  // name. Otherwise empty.
  std::string file{};

  friend bool operator==(const CheckpointPart&, const CheckpointPart&) = default;
};

// Returns the shard whose server has the part now, with store `shards`. If a job with more shards
// wrote the part, the server of a shard that is left stands in for the part's own.
inline uint32_t ServerOf(const CheckpointPart& part, uint32_t shards) {
  return part.server % shards;
}

// The state of a shard immediately after `step`.
struct ShardSnapshot {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t shard = 0;
  std::vector<uint64_t> versions;  // By bundle.
  compress::SavedCompressor downlink;
  std::vector<compress::SavedState> aggregators;  // By chunk of the shard, in bundle order.
  // By chunk in the same order, in jobs whose shards run the optimizer; otherwise empty.
  std::vector<compress::SavedState> replica{};
  // The last step of each rank, by bundle, then rank, in jobs whose workers do not wait for each
  // other; otherwise empty.
  std::vector<uint64_t> clocks{};
  // The plan in force and the announced plans, in jobs that make plans.
  std::vector<CompressionPlan> plans{};

  friend bool operator==(const ShardSnapshot&, const ShardSnapshot&) = default;
};

// The state of a rank immediately after `step`.
struct WorkerSnapshot {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t step = 0;
  uint32_t rank = 0;
  // State of the compressor, including the effect of all results up to `step`.
  compress::SavedCompressor uplink;
  std::string trainer;                   // The bytes passed to Session::SaveCheckpoint.
  std::vector<CompressionPlan> plans{};  // As in ShardSnapshot.

  friend bool operator==(const WorkerSnapshot&, const WorkerSnapshot&) = default;
};

// The list of a complete checkpoint's parts. The manifest is written last, when every part is
// durable.
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
  // True with store `shards`: the servers hold the parts, so they are not next to the manifest.
  bool at_shards = false;
  // Sorted by name. All parts have the manifest's term and step.
  std::vector<CheckpointPart> parts;

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

// State that must survive the loss of the coordinator. The record is on disk before its contents
// are announced.
struct RunRecord {
  std::string job_name;
  uint64_t job_uid = 0;
  uint32_t term = 0;
  bool finished = false;
  // Number of coordinators of the run so far, and thus the number of the current one. 0 means that
  // the record's writer did not count coordinators.
  uint64_t coordinator_incarnation = 0;
  // The announced generation of the term. 0 means that the term has not been announced yet.
  uint32_t generation = 0;
  uint64_t restore_step = 0;  // Step of the checkpoint with which the term began.
  bool parameters_agree = true;
  TensorTable table{};
  std::vector<RunMember> members{};  // By rank.

  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// These return the names of parts: "shard-1-term-0.state", "worker-3-term-0.state". Different terms
// never overwrite each other's files.
std::string ShardPartName(uint32_t shard, uint32_t term);
std::string WorkerPartName(uint32_t rank, uint32_t term);

}  // namespace sluice::protocol
