// SPDX-License-Identifier: Apache-2.0
// Tests buffers of a model (BatchNorm's statistics) in real pipelines and shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/fnv1a.h"
#include "base/random.h"
#include "server/shard/shard.h"
#include "tests/worker/core/read_results.h"
#include "worker/core/pipeline.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRanks = 3;

protocol::TensorInfo Trained(absl::string_view name, int64_t size) {
  return {.name = std::string(name), .shape = {size}, .strides = {}};
}
protocol::TensorInfo Buffer(absl::string_view name, int64_t size) {
  protocol::TensorInfo tensor = Trained(name, size);
  tensor.role = protocol::TensorRole::kBuffer;
  return tensor;
}

protocol::CompressionSpec Sparse() {
  protocol::CompressionSpec compression;
  compression.uplink = *compress::ParseCodecSpec("topk:10%/ef");
  compression.downlink = *compress::ParseCodecSpec("topk:20%/ef");
  compression.min_elements = 0;
  compression.layout = {.chunk_elements = 64, .bundle_elements = 128};
  // Buffers are sent without loss, even if an override names a lossy codec.
  compression.overrides.push_back({.tensors = "*",
                                   .uplink = *compress::ParseCodecSpec("int8"),
                                   .downlink = *compress::ParseCodecSpec("int4")});
  return compression;
}

struct ClusterOptions {
  protocol::TensorTable table;
  uint32_t shards = 2;
  uint64_t buffer_sync_interval = 5;
  bool parameters_agree = true;
  uint64_t seed = 1;
  bool names_checkpoints = true;
  bool skips_steps = true;
};

using Values = std::vector<std::vector<float>>;  // By tensor.

// A cluster of ranks and shards. Messages are delayed, but stay in order within each stream. A seed
// determines all random numbers.
class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  // Runs all ranks through `steps` steps.
  void Run(uint64_t steps);

  struct StepRecord {
    bool due = false;       // BuffersDue before the step's first submit.
    bool skipped = false;   // The rank had no data.
    bool averaged = false;  // Whether the step's result has averaged buffers.
    Values before;          // Buffers before the exchange.
    Values after;           // Buffers after the step.
  };
  // The records by rank and step.
  const std::vector<std::map<uint64_t, StepRecord>>& records() const { return records_; }
  const std::set<uint64_t>& named() const { return named_; }
  server::ShardStats StatsOf(uint32_t shard) const { return shards_[shard]->Stats(); }
  uint64_t sent_bytes() const { return sent_bytes_; }
  uint64_t sends_hash() const { return sends_.value(); }
  uint32_t trained() const { return protocol::TrainedTensors(options_.table); }

 private:
  struct Rank {
    std::unique_ptr<Pipeline> pipeline;
    std::unique_ptr<BundleEncoder> encoder;
    Values values;                    // Gradients and buffers.
    std::vector<uint32_t> to_submit;  // Tensors of the open step, submitted from the end.
    StepRecord record;
  };

  void Advance(uint32_t rank);
  void BeginStep(uint32_t rank);
  void EndStep(uint32_t rank);
  void CarryOut(uint32_t rank, const Pipeline::Effects& effects);
  void DeliverUp(uint32_t rank, uint32_t shard);
  void DeliverDown(uint32_t rank, uint32_t shard);

  const ClusterOptions options_;
  CounterRandom random_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<server::Shard>> shards_;
  std::vector<std::vector<std::deque<protocol::ExchangeRequest>>> up_;  // [rank][shard]
  std::vector<std::vector<std::deque<protocol::ExchangeReply>>> down_;
  std::vector<std::map<uint64_t, StepRecord>> records_;
  std::set<uint64_t> named_;
  uint64_t steps_ = 0;
  uint64_t sent_bytes_ = 0;
  Fnv1a sends_;
};

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      random_(options.seed),
      ranks_(kRanks),
      up_(kRanks, std::vector<std::deque<protocol::ExchangeRequest>>(options.shards)),
      down_(kRanks, std::vector<std::deque<protocol::ExchangeReply>>(options.shards)),
      records_(kRanks) {
  const protocol::CompressionSpec compression = Sparse();
  const protocol::Layout layout =
      *protocol::BuildLayout(options_.table, options_.shards, compression.layout,
                             protocol::WholeRows(compression, options_.table));
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    server::ShardOptions of_shard;
    of_shard.shard = shard;
    of_shard.table = options_.table;
    of_shard.layout = layout;
    of_shard.exchange.compression = compression;
    of_shard.job_uid = 7;
    of_shard.incarnations.assign(kRanks, 3);
    of_shard.parameters_agree = options_.parameters_agree;
    auto made = server::Shard::Create(std::move(of_shard));
    EXPECT_TRUE(made.ok()) << made.status();
    shards_.push_back(*std::move(made));
  }
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    PipelineOptions of_rank;
    of_rank.table = options_.table;
    of_rank.layout = layout;
    of_rank.sender = {.job_uid = 7, .rank = rank, .incarnation = 3, .generation = 1};
    of_rank.world_size = kRanks;
    of_rank.parameters_agree = options_.parameters_agree;
    of_rank.exchange.buffer_sync_interval = options_.buffer_sync_interval;
    of_rank.window_bytes = 600;
    ranks_[rank].encoder =
        std::make_unique<BundleEncoder>(options_.table, layout, compression, rank);
    ranks_[rank].pipeline = std::make_unique<Pipeline>(std::move(of_rank));
    for (size_t t = 0; t < options_.table.size(); ++t) {
      std::vector<float>& values = ranks_[rank].values.emplace_back(options_.table[t].elements());
      CounterRandom start(9, rank, t);
      for (float& value : values) value = static_cast<float>(start.Uniform());
    }
  }
}

