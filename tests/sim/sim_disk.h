// SPDX-License-Identifier: Apache-2.0
// SimDisk is the folder that all processes of a simulated job share. Its contents are durable. It
// tracks the files that faults have changed, so that checks can tell an allowed rollback from a
// wrong one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "tests/sim/sim_world.h"

namespace sluice {

class SimDisk {
 public:
  using Manifests = std::map<uint64_t, protocol::CheckpointManifest>;  // By step.

  // `world` outlives it.
  explicit SimDisk(SimWorld* world) : world_(*world) {}

  const Manifests& manifests() const { return manifests_; }
  const std::optional<protocol::RunRecord>& record() const { return record_; }
  bool finished() const { return record_.has_value() && record_->finished; }
  uint32_t term() const { return record_.has_value() ? record_->term : 0; }
  bool unreadable() const { return world_.now < world_.disk_unreadable_until; }
  // Returns whether writes take effect and report an error.
  bool fails_late() const { return world_.now < world_.disk_fails_late_until; }
  // Returns whether `writer` can write nothing.
  bool Refuses(const SimProcess& writer) const {
    return world_.now < world_.disk_full_until || !writer.can_open(world_.now);
  }
  // Returns how many checkpoints have become complete.
  uint64_t completed() const { return completed_; }

  // Existing files with other bytes are kept, as in protocol/checkpoint; the part then gets a file
  // of its own.
  protocol::CheckpointPart WritePart(const SimProcess& writer, protocol::CheckpointPart part,
                                     std::string bytes);
  absl::StatusOr<std::string> ReadPart(uint64_t step, const std::string& name);
  // The file that a worker reads, which it names if it must report the checkpoint as unreadable.
  void NoteRead(std::string name) { last_read_ = std::move(name); }
  const std::string& last_read() const { return last_read_; }
  // Reads the part for the coordinator. The manifest is damaged if there is none.
  protocol::PartExamined Examine(protocol::CheckpointPart part);
  // Returns the parts of the complete checkpoint's workers, by rank.
  std::vector<protocol::CheckpointPart> WorkerParts(uint64_t step) const;
  // Returns the bytes of a part, of a complete checkpoint or not; null if the file does not exist.
  const std::string* FindPart(const protocol::CheckpointPart& part) const;
  // With `checks_parts`, fails unless all files that the manifest lists exist.
  absl::Status WriteManifest(const SimProcess& writer, const protocol::CheckpointManifest& manifest,
                             bool checks_parts);
  void WriteRecord(const protocol::RunRecord& record) { record_ = record; }
  void Drop(uint64_t step);

  // Returns the term of the complete checkpoint of `step`, or 0 if there is none.
  uint32_t TermOf(uint64_t step) const;
  using Servers = std::function<bool(uint32_t server)>;
  // Returns whether no fault has changed a file of these servers that the manifest lists.
  bool IsWhole(const protocol::CheckpointManifest& manifest, const Servers& servers = {}) const;
  // Returns the checkpoints that a starting coordinator can use, after reading all files of these
  // servers. The others stay unusable as long as this coordinator runs, even if a shard that
  // repeats its steps rewrites a lost part.
  std::vector<protocol::CheckpointManifest> UsableCheckpoints(const Servers& servers = {});
  // Returns whether a fault has changed a file of the checkpoint since it became complete.
  bool WasSpoilt(uint64_t step) const { return spoilt_.contains(step); }
  // Marks a checkpoint that some rack lacks.
  void Refuse(uint64_t step) { refused_.insert(step); }
  // Returns whether the current coordinator can roll back to the checkpoint.
  bool CanBeRestored(uint64_t step) const {
    return !refused_.contains(step) && !not_usable_.contains(step);
  }
  uint64_t NewestToRestore() const;
  // Returns what is wrong with a checkpoint that was declared complete: fewer parts than
  // `least_parts`, or parts that are not on the disk.
  std::vector<std::string> ProblemsOf(const protocol::CheckpointManifest& manifest,
                                      size_t least_parts) const;
  // Returns whether a file is damaged, or was in a checkpoint that was dropped with none completed
  // since.
  bool HasDamage() const { return !damaged_.empty() || dropped_damaged_; }

  // Changes one file of the newest checkpoint; false if there is no checkpoint.
  bool DamageNewest();
  // Removes from each checkpoint the parts that `is_lost` selects.
  void Lose(const std::function<bool(const protocol::CheckpointPart& part)>& is_lost);

 private:
  SimWorld& world_;
  std::map<uint64_t, std::map<std::string, std::string>> parts_;  // By step and file.
  Manifests manifests_;
  uint64_t completed_ = 0;
  std::optional<protocol::RunRecord> record_;
  std::set<std::pair<uint64_t, std::string>> damaged_;  // By step and file.
  bool dropped_damaged_ = false;
  std::set<uint64_t> spoilt_;
  std::set<uint64_t> refused_;
  std::set<uint64_t> not_usable_;
  std::string last_read_;
};

// Carries out a fault of disks. Returns false if there is nothing to damage.
bool StrikeDisk(Fault fault, SimWorld* world, SimDisk* disk);

}  // namespace sluice
