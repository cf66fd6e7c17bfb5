#include "tests/sim/cluster.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "compress/frame.h"
#include "server/core/shard.h"
#include "tests/sim/history.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/sim_data.h"
#include "worker/core/pipeline.h"

namespace sluice {
namespace {

constexpr uint64_t kJobUid = 77;
constexpr uint64_t kEventsMax = 200'000;  // A run that takes more does not end.

using Micros = int64_t;

// One end-to-end stream that may be cut. The worker sees the cut at once, the shard some time
// later.
struct SimStream {
  uint32_t rank = 0;
  uint32_t shard = 0;
  bool known_closed = false;  // By the shard.
  Micros last_up = 0;         // Arrivals stay in order.
  Micros last_down = 0;
};

struct SimWorker {
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<SimEncoder> encoder;
  std::vector<std::vector<float>> values;  // Of this step.
  std::vector<std::vector<float>> parameters;
  std::vector<StreamId> streams;          // By shard; 0: down.
  std::map<BundleKey, EncodeTask> tasks;  // Of this step.
  std::set<BundleKey> answered;           // Got its result.
  bool finished = false;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ClusterReport Run();

 private:
  void MakeShards();
  void MakeWorkers();
  void At(Micros delay, std::function<void()> what);
  Micros Delay();
  bool Chance(double share) { return random_.Uniform() < share; }
  void Trace(uint32_t kind, uint32_t a, uint64_t b, uint32_t c);

  void OpenStream(uint32_t rank, uint32_t shard);
  void Break(uint32_t rank, uint32_t shard);
  void SendUp(uint32_t rank, uint32_t shard, std::shared_ptr<const Exchange> exchange);
  void ArriveUp(StreamId id, const Exchange& exchange);
  void SendDown(StreamId id, std::shared_ptr<const ExchangeAnswer> answer);
  void ArriveDown(StreamId id, const ExchangeAnswer& answer);
  void CarryOut(uint32_t rank, const Pipeline::Effects& effects);
  void CarryOut(uint32_t shard, const std::vector<ShardEffect>& effects);

  void BeginStep(uint32_t rank);
  void EncodeNext(uint32_t rank);
  void FinishStep(uint32_t rank);
  std::shared_ptr<const Exchange> Planted(uint32_t rank, const BundleKey& key,
                                          std::shared_ptr<const Exchange> exchange);
  void ApplyAgain(uint32_t rank, uint32_t shard, const ExchangeAnswer& answer);
  void CheckEverything();
  void CheckExactlyOnce();
  void Violate(std::string what) {
    if (report_.violations.size() < 8) report_.violations.push_back(std::move(what));
  }
  absl::Time Now() const { return absl::UnixEpoch() + absl::Microseconds(now_); }

  struct Event {
    Micros at = 0;
    uint64_t sequence = 0;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(at, sequence) > std::pair(other.at, other.sequence);
    }
  };

  const ClusterOptions options_;
  const TensorTable table_ = SimTable();
  Layout layout_;
  CounterRandom random_;
  Micros now_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
  std::vector<SimStream> streams_;  // By id - 1.
  std::vector<SimWorker> workers_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<History> history_;
  std::unique_ptr<AnswerForger> forger_;
  ClusterReport report_;
};

Cluster::Cluster(const ClusterOptions& options)
    : options_(options), random_(options.network_seed, 9) {
  absl::StatusOr<Layout> layout = BuildLayout(table_, options.shards, options.compression.layout,
                                              WholeRows(options.compression, table_));
  Check(layout.ok(), layout.status().message());
  layout_ = *std::move(layout);
  history_ = std::make_unique<History>(options, table_, layout_);
  forger_ = std::make_unique<AnswerForger>(options, layout_);
  MakeShards();
  MakeWorkers();
}

void Cluster::MakeShards() {
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    ShardOptions shard_options;
    shard_options.shard = shard;
    shard_options.table = table_;
    shard_options.layout = layout_;
    shard_options.compression = options_.compression;
    shard_options.job_uid = kJobUid;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      shard_options.incarnations.push_back(100 + rank);
    }
    shard_options.parameters_agree = options_.parameters_agree;
    shard_options.window_bytes = options_.window_bytes;
    shard_options.busy_retry_ms = 2;
    if (options_.tight_memory) {
      // Sums, what receivers remember and windows, but hardly a log.
      const std::vector<ChunkConfig> uplinks =
          ChunkConfigs(options_.compression, table_, layout_, Direction::kUplink);
      uint64_t bytes = options_.ranks * options_.window_bytes + 64;
      for (const Bundle& bundle : layout_.bundles[shard]) {
        bytes += 8 * bundle.elements;
        for (const uint32_t chunk : bundle.chunks) {
          bytes += MakeAggregator(uplinks[chunk], options_.ranks)->state_bytes();
        }
      }
      shard_options.max_memory = bytes;
    }
    absl::StatusOr<std::unique_ptr<Shard>> made = Shard::Create(std::move(shard_options));
    Check(made.ok(), made.status().message());
    shards_.push_back(*std::move(made));
  }
}