void Cluster::BeginStep(uint32_t r) {
  Rank& rank = ranks_[r];
  const uint64_t step = rank.pipeline->next_step();
  rank.record = StepRecord();
  rank.record.due = rank.pipeline->BuffersDue(/*of_last=*/false);
  CounterRandom draws(options_.seed, r, step);
  // In step 0 only rank 0 contributes values.
  rank.record.skipped = step == 0 ? r > 0 : options_.skips_steps && draws.Below(4) == 0;
  for (size_t t = 0; t < rank.values.size() && step > 0; ++t) {
    for (float& value : rank.values[t]) {
      const float news = static_cast<float>(draws.Uniform()) - 0.3f;
      // A rank without data computes nothing. In other ranks, statistics change a little, and
      // gradients are new.
      if (t < trained())
        value = news;
      else if (!rank.record.skipped)
        value = 0.9f * value + 0.1f * news;
    }
  }
  rank.record.before.assign(rank.values.begin() + trained(), rank.values.end());
  rank.pipeline->StartStep();
  EXPECT_EQ(rank.pipeline->BuffersDue(/*of_last=*/true), rank.record.due);
  if (rank.record.skipped) {
    Pipeline::Effects effects;
    // Sometimes a stream breaks before anything is sent.
    if (draws.Below(2) == 0) rank.pipeline->StreamReset(options_.shards - 1, &effects);
    EXPECT_TRUE(rank.pipeline->SkipStep(&effects).ok());
    CarryOut(r, effects);
    return;
  }
  const auto submitted = static_cast<uint32_t>(rank.record.due ? rank.values.size() : trained());
  for (uint32_t t = 0; t < submitted; ++t) rank.to_submit.push_back(t);
  for (size_t i = submitted; i > 1; --i) {
    std::swap(rank.to_submit[i - 1], rank.to_submit[draws.Below(i)]);
  }
}

