// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/shard_fleet.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

constexpr ShardState kStates[] = {ShardState::kAbsent,       ShardState::kWaits,
                                  ShardState::kAwaitsReplay, ShardState::kStartsReplay,
                                  ShardState::kReplays,      ShardState::kRuns};
constexpr ShardEvent kEvents[] = {ShardEvent::kNewProcess,  ShardEvent::kStarted,
                                  ShardEvent::kNeedsReplay, ShardEvent::kReplayBegan,
                                  ShardEvent::kCaughtUp,    ShardEvent::kTermBegan};

// Two shards with streams 11 and 12.
class ShardFleetTest : public ::testing::Test {
 protected:
  static protocol::ShardArrival ArrivalOf(uint32_t shard, uint64_t incarnation) {
    protocol::ShardArrival arrival;
    arrival.shard = shard;
    arrival.address = absl::StrCat("h:", shard);
    arrival.server_incarnation = incarnation;
    return arrival;
  }
  bool Attach(uint32_t shard, uint64_t incarnation = 1, ControlStreamId stream = 0) {
    return fleet_.Attach(stream == 0 ? 11 + shard : stream, ArrivalOf(shard, incarnation), now_,
                         &effects_);
  }
  void Start(uint32_t shard) {
    protocol::StartShard start;
    start.generation = 1;
    fleet_.Start(shard, start, &effects_);
    EXPECT_TRUE(fleet_.Acknowledge(11 + shard, LastSequence(), now_, &effects_));
  }
  void StartAll() {
    fleet_.BeginTerm(/*is_first=*/true);
    for (uint32_t shard = 0; shard < 2; ++shard) {
      EXPECT_TRUE(Attach(shard));
      Start(shard);
    }
    effects_.clear();
  }
  uint64_t LastSequence() const { return std::get<CommandShard>(effects_.back()).sequence; }
  // Returns the streams that got a command of this type, and forgets all effects.
  template <typename Command>
  std::vector<ControlStreamId> SentTo() {
    std::vector<ControlStreamId> streams;
    for (const CoordinatorEffect& effect : effects_) {
      const auto* const command = std::get_if<CommandShard>(&effect);
      if (command != nullptr && std::holds_alternative<Command>(command->command)) {
        streams.push_back(command->stream);
      }
    }
    effects_.clear();
    return streams;
  }

  using Streams = std::vector<ControlStreamId>;
  absl::Time now_ = absl::UnixEpoch();
  ShardFleet fleet_{2, /*coordinator_incarnation=*/3};
  ShardFleet::Effects effects_;
};

// Prints the table of transitions.
TEST_F(ShardFleetTest, EveryStateCanBeReachedAndLeftAndOnlyAbsentShardsStayInANewTerm) {
  std::set<ShardState> reached;
  for (const ShardState from : kStates) {
    std::set<ShardState> next;
    for (const ShardEvent event : kEvents) {
      const std::optional<ShardState> to = NextState(from, event);
      if (!to.has_value()) continue;
      std::cout << ToString(from) << " --" << ToString(event) << "--> " << ToString(*to) << "\n";
      if (*to != from) next.insert(*to);
    }
    EXPECT_FALSE(next.empty()) << ToString(from);
    reached.insert(next.begin(), next.end());
    EXPECT_EQ(NextState(from, ShardEvent::kTermBegan),
              from == ShardState::kAbsent ? from : ShardState::kWaits);
    EXPECT_EQ(NextState(from, ShardEvent::kNewProcess), ShardState::kWaits);
  }
  EXPECT_EQ(reached.size(), std::size(kStates) - 1) << "all but absent";
  EXPECT_FALSE(reached.contains(ShardState::kAbsent));
}

TEST_F(ShardFleetTest, AShardRunsOnceItHasAcknowledgedItsStart) {
  fleet_.BeginTerm(/*is_first=*/true);
  EXPECT_TRUE(Attach(0));
  EXPECT_EQ(fleet_[0].state, ShardState::kWaits);
  Start(0);
  EXPECT_EQ(fleet_[0].state, ShardState::kRuns);
  EXPECT_FALSE(fleet_.AllStarted());
  EXPECT_FALSE(fleet_.AllAttached());
  EXPECT_TRUE(Attach(1));
  Start(1);
  EXPECT_TRUE(fleet_.AllStarted());
  EXPECT_TRUE(fleet_.AllAttached());
}

TEST_F(ShardFleetTest, ANewConnectionKeepsTheStateAndANewProcessLosesIt) {
  StartAll();
  EXPECT_FALSE(Attach(0, 1, 21));
  EXPECT_EQ(std::get<RefuseShard>(effects_.back()).stream, 11u);
  EXPECT_EQ(fleet_[0].state, ShardState::kRuns);
  EXPECT_EQ(fleet_.Find(11), std::nullopt);
  EXPECT_EQ(fleet_.Find(21), 0u);
  EXPECT_TRUE(Attach(0, 2, 22));
  EXPECT_EQ(fleet_[0].state, ShardState::kWaits);
  EXPECT_EQ(fleet_[0].acknowledged, 0u);
}

