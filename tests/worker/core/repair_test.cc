// SPDX-License-Identifier: Apache-2.0
// Runs pipelines with real shard cores. A shard restarts at every moment of a run, and the run must
// end with the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "server/shard/shard.h"
#include "tests/worker/core/read_results.h"
#include "worker/core/pipeline.h"

namespace sluice::worker {
namespace {

constexpr uint32_t kWorkers = 2;
constexpr uint32_t kShards = 2;
constexpr uint64_t kSteps = 7;
constexpr uint64_t kCheckpoint = 3;  // Due after this step, if there is a checkpoint.
constexpr size_t kRepairSize = 32;   // Elements of each tensor; each is one bundle.
constexpr size_t kTensors = 5;

// Restarts shard `victim` whenever the number of delivered messages reaches a value in `after`.
struct Fate {
  uint32_t victim = 1;
  std::vector<size_t> after;
  bool checkpoint = false;
  uint64_t window_bytes = 1 << 20;
};

class Job {
 public:
  explicit Job(const Fate& fate) : fate_(fate) {
    for (size_t i = 0; i < kTensors; ++i) {
      table_.push_back({.name = absl::StrCat("t", i), .shape = {kRepairSize}, .strides = {}});
    }
    compression_.uplink = *compress::ParseCodecSpec("topk:20%");
    compression_.downlink = *compress::ParseCodecSpec("topk:25%/ef");
    compression_.min_elements = 0;
    compression_.layout = {.chunk_elements = kRepairSize, .bundle_elements = kRepairSize};
    layout_ = *protocol::BuildLayout(table_, kShards, compression_.layout);
    for (uint32_t shard = 0; shard < kShards; ++shard) shards_[shard].core = MakeShard(shard, 1);
    if (fate.checkpoint) shards_[0].core->NameCheckpoint(kCheckpoint);
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      Worker& worker = workers_[rank];
      PipelineOptions options;
      options.table = table_;
      options.layout = layout_;
      options.sender = {.job_uid = 7, .rank = rank, .incarnation = 100 + rank, .generation = 1};
      options.world_size = kWorkers;
      options.window_bytes = fate.window_bytes;
      options.replay_bytes = 1 << 20;
      worker.pipeline = std::make_unique<Pipeline>(std::move(options));
      worker.encoder = std::make_unique<BundleEncoder>(table_, layout_, compression_, rank);
      for (uint32_t shard = 0; shard < kShards; ++shard) Connect(rank, shard);
    }
  }

  // Returns the ranks' final state, which is the sum of all means.
  std::vector<float> ToTheEnd() {
    size_t next_fate = 0;
    while (true) {
      if (next_fate < fate_.after.size() && delivered_ >= fate_.after[next_fate]) {
        ++next_fate;
        Replace(fate_.victim);
      }
      if (Act()) continue;
      Check(next_fate == fate_.after.size() || delivered_ < fate_.after[next_fate],
            "a run goes on while shards are to be lost");
      break;
    }
    for (const Worker& worker : workers_) {
      EXPECT_TRUE(worker.pipeline->status().ok()) << worker.pipeline->status();
      EXPECT_EQ(worker.done, kSteps) << "every worker must finish all steps";
      EXPECT_EQ(worker.sums, workers_[0].sums);
    }
    return workers_[0].sums;
  }
  size_t delivered() const { return delivered_; }
  int replays() const { return replays_; }

 private:
  struct Link {
    server::StreamId stream = 0;
    std::deque<std::shared_ptr<const protocol::ExchangeRequest>> up;
    std::deque<std::shared_ptr<const protocol::ExchangeReply>> down;
    uint64_t known_incarnation = 1;
    bool retry = false;
  };
  struct Worker {
    std::unique_ptr<Pipeline> pipeline;
    std::unique_ptr<BundleEncoder> encoder;
    std::vector<std::vector<float>> gradients = std::vector<std::vector<float>>(kTensors);
    size_t ready = 0;  // Submitted tensors of the open step.
    std::optional<EncodedBundle> encoding{};
    std::vector<float> sums = std::vector<float>(kTensors * kRepairSize);
    uint64_t done = 0;
    Link links[kShards];
  };
  struct Server {
    std::unique_ptr<server::Shard> core;
    uint64_t incarnation = 1;
    std::shared_ptr<const protocol::ShardSnapshot> snapshot;
  };

  std::unique_ptr<server::Shard> MakeShard(uint32_t shard, uint64_t incarnation) {
    const std::shared_ptr<const protocol::ShardSnapshot> restore =
        complete_ ? shards_[shard].snapshot : nullptr;
    server::ShardOptions options;
    options.shard = shard;
    options.table = table_;
    options.layout = layout_;
    options.exchange.compression = compression_;
    options.job_uid = 7;
    options.server_incarnation = incarnation;
    options.incarnations = {100, 101};
    options.first_step = restore == nullptr ? 1 : restore->step + 1;
    options.replay_bytes = 1 << 20;
    options.replay = incarnation > 1;
    options.restore = restore;
    absl::StatusOr<std::unique_ptr<server::Shard>> core = server::Shard::Create(std::move(options));
    Check(core.ok(), core.status().message());
    return *std::move(core);
  }