void Cluster::Advance(uint32_t r) {
  Rank& rank = ranks_[r];
  if (!rank.pipeline->step_open()) {
    if (records_[r].count(steps_) == 0) BeginStep(r);
    return;
  }
  if (rank.to_submit.empty()) return;
  const uint32_t tensor = rank.to_submit.back();
  rank.to_submit.pop_back();
  ASSERT_TRUE(rank.pipeline->TensorReady(tensor, rank.values[tensor]).ok());
  Pipeline::Effects effects;
  while (std::optional<EncodeTask> task = rank.pipeline->NextEncoding()) {
    rank.pipeline->Encoded(rank.encoder->Encode(*task), &effects);
  }
  CarryOut(r, effects);
}

void Cluster::CarryOut(uint32_t r, const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) {
      up_[r][send->shard].push_back(*send->exchange);
      for (const std::string& frame : send->exchange->frames) {
        sent_bytes_ += frame.size();
        sends_.Add(frame);
      }
      for (const uint64_t number :
           {uint64_t{r}, uint64_t{send->shard}, send->exchange->step,
            uint64_t{send->exchange->bundle}, uint64_t{send->exchange->skip}}) {
        sends_.Add(number);
      }
    } else if (std::holds_alternative<StepDone>(effect)) {
      EndStep(r);
    } else if (const auto* failed = std::get_if<PipelineFailed>(&effect)) {
      FAIL() << "rank " << r << ": " << failed->status;
    }
  }
}

void Cluster::EndStep(uint32_t r) {
  Rank& rank = ranks_[r];
  const StepResult result = rank.pipeline->Result();
  rank.record.averaged = result.buffers_averaged;
  // DecodeMean is called in every step, because it leaves a buffer without a mean unchanged.
  for (uint32_t t = 0; t < rank.values.size(); ++t) {
    ASSERT_TRUE(ReadMean(*rank.pipeline, t, absl::MakeSpan(rank.values[t])).ok());
  }
  rank.record.after.assign(rank.values.begin() + trained(), rank.values.end());
  records_[r][result.step] = rank.record;
}

void Cluster::DeliverUp(uint32_t r, uint32_t s) {
  std::deque<protocol::ExchangeRequest>& queue = up_[r][s];
  if (queue.empty()) return;
  protocol::ExchangeRequest exchange = std::move(queue.front());
  queue.pop_front();
  for (const server::ShardEffect& effect :
       shards_[s]->Handle(r + 1, std::move(exchange), absl::UnixEpoch())) {
    if (const auto* reply = std::get_if<server::SendReply>(&effect)) {
      down_[reply->stream - 1][s].push_back(*reply->answer);
    } else if (const auto* named = std::get_if<server::CheckpointNamed>(&effect)) {
      named_.insert(named->step);
    }
  }
}

void Cluster::DeliverDown(uint32_t r, uint32_t s) {
  std::deque<protocol::ExchangeReply>& queue = down_[r][s];
  if (queue.empty()) return;
  Pipeline::Effects effects;
  protocol::ExchangeReply answer = std::move(queue.front());
  queue.pop_front();
  ranks_[r].pipeline->Answer(s, std::move(answer), &effects);
  CarryOut(r, effects);
}

void Cluster::Run(uint64_t steps) {
  steps_ = steps;
  const auto all_done = [this] {
    for (const auto& records : records_) {
      if (records.count(steps_) == 0) return false;
    }
    return true;
  };
  for (uint64_t events = 0; !all_done(); ++events) {
    ASSERT_LT(events, 4'000'000u) << "the steps must end";
    const auto rank = static_cast<uint32_t>(random_.Below(kRanks));
    const auto shard = static_cast<uint32_t>(random_.Below(options_.shards));
    switch (random_.Below(3)) {
      case 0:
        Advance(rank);
        break;
      case 1:
        DeliverUp(rank, shard);
        break;
      default:
        DeliverDown(rank, shard);
    }
    if (::testing::Test::HasFatalFailure()) return;
    if (options_.names_checkpoints && random_.Below(200) == 0) {
      (void)shards_[0]->NameCheckpoint(1 + random_.Below(steps));
    }
  }
}

