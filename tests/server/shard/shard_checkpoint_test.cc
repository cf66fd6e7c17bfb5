// SPDX-License-Identifier: Apache-2.0
// Tests that a shard continues bit for bit from its part of a job checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tests/server/shard/small_job.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kShardCheckpointRanks = kSmallJobRanks;
constexpr uint64_t kNamedAt = 2;  // The shard's open step when the checkpoint is named.
constexpr uint64_t kShardCheckpointSaved = 4;
constexpr uint64_t kShardCheckpointSteps = 9;

// The shard of the small job and the state of its workers.
class SmallJob {
 public:
  explicit SmallJob(const compress::CodecSpec& spec) : options_(SmallJobOptions(spec)) {
    shard_ = *Shard::Create(options_);
    for (uint32_t rank = 0; rank < kShardCheckpointRanks; ++rank) {
      workers_.push_back(SmallJobWorker(options_, rank));
    }
  }

  // Sends the contributions of all ranks for a step, in an order that depends on the step. Returns
  // the results.
  std::vector<protocol::ExchangeReply> RunStep(uint64_t step) {
    std::vector<protocol::ExchangeReply> results;
    for (uint32_t bundle = 0; bundle < shard_->bundles(); ++bundle) {
      for (uint32_t i = 0; i < kShardCheckpointRanks; ++i) {
        const auto rank = static_cast<uint32_t>((i + step + bundle) % kShardCheckpointRanks);
        protocol::ExchangeRequest sent =
            SmallJobContribution(options_, &workers_[rank], rank, step, bundle);
        for (ShardEffect& effect : shard_->Handle(rank + 1, std::move(sent), {})) {
          Take(std::move(effect), &results);
        }
      }
    }
    for (compress::Compressor& worker : workers_) EndSmallJobStep(options_, step, results, &worker);
    if (snapshot_ != nullptr && saved_workers_.empty()) {
      for (compress::Compressor& worker : workers_) saved_workers_.push_back(worker.Save());
    }
    return results;
  }

  // Continues from the snapshot of `other`, as after a rollback.
  absl::Status GoBackTo(const SmallJob& other) {
    options_.term = 1;
    options_.first_step = other.snapshot_->step + 1;
    options_.restore = other.snapshot_;
    absl::StatusOr<std::unique_ptr<Shard>> shard = Shard::Create(options_);
    if (!shard.ok()) return shard.status();
    shard_ = *std::move(shard);
    for (uint32_t rank = 0; rank < kShardCheckpointRanks; ++rank) {
      const absl::Status restored = workers_[rank].Restore(other.saved_workers_[rank]);
      if (!restored.ok()) return restored;
    }
    return absl::OkStatus();
  }

  Shard* shard() { return shard_.get(); }
  const protocol::ShardSnapshot& snapshot() const { return *snapshot_; }
  bool has_snapshot() const { return snapshot_ != nullptr; }

 private:
  void Take(ShardEffect effect, std::vector<protocol::ExchangeReply>* results) {
    if (auto* taken = std::get_if<WriteSnapshot>(&effect)) snapshot_ = std::move(taken->snapshot);
    const auto* reply = std::get_if<SendReply>(&effect);
    if (reply == nullptr || reply->answer->outcome != protocol::Outcome::kResult ||
        reply->stream != 1) {
      return;
    }
    results->push_back(*reply->answer);
    results->back().record.term = 0;
  }

  ShardOptions options_;
  std::unique_ptr<Shard> shard_;
  std::vector<compress::Compressor> workers_;
  std::shared_ptr<const protocol::ShardSnapshot> snapshot_;
  std::vector<compress::SavedCompressor> saved_workers_;
};

// Returns the parts of an answer that must be equal. The announcement of a checkpoint may differ.
auto Essence(const protocol::ExchangeReply& answer) {
  return std::make_tuple(answer.step, answer.bundle, answer.results, answer.base_version,
                         answer.version, answer.record.n, answer.record.result_checksum);
}