  void Connect(uint32_t rank, uint32_t shard) {
    Link& link = workers_[rank].links[shard];
    link.stream = ++last_stream_;
    link.up.clear();
    link.down.clear();
  }

  void Replace(uint32_t shard) {
    Server& server = shards_[shard];
    // The coordinator does the same: a checkpoint completes only after the shard has caught up to
    // it.
    if (!complete_) server.snapshot = nullptr;
    server.core = MakeShard(shard, ++server.incarnation);
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      Connect(rank, shard);
      Pipeline::Effects effects;
      workers_[rank].pipeline->StreamReset(shard, &effects);
      CarryOut(rank, effects);
    }
  }

  // Runs one possible action. The order is the same in every run until the first loss.
  bool Act() {
    for (size_t i = 0; i < 4 * kWorkers * kShards; ++i) {
      const size_t turn = turn_++ % (4 * kWorkers * kShards);
      const uint32_t rank = static_cast<uint32_t>(turn) % kWorkers;
      const uint32_t shard = static_cast<uint32_t>(turn / kWorkers) % kShards;
      switch (turn / (kWorkers * kShards)) {
        case 0:
          if (Upward(rank, shard)) return true;
          break;
        case 1:
          if (Downward(rank, shard)) return true;
          break;
        case 2:
          if (Compute(rank)) return true;
          break;
        default:
          if (Encode(rank) || Retry(rank, shard)) return true;
      }
    }
    return false;
  }

  bool Upward(uint32_t rank, uint32_t shard) {
    Link& link = workers_[rank].links[shard];
    if (link.up.empty()) return false;
    const std::shared_ptr<const protocol::ExchangeRequest> exchange = link.up.front();
    link.up.pop_front();
    ++delivered_;
    protocol::ExchangeRequest copy = *exchange;
    copy.sender.server_incarnation = link.known_incarnation;
    for (server::ShardEffect& effect :
         shards_[shard].core->Handle(link.stream, std::move(copy), absl::UnixEpoch())) {
      if (const auto* reply = std::get_if<server::SendReply>(&effect)) Deliver(shard, *reply);
      if (const auto* taken = std::get_if<server::WriteSnapshot>(&effect)) {
        shards_[shard].snapshot = taken->snapshot;
      }
      if (const auto* alarm = std::get_if<server::Alarm>(&effect)) ADD_FAILURE() << alarm->text;
      if (const auto* odd = std::get_if<server::NotReproducible>(&effect))
        ADD_FAILURE() << odd->text;
    }
    CompleteCheckpoint();
    return true;
  }
  void Deliver(uint32_t shard, const server::SendReply& reply) {
    for (Worker& worker : workers_) {
      Link& link = worker.links[shard];
      if (link.stream == reply.stream) link.down.push_back(reply.answer);
    }
  }
  void CompleteCheckpoint() {
    if (complete_ || !fate_.checkpoint) return;
    for (const Server& server : shards_) {
      if (server.snapshot == nullptr) return;
    }
    for (const Worker& worker : workers_) {
      if (worker.done < kCheckpoint) return;
    }
    complete_ = true;
    for (Worker& worker : workers_) worker.pipeline->Release(kCheckpoint);
    for (Server& server : shards_) server.core->ReleaseResults(kCheckpoint);
  }

  bool Downward(uint32_t rank, uint32_t shard) {
    Worker& worker = workers_[rank];
    Link& link = worker.links[shard];
    if (link.down.empty()) return false;
    const std::shared_ptr<const protocol::ExchangeReply> answer = link.down.front();
    link.down.pop_front();
    ++delivered_;
    Pipeline::Effects effects;
    if (link.known_incarnation < shards_[shard].incarnation) {
      link.known_incarnation = shards_[shard].incarnation;
      worker.pipeline->ShardReplaced(shard, &effects);
    }
    worker.pipeline->Answer(shard, *answer, &effects);
    CarryOut(rank, effects);
    return true;
  }

  void CarryOut(uint32_t rank, const Pipeline::Effects& effects) {
    Worker& worker = workers_[rank];
    for (const PipelineEffect& effect : effects) {
      if (const auto* send = std::get_if<SendExchange>(&effect)) {
        worker.links[send->shard].up.push_back(send->exchange);
      } else if (const auto* retry = std::get_if<RetryLater>(&effect)) {
        worker.links[retry->shard].retry = true;
      } else if (std::holds_alternative<ReplayBegun>(effect)) {
        ++replays_;
      } else if (const auto* done = std::get_if<StepDone>(&effect)) {
        FinishStep(&worker, done->step);
      }
    }
  }
  static void FinishStep(Worker* worker, uint64_t step) {
    worker->done = step;
    std::vector<float> mean(kRepairSize);
    for (uint32_t tensor = 0; tensor < kTensors; ++tensor) {
      Check(ReadMean(*worker->pipeline, tensor, absl::MakeSpan(mean)).ok(), "it can be decoded");
      for (size_t i = 0; i < kRepairSize; ++i) worker->sums[tensor * kRepairSize + i] += mean[i];
    }
  }

