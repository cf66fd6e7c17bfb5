// RepairTest: extends RollbackTest with a job whose losses are repaired in the current term.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/server/coordinator/checkpoint_fixture.h"

namespace sluice::server {

inline CoordinatorOptions WithRepair(CoordinatorOptions options) {
  options = WithCheckpoints(std::move(options));
  options.replay_limit = 1 << 20;
  return options;
}

// A job of two ranks and two shards. They keep all results unless a test changes that.
class RepairTest : public RollbackTest {
 protected:
  RepairTest() : RollbackTest(WithRepair(ExampleOptions())) {}
  explicit RepairTest(CoordinatorOptions options) : RollbackTest(std::move(options)) {}

  protocol::WorkerHeartbeat BeatOfHolder(JoinToken token, uint64_t step = 0,
                                         uint64_t replay_from = 1) {
    const protocol::JoinGrant& grant = *answers_.at(token);
    protocol::WorkerHeartbeat beat;
    beat.sender = {.job_uid = grant.job_uid,
                   .term = grant.term,
                   .rank = grant.rank,
                   .incarnation = grant.incarnation,
                   .generation = grant.generation};
    beat.progress.step = step;
    beat.replay_from = replay_from;
    return beat;
  }
  void Health(ControlStreamId stream, uint64_t closed, uint64_t results_from = 1) {
    coordinator_.ShardHealth(stream,
                             {.highest_closed_step = closed,
                              .highest_open_step = closed + 1,
                              .results_from = results_from},
                             now_);
  }
  // Advances the time. Each second, these holders and shards report.
  void PassWith(const std::vector<JoinToken>& holders, const std::vector<ControlStreamId>& shards,
                absl::Duration time, uint64_t step = 0) {
    for (absl::Duration done; done < time; done += absl::Seconds(1)) {
      Tick(absl::Seconds(1));
      for (const JoinToken holder : holders) {
        if (coordinator_.phase() == protocol::JobPhase::kRunning) {
          EXPECT_TRUE(Beat(BeatOfHolder(holder, step)).ok());
        }
      }
      for (const ControlStreamId shard : shards) Health(shard, step);
    }
  }
  void AttachRunning(ControlStreamId stream, uint32_t shard, uint32_t term,
                     uint64_t incarnation = 50) {
    protocol::ShardArrival arrival = ArrivalOf(shard, incarnation);
    arrival.running = true;
    arrival.job_uid = 77;
    arrival.term = term;
    Attach(stream, arrival);
  }
  void AcknowledgeStart(ControlStreamId stream) {
    ASSERT_NE(NewestOf<protocol::StartShard>(stream), nullptr);
    Acknowledge(stream, NewestOf<protocol::StartShard>(stream)->sequence);
  }
  void AcknowledgeMembers(ControlStreamId stream) {
    ASSERT_NE(NewestOf<protocol::SetMembers>(stream), nullptr);
    Acknowledge(stream, NewestOf<protocol::SetMembers>(stream)->sequence);
  }
  const protocol::StartShard* StartOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<protocol::StartShard>(stream);
    return command == nullptr ? nullptr : &std::get<protocol::StartShard>(command->command);
  }
  const protocol::SetMembers* MembersOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<protocol::SetMembers>(stream);
    return command == nullptr ? nullptr : &std::get<protocol::SetMembers>(command->command);
  }
  const protocol::ReleaseResults* ReleaseOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<protocol::ReleaseResults>(stream);
    return command == nullptr ? nullptr : &std::get<protocol::ReleaseResults>(command->command);
  }
  const protocol::NameCheckpoint* NameOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<protocol::NameCheckpoint>(stream);
    return command == nullptr ? nullptr : &std::get<protocol::NameCheckpoint>(command->command);
  }
  JobStatus Now() const { return coordinator_.Status(now_); }
};

}  // namespace sluice::server