void ExpectSameShardCheckpoint(const std::vector<protocol::ExchangeReply>& a,
                               const std::vector<protocol::ExchangeReply>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(Essence(a[i]), Essence(b[i])) << i;
}

class ShardOfCodec : public ::testing::TestWithParam<compress::CodecSpec> {};

TEST_P(ShardOfCodec, GoesOnFromItsSnapshotBitForBit) {
  SmallJob undisturbed(GetParam());
  SmallJob saving(GetParam());
  std::vector<std::vector<protocol::ExchangeReply>> expected(1);
  for (uint64_t step = 1; step <= kShardCheckpointSteps; ++step) {
    expected.push_back(undisturbed.RunStep(step));
    ASSERT_EQ(expected.back().size(), undisturbed.shard()->bundles());
    if (step == kNamedAt) {
      EXPECT_EQ(saving.shard()->NameCheckpoint(1), kShardCheckpointSaved);
    }
    ExpectSameShardCheckpoint(saving.RunStep(step), expected.back());
    EXPECT_EQ(saving.has_snapshot(), step >= kShardCheckpointSaved);
  }
  EXPECT_FALSE(undisturbed.has_snapshot());
  // Restores a new shard, and a shard with a different history.
  for (const uint64_t strayed : {0u, 2u}) {
    SmallJob restored(GetParam());
    for (uint64_t step = 1; step <= strayed; ++step) restored.RunStep(step);
    const absl::Status back = restored.GoBackTo(saving);
    ASSERT_TRUE(back.ok()) << back;
    EXPECT_EQ(restored.shard()->Stats().highest_closed_step, kShardCheckpointSaved);
    for (uint64_t step = kShardCheckpointSaved + 1; step <= kShardCheckpointSteps; ++step) {
      if (step == kShardCheckpointSaved + 1) {
        EXPECT_EQ(restored.shard()->NameCheckpoint(0), kShardCheckpointSaved + 3);
      }
      ExpectSameShardCheckpoint(restored.RunStep(step), expected[step]);
    }
    EXPECT_EQ(restored.snapshot().term, 1u);
    EXPECT_EQ(restored.snapshot().step, kShardCheckpointSaved + 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, ShardOfCodec, ::testing::ValuesIn(compress::CompensatedSpecs()),
                         compress::CompensatedName);

std::vector<std::shared_ptr<const protocol::ShardSnapshot>> SnapshotsIn(
    const std::vector<ShardEffect>& effects) {
  std::vector<std::shared_ptr<const protocol::ShardSnapshot>> snapshots;
  for (const ShardEffect& effect : effects) {
    if (const auto* taken = std::get_if<WriteSnapshot>(&effect)) {
      snapshots.push_back(taken->snapshot);
    }
  }
  return snapshots;
}

TEST(ShardCheckpoint, IsNamedTwoStepsAheadAndNoSoonerThanItMust) {
  ShardUnderTest shard(SmallShard(1));
  EXPECT_EQ(shard->NameCheckpoint(5), 5u);
  for (const uint64_t step : {1u, 2u}) {
    for (const uint32_t bundle : {0u, 1u}) {
      EXPECT_EQ(shard.Ask(Contribution(0, step, bundle, 1)).checkpoint_step, 0u);
    }
  }
  const auto effects = shard.Send(Contribution(0, 3, 0, 1));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<CheckpointNamed>(effects[0]).step, 5u);
  EXPECT_EQ(std::get<SendReply>(effects[1]).answer->checkpoint_step, 5u);
  EXPECT_EQ(shard->NameCheckpoint(0), 5u) << "the checkpoint is in progress";
  EXPECT_EQ(shard->NameCheckpoint(50), 5u);

  ShardOptions options = SmallShard(1);
  options.parameters_agree = false;
  ShardUnderTest fresh(options);
  EXPECT_EQ(fresh->NameCheckpoint(0), 2u) << "the checkpoint is two steps after step 0";
}

TEST(ShardCheckpoint, OneThatIsNotNamedYetIsReplaced) {
  ShardUnderTest shard(SmallShard(1));
  EXPECT_EQ(shard->NameCheckpoint(1000), 1000u);
  shard.Send(Contribution(0, 1, 0, 1));
  EXPECT_EQ(shard->NameCheckpoint(0), 3u);
  EXPECT_EQ(std::get<CheckpointNamed>(shard.Send(Contribution(0, 1, 1, 1)).at(0)).step, 3u);
}

TEST(ShardCheckpoint, EveryResultSaysItUntilItsStepIsClosed) {
  ShardUnderTest shard(SmallShard(1));
  shard.Send(Contribution(0, 1, 0, 1));
  EXPECT_EQ(shard->NameCheckpoint(0), 3u);
  const auto effects = shard.Send(Contribution(0, 1, 1, 1));
  EXPECT_EQ(std::get<SendReply>(effects.at(1)).answer->checkpoint_step, 3u)
      << "all ranks know the name by the end of the step that named it";
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 1, 1)).checkpoint_step, 3u)
      << "repeated answers contain the name too";
  for (const uint64_t step : {2u, 3u}) {
    for (const uint32_t bundle : {0u, 1u}) {
      EXPECT_EQ(shard.Ask(Contribution(0, step, bundle, 1)).checkpoint_step, 3u);
    }
  }
  EXPECT_EQ(shard.Ask(Contribution(0, 4, 0, 1)).checkpoint_step, 0u);
}