  bool Compute(uint32_t rank) {
    Worker& worker = workers_[rank];
    Pipeline& pipeline = *worker.pipeline;
    if (!pipeline.status().ok()) return false;
    if (!pipeline.step_open()) {
      if (worker.done == kSteps) return false;
      pipeline.StartStep();
      worker.ready = 0;
    }
    if (worker.ready == kTensors) return false;
    const size_t tensor = kTensors - ++worker.ready;
    CounterRandom random(pipeline.step(), rank, tensor);
    std::vector<float>& gradient = worker.gradients[tensor];
    gradient = {};
    // Gradients also depend on the learned values, so that a wrong result changes all later ones.
    for (size_t i = 0; i < kRepairSize; ++i) {
      gradient.push_back(static_cast<float>(random.Uniform() - 0.5) -
                         0.1f * worker.sums[tensor * kRepairSize + i]);
    }
    Check(pipeline.TensorReady(static_cast<uint32_t>(tensor), gradient).ok(), "it fits");
    return true;
  }
  // Encoding takes some time.
  bool Encode(uint32_t rank) {
    Worker& worker = workers_[rank];
    if (worker.encoding.has_value()) {
      Pipeline::Effects effects;
      worker.pipeline->Encoded(*std::move(worker.encoding), &effects);
      worker.encoding.reset();
      CarryOut(rank, effects);
      return true;
    }
    const std::optional<EncodeTask> task = worker.pipeline->NextEncoding();
    if (!task.has_value()) return false;
    worker.encoding = worker.encoder->Encode(*task);
    return true;
  }
  bool Retry(uint32_t rank, uint32_t shard) {
    Link& link = workers_[rank].links[shard];
    if (!link.retry) return false;
    link.retry = false;
    Pipeline::Effects effects;
    workers_[rank].pipeline->RetryDue(shard, &effects);
    CarryOut(rank, effects);
    return true;
  }

  const Fate fate_;
  protocol::TensorTable table_;
  protocol::Layout layout_;
  protocol::CompressionSpec compression_;
  Server shards_[kShards];
  Worker workers_[kWorkers];
  server::StreamId last_stream_ = 0;
  size_t turn_ = 0;
  size_t delivered_ = 0;
  int replays_ = 0;
  bool complete_ = false;
};

struct Case {
  const char* name;
  uint32_t victim;
  bool checkpoint;
  uint64_t window_bytes;
};

class RepairTest : public testing::TestWithParam<Case> {
 protected:
  Fate FateOf(std::vector<size_t> after) const {
    return {.victim = GetParam().victim,
            .after = std::move(after),
            .checkpoint = GetParam().checkpoint,
            .window_bytes = GetParam().window_bytes};
  }
};

TEST_P(RepairTest, AShardIsLostAtEveryMoment) {
  Job undisturbed(FateOf({}));
  const std::vector<float> expected = undisturbed.ToTheEnd();
  int replays = 0;
  for (size_t at = 0; at < undisturbed.delivered(); ++at) {
    SCOPED_TRACE(absl::StrCat("after ", at, " of ", undisturbed.delivered(), " messages"));
    Job run(FateOf({at}));
    ASSERT_EQ(run.ToTheEnd(), expected);
    ASSERT_FALSE(HasFailure());
    replays += run.replays();
  }
  EXPECT_GT(replays, static_cast<int>(undisturbed.delivered()));
}

TEST_P(RepairTest, AndAgainWhileItIsRepaired) {
  const std::vector<float> expected = Job(FateOf({})).ToTheEnd();
  const size_t messages = [this] {
    Job run(FateOf({}));
    (void)run.ToTheEnd();
    return run.delivered();
  }();
  for (size_t at = 0; at < messages; at += 3) {
    for (const size_t later : {1, 2, 5, 9, 14, 20, 33, 47}) {
      SCOPED_TRACE(absl::StrCat("after ", at, " and ", later, " more messages"));
      Job run(FateOf({at, at + later, at + 2 * later}));
      ASSERT_EQ(run.ToTheEnd(), expected);
      ASSERT_FALSE(HasFailure());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RepairTest,
                         testing::Values(Case{"FromTheStart", 1, false, 1 << 20},
                                         Case{"Shard0", 0, false, 1 << 20},
                                         Case{"FromACheckpoint", 1, true, 1 << 20},
                                         Case{"Shard0FromACheckpoint", 0, true, 1 << 20},
                                         Case{"WindowOfOneBundle", 1, true, 1}),
                         [](const testing::TestParamInfo<Case>& c) {
                           return std::string(c.param.name);
                         });

}  // namespace
}  // namespace sluice::worker