// Returns the mean as the protocol defines it: a sum in fp32 in rank order, divided once. Returns
// `mine` if there is no mean.
Values MeanOf(const std::vector<std::map<uint64_t, Cluster::StepRecord>>& records, uint64_t step,
              const Values& mine) {
  Values mean = mine;
  for (size_t t = 0; t < mine.size(); ++t) {
    for (size_t i = 0; i < mine[t].size(); ++i) {
      float sum = 0;
      int n = 0;
      for (const auto& rank : records) {
        const Cluster::StepRecord& record = rank.at(step);
        if (record.skipped) continue;
        sum += record.before[t][i];
        ++n;
      }
      if (n > 0) mean[t][i] = sum / static_cast<float>(n);
    }
  }
  return mean;
}

protocol::TensorTable TwoLayersWithStatistics() {
  return {Trained("w", 300), Trained("b", 10), Buffer("norm.mean", 70), Buffer("norm.var", 70)};
}

class BuffersClusterTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(BuffersClusterTest, AllRanksAgreeWhenTheyAreDueAndGetTheExactMeanThen) {
  ClusterOptions options;
  options.seed = GetParam();
  options.table = TwoLayersWithStatistics();
  options.shards = static_cast<uint32_t>(1 + GetParam() % 4);
  options.buffer_sync_interval = 3 + GetParam() % 7;
  options.parameters_agree = GetParam() % 2 == 0;
  Cluster cluster(options);
  cluster.Run(60);
  ASSERT_FALSE(HasFatalFailure());
  const auto& records = cluster.records();
  int differing = 0;
  int off_beat = 0;
  for (const auto& [step, first] : records[0]) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    const bool due = step % options.buffer_sync_interval == 0 || cluster.named().count(step) > 0;
    bool somebody = false;
    for (const auto& rank : records) somebody = somebody || !rank.at(step).skipped;
    if (step % options.buffer_sync_interval != 0 && due) ++off_beat;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const Cluster::StepRecord& record = records[rank].at(step);
      EXPECT_EQ(record.due, due) << "rank " << rank;
      EXPECT_EQ(record.averaged, due && somebody) << "rank " << rank;
      EXPECT_EQ(record.after, due ? MeanOf(records, step, record.before) : record.before);
      EXPECT_TRUE(!due || !somebody || record.after == first.after);
      if (record.after != first.after) ++differing;
    }
  }
  EXPECT_GT(differing, 20) << "the ranks must have different buffers";
  EXPECT_GT(off_beat, 0) << "a checkpoint must fall between two averaging steps";
}

INSTANTIATE_TEST_SUITE_P(Seeds, BuffersClusterTest, ::testing::Range<uint64_t>(1, 41));

TEST(BuffersTest, RankZerosBuffersComeWithItsParameters) {
  ClusterOptions options;
  options.table = TwoLayersWithStatistics();
  options.parameters_agree = false;
  Cluster cluster(options);
  cluster.Run(1);
  const auto& records = cluster.records();
  EXPECT_NE(records[1].at(0).before, records[0].at(0).before);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(records[rank].at(0).after, records[0].at(0).before);
  }
}

TEST(BuffersTest, OnesThatAreNotDueAreNoSkippedGradientsAndNoneAreParameters) {
  ClusterOptions options;
  options.table = TwoLayersWithStatistics();
  options.shards = 1;
  options.skips_steps = false;
  Cluster cluster(options);
  cluster.Run(12);
  const server::ShardStats stats = cluster.StatsOf(0);
  EXPECT_EQ(stats.elements, 310u);
  EXPECT_EQ(stats.skipped_contributions, 0u);
  EXPECT_EQ(stats.empty_bundles, 0u);
}

