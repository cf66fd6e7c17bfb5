// SPDX-License-Identifier: Apache-2.0
// Fixture that drives a Coordinator and sorts its effects.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {

inline protocol::WorkerJoin JoinOf(uint32_t rank, uint64_t nonce = 0) {
  return {.job_name = "demo",
          .job_hash = 9,
          .nonce = nonce == 0 ? 1000 + rank : nonce,
          .rank = rank,
          .table = {{.name = "w", .shape = {4}, .strides = {}, .dtype = protocol::DType::kFloat32}},
          .parameters_sha256 = "same",
          .software_version = "1",
          .host = "a",
          .pid = 120 + rank};
}

inline protocol::ShardArrival ArrivalOf(uint32_t shard, uint64_t incarnation = 50) {
  return {.job_name = "demo",
          .job_hash = 9,
          .shard = shard,
          .address = absl::StrCat("h:", 7070 + shard),
          .server_incarnation = incarnation,
          .software_version = "1"};
}

// A job of two ranks (Join tokens 1 and 2) and two shards (streams 11 and 12), unless a test uses
// others. Records all effects.
class CoordinatorTest : public ::testing::Test {
 protected:
  explicit CoordinatorTest(CoordinatorOptions options = ExampleOptions())
      : coordinator_(std::move(options), absl::UnixEpoch()) {}

  static CoordinatorOptions ExampleOptions() {
    return {.job_name = "demo",
            .job_hash = 9,
            .software_version = "1",
            .world_size = 2,
            .shards = 2,
            .job_uid = 77};
  }

  void Join(JoinToken token, protocol::WorkerJoin join) {
    coordinator_.Join(token, std::move(join), now_, &effects_);
    Collect();
  }
  void Attach(ControlStreamId stream, const protocol::ShardArrival& arrival) {
    coordinator_.AttachShard(stream, arrival, now_, &effects_);
    Collect();
  }
  void Acknowledge(ControlStreamId stream, uint64_t sequence) {
    coordinator_.ShardAcknowledged(stream, sequence, now_, &effects_);
    Collect();
  }
  void Tick(absl::Duration by) {
    now_ += by;
    coordinator_.Tick(now_, &effects_);
    Collect();
  }
  void StartJob() {
    Join(1, JoinOf(0));
    Join(2, JoinOf(1));
    Attach(11, ArrivalOf(0));
    Attach(12, ArrivalOf(1));
    Acknowledge(11, commands_.at(11).sequence);
    Acknowledge(12, commands_.at(12).sequence);
    ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  }
  protocol::WorkerHeartbeat BeatOf(uint32_t rank) {
    const protocol::JoinGrant& grant = *answers_.at(rank + 1);
    return {.sender = {.job_uid = grant.job_uid,
                       .term = grant.term,
                       .rank = rank,
                       .incarnation = grant.incarnation,
                       .generation = grant.generation},
            .progress = {},
            .parameters_hash_step = 0,
            .parameters_sha256 = ""};
  }
  absl::StatusOr<protocol::JobState> Beat(const protocol::WorkerHeartbeat& heartbeat) {
    absl::StatusOr<protocol::JobState> state = coordinator_.Heartbeat(heartbeat, now_, &effects_);
    Collect();
    return state;
  }
  absl::StatusOr<protocol::JobState> Leave(uint32_t rank, bool finished, std::string reason = "") {
    absl::StatusOr<protocol::JobState> state =
        coordinator_.Leave({BeatOf(rank), finished, std::move(reason)}, now_, &effects_);
    Collect();
    return state;
  }
  // Returns true if the effect announces the term or the membership. (A suspension only contains
  // the number of the next term.)
  static bool Announces(const CoordinatorEffect& effect) {
    const auto* const command = std::get_if<CommandShard>(&effect);
    return std::holds_alternative<AnswerJoin>(effect) ||
           (command != nullptr && (std::holds_alternative<protocol::StartShard>(command->command) ||
                                   std::holds_alternative<protocol::SetMembers>(command->command) ||
                                   std::holds_alternative<protocol::EndShard>(command->command)));
  }
  void Collect() {
    bool told = false;
    for (CoordinatorEffect& effect : effects_) {
      told = told || Announces(effect);
      if (auto* join = std::get_if<AnswerJoin>(&effect)) {
        EXPECT_FALSE(answers_.contains(join->token)) << "a call must be answered only once";
        answers_.emplace(join->token, std::move(join->grant));
      } else if (auto* command = std::get_if<CommandShard>(&effect)) {
        history_.push_back(*command);
        commands_[command->stream] = std::move(*command);
      } else if (auto* refusal = std::get_if<RefuseShard>(&effect)) {
        refusals_[refusal->stream] = refusal->why;
      } else if (auto* answer = std::get_if<AnswerCheckpoint>(&effect)) {
        checkpoint_answers_.emplace(answer->token, std::move(answer->step));
      } else if (auto* record = std::get_if<PersistRun>(&effect)) {
        EXPECT_FALSE(told) << "the record must be durable before it is announced";
        records_.push_back(record->record);
      } else if (auto* write = std::get_if<WriteCheckpoint>(&effect)) {
        manifests_.push_back(std::move(write->manifest));
      } else if (auto* drop = std::get_if<DropCheckpoint>(&effect)) {
        dropped_.push_back(drop->step);
      } else if (auto* notice = std::get_if<Notice>(&effect)) {
        (notice->warning ? warnings_ : notices_).push_back(notice->text);
      }
    }
    effects_.clear();
  }

  absl::Time now_ = absl::UnixEpoch();
  Coordinator coordinator_;
  Coordinator::Effects effects_;
  std::map<JoinToken, absl::StatusOr<protocol::JoinGrant>> answers_;
  std::map<ControlStreamId, CommandShard> commands_;
  std::vector<CommandShard> history_;
  std::map<ControlStreamId, absl::Status> refusals_;
  std::map<CheckpointToken, absl::StatusOr<uint64_t>> checkpoint_answers_;
  std::vector<protocol::RunRecord> records_;
  std::vector<protocol::CheckpointManifest> manifests_;
  std::vector<uint64_t> dropped_;
  std::vector<std::string> warnings_;
  std::vector<std::string> notices_;
};

}  // namespace sluice::server