TEST(ShardCheckpoint, OtherShardsLearnItFromRequests) {
  ShardOptions options = SmallShard(2);
  options.shard = 1;
  options.layout.bundles.insert(options.layout.bundles.begin(), std::vector<protocol::Bundle>());
  ShardUnderTest shard(options);
  shard.RunStep(1, 1);
  protocol::ExchangeRequest told = Contribution(1, 2, 1, 7);
  told.checkpoint_step = 3;
  EXPECT_EQ(shard.Ask(told).checkpoint_step, 0u) << "only shard 0 announces the name";
  shard.Send(Contribution(0, 2, 1, 7));
  shard.Send(Contribution(0, 2, 0, 7));
  EXPECT_THAT(SnapshotsIn(shard.Send(Contribution(1, 2, 0, 7))), IsEmpty())
      << "the checkpoint is due one step later";
  for (const uint32_t bundle : {0u, 1u}) {
    shard.Send(Contribution(0, 3, bundle, 7));
    const auto effects = shard.Send(Contribution(1, 3, bundle, 7));
    const auto snapshots = SnapshotsIn(effects);
    ASSERT_EQ(snapshots.size(), bundle);
    if (bundle == 0) continue;
    EXPECT_TRUE(std::holds_alternative<WriteSnapshot>(effects.back()))
        << "results are sent before the snapshot is written";
    EXPECT_EQ(snapshots[0]->step, 3u);
    EXPECT_EQ(snapshots[0]->shard, 1u);
    EXPECT_EQ(snapshots[0]->job_uid, kJob);
    EXPECT_THAT(snapshots[0]->versions, ::testing::ElementsAre(3, 3));
    EXPECT_EQ(snapshots[0]->aggregators.size(), 3u);
  }
  told = Contribution(1, 4, 0, 7);
  told.checkpoint_step = 3;
  EXPECT_EQ(shard.Ask(told).outcome, protocol::Outcome::kPending)
      << "a name of a past step has no effect";
  shard.Send(Contribution(0, 4, 0, 7));
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(SnapshotsIn(shard.Send(Contribution(rank, 4, 1, 7))), IsEmpty());
  }
}

