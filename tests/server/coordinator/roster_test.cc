// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/roster.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <utility>
#include <vector>

#include "tests/server/coordinator/coordinator_fixture.h"

namespace sluice::server {
namespace {

constexpr MemberState kMemberStates[] = {
    MemberState::kVacant,  MemberState::kJoining, MemberState::kActive, MemberState::kLost,
    MemberState::kLeaving, MemberState::kGone,    MemberState::kLeft};
constexpr MemberEvent kMemberEvents[] = {
    MemberEvent::kSeated,   MemberEvent::kContinued, MemberEvent::kBegan, MemberEvent::kReturned,
    MemberEvent::kExpired,  MemberEvent::kGaveUp,    MemberEvent::kLeft,  MemberEvent::kNeededAgain,
    MemberEvent::kTermOver, MemberEvent::kVacated};

CoordinatorOptions RosterOptions(std::optional<ElasticMembership> elastic = std::nullopt) {
  CoordinatorOptions options;
  options.job_name = "demo";
  options.job_uid = 77;
  options.world_size = 3;
  options.elastic = elastic;
  options.server.stall_timeout = absl::Seconds(30);
  options.checkpoint = {.dir = "checkpoints", .interval = 10, .replay_limit = 0};
  return options;
}

// Three ranks; the holder of rank r has the Join token r + 1.
class RosterTest : public ::testing::Test {
 protected:
  explicit RosterTest(CoordinatorOptions options = RosterOptions())
      : options_(std::move(options)), roster_(options_) {}

  void SeatAll() {
    for (uint32_t rank = 0; rank < 3; ++rank) roster_.Seat(rank + 1, JoinOf(rank), now_);
  }
  void BeginTerm(uint64_t restore_step = 0) {
    roster_.BeginTerm(restore_step, now_);
    for (const uint32_t rank : roster_.Waiting()) Answer(rank, restore_step);
    effects_.clear();
  }
  void Answer(uint32_t rank, uint64_t restore_step = 0) {
    protocol::JoinGrant grant;
    grant.restore_step = restore_step;
    roster_.Answer(rank, std::move(grant), now_, &effects_);
  }
  void Run() {
    SeatAll();
    BeginTerm();
  }
  protocol::WorkerHeartbeat HeartbeatOf(uint32_t rank) const {
    protocol::WorkerHeartbeat heartbeat;
    heartbeat.sender = {.job_uid = 77, .rank = rank, .incarnation = roster_[rank].incarnation};
    return heartbeat;
  }
  bool Report(uint32_t rank, absl::Duration since_progress = absl::ZeroDuration()) {
    protocol::WorkerHeartbeat heartbeat = HeartbeatOf(rank);
    heartbeat.since_progress = since_progress;
    return roster_.Report(heartbeat, /*is_running=*/true, now_, &effects_);
  }
  // The newcomer's Join has this token.
  void Await(uint32_t rank, JoinToken token) {
    roster_.Await(token, JoinOf(rank, 5000 + token), now_, &effects_);
  }
  std::string MarkLost() {
    LossReport report(options_.server.lease_timeout);
    return roster_.MarkLost(now_, &report) ? report.Text() : "";
  }
  // Returns the code of the answer to this call, and forgets all effects.
  absl::StatusCode CodeOf(JoinToken token) {
    std::optional<absl::StatusCode> code;
    for (const CoordinatorEffect& effect : std::exchange(effects_, {})) {
      const auto* const answer = std::get_if<AnswerJoin>(&effect);
      if (answer != nullptr && answer->token == token) code = answer->grant.status().code();
    }
    EXPECT_TRUE(code.has_value()) << "call " << token << " has no answer";
    return code.value_or(absl::StatusCode::kUnknown);
  }