TEST(BuffersTest, AShardMayHaveNothingElse) {
  ClusterOptions options;
  options.table = {Trained("w", 64), Buffer("a", 8), Buffer("b", 4)};
  options.shards = 3;
  const protocol::CompressionSpec compression = Sparse();
  const protocol::Layout layout = *protocol::BuildLayout(options.table, 3, compression.layout);
  ASSERT_TRUE(layout.bundles[1][0].buffers);
  ASSERT_TRUE(layout.bundles[2][0].buffers);
  Cluster cluster(options);
  cluster.Run(40);
  EXPECT_EQ(cluster.records()[0].count(40), 1u);
}

TEST(BuffersTest, WithoutAnyNothingThatIsSentDependsOnThem) {
  std::set<uint64_t> hashes;
  std::set<uint64_t> bytes;
  for (const uint64_t every : {1, 3, 1'000'000}) {
    ClusterOptions options;
    options.table = {Trained("w", 300), Trained("b", 10)};
    options.buffer_sync_interval = every;
    Cluster cluster(options);
    cluster.Run(40);
    hashes.insert(cluster.sends_hash());
    bytes.insert(cluster.sent_bytes());
    for (const auto& [step, record] : cluster.records()[0]) EXPECT_FALSE(record.due) << step;
  }
  // The expected values were recorded before buffers were supported.
  EXPECT_THAT(hashes, ::testing::ElementsAre(2152693263781365864u));
  EXPECT_THAT(bytes, ::testing::ElementsAre(37570u));
}

// A pipeline with one rank and one shard. Bundle 0 is w, and bundle 1 has the buffers.
class BuffersPipelineTest : public ::testing::Test {
 protected:
  BuffersPipelineTest() {
    PipelineOptions options;
    options.table = {Trained("w", 4), Buffer("mean", 2), Buffer("var", 2)};
    options.layout = *protocol::BuildLayout(options.table, 1, Sparse().layout);
    options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
    options.exchange.buffer_sync_interval = 2;
    encoder_.emplace(options.table, options.layout, Sparse(), 0);
    pipeline_.emplace(std::move(options));
  }
  void Ready(uint32_t tensor) {
    ASSERT_TRUE(pipeline_->TensorReady(tensor, values_[tensor]).ok());
    while (std::optional<EncodeTask> task = pipeline_->NextEncoding()) {
      pipeline_->Encoded(encoder_->Encode(*task), &effects_);
    }
  }
  // Answers like a shard of a job with one worker and no compression.
  std::vector<protocol::ExchangeRequest> AnswerAll() {
    std::vector<protocol::ExchangeRequest> sent;
    for (const PipelineEffect& effect : effects_) {
      if (const auto* send = std::get_if<SendExchange>(&effect)) sent.push_back(*send->exchange);
    }
    effects_.clear();
    for (const protocol::ExchangeRequest& exchange : sent) {
      protocol::ExchangeReply answer;
      answer.step = exchange.step;
      answer.bundle = exchange.bundle;
      answer.results = exchange.frames;
      answer.record.step = exchange.step;
      answer.record.bundle = exchange.bundle;
      answer.record.n = exchange.skip ? 0 : 1;
      answer.record.result_checksum = protocol::BundleChecksum(exchange.frames);
      answer.record.included = {{.rank = 0,
                                 .origin_step = exchange.step,
                                 .checksum = answer.record.result_checksum,
                                 .skipped = exchange.skip}};
      pipeline_->Answer(0, std::move(answer), &effects_);
    }
    effects_.clear();
    return sent;
  }
  void FinishStepOne() {
    pipeline_->StartStep();
    Ready(0);
    AnswerAll();
    ASSERT_FALSE(pipeline_->step_open());
  }

  std::vector<float> values_[3] = {{1, 2, 3, 4}, {0.1f, 0.2f}, {5, 6}};
  std::optional<BundleEncoder> encoder_;
  std::optional<Pipeline> pipeline_;
  Pipeline::Effects effects_;
};