TEST(ShardCheckpoint, OtherNamesAreRefused) {
  ShardUnderTest first(SmallShard(2));
  protocol::ExchangeRequest told = Contribution(0, 1, 0, 1);
  told.checkpoint_step = 9;
  EXPECT_THAT(first.Ask(told).message, HasSubstr("after step 9, but none is named"));
  first->NameCheckpoint(0);
  first.Send(Contribution(0, 1, 1, 1));
  first.Send(Contribution(1, 1, 1, 1));
  const protocol::ExchangeReply refused = first.Ask(told);
  EXPECT_EQ(refused.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(refused.message, HasSubstr("is after step 3"));
  told.checkpoint_step = 3;
  EXPECT_EQ(first.Ask(told).outcome, protocol::Outcome::kPending);
}

TEST(ShardCheckpoint, WhatCameEarlyOfTheNextStepIsNotInIt) {
  std::vector<std::shared_ptr<const protocol::ShardSnapshot>> snapshots;
  for (const bool early : {false, true}) {
    ShardUnderTest shard(SmallShard(2, "topk:50%/ef"));
    shard->NameCheckpoint(0);
    shard.RunStep(1, 1);
    shard.RunStep(2, 2);
    protocol::ExchangeRequest ahead = Contribution(0, 4, 0, 5);
    ahead.acked_step = 2;
    shard.Send(Contribution(0, 3, 0, 1));
    shard.Send(Contribution(1, 3, 0, 2));
    shard.Send(Contribution(0, 3, 1, 1));
    if (early) {
      EXPECT_EQ(shard.Ask(ahead).outcome, protocol::Outcome::kPending);
      ahead.sender.rank = 1;
      ahead.sender.incarnation = 101;
      EXPECT_EQ(shard.Ask(ahead).outcome, protocol::Outcome::kPending);
    }
    const auto effects = shard.Send(Contribution(1, 3, 1, 2));
    for (const auto& snapshot : SnapshotsIn(effects)) snapshots.push_back(snapshot);
    // The results of step 3 come first, then the snapshot, and then the results of early
    // contributions.
    ASSERT_EQ(effects.size(), early ? 5u : 3u);
    EXPECT_TRUE(std::holds_alternative<WriteSnapshot>(effects[2]));
  }
  ASSERT_EQ(snapshots.size(), 2u);
  EXPECT_EQ(*snapshots[0], *snapshots[1]);
  EXPECT_FALSE(snapshots[0]->downlink.chunks[1].state.empty());
}

TEST(ShardCheckpoint, WithoutANameNothingIsSaidOrTaken) {
  ShardUnderTest shard(SmallShard(1));
  for (uint64_t step = 1; step <= 5; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      const auto effects = shard.Send(Contribution(0, step, bundle, 1));
      ASSERT_EQ(effects.size(), 1u);
      EXPECT_EQ(std::get<SendReply>(effects[0]).answer->checkpoint_step, 0u);
    }
  }
}