void Cluster::MakeWorkers() {
  workers_.resize(options_.ranks);
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    PipelineOptions pipeline;
    pipeline.table = table_;
    pipeline.layout = layout_;
    pipeline.sender = {
        .job_uid = kJobUid, .rank = rank, .incarnation = 100 + rank, .generation = 1};
    pipeline.world_size = options_.ranks;
    pipeline.parameters_agree = options_.parameters_agree;
    pipeline.window_bytes = options_.window_bytes;
    SimWorker& worker = workers_[rank];
    worker.pipeline = std::make_unique<Pipeline>(std::move(pipeline));
    worker.encoder = MakeSimEncoder(options_.bug, table_, layout_, options_.compression, rank);
    worker.parameters =
        SimValues(options_, table_, options_.parameters_agree ? 0 : rank, /*step=*/0);
    worker.streams.resize(options_.shards);
    for (uint32_t shard = 0; shard < options_.shards; ++shard) OpenStream(rank, shard);
    At(Delay(), [this, rank] { BeginStep(rank); });
  }
}

void Cluster::At(Micros delay, std::function<void()> what) {
  events_.push({now_ + delay, ++sequence_, std::move(what)});
}

Micros Cluster::Delay() {
  const Micros delay = 20 + static_cast<Micros>(random_.Below(200));
  return Chance(options_.slow_share) ? 50 * delay : delay;
}

void Cluster::Trace(uint32_t kind, uint32_t a, uint64_t b, uint32_t c) {
  const uint64_t entry[] = {static_cast<uint64_t>(now_), kind, a, b, c};
  report_.trace_hash =
      ExtendCrc32c(report_.trace_hash, {reinterpret_cast<const std::byte*>(entry), sizeof(entry)});
}

void Cluster::OpenStream(uint32_t rank, uint32_t shard) {
  streams_.push_back({.rank = rank, .shard = shard, .last_up = now_, .last_down = now_});
  workers_[rank].streams[shard] = streams_.size();
}

void Cluster::Break(uint32_t rank, uint32_t shard) {
  StreamId& current = workers_[rank].streams[shard];
  if (current == 0 || report_.breaks >= options_.breaks_max) return;
  ++report_.breaks;
  Trace(1, rank, current, shard);
  // Until the shard notices, what was under way still arrives: even after the first messages of the
  // next stream.
  At(Delay(), [this, id = current] {
    streams_[id - 1].known_closed = true;
    shards_[streams_[id - 1].shard]->StreamClosed(id);
  });
  current = 0;
  At(Delay(), [this, rank, shard] {
    OpenStream(rank, shard);
    Pipeline::Effects effects;
    workers_[rank].pipeline->StreamReset(shard, &effects);
    CarryOut(rank, effects);
  });
}

void Cluster::SendUp(uint32_t rank, uint32_t shard, std::shared_ptr<const Exchange> exchange) {
  const BundleKey key{exchange->step, shard, exchange->bundle};
  if (!history_->Sent(rank, key, *exchange)) exchange = Planted(rank, key, std::move(exchange));
  const StreamId id = workers_[rank].streams[shard];
  if (id == 0) return;  // It is repeated when the stream is open again.
  SimStream& stream = streams_[id - 1];
  stream.last_up = std::max(stream.last_up + 1, now_ + Delay());
  At(stream.last_up - now_, [this, id, exchange] { ArriveUp(id, *exchange); });
  if (Chance(options_.repeat_share)) {
    At(stream.last_up - now_ + Delay(), [this, id, exchange] { ArriveUp(id, *exchange); });
  }
  if (Chance(options_.break_share)) Break(rank, shard);
}

void Cluster::ArriveUp(StreamId id, const Exchange& exchange) {
  const SimStream stream = streams_[id - 1];
  if (stream.known_closed) return;
  if (workers_[stream.rank].streams[stream.shard] != id) ++report_.late;
  Trace(2, stream.rank, exchange.step, exchange.bundle);
  forger_->Arrived(stream.shard, exchange);
  CarryOut(stream.shard, shards_[stream.shard]->Handle(id, exchange, Now()));
  // The reply is lost, its effect is not.
  if (Chance(options_.break_share) && workers_[stream.rank].streams[stream.shard] == id) {
    Break(stream.rank, stream.shard);
  }
}