TEST_F(ShardFleetTest, AcknowledgementsOfUnknownCommandsAndStreamsAreIgnored) {
  fleet_.BeginTerm(/*is_first=*/true);
  Attach(0);
  EXPECT_FALSE(fleet_.Acknowledge(11, 2, now_, &effects_)) << "no command has this number";
  EXPECT_FALSE(fleet_.Acknowledge(12, 1, now_, &effects_)) << "the shard is not attached";
  EXPECT_EQ(fleet_[0].state, ShardState::kWaits);
}

TEST_F(ShardFleetTest, AShardReplaysFromTheCheckpoint) {
  StartAll();
  Attach(1, 2);
  fleet_.AwaitReplay(1);
  EXPECT_FALSE(fleet_[1].replays());
  fleet_.BeginReplay(1, 10);
  EXPECT_EQ(fleet_[1].state, ShardState::kStartsReplay);
  EXPECT_EQ(fleet_[1].health.results_from, 11u);
  Start(1);
  EXPECT_EQ(fleet_[1].state, ShardState::kReplays);
  EXPECT_TRUE(fleet_.AllStarted());
  fleet_.CaughtUp(1);
  EXPECT_EQ(fleet_[1].state, ShardState::kRuns);
}

TEST_F(ShardFleetTest, MembersAreSentToShardsThatHaveStarted) {
  StartAll();
  Attach(1, 2);
  effects_.clear();
  fleet_.AnnounceMembers({.generation = 2, .incarnations = {5}}, &effects_);
  const uint64_t sequence = LastSequence();
  EXPECT_EQ(SentTo<protocol::SetMembers>(), Streams({11}));
  fleet_.Acknowledge(11, sequence, now_, &effects_);
  EXPECT_FALSE(fleet_.AllKnowMembers());
  // The second shard started with an earlier generation, so that it needs the members too.
  Start(1);
  EXPECT_EQ(SentTo<protocol::SetMembers>(), Streams({12}));
  fleet_.Acknowledge(12, sequence, now_, &effects_);
  EXPECT_TRUE(fleet_.AllKnowMembers());
  fleet_.SendMembers(1, &effects_);
  EXPECT_TRUE(effects_.empty()) << "the shard knows them";
}

TEST_F(ShardFleetTest, CheckpointCommandsGoOnlyToShardsThatHaveStarted) {
  StartAll();
  Attach(1, 2);
  effects_.clear();
  fleet_.KeepCheckpoints({{10}, 11}, &effects_);
  EXPECT_EQ(SentTo<protocol::KeepCheckpoints>(), Streams({11}));
  for (const uint32_t shard : {0u, 1u}) fleet_.ReleaseResults(shard, 10, &effects_);
  EXPECT_EQ(SentTo<protocol::ReleaseResults>(), Streams({11}));
  fleet_.NameCheckpoint(12, &effects_);
  EXPECT_EQ(SentTo<protocol::NameCheckpoint>(), Streams({11}));
}

TEST_F(ShardFleetTest, ASecondTermSuspendsAllShardsOnce) {
  StartAll();
  fleet_.BeginTerm(/*is_first=*/false);
  EXPECT_FALSE(fleet_.AllStarted());
  fleet_.Suspend(0, {2, "a shard was lost"}, &effects_);
  const uint64_t sequence = LastSequence();
  fleet_.Acknowledge(11, sequence, now_, &effects_);
  EXPECT_EQ(fleet_[0].state, ShardState::kWaits) << "it acknowledged the end of the last term";
  for (const uint32_t shard : {0u, 1u}) fleet_.Suspend(shard, {2, "lost"}, &effects_);
  EXPECT_EQ(SentTo<protocol::SuspendShard>(), Streams({11, 12}));
}

TEST_F(ShardFleetTest, SilentShardsAreDisconnectedAndReturn) {
  StartAll();
  now_ += absl::Seconds(5);
  fleet_.Health(11, {}, now_);
  now_ += absl::Seconds(6);
  EXPECT_EQ(fleet_.Silent(now_, absl::Seconds(10)), std::vector<uint32_t>{1});
  fleet_.MarkLost(1);
  fleet_.Disconnect(1, &effects_);
  EXPECT_TRUE(fleet_.Silent(now_, absl::Seconds(10)).empty());
  EXPECT_FALSE(fleet_[1].is_attached());
  EXPECT_FALSE(Attach(1));
  EXPECT_EQ(std::get<Notice>(effects_.back()).fields.event, "shard_back");
  EXPECT_EQ(fleet_[1].state, ShardState::kRuns);
}

TEST_F(ShardFleetTest, TheEndWaitsForAttachedShards) {
  StartAll();
  fleet_.NumberEnd();
  for (const uint32_t shard : {0u, 1u}) fleet_.End(shard, {}, &effects_);
  const uint64_t sequence = LastSequence();
  fleet_.Acknowledge(11, sequence, now_, &effects_);
  EXPECT_FALSE(fleet_.AllKnowEnd());
  fleet_.Detach(12);
  EXPECT_TRUE(fleet_.AllKnowEnd());
}

TEST_F(ShardFleetTest, NumbersAreAboveThoseOfEarlierCoordinators) {
  ShardFleet earlier(2, /*coordinator_incarnation=*/2);
  const uint64_t first = earlier.NumberProcess();
  const uint64_t second = earlier.NumberProcess();
  EXPECT_LT(first, second);
  EXPECT_LT(second, fleet_.NumberProcess());
}

}  // namespace
}  // namespace sluice::server
