// RepairTest: a job whose losses are repaired in the term that runs, on top of RollbackTest.
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

// Two ranks and two shards, of which all is kept unless a test says otherwise.
class RepairTest : public RollbackTest {
 protected:
  RepairTest() : RollbackTest(WithRepair(ExampleOptions())) {}
  explicit RepairTest(CoordinatorOptions options) : RollbackTest(std::move(options)) {}

  WorkerHeartbeat BeatOfHolder(JoinToken token, uint64_t step = 0, uint64_t replay_from = 1) {
    const JoinGrant& grant = *answers_.at(token);
    WorkerHeartbeat beat;
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
  // With word of those holders and shards each second.
  void PassWith(const std::vector<JoinToken>& holders, const std::vector<ControlStreamId>& shards,
                absl::Duration time, uint64_t step = 0) {
    for (absl::Duration done; done < time; done += absl::Seconds(1)) {
      Tick(absl::Seconds(1));
      for (const JoinToken holder : holders) {
        if (coordinator_.phase() == JobPhase::kRunning) {
          EXPECT_TRUE(Beat(BeatOfHolder(holder, step)).ok());
        }
      }
      for (const ControlStreamId shard : shards) Health(shard, step);
    }
  }
  void AttachRunning(ControlStreamId stream, uint32_t shard, uint32_t term,
                     uint64_t incarnation = 50) {
    ShardArrival arrival = ArrivalOf(shard, incarnation);
    arrival.running = true;
    arrival.job_uid = 77;
    arrival.term = term;
    Attach(stream, arrival);
  }
  void AcknowledgeStart(ControlStreamId stream) {
    ASSERT_NE(NewestOf<StartShard>(stream), nullptr);
    Acknowledge(stream, NewestOf<StartShard>(stream)->sequence);
  }
  void AcknowledgeMembers(ControlStreamId stream) {
    ASSERT_NE(NewestOf<SetMembers>(stream), nullptr);
    Acknowledge(stream, NewestOf<SetMembers>(stream)->sequence);
  }
  const StartShard* StartOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<StartShard>(stream);
    return command == nullptr ? nullptr : &std::get<StartShard>(command->command);
  }
  const SetMembers* MembersOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<SetMembers>(stream);
    return command == nullptr ? nullptr : &std::get<SetMembers>(command->command);
  }
  const ReleaseResults* ReleaseOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<ReleaseResults>(stream);
    return command == nullptr ? nullptr : &std::get<ReleaseResults>(command->command);
  }
  const NameCheckpoint* NameOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<NameCheckpoint>(stream);
    return command == nullptr ? nullptr : &std::get<NameCheckpoint>(command->command);
  }
  JobStatus Now() const { return coordinator_.Status(now_); }
};

}  // namespace sluice::server