void Cluster::CarryOut(uint32_t shard, const std::vector<ShardEffect>& effects) {
  for (const ShardEffect& effect : effects) {
    if (const auto* reply = std::get_if<Reply>(&effect)) {
      SendDown(reply->stream, forger_->Answer(shard, reply->answer));
    } else if (const auto* alarm = std::get_if<Alarm>(&effect)) {
      Violate(absl::StrCat("shard ", shard, ": ", alarm->text));
    }
  }
}

void Cluster::SendDown(StreamId id, std::shared_ptr<const ExchangeAnswer> answer) {
  SimStream& stream = streams_[id - 1];
  stream.last_down = std::max(stream.last_down + 1, now_ + Delay());
  At(stream.last_down - now_, [this, id, answer] { ArriveDown(id, *answer); });
  if (Chance(options_.repeat_share)) {
    At(stream.last_down - now_ + Delay(), [this, id, answer] { ArriveDown(id, *answer); });
  }
}

void Cluster::ArriveDown(StreamId id, const ExchangeAnswer& answer) {
  const SimStream& stream = streams_[id - 1];
  const uint32_t rank = stream.rank;
  const uint32_t shard = stream.shard;
  SimWorker& worker = workers_[rank];
  if (worker.streams[shard] != id) return;
  Trace(3, rank, answer.step, answer.bundle);
  if (answer.outcome == Outcome::kBusy) ++report_.busy;
  if (answer.outcome == Outcome::kResult &&
      !worker.answered.insert({answer.step, shard, answer.bundle}).second) {
    ApplyAgain(rank, shard, answer);
  }
  Pipeline::Effects effects;
  worker.pipeline->Answer(shard, answer, &effects);
  CarryOut(rank, effects);
}

void Cluster::CarryOut(uint32_t rank, const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) {
      SendUp(rank, send->shard, send->exchange);
    } else if (const auto* retry = std::get_if<RetryLater>(&effect)) {
      At(absl::ToInt64Microseconds(retry->delay), [this, rank, shard = retry->shard] {
        Pipeline::Effects more;
        workers_[rank].pipeline->RetryDue(shard, &more);
        CarryOut(rank, more);
      });
    } else if (const auto* failed = std::get_if<PipelineFailed>(&effect)) {
      Violate(absl::StrCat("rank ", rank, " failed: ", failed->status.ToString()));
    } else {
      At(Delay(), [this, rank] { FinishStep(rank); });
    }
  }
}

void Cluster::BeginStep(uint32_t rank) {
  SimWorker& worker = workers_[rank];
  worker.pipeline->StartStep();
  worker.tasks.clear();
  const uint64_t step = worker.pipeline->step();
  worker.values = step == 0 ? worker.parameters : SimValues(options_, table_, rank, step);
  if (step == 0 ? rank != 0 : SkipsStep(options_, rank, step)) {
    Pipeline::Effects effects;
    Check(worker.pipeline->SkipStep(&effects).ok(), "a step can be skipped");
    return CarryOut(rank, effects);
  }
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    At(Delay(), [this, rank, tensor] {
      SimWorker& at = workers_[rank];
      const absl::Status ready = at.pipeline->TensorReady(tensor, at.values[tensor]);
      if (ready.ok()) EncodeNext(rank);
    });
  }
}

void Cluster::EncodeNext(uint32_t rank) {
  SimWorker& worker = workers_[rank];
  std::optional<EncodeTask> task = worker.pipeline->NextEncoding();
  if (!task.has_value()) return;
  worker.tasks[{task->step, task->shard, task->bundle}] = *task;
  EncodedBundle encoded = worker.encoder->Encode(*task);
  if (encoded.skipped) ++report_.not_finite;
  At(Delay(), [this, rank, encoded = std::move(encoded)] {
    Pipeline::Effects effects;
    workers_[rank].pipeline->Encoded(encoded, &effects);
    CarryOut(rank, effects);
    EncodeNext(rank);
  });
}