  using Ranks = Roster::Ranks;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  const CoordinatorOptions options_;
  Roster roster_;
  Roster::Effects effects_;
};

// Prints the table of transitions.
TEST_F(RosterTest, EveryStateCanBeReachedAndNoMessageOfAHolderIsImpossible) {
  std::set<MemberState> reached;
  for (const MemberState from : kMemberStates) {
    for (const MemberEvent event : kMemberEvents) {
      const std::optional<MemberState> to = NextState(from, event);
      if (!to.has_value()) continue;
      std::cout << ToString(from) << " --" << ToString(event) << "--> " << ToString(*to) << "\n";
      if (*to != from) reached.insert(*to);
    }
    const bool is_held = from != MemberState::kVacant;
    for (const MemberEvent event : {MemberEvent::kBegan, MemberEvent::kReturned}) {
      EXPECT_EQ(NextState(from, event).has_value(), is_held) << ToString(from);
    }
    using State = std::optional<MemberState>;
    EXPECT_EQ(NextState(from, MemberEvent::kTermOver),
              is_held ? State(MemberState::kJoining) : std::nullopt);
    EXPECT_EQ(NextState(from, MemberEvent::kVacated),
              is_held ? State(MemberState::kVacant) : std::nullopt);
    EXPECT_EQ(NextState(from, MemberEvent::kSeated),
              is_held ? std::nullopt : State(MemberState::kJoining));
    // Reports of a holder that gave up are refused before they cause an event.
    const bool may_leave = is_held && from != MemberState::kLeaving && from != MemberState::kGone;
    EXPECT_EQ(NextState(from, MemberEvent::kLeft),
              may_leave ? State(MemberState::kLeft) : std::nullopt);
    EXPECT_EQ(NextState(from, MemberEvent::kGaveUp).has_value(),
              may_leave && from != MemberState::kLeft);
  }
  EXPECT_EQ(reached.size(), std::size(kMemberStates));
}

TEST_F(RosterTest, MembersAreActiveOnceTheTermHasBegun) {
  EXPECT_EQ(roster_.Missing(), "rank 0, 1, 2");
  SeatAll();
  EXPECT_EQ(roster_[1].state, MemberState::kJoining);
  EXPECT_TRUE(roster_.IsEnough(std::nullopt));
  EXPECT_EQ(roster_.Missing(), "");
  EXPECT_EQ(roster_.Waiting(), Ranks({0, 1, 2}));
  BeginTerm(20);
  EXPECT_EQ(roster_[1].state, MemberState::kActive);
  EXPECT_EQ(roster_[1].replay_from, 21u);
  EXPECT_TRUE(roster_.Waiting().empty());
  EXPECT_EQ(roster_.StepsInUse(), std::vector<uint64_t>({20, 20, 20}));
  roster_.SavedPart(1, 30);
  EXPECT_EQ(roster_.StepsInUse().size(), 2u);
}

TEST_F(RosterTest, TheTableIsThatOfTheFirstWorker) {
  roster_.Seat(1, JoinOf(1), now_);
  EXPECT_FALSE(roster_.table().empty());
  EXPECT_TRUE(roster_[1].join.table.empty());
  protocol::WorkerJoin other = JoinOf(2);
  other.table[0].shape = {5};
  EXPECT_NE(roster_.CheckTable(other, 0).message().find("a different model than rank 1"),
            std::string::npos);
  EXPECT_TRUE(roster_.Cancel(1, /*announced=*/false));
  roster_.ForgetUnusedTable();
  EXPECT_TRUE(roster_.CheckTable(other, 0).ok());
}

TEST_F(RosterTest, ACancelledCallFreesTheRankOnlyBeforeTheTermIsAnnounced) {
  SeatAll();
  Await(1, 9);
  EXPECT_TRUE(roster_.Cancel(2, /*announced=*/false));
  EXPECT_EQ(roster_[1].state, MemberState::kVacant);
  EXPECT_TRUE(roster_[1].successor.has_value()) << "the newcomer continues to wait";
  EXPECT_FALSE(roster_.Cancel(3, /*announced=*/true));
  EXPECT_EQ(roster_[2].state, MemberState::kJoining);
  EXPECT_EQ(roster_.Waiting(), Ranks({0}));
  EXPECT_FALSE(roster_.Cancel(9, /*announced=*/true));
  EXPECT_FALSE(roster_[1].successor.has_value());
}

TEST_F(RosterTest, ARepeatedCallReplacesTheOlderOne) {
  SeatAll();
  roster_.Repeat(0, 11, &effects_);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kAborted);
  Await(1, 12);
  Await(1, 13);
  EXPECT_EQ(CodeOf(12), absl::StatusCode::kAlreadyExists) << "another newcomer";
  roster_.Await(14, JoinOf(1, 5013), now_, &effects_);
  EXPECT_EQ(CodeOf(13), absl::StatusCode::kAborted) << "the same newcomer";
}

TEST_F(RosterTest, ANewcomerReplacesAHolderThatMissesThreeHeartbeats) {
  Run();
  Await(1, 9);
  now_ += 3 * options_.server.heartbeat_interval - absl::Milliseconds(1);
  EXPECT_TRUE(roster_.Replaceable(now_).empty());
  now_ += absl::Milliseconds(1);
  EXPECT_EQ(roster_.Replaceable(now_), Ranks({1}));
  const uint64_t before = roster_[1].incarnation;
  roster_.Replace(1, 31, now_);
  EXPECT_NE(roster_[1].incarnation, before);
  EXPECT_EQ(roster_[1].state, MemberState::kJoining);
  EXPECT_EQ(roster_[1].replay_from, 31u);
  EXPECT_EQ(roster_.Waiting(), Ranks({1}));
  Answer(1, 30);
  EXPECT_EQ(CodeOf(9), absl::StatusCode::kOk);
  EXPECT_EQ(roster_[1].state, MemberState::kActive);
}

TEST_F(RosterTest, AReportOfTheHolderRefusesTheNewcomer) {
  Run();
  Await(1, 9);
  EXPECT_TRUE(Report(1));
  EXPECT_EQ(CodeOf(9), absl::StatusCode::kAlreadyExists);
}

TEST_F(RosterTest, MembersOfAnEarlierCoordinatorHaveALeaseToReport) {
  Run();
  protocol::RunRecord record;
  record.table = roster_.table();
  record.members = roster_.Records();
  Roster next(options_);
  next.ContinueTerm(record, now_);
  EXPECT_EQ(next.Incarnations(), roster_.Incarnations());
  EXPECT_EQ(next[1].state, MemberState::kActive);
  EXPECT_FALSE(next.AnyAlive(now_, absl::InfiniteDuration()));
  next.Await(9, JoinOf(1, 5009), now_, &effects_);
  now_ += 3 * options_.server.heartbeat_interval;
  EXPECT_TRUE(next.Replaceable(now_).empty());
  EXPECT_TRUE(next.Report(HeartbeatOf(0), /*is_running=*/true, now_, &effects_));
  EXPECT_TRUE(next.AnyAlive(now_, options_.server.lease_timeout));
  now_ += options_.server.lease_timeout;
  EXPECT_EQ(next.Replaceable(now_), Ranks({1}));
}

TEST_F(RosterTest, SilentMembersAreLostOnceAndReturn) {
  Run();
  now_ += options_.server.lease_timeout;
  for (const uint32_t rank : {0u, 2u}) EXPECT_TRUE(Report(rank));
  EXPECT_EQ(roster_.Expired(now_), Ranks({1}));
  EXPECT_EQ(MarkLost(), "rank 1 (host a, pid 121) did not report for 10s (server.lease_timeout)");
  EXPECT_EQ(roster_[1].state, MemberState::kLost);
  EXPECT_EQ(MarkLost(), "");
  EXPECT_TRUE(roster_.AnyLost());
  EXPECT_FALSE(roster_.AnyLostFor(options_.server.lease_timeout + absl::Seconds(1), now_));
  EXPECT_TRUE(roster_.AnyLostFor(options_.server.lease_timeout, now_));
  effects_.clear();
  EXPECT_TRUE(Report(1));
  EXPECT_EQ(std::get<Notice>(effects_.back()).fields.event, "member_back");
  EXPECT_EQ(roster_[1].state, MemberState::kActive);
}

TEST_F(RosterTest, AMemberWithoutProgressDoesNotRenewItsLease) {
  Run();
  now_ += options_.server.lease_timeout;
  EXPECT_FALSE(Report(1, absl::Seconds(31)));
  for (const uint32_t rank : {0u, 2u}) EXPECT_TRUE(Report(rank, absl::Seconds(29)));
  EXPECT_EQ(MarkLost(),
            "rank 1 (host a, pid 121) is alive, but has made no progress for 31s "
            "(server.stall_timeout)");
}

TEST_F(RosterTest, LeasesOfWaitingCallsAndOfMembersThatLeftDoNotExpire) {
  Run();
  roster_.Leave(0);
  roster_.Repeat(1, 11, &effects_);
  now_ += options_.server.lease_timeout;
  roster_.RenewWaiting(now_);
  EXPECT_EQ(roster_.Expired(now_), Ranks({2}));
  EXPECT_FALSE(roster_.AllHaveLeft());
  for (const uint32_t rank : {1u, 2u}) roster_.Leave(rank);
  EXPECT_TRUE(roster_.AllHaveLeft());
  roster_.NeedAll();
  EXPECT_EQ(roster_[0].state, MemberState::kActive);
}

TEST_F(RosterTest, ATermEndsForAllButThoseWhoseCallWaits) {
  Run();
  roster_.Repeat(1, 11, &effects_);
  Await(2, 12);
  roster_.EndTerm();
  EXPECT_EQ(roster_.Incarnations(), std::vector<uint64_t>({0, roster_[1].incarnation, 0}));
  EXPECT_EQ(roster_[1].state, MemberState::kJoining);
  EXPECT_EQ(roster_.Missing(), "rank 0, 2");
  const Successor successor = roster_.TakeSuccessor(2);
  EXPECT_EQ(successor.token, 12u);
  EXPECT_FALSE(roster_[2].successor.has_value());
}

TEST_F(RosterTest, OnlyTheHolderOfTheRankMayReport) {
  Run();
  EXPECT_TRUE(roster_.CheckSender(HeartbeatOf(1).sender).ok());
  protocol::Sender sender = HeartbeatOf(1).sender;
  sender.incarnation += 2;
  EXPECT_FALSE(roster_.CheckSender(sender).ok());
  sender = HeartbeatOf(1).sender;
  sender.job_uid = 78;
  EXPECT_FALSE(roster_.CheckSender(sender).ok());
  sender = HeartbeatOf(1).sender;
  sender.rank = 3;
  EXPECT_FALSE(roster_.CheckSender(sender).ok());
}

TEST_F(RosterTest, AllMustHearOfTheEnd) {
  SeatAll();
  roster_.Cancel(3, /*announced=*/false);
  roster_.RefuseAll(absl::FailedPreconditionError("the job has failed"), &effects_);
  EXPECT_EQ(CodeOf(1), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(roster_.AllKnowEnd(/*absent_too=*/false));
  EXPECT_FALSE(roster_.AllKnowEnd(/*absent_too=*/true));
  roster_.SetToldEnd(2, true);
  EXPECT_TRUE(roster_.AllKnowEnd(/*absent_too=*/true));
  roster_.SetToldEnd(0, false);
  EXPECT_FALSE(roster_.AllKnowEnd(/*absent_too=*/false));
}

// A job that begins with three workers and continues with two.
class ElasticRosterTest : public RosterTest {
 protected:
  ElasticRosterTest() : RosterTest(RosterOptions(ElasticMembership{.start = 3, .least = 2})) {}
};

TEST_F(ElasticRosterTest, ATermBeginsWithFewerAfterTwoLeases) {
  SeatAll();
  EXPECT_TRUE(roster_.Cancel(3, /*announced=*/false));
  EXPECT_EQ(roster_.Missing(), "1 of 3 workers");
  EXPECT_FALSE(roster_.IsEnough(std::nullopt));
  EXPECT_FALSE(roster_.IsEnough(2 * options_.server.lease_timeout - absl::Milliseconds(1)));
  EXPECT_TRUE(roster_.IsEnough(2 * options_.server.lease_timeout));
  BeginTerm();
  EXPECT_EQ(roster_.began_with(), Ranks({0, 1}));
  EXPECT_TRUE(roster_.GivesParameters({0, 1}));
  EXPECT_FALSE(roster_.GivesParameters({1}));
  roster_.EndTerm();
  EXPECT_EQ(roster_.Missing(), "2 of 2 workers");
}

TEST_F(ElasticRosterTest, RemovedMembersTakeTheirResidualsWithThem) {
  Run();
  protocol::WorkerHeartbeat heartbeat = HeartbeatOf(1);
  heartbeat.progress.residual_energy = 2.5;
  EXPECT_TRUE(roster_.Report(heartbeat, /*is_running=*/true, now_, &effects_));
  EXPECT_TRUE(roster_.CanSpare(1));
  EXPECT_FALSE(roster_.CanSpare(2));
  EXPECT_EQ(roster_.Vacate({1}), "rank 1 (host a, pid 121)");
  EXPECT_EQ(roster_.lost_workers(), 1u);
  EXPECT_EQ(roster_.lost_residual_energy(), 2.5);
  EXPECT_EQ(roster_.PresentRanks(), Ranks({0, 2}));
  Await(1, 9);
  EXPECT_EQ(roster_.Replaceable(now_), Ranks({1})) << "no worker holds the rank";
  roster_.SeatLate(1, now_);
  EXPECT_TRUE(roster_[1].late_joiner);
  EXPECT_FALSE(roster_[1].has_reported);
  Answer(1);
  EXPECT_EQ(roster_[1].state, MemberState::kActive);
}

TEST_F(ElasticRosterTest, AMemberThatGaveUpCanOnlyBeReplaced) {
  Run();
  (void)roster_.Vacate({1});
  roster_.GiveUp(2, "its disk is full");
  EXPECT_EQ(roster_[2].state, MemberState::kLeaving);
  EXPECT_FALSE(roster_.CheckSender(HeartbeatOf(2).sender).ok());
  EXPECT_EQ(MarkLost(), "rank 2 (host a, pid 122) left: its disk is full");
  EXPECT_EQ(roster_[2].state, MemberState::kGone);
  EXPECT_EQ(roster_.NamesOfLost(),
            std::vector<std::string>({"rank 2 (host a, pid 122), which left (its disk is full),"}));
  Await(2, 9);
  EXPECT_EQ(roster_.Replaceable(now_), Ranks({2}));
  // A repeated Join of the same process changes nothing.
  roster_.Repeat(2, 10, &effects_);
  roster_.Return(2, now_, &effects_);
  EXPECT_EQ(roster_[2].state, MemberState::kLeaving);
  EXPECT_EQ(roster_.Replaceable(now_), Ranks({2}));
}

// Rounds of 20 steps with 4 fragments: an exchange begins after every 5 steps and ends 2 steps
// later.
TEST(ExchangedStepTest, CountsTheExchangesThatEnded) {
  CoordinatorOptions options = RosterOptions();
  options.steps_per_exchange = 20;
  const auto ended = [&options](uint64_t step) {
    protocol::MemberProgress progress;
    progress.step = step;
    return Roster(options).ExchangedStep(progress);
  };
  EXPECT_EQ(ended(59), 2u);
  EXPECT_EQ(ended(60), 3u);
  options.exchange.compression.layout.fragments = 4;
  options.fragment_delay = 2;
  EXPECT_EQ(ended(1), 0u);
  EXPECT_EQ(ended(6), 0u);
  EXPECT_EQ(ended(7), 1u);
  EXPECT_EQ(ended(11), 1u);
  EXPECT_EQ(ended(42), 8u);
}

TEST(LossReportTest, NamesSilentProcessesFirst) {
  LossReport report(absl::Seconds(10));
  EXPECT_TRUE(report.empty());
  report.AddOther("rank 2 left: it gave no reason");
  report.KeepFirst();
  EXPECT_EQ(report.Text(), "rank 2 left: it gave no reason");
  report.AddSilent("shard 0");
  report.AddSilent("rank 1");
  EXPECT_EQ(report.Text(),
            "shard 0 and rank 1 did not report for 10s (server.lease_timeout), and rank 2 left: it "
            "gave no reason");
  report.KeepFirst();
  EXPECT_EQ(report.Text(), "shard 0 did not report for 10s (server.lease_timeout)");
}

}  // namespace
}  // namespace sluice::server
