// SPDX-License-Identifier: Apache-2.0
// Tests, with every codec, that a job continues bit for bit when its shard, one of its workers, or
// both are lost and restored from the state that the other processes kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/small_job.h"

namespace sluice::server {
namespace {

constexpr uint64_t kShardReplaySaved = 4;
constexpr uint64_t kLost = 8;  // The step in which a process is lost.
constexpr uint64_t kShardReplaySteps = 11;
constexpr uint32_t kLostRank = 1;

using Step = std::vector<std::vector<protocol::ExchangeRequest>>;  // By bundle and rank.

// Requests checkpoints from shard 0 in the same steps in every run.
void AskForCheckpoints(uint64_t step, Shard* shard) {
  if (step == kShardReplaySaved - 2 || step == kLost - 2 || step == kShardReplaySteps - 2)
    shard->NameCheckpoint(0);
}

// The history of a job without losses.
struct Lived {
  ShardOptions options;
  uint32_t bundles = 0;
  std::vector<Step> sent;                                     // By step.
  std::vector<std::vector<protocol::ExchangeReply>> results;  // By step and bundle.
  // Snapshots after step kShardReplaySaved and later.
  std::vector<std::shared_ptr<const protocol::ShardSnapshot>> snapshots{};
  // State of the workers after step kShardReplaySaved.
  std::vector<compress::SavedCompressor> workers{};
};

// Handles requests, collects their effects, and returns the answer on the sender's stream.
class Witness {
 public:
  explicit Witness(Shard* shard) : shard_(shard) {}

  protocol::ExchangeReply Send(protocol::ExchangeRequest exchange) {
    const StreamId stream = exchange.sender.rank + 1;
    protocol::ExchangeReply own;
    for (const ShardEffect& effect : shard_->Handle(stream, std::move(exchange), {})) {
      if (const auto* taken = std::get_if<WriteSnapshot>(&effect)) {
        snapshots.push_back(taken->snapshot);
      }
      const auto* reply = std::get_if<SendReply>(&effect);
      if (reply == nullptr || reply->stream != stream) continue;
      own = *reply->answer;
      if (own.outcome == protocol::Outcome::kResult && own.bundle == results.size())
        results.push_back(own);
    }
    return own;
  }

  std::vector<protocol::ExchangeReply> results;  // Results of one step, by bundle.
  std::vector<std::shared_ptr<const protocol::ShardSnapshot>> snapshots;

 private:
  Shard* const shard_;
};

Lived Live(const compress::CodecSpec& spec) {
  Lived lived{.options = SmallJobOptions(spec), .sent = {{}}, .results = {{}}};
  const std::unique_ptr<Shard> shard = *Shard::Create(lived.options);
  lived.bundles = shard->bundles();
  std::vector<compress::Compressor> workers;
  for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
    workers.push_back(SmallJobWorker(lived.options, rank));
  }
  Witness witness(shard.get());
  uint64_t due = 0;
  for (uint64_t step = 1; step <= kShardReplaySteps; ++step) {
    AskForCheckpoints(step, shard.get());
    Step sent(lived.bundles);
    witness.results.clear();
    for (uint32_t bundle = 0; bundle < lived.bundles; ++bundle) {
      for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
        sent[bundle].push_back(
            SmallJobContribution(lived.options, &workers[rank], rank, step, bundle));
        sent[bundle][rank].checkpoint_step = due >= step ? due : 0;
        witness.Send(sent[bundle][rank]);
      }
    }
    for (const protocol::ExchangeReply& result : witness.results) {
      due = std::max(due, result.checkpoint_step);
    }
    for (compress::Compressor& worker : workers) {
      EndSmallJobStep(lived.options, step, witness.results, &worker);
      if (step == kShardReplaySaved) lived.workers.push_back(worker.Save());
    }
    lived.sent.push_back(std::move(sent));
    lived.results.push_back(witness.results);
  }
  lived.snapshots = witness.snapshots;
  return lived;
}

// Compares the parts of the answers that must be the same for every process of the shard.
void ExpectSameShardReplay(const std::vector<protocol::ExchangeReply>& got,
                           const std::vector<protocol::ExchangeReply>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto essence = [](const protocol::ExchangeReply& answer) {
      return std::make_tuple(answer.step, answer.bundle, answer.results, answer.base_version,
                             answer.version, answer.record.n, answer.record.included,
                             answer.record.result_checksum);
    };
    EXPECT_EQ(essence(got[i]), essence(want[i])) << "step " << want[i].step << ", bundle " << i;
  }
}

class ReplayOfCodec : public ::testing::TestWithParam<compress::CodecSpec> {
 protected:
  ReplayOfCodec() : lived_(Live(GetParam())) {
    options_ = lived_.options;
    options_.replay_bytes = 1 << 30;
  }

  // Returns the next process of the shard, which is restored from the snapshot.
  std::unique_ptr<Shard> Restored() {
    options_.server_incarnation = 6;
    options_.restore = lived_.snapshots[0];
    options_.first_step = kShardReplaySaved + 1;
    options_.replay = true;
    return *Shard::Create(options_);
  }
  // Returns another worker for the lost rank, which restores the saved state of its predecessor.
  compress::Compressor Successor() {
    options_.generation = 2;
    options_.incarnations[kLostRank] = 201;
    compress::Compressor worker = SmallJobWorker(options_, kLostRank);
    const absl::Status restored = worker.Restore(lived_.workers[kLostRank]);
    Check(restored.ok(), restored.message());
    return worker;
  }