void Cluster::FinishStep(uint32_t rank) {
  SimWorker& worker = workers_[rank];
  const uint64_t step = worker.pipeline->step();
  SeenStep seen;
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    for (uint32_t bundle = 0; bundle < layout_.bundles[shard].size(); ++bundle) {
      seen.records[{step, shard, bundle}] = worker.pipeline->Record(shard, bundle);
    }
  }
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    std::vector<float>& mean = seen.means.emplace_back(table_[tensor].elements());
    Check(worker.pipeline->DecodeMean(tensor, absl::MakeSpan(mean)).ok(), "a done step decodes");
    std::vector<float>& parameters = worker.parameters[tensor];
    for (size_t i = 0; i < mean.size(); ++i) {
      parameters[i] = step == 0 ? mean[i] : parameters[i] - 0.1f * mean[i];
    }
  }
  history_->Finished(rank, step, std::move(seen));
  if (step == options_.steps) {
    worker.finished = true;
  } else {
    At(Delay(), [this, rank] { BeginStep(rank); });
  }
}

std::shared_ptr<const Exchange> Cluster::Planted(uint32_t rank, const BundleKey& key,
                                                 std::shared_ptr<const Exchange> exchange) {
  SimWorker& worker = workers_[rank];
  if (exchange->skip || key.step == 0) return exchange;
  if (options_.bug == PlantedBug::kRepeatCountsAgain) {
    auto changed = std::make_shared<Exchange>(*exchange);
    ++changed->step;
    return changed;
  }
  if (options_.bug == PlantedBug::kRetryEncodesAgain) {
    auto changed = std::make_shared<Exchange>(*exchange);
    changed->frames = worker.encoder->Encode(worker.tasks[key]).frames;
    return changed;
  }
  return exchange;
}

void Cluster::ApplyAgain(uint32_t rank, uint32_t shard, const ExchangeAnswer& answer) {
  if (options_.bug != PlantedBug::kResultAppliedTwice || answer.step == 0) return;
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][answer.bundle].chunks;
  for (size_t i = 0; i < answer.results.size(); ++i) {
    const Chunk& chunk = layout_.chunks[chunks[i]];
    std::vector<float> mean(chunk.count);
    const std::string& frame = answer.results[i];
    Check(DecodeAddFrame({reinterpret_cast<const std::byte*>(frame.data()), frame.size()},
                         absl::MakeSpan(mean))
              .ok(),
          "results decode");
    for (uint32_t j = 0; j < chunk.count; ++j) {
      workers_[rank].parameters[chunk.tensor][chunk.offset + j] -= 0.1f * mean[j];
    }
  }
}

ClusterReport Cluster::Run() {
  uint64_t handled = 0;
  while (!events_.empty() && handled < kEventsMax && report_.violations.empty()) {
    Event event = events_.top();
    events_.pop();
    now_ = event.at;
    ++handled;
    event.what();
  }
  for (uint32_t rank = 0; rank < options_.ranks && report_.violations.empty(); ++rank) {
    if (workers_[rank].finished) continue;
    Violate(absl::StrCat("rank ", rank, " is stuck in step ", workers_[rank].pipeline->step(),
                         " after ", handled, " events"));
  }
  if (report_.violations.empty()) CheckEverything();
  return report_;
}

void Cluster::CheckEverything() {
  history_->CheckResults(&report_.violations);
  report_.results_hash = history_->results_hash();
  for (uint32_t rank = 1; rank < options_.ranks; ++rank) {
    if (workers_[rank].parameters != workers_[0].parameters) {
      Violate(absl::StrCat("rank ", rank, " has other parameters than rank 0"));
    }
  }
  CheckExactlyOnce();
  if (!options_.check_balance) return;
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    for (uint32_t bundle = 0; bundle < layout_.bundles[shard].size(); ++bundle) {
      const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
      for (uint32_t i = 0; i < chunks.size(); ++i) {
        history_->CheckDownlink(chunks[i], shards_[shard]->DownlinkResidual(bundle, i),
                                &report_.violations);
        for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
          history_->CheckUplink(rank, chunks[i], workers_[rank].encoder->Residual(chunks[i]),
                                &report_.violations);
        }
      }
    }
  }
}

void Cluster::CheckExactlyOnce() {
  const uint64_t steps = options_.steps + (options_.parameters_agree ? 0 : 1);
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    const ShardStats stats = shards_[shard]->Stats();
    report_.repeats += stats.repeats;
    report_.contributions += stats.contributions;
    const uint64_t closed = steps * layout_.bundles[shard].size();
    if (stats.contributions != options_.ranks * closed || stats.bundles_closed != closed) {
      Violate(absl::StrCat("shard ", shard, " counted ", stats.contributions,
                           " contributions and closed ", stats.bundles_closed, " bundles, not ",
                           options_.ranks * closed, " and ", closed));
    }
    if (stats.held_bytes != 0) Violate(absl::StrCat("shard ", shard, " still holds frames"));
  }
}

}  // namespace

ClusterReport RunCluster(const ClusterOptions& options) { return Cluster(options).Run(); }

}  // namespace sluice
