// SPDX-License-Identifier: Apache-2.0
// Fixture for the parts of a coordinator: a JobRun without a Coordinator.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/job_run.h"
#include "tests/server/coordinator/coordinator_fixture.h"

namespace sluice::server {

// A job of two ranks (Join tokens 1 and 2) and two shards (streams 11 and 12) that repairs losses,
// unless a test uses others. Start lets it run.
class JobRunTest : public ::testing::Test {
 protected:
  explicit JobRunTest(CoordinatorOptions options = RepairOptions())
      : run_(std::move(options), absl::UnixEpoch()) {}

  static CoordinatorOptions RepairOptions() {
    CoordinatorOptions options;
    options.job_name = "demo";
    options.job_hash = 9;
    options.software_version = "1";
    options.world_size = 2;
    options.shards = 2;
    options.job_uid = 77;
    options.checkpoint = {.dir = "checkpoints", .interval = 10, .replay_limit = 0};
    options.checkpoint.replay_limit = 1000;
    return options;
  }
  static CoordinatorOptions WithoutCheckpoints() {
    CoordinatorOptions options = RepairOptions();
    options.checkpoint = {};
    return options;
  }
  // Two workers suffice to begin, and one suffices to continue.
  static CoordinatorOptions ElasticOptions() {
    CoordinatorOptions options = RepairOptions();
    options.elastic = ElasticMembership{.start = 2, .least = 1};
    return options;
  }

  void Seat(uint32_t rank) { run_.roster().Seat(rank + 1, JoinOf(rank), now_); }
  void Attach(uint32_t shard, uint64_t incarnation = 50) {
    run_.fleet().Attach(11 + shard, ArrivalOf(shard, incarnation), now_, &effects_);
  }
  // Acknowledges the newest command to the shard.
  void Acknowledge(uint32_t shard) {
    uint64_t sequence = 0;
    for (const CommandShard& command : EffectsOf<CommandShard>()) {
      if (command.stream == 11 + shard) sequence = command.sequence;
    }
    EXPECT_TRUE(run_.fleet().Acknowledge(11 + shard, sequence, now_, &effects_));
  }
  void Start() {
    for (const uint32_t each : {0u, 1u}) {
      Seat(each);
      Attach(each);
    }
    run_.StartWhenComplete(now_, &effects_);
    for (const uint32_t shard : {0u, 1u}) Acknowledge(shard);
    run_.RunWhenStarted(now_, &effects_);
    ASSERT_TRUE(run_.is_running());
    effects_.clear();
  }
  // Lets the checkpoint after this step become complete.
  void CompleteCheckpoint(uint64_t step) {
    run_.checkpoints().Named(step);
    const uint32_t term = run_.term().number;
    for (const uint32_t each : {0u, 1u}) {
      AddPart(step, protocol::WorkerPartName(each, term), each);
      AddPart(step, protocol::ShardPartName(each, term), each);
    }
    ASSERT_TRUE(run_.book().being_written());
    run_.checkpoints().WriteManifest(run_.messages().ManifestHead(step), &effects_);
    run_.checkpoints().Complete({}, now_, &effects_);
    effects_.clear();
  }
  void AddPart(uint64_t step, std::string name, uint32_t server = 0) {
    protocol::CheckpointPart part = PartOf(step, std::move(name));
    if (run_.options().checkpoint.at_shards()) part.server = server;
    run_.checkpoints().Add(part, now_);
  }
  protocol::CheckpointPart PartOf(uint64_t step, std::string name) const {
    protocol::CheckpointPart part;
    part.term = run_.term().number;
    part.step = step;
    part.name = std::move(name);
    return part;
  }
  // A newcomer waits for the rank. The Join has this token.
  void AwaitRank(uint32_t rank, JoinToken token) {
    run_.roster().Await(token, JoinOf(rank, /*nonce=*/5000 + rank), now_, &effects_);
  }
  protocol::WorkerHeartbeat BeatOf(uint32_t rank) const {
    protocol::WorkerHeartbeat heartbeat;
    heartbeat.sender = {.job_uid = 77,
                        .term = run_.term().number,
                        .rank = rank,
                        .incarnation = run_.roster()[rank].incarnation,
                        .generation = run_.term().generation};
    heartbeat.replay_from = 1;
    return heartbeat;
  }
  void ReportStep(uint32_t rank, uint64_t step) {
    protocol::WorkerHeartbeat heartbeat = BeatOf(rank);
    heartbeat.progress.step = step;
    run_.roster().Report(heartbeat, true, now_, &effects_);
  }
  void Report(uint32_t rank) { run_.roster().Report(BeatOf(rank), true, now_, &effects_); }

  template <typename Effect>
  std::vector<Effect> EffectsOf() const {
    std::vector<Effect> found;
    for (const CoordinatorEffect& effect : effects_) {
      if (const auto* const one = std::get_if<Effect>(&effect)) found.push_back(*one);
    }
    return found;
  }
  // Returns the event of each notice.
  std::vector<std::string> Events() const {
    std::vector<std::string> events;
    for (const Notice& notice : EffectsOf<Notice>()) events.emplace_back(notice.fields.event);
    return events;
  }
  std::string LastNotice() const {
    const std::vector<Notice> notices = EffectsOf<Notice>();
    return notices.empty() ? "" : notices.back().text;
  }

  using Texts = std::vector<std::string>;
  absl::Time now_ = absl::UnixEpoch();
  JobRun run_;
  CoordinatorEffects effects_;
};

}  // namespace sluice::server