  Lived lived_;
  ShardOptions options_;
};

TEST_P(ReplayOfCodec, AShardComesBackWithWhatTheWorkersKept) {
  ASSERT_EQ(lived_.snapshots.size(), 3u);
  const std::unique_ptr<Shard> shard = Restored();
  Witness witness(shard.get());
  for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
    const protocol::ExchangeReply need = witness.Send(lived_.sent[kLost][0][rank]);
    EXPECT_EQ(need.outcome, protocol::Outcome::kNeed);
    EXPECT_EQ(need.need_from, kShardReplaySaved + 1);
  }
  for (uint64_t step = kShardReplaySaved + 1; step <= kShardReplaySteps; ++step) {
    witness.results.clear();
    for (uint32_t bundle = 0; bundle < lived_.bundles; ++bundle) {
      for (uint32_t i = 0; i < kSmallJobRanks; ++i) {
        const protocol::ExchangeRequest& sent =
            lived_.sent[step][bundle][(i + step + bundle) % kSmallJobRanks];
        witness.Send(sent);
        // Sends the request once more, as after a broken stream.
        const protocol::ExchangeReply repeated = witness.Send(sent);
        EXPECT_EQ(repeated.outcome, i + 1 == kSmallJobRanks ? protocol::Outcome::kResult
                                                            : protocol::Outcome::kPending)
            << repeated.message;
      }
    }
    ExpectSameShardReplay(witness.results, lived_.results[step]);
    if (HasFailure()) return;
  }
  ASSERT_EQ(witness.snapshots.size(), 2u)
      << "the shard takes the snapshots again that the workers named";
  EXPECT_EQ(*witness.snapshots[0], *lived_.snapshots[1]);
  EXPECT_EQ(*witness.snapshots[1], *lived_.snapshots[2]);
  EXPECT_EQ(shard->results_from(), kShardReplaySaved + 1);
}

TEST_P(ReplayOfCodec, AWorkerComesBackWithWhatTheShardKept) {
  const std::unique_ptr<Shard> shard = *Shard::Create(options_);
  Witness witness(shard.get());
  for (uint64_t step = 1; step < kLost; ++step) {
    AskForCheckpoints(step, shard.get());
    for (const std::vector<protocol::ExchangeRequest>& bundle : lived_.sent[step]) {
      for (const protocol::ExchangeRequest& sent : bundle) witness.Send(sent);
    }
  }
  // In step kLost, the other ranks are further along than the rank that is lost.
  for (uint32_t bundle = 0; bundle < lived_.bundles; ++bundle) {
    for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
      if (rank != kLostRank || bundle == 0) witness.Send(lived_.sent[kLost][bundle][rank]);
    }
  }
  compress::Compressor worker = Successor();
  ASSERT_TRUE(shard->SetMembership(2, options_.incarnations).ok());
  EXPECT_EQ(witness.Send(lived_.sent[kLost].back()[kLostRank]).outcome, protocol::Outcome::kFenced);
  for (uint64_t step = kShardReplaySaved + 1; step <= kShardReplaySteps; ++step) {
    witness.results.clear();
    if (step > kLost) AskForCheckpoints(step, shard.get());
    for (uint32_t bundle = 0; bundle < lived_.bundles; ++bundle) {
      for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
        if (rank != kLostRank && step > kLost) witness.Send(lived_.sent[step][bundle][rank]);
      }
      const protocol::ExchangeRequest sent =
          SmallJobContribution(options_, &worker, kLostRank, step, bundle);
      EXPECT_EQ(sent.frames, lived_.sent[step][bundle][kLostRank].frames);
      const protocol::ExchangeReply answer = witness.Send(sent);
      ASSERT_EQ(answer.outcome, protocol::Outcome::kResult) << answer.message;
    }
    ExpectSameShardReplay(witness.results, lived_.results[step]);
    if (HasFailure()) return;
    EndSmallJobStep(options_, step, witness.results, &worker);
  }
}

// Scripted schedule: a worker and the shard are killed together. Both must continue bit for bit.
TEST_P(ReplayOfCodec, WorkerAndShardKilledTogether) {
  compress::Compressor worker = Successor();
  const std::unique_ptr<Shard> shard = Restored();
  Witness witness(shard.get());
  const auto live = [](uint32_t rank) { return rank != kLostRank; };
  for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
    if (!live(rank)) continue;
    EXPECT_EQ(witness.Send(lived_.sent[kLost][0][rank]).need_from, kShardReplaySaved + 1);
  }
  for (uint64_t step = kShardReplaySaved + 1; step <= kShardReplaySteps; ++step) {
    witness.results.clear();
    for (uint32_t bundle = 0; bundle < lived_.bundles; ++bundle) {
      for (uint32_t rank = 0; rank < kSmallJobRanks; ++rank) {
        if (live(rank)) witness.Send(lived_.sent[step][bundle][rank]);
      }
      witness.Send(SmallJobContribution(options_, &worker, kLostRank, step, bundle));
    }
    ExpectSameShardReplay(witness.results, lived_.results[step]);
    if (HasFailure()) return;
    EndSmallJobStep(options_, step, witness.results, &worker);
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, ReplayOfCodec, ::testing::ValuesIn(compress::CompensatedSpecs()),
                         compress::CompensatedName);

}  // namespace
}  // namespace sluice::server
