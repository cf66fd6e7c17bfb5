// SPDX-License-Identifier: Apache-2.0
// Fixture that drives the coordinator of a job with checkpoints.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/coordinator/coordinator_fixture.h"

namespace sluice::server {

inline CoordinatorOptions WithCheckpoints(CoordinatorOptions options) {
  options.checkpoint = {.dir = "checkpoints", .interval = 100, .replay_limit = 0};
  return options;
}

// Returns two complete checkpoints from an earlier coordinator of ExampleOptions' job.
inline std::vector<protocol::CheckpointManifest> TwoCheckpoints() {
  std::vector<protocol::CheckpointManifest> checkpoints;
  for (const uint64_t step : {100, 200}) {
    protocol::CheckpointManifest manifest;
    manifest.step = step;
    manifest.world_size = 2;
    manifest.shards = 2;
    manifest.table_hash = protocol::HashTensorTable(JoinOf(0).table);
    checkpoints.push_back(std::move(manifest));
  }
  return checkpoints;
}

// A job of two ranks and two shards, with a checkpoint every 100 steps.
class RollbackTest : public CoordinatorTest {
 protected:
  RollbackTest() : RollbackTest(WithCheckpoints(ExampleOptions())) {}
  explicit RollbackTest(CoordinatorOptions options) : CoordinatorTest(std::move(options)) {
    coordinator_.Begin(&effects_);
    Collect();
  }

  // Returns the newest command on the stream if it has this type, otherwise null.
  template <typename Command>
  const Command* LastOf(ControlStreamId stream) const {
    const auto command = commands_.find(stream);
    return command == commands_.end() ? nullptr : std::get_if<Command>(&command->second.command);
  }
  // Returns the newest command of this type on the stream. Returns null if there was none.
  template <typename Command>
  const CommandShard* NewestOf(ControlStreamId stream) const {
    for (auto command = history_.rbegin(); command != history_.rend(); ++command) {
      if (command->stream == stream && std::holds_alternative<Command>(command->command)) {
        return &*command;
      }
    }
    return nullptr;
  }
  protocol::CheckpointPart PartOf(std::string name, uint64_t step) const {
    return {.term = coordinator_.term(),
            .step = step,
            .name = std::move(name),
            .bytes = 1,
            .error = ""};
  }
  absl::Status WorkerPart(uint32_t rank, protocol::CheckpointPart part) {
    absl::Status status = coordinator_.WorkerPart(BeatOf(rank).sender, part, now_, &effects_);
    Collect();
    return status;
  }
  void ShardPart(ControlStreamId stream, protocol::CheckpointPart part) {
    coordinator_.ShardPart(stream, part, now_, &effects_);
    Collect();
  }
  void Written(uint64_t step, const absl::Status& status = absl::OkStatus()) {
    coordinator_.CheckpointWritten(step, status, now_, &effects_);
    Collect();
  }
  void Request(CheckpointToken token) {
    coordinator_.RequestCheckpoint(token, &effects_);
    Collect();
  }
  // Reports the parts of both shards (streams 11 and 12) and of both ranks.
  void GiveAllParts(uint64_t step) {
    for (uint32_t i = 0; i < 2; ++i) {
      ShardPart(11 + i, PartOf(protocol::ShardPartName(i, coordinator_.term()), step));
      EXPECT_TRUE(
          WorkerPart(i, PartOf(protocol::WorkerPartName(i, coordinator_.term()), step)).ok());
    }
  }
  void CompleteCheckpoint(uint64_t step) {
    GiveAllParts(step);
    ASSERT_FALSE(manifests_.empty());
    ASSERT_EQ(manifests_.back().step, step);
    Written(step);
  }
  void AcknowledgeAll() {
    for (const auto& [stream, command] : std::map(commands_)) Acknowledge(stream, command.sequence);
  }
};

}  // namespace sluice::server