TEST_F(BuffersPipelineTest, AStepThatTakesNoneSkipsThemByItself) {
  EXPECT_FALSE(pipeline_->BuffersDue(false));
  pipeline_->StartStep();
  EXPECT_EQ(pipeline_->MissingTensor(), 0u);
  const absl::Status refused = pipeline_->TensorReady(1, values_[1]);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("buffer mean was submitted"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("step 1"));
  Ready(0);
  EXPECT_EQ(pipeline_->MissingTensor(), std::nullopt);
  const std::vector<protocol::ExchangeRequest> sent = AnswerAll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(sent[0].skip);
  EXPECT_TRUE(sent[1].skip);
  const StepResult result = pipeline_->Result();
  EXPECT_FALSE(result.buffers_averaged);
  EXPECT_EQ(result.n_min, 1u) << "buffers that are not due count as missing contributions";
  EXPECT_EQ(result.bundles, 1u);
  EXPECT_EQ(result.bundles_skipped_here, 0u);
  std::vector<float> kept = {8, 9};
  ASSERT_TRUE(ReadMean(*pipeline_, 1, absl::MakeSpan(kept)).ok());
  EXPECT_THAT(kept, ::testing::ElementsAre(8, 9));
}

TEST_F(BuffersPipelineTest, AStepThatTakesThemWaitsForThem) {
  FinishStepOne();
  EXPECT_TRUE(pipeline_->BuffersDue(false));
  pipeline_->StartStep();
  Ready(0);
  EXPECT_EQ(pipeline_->MissingTensor(), 1u);
  Ready(1);
  Ready(2);
  const std::vector<protocol::ExchangeRequest> sent = AnswerAll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(sent[1].skip);
  EXPECT_FALSE(pipeline_->step_open());
  EXPECT_TRUE(pipeline_->Result().buffers_averaged);
  EXPECT_FALSE(pipeline_->BuffersDue(false));
  EXPECT_TRUE(pipeline_->BuffersDue(true));
  std::vector<float> mean = {8, 9};
  ASSERT_TRUE(ReadMean(*pipeline_, 1, absl::MakeSpan(mean)).ok());
  EXPECT_EQ(mean, values_[1]);
  EXPECT_TRUE(encoder_->compressor().residual(1).empty()) << "buffers must have no residual";
}

TEST_F(BuffersPipelineTest, OneThatIsNotFiniteGoesWithoutThisWorkerAndIsNamed) {
  FinishStepOne();
  values_[2][1] = std::numeric_limits<float>::infinity();
  pipeline_->StartStep();
  for (const uint32_t tensor : {2, 1, 0}) Ready(tensor);
  const std::vector<protocol::ExchangeRequest> sent = AnswerAll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_FALSE(sent[0].skip);
  EXPECT_TRUE(sent[1].skip);
  const StepResult result = pipeline_->Result();
  EXPECT_EQ(result.first_skipped_buffer, "var");
  EXPECT_EQ(result.first_skipped_tensor, "");
  EXPECT_EQ(result.bundles_skipped_here, 0u);
  EXPECT_EQ(result.n_min, 1u);
  EXPECT_FALSE(result.buffers_averaged);
}

TEST(BuffersTest, TheirCodecIsNoneWhateverTheJobSays) {
  const protocol::CompressionSpec compression = Sparse();
  const protocol::TensorTable table = {Trained("w", 300), Buffer("mean", 300)};
  const protocol::Layout layout = *protocol::BuildLayout(table, 1, compression.layout);
  for (const protocol::Direction direction :
       {protocol::Direction::kUplink, protocol::Direction::kDownlink}) {
    for (const compress::ChunkConfig& chunk :
         protocol::ChunkConfigs(compression, table, layout, direction)) {
      if (chunk.tensor == 0) {
        EXPECT_NE(ToString(chunk.spec), "none");
      } else {
        EXPECT_EQ(chunk.spec, compress::CodecSpec());
        EXPECT_EQ(ToString(chunk.spec), "none");
      }
    }
  }
}

}  // namespace
}  // namespace sluice::worker