TEST(ShardCheckpoint, WhatDoesNotFitIsRefusedWithTheReason) {
  const ShardOptions options = SmallShard(2, "topk:50%/ef");
  ShardUnderTest shard(options);
  shard->NameCheckpoint(0);
  for (uint64_t step = 1; step <= 2; ++step) shard.RunStep(step, 1);
  for (const uint32_t bundle : {0u, 1u}) shard.Send(Contribution(0, 3, bundle, 1));
  shard.Send(Contribution(1, 3, 0, 1));
  const auto taken = SnapshotsIn(shard.Send(Contribution(1, 3, 1, 1)));
  ASSERT_EQ(taken.size(), 1u);
  const auto restored =
      [&](const std::function<void(ShardOptions*, protocol::ShardSnapshot*)>& change) {
        protocol::ShardSnapshot snapshot = *taken[0];
        ShardOptions changed = options;
        changed.term = 2;
        changed.first_step = 4;
        change(&changed, &snapshot);
        changed.restore = std::make_shared<protocol::ShardSnapshot>(std::move(snapshot));
        return Shard::Create(std::move(changed)).status();
      };
  const absl::Status fits = restored([](ShardOptions*, protocol::ShardSnapshot*) {});
  EXPECT_TRUE(fits.ok()) << fits;
  const auto expect =
      [&](absl::string_view why,
          const std::function<void(ShardOptions*, protocol::ShardSnapshot*)>& change) {
        const absl::Status status = restored(change);
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(why)));
      };
  expect("it is of run", [](auto* /*here*/, auto* saved) { saved->job_uid = 1; });
  expect("the term was 3", [](auto* /*here*/, auto* saved) { saved->term = 3; });
  expect("the shard was 1", [](auto* /*here*/, auto* saved) { saved->shard = 1; });
  expect("step after it was 4", [](auto* here, auto* /*saved*/) { here->first_step = 5; });
  expect("has no step 0", [](auto* here, auto* /*saved*/) { here->parameters_agree = false; });
  expect("number of bundles was 1",
         [](auto* /*here*/, auto* saved) { saved->versions.pop_back(); });
  expect("number of chunks was 2",
         [](auto* /*here*/, auto* saved) { saved->aggregators.pop_back(); });
  expect("topk", [](auto* here, auto* /*saved*/) {
    here->exchange.compression.downlink = Spec("topk:20%/ef");
  });
  expect("2 elements", [](auto* here, auto* /*saved*/) { here->layout.chunks[2].count = 3; });
  expect("chunk 1: saved memory is unknown here", [](auto* /*here*/, auto* saved) {
    saved->aggregators[1]["memory"] = {1, 2};
  });
  expect("finite", [](auto* /*here*/, auto* saved) {
    for (auto& [name, values] : saved->downlink.chunks[1].state) {
      values[0] = std::numeric_limits<float>::infinity();
    }
  });
}

TEST(ShardCheckpoint, SuspensionSendsEverybodyToTheNewTerm) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(Contribution(0, 1, 0, 2));
  const auto effects = shard->Suspend(3, "rank 1 was lost at step 1");
  ASSERT_EQ(effects.size(), 1u);
  const protocol::ExchangeReply told = *std::get<SendReply>(effects[0]).answer;
  EXPECT_EQ(told.outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(told.term, 3u);
  const protocol::ExchangeReply later = shard.Ask(Contribution(1, 1, 0, 2));
  EXPECT_EQ(later.outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(later.term, 3u);
  EXPECT_EQ(later.message, "rank 1 was lost at step 1");
}

TEST(ShardCheckpoint, SendersOfEarlierTermsHearOfTheirJobsTerm) {
  ShardOptions options = SmallShard(2);
  options.term = 4;
  ShardUnderTest shard(options);
  const protocol::ExchangeReply earlier = shard.Ask(Contribution(0, 1, 0, 2));
  EXPECT_EQ(earlier.outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(earlier.term, 4u);
  protocol::ExchangeRequest foreign = Contribution(0, 1, 0, 2);
  foreign.sender.job_uid = 1;
  EXPECT_EQ(shard.Ask(foreign).term, 0u)
      << "the sender belongs to another run, so this is no rollback";
  protocol::ExchangeRequest now = Contribution(0, 1, 0, 2);
  now.sender.term = 4;
  EXPECT_EQ(shard.Ask(now).outcome, protocol::Outcome::kPending);
}

TEST(ShardCheckpoint, AnAbsurdStepDoesNotStopTheNamingAfterARepair) {
  ShardOptions options = SmallShard(2);
  options.replay = true;
  options.replay_bytes = 1 << 20;
  ShardUnderTest shard(std::move(options));
  shard->NameCheckpoint(0);
  for (const uint64_t step : {uint64_t{1} << 62, ~uint64_t{0}}) {
    const protocol::ExchangeReply answer = shard.Ask(Contribution(1, step, 0, 1));
    EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
    EXPECT_THAT(answer.message, HasSubstr("more than one step ahead of the open step 1"));
  }
  bool named = false;
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (const ShardEffect& effect : shard.Send(Contribution(rank, 1, bundle, 1))) {
        named = named || std::holds_alternative<CheckpointNamed>(effect);
      }
    }
  }
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace sluice::server
