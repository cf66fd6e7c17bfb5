#include "tests/sim/async_job.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "compress/frame.h"
#include "job/momentum.h"
#include "server/shard/async_shard.h"
#include "tests/sim/async_bugs.h"
#include "tests/sim/async_mirror.h"
#include "tests/sim/sim_data.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/pipeline.h"

namespace sluice {
namespace {

constexpr uint64_t kJobUid = 7;
constexpr uint64_t kEventsMax = 2'000'000;

protocol::TensorTable AsyncTable() {
  return {{.name = "conv", .shape = {6, 9}, .strides = {}},
          {.name = "fc1", .shape = {24, 25}, .strides = {}},
          {.name = "fc2", .shape = {10, 31}, .strides = {}},
          {.name = "norm", .shape = {12}, .strides = {}, .role = protocol::TensorRole::kBuffer}};
}

class AsyncJob {
 public:
  explicit AsyncJob(const AsyncOptions& options)
      : options_(options),
        random_(options.seed, 99),
        table_(AsyncTable()),
        layout_(*protocol::BuildLayout(table_, options.shards, options.compression.layout,
                                       protocol::WholeRows(options.compression, table_))) {}

  AsyncReport Run();

 private:
  struct Worker {
    std::unique_ptr<worker::Pipeline> pipeline;
    std::unique_ptr<worker::BundleEncoder> encoder;
    std::vector<std::vector<float>> values;  // The gradients to submit, by tensor.
    std::vector<std::vector<float>> parameters;
    uint64_t done = 0;
    bool finished = false;
    std::vector<uint64_t> streams;  // By shard; a stream gets a new number when it breaks.
    double pace = 1;
    uint64_t told_plan = 0;  // The plan number in the last result of shard 0's first bundle.
    std::optional<uint64_t> told_in;  // The step of that result.
    uint64_t coded_by = 0;            // The plan that codes the open step.
  };
  struct WorkerSave {
    compress::SavedCompressor uplink;
    std::vector<std::vector<float>> parameters;
    std::vector<protocol::CompressionPlan> plans;
  };
  struct Checkpoint {
    std::vector<std::shared_ptr<const protocol::ShardSnapshot>> shards;
    std::vector<AsyncMirror> mirrors;
    std::vector<std::optional<WorkerSave>> workers;
  };
  struct Event {
    double at = 0;
    uint64_t number = 0;  // Orders events of the same time by creation.
    uint32_t term = 0;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return std::tie(other.at, other.number) < std::tie(at, number);
    }
  };

  void After(double delay, std::function<void()> act) {
    events_.push({now_ + delay, ++events_made_, term_, std::move(act)});
  }
  bool Chance(double share) { return random_.Uniform() < share; }
  void Violated(std::string text) { report_.violations.push_back(std::move(text)); }

  void StartTerm(uint64_t restore_step);
  void MakeShard(uint32_t shard, uint64_t restore_step);
  void MakeWorker(uint32_t rank, uint64_t restore_step);
  void StartStep(uint32_t rank);
  std::vector<std::vector<float>> Gradients(uint32_t rank, uint64_t step);
  void Encode(uint32_t rank);
  void CarryOut(uint32_t rank, const worker::Pipeline::Effects& effects);
  void FinishStep(uint32_t rank);
  void Save(uint32_t rank, uint64_t step);
  void Send(uint32_t rank, uint32_t shard,
            std::shared_ptr<const protocol::ExchangeRequest> exchange);
  void Break(uint32_t rank, uint32_t shard);
  void Arrive(uint32_t rank, uint32_t shard, uint64_t stream,
              const protocol::ExchangeRequest& exchange);
  void Deliver(uint32_t shard, const protocol::ExchangeRequest& request, uint32_t sender,
               const std::vector<server::ShardEffect>& effects);
  void Answer(uint32_t rank, uint32_t shard, uint64_t stream,
              const protocol::ExchangeReply& answer);
  void CheckResult(uint32_t shard, uint32_t rank, const protocol::ExchangeReply& answer);
  void CheckPlan(uint32_t rank, uint32_t shard, const protocol::ExchangeRequest& exchange);
  void CheckBase(uint32_t rank, uint32_t shard, const protocol::ExchangeRequest& exchange);
  void RollBack();
  uint64_t LastStep() const { return options_.steps + options_.quiet_steps; }
  bool Finished() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& w) { return w.finished; });
  }

  const AsyncOptions options_;
  CounterRandom random_;
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  AsyncReport report_;
  double now_ = 0;
  uint64_t events_made_ = 0;
  uint32_t term_ = 0;
  uint64_t next_stream_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<server::Shard>> shards_;
  std::vector<AsyncMirror> mirrors_;
  std::map<uint64_t, Checkpoint> checkpoints_;  // By step; complete, or of this term.
  std::set<uint64_t> named_;                    // Checkpoints named in this term.
  // Known plans of this term, current and past, by number.
  std::map<uint64_t, protocol::CompressionPlan> plans_;
};

void AsyncJob::StartTerm(uint64_t restore_step) {
  named_.clear();
  plans_.clear();
  shards_.clear();
  shards_.resize(options_.shards);
  mirrors_.resize(options_.shards);
  for (uint32_t shard = 0; shard < options_.shards; ++shard) MakeShard(shard, restore_step);
  workers_.clear();
  workers_.resize(options_.ranks);
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) MakeWorker(rank, restore_step);
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    After(random_.Uniform(), [this, rank] { StartStep(rank); });
  }
}

void AsyncJob::MakeShard(uint32_t shard, uint64_t restore_step) {
  server::ShardOptions options;
  options.shard = shard;
  options.table = table_;
  options.layout = layout_;
  options.compression = options_.compression;
  options.mode = options_.mode;
  options.staleness = options_.staleness + (options_.bug == AsyncBug::kBoundTooFar ? 1 : 0);
  options.staleness_aware_lr = options_.staleness_aware_lr;
  options.rule = options_.rule;
  options.control = options_.control;
  // Plans do not affect the mirror's arithmetic.
  options.rule_momentum = job::MomentumOf(options_.rule);
  options.momentum = {.base = *options.rule_momentum, .coded = *options.rule_momentum};
  options.job_uid = kJobUid;
  options.term = term_;
  options.incarnations.assign(options_.ranks, term_ + 1);
  options.first_step = restore_step + 1;
  options.parameters_agree = restore_step > 0;
  if (restore_step > 0) {
    const Checkpoint& from = checkpoints_.at(restore_step);
    options.restore = Forged(options_.bug, *from.shards[shard]);
    mirrors_[shard] = from.mirrors[shard];
  } else {
    mirrors_[shard] = AsyncMirror({.table = table_,
                                   .layout = layout_,
                                   .shard = shard,
                                   .ranks = options_.ranks,
                                   .rule = options_.rule,
                                   .staleness_aware_lr = options_.staleness_aware_lr});
  }
  absl::StatusOr<std::unique_ptr<server::Shard>> made = server::Shard::Create(std::move(options));
  Check(made.ok(), made.status().message());
  shards_[shard] = *std::move(made);
  if (const auto plan = shards_[shard]->plan()) plans_[plan->id] = *plan;
  mirrors_[shard].ResetForTerm();
}

void AsyncJob::MakeWorker(uint32_t rank, uint64_t restore_step) {
  Worker& worker = workers_[rank];
  worker.encoder =
      std::make_unique<worker::BundleEncoder>(table_, layout_, options_.compression, rank);
  worker::PipelineOptions options;
  options.table = table_;
  options.layout = layout_;
  options.sender = {.job_uid = kJobUid, .term = term_, .rank = rank, .incarnation = term_ + 1};
  options.world_size = options_.ranks;
  options.first_step = restore_step + 1;
  options.parameters_agree = restore_step > 0;
  options.lockstep = false;
  options.compression = options_.compression;
  options.makes_plans = options_.control.makes_plans();
  options.window_bytes = 512;
  worker.pipeline = std::make_unique<worker::Pipeline>(std::move(options));
  worker.pipeline->SetRate(0.125f);
  worker.done = restore_step;
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    worker.streams.push_back(++next_stream_);
  }
  worker.pace = rank == 0 ? options_.slowest : 1;
  for (const protocol::TensorInfo& tensor : table_)
    worker.parameters.emplace_back(tensor.elements());
  std::vector<protocol::CompressionPlan> plans;
  if (restore_step > 0) {
    const WorkerSave& saved = *checkpoints_.at(restore_step).workers[rank];
    worker.parameters = saved.parameters;
    const absl::Status restored =
        worker.encoder->Restore(saved.uplink, options_.control.makes_plans());
    Check(restored.ok(), restored.message());
    plans = saved.plans;
  } else if (const auto plan = shards_[0]->plan()) {
    plans = {*plan};
  }
  const absl::Status known = worker.pipeline->SetPlans(plans);
  Check(known.ok(), known.message());
  for (const protocol::CompressionPlan& plan : plans) {
    worker.told_plan = plan.id;
    plans_[plan.id] = plan;
  }
}

// The values depend on the term, so that training takes another course after a rollback.
std::vector<std::vector<float>> AsyncJob::Gradients(uint32_t rank, uint64_t step) {
  std::vector<std::vector<float>> values;
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    CounterRandom random(options_.seed, 1000 * uint64_t{term_} + tensor, rank, step);
    std::vector<float>& of = values.emplace_back(table_[tensor].elements());
    if (step > options_.steps) continue;
    for (float& x : of) x = SimValue(random.Next());
  }
  CounterRandom random(options_.seed, 5000 + term_, rank, step);
  if (step > 0 && random.Uniform() < options_.nan_share) {
    values[random.Below(3)][0] = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

void AsyncJob::StartStep(uint32_t rank) {
  Worker& worker = workers_[rank];
  worker::Pipeline::Effects effects;
  worker.coded_by = worker.told_plan;
  worker.pipeline->StartStep();
  const uint64_t step = worker.pipeline->step();
  const bool skips = step == 0 ? rank != 0
                               : CounterRandom(options_.seed, 6000 + term_, rank, step).Uniform() <
                                     options_.skip_share;
  if (skips) {
    Check(worker.pipeline->SkipStep(&effects).ok(), "a step may be skipped");
    CarryOut(rank, effects);
    return;
  }
  worker.values = Gradients(rank, step);
  if (step == 0) worker.parameters = worker.values;
  for (uint32_t tensor = static_cast<uint32_t>(table_.size()); tensor-- > 0;) {
    if (table_[tensor].role == protocol::TensorRole::kBuffer && step > 0) {
      if (worker.pipeline->BuffersDue(true)) Violated("buffers are due");
      continue;
    }
    Check(worker.pipeline->TensorReady(tensor, worker.values[tensor]).ok(), "a tensor is taken");
  }
  Encode(rank);
}

void AsyncJob::Encode(uint32_t rank) {
  Worker& worker = workers_[rank];
  worker::Pipeline::Effects effects;
  while (std::optional<worker::EncodeTask> task = worker.pipeline->NextEncoding()) {
    if (!task->published.empty()) Violated("a codec was given frames to observe");
    worker.pipeline->Encoded(worker.encoder->Encode(*task), &effects);
  }
  CarryOut(rank, effects);
}

void AsyncJob::CarryOut(uint32_t rank, const worker::Pipeline::Effects& effects) {
  for (const worker::PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<worker::SendExchange>(&effect)) {
      CheckBase(rank, send->shard, *send->exchange);
      CheckPlan(rank, send->shard, *send->exchange);
      Send(rank, send->shard, send->exchange);
    } else if (const auto* retry = std::get_if<worker::RetryLater>(&effect)) {
      After(0.05, [this, rank, shard = retry->shard] {
        worker::Pipeline::Effects more;
        workers_[rank].pipeline->RetryDue(shard, &more);
        CarryOut(rank, more);
      });
    } else if (const auto* failed = std::get_if<worker::PipelineFailed>(&effect)) {
      Violated(absl::StrCat("rank ", rank, " failed: ", failed->status.message()));
    } else if (std::holds_alternative<worker::StepDone>(effect)) {
      FinishStep(rank);
    }
  }
}

void AsyncJob::FinishStep(uint32_t rank) {
  Worker& worker = workers_[rank];
  const worker::StepResult result = worker.pipeline->Result();
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    const absl::Span<float> parameters = absl::MakeSpan(worker.parameters[tensor]);
    if (result.step == 0) {
      Check(worker.pipeline->DecodeMean(tensor, parameters).ok(), "parameters are there");
    } else if (table_[tensor].role != protocol::TensorRole::kBuffer) {
      Check(worker.pipeline->ApplyUpdate(tensor, parameters).ok(), "an update is there");
    }
  }
  if (result.steps_behind > 0) Violated("a worker is told to catch up");
  for (uint32_t shard = 1; shard < options_.shards; ++shard) {
    const auto plan = shards_[shard]->plan();
    if (plan == nullptr || plan->id >= worker.coded_by) continue;
    Violated(absl::StrCat("shard ", shard, " does not know plan ", worker.coded_by));
  }
  worker.done = result.step;
  if (result.checkpoint_due) Save(rank, result.step);
  if (result.step >= LastStep()) {
    worker.finished = true;
    return;
  }
  After(worker.pace * (0.5 + random_.Uniform()) + (Chance(0.02) ? 20 : 0),
        [this, rank] { StartStep(rank); });
}

void AsyncJob::Save(uint32_t rank, uint64_t step) {
  if (!named_.contains(step)) Violated(absl::StrCat("no shard named a checkpoint after ", step));
  Checkpoint& checkpoint = checkpoints_[step];
  checkpoint.workers.resize(options_.ranks);
  checkpoint.workers[rank] = {workers_[rank].encoder->Save(), workers_[rank].parameters,
                              workers_[rank].pipeline->KnownPlans()};
  if (!workers_[rank].pipeline->TakePublished().empty())
    Violated("a codec was given frames to observe");
}

void AsyncJob::Send(uint32_t rank, uint32_t shard,
                    std::shared_ptr<const protocol::ExchangeRequest> exchange) {
  const uint64_t stream = workers_[rank].streams[shard];
  if (Chance(options_.break_share)) {
    Break(rank, shard);
    return;
  }
  const double delay = shard == 1 ? 0.3 : 0.1;
  After(delay, [this, rank, shard, stream, exchange] { Arrive(rank, shard, stream, *exchange); });
  if (Chance(options_.duplicate_share)) {
    After(delay, [this, rank, shard, stream, exchange] { Arrive(rank, shard, stream, *exchange); });
  }
}

// Loses all messages in flight over the old stream, in both directions.
void AsyncJob::Break(uint32_t rank, uint32_t shard) {
  ++report_.breaks;
  const uint64_t old = std::exchange(workers_[rank].streams[shard], ++next_stream_);
  After(0.2 * random_.Uniform(), [this, shard, old] { shards_[shard]->StreamClosed(old); });
  After(0.1 + random_.Uniform(), [this, rank, shard] {
    worker::Pipeline::Effects effects;
    workers_[rank].pipeline->StreamReset(shard, &effects);
    CarryOut(rank, effects);
  });
}

void AsyncJob::Arrive(uint32_t rank, uint32_t shard, uint64_t stream,
                      const protocol::ExchangeRequest& exchange) {
  if (workers_[rank].streams[shard] != stream) return;
  AsyncMirror& mirror = mirrors_[shard];
  if (options_.bug == AsyncBug::kContributionLost && !exchange.skip && exchange.step == 5 &&
      mirror.IsNew(exchange)) {
    protocol::ExchangeReply answer;
    answer.step = exchange.step;
    answer.bundle = exchange.bundle;
    answer.record.step = exchange.step;
    answer.record.bundle = exchange.bundle;
    answer.record.term = term_;
    answer.record.n = 1;
    answer.record.included = {{rank, exchange.step, protocol::BundleChecksum(exchange), false}};
    answer.base_version = answer.version = exchange.base_version;
    Answer(rank, shard, stream, answer);
    return;
  }
  protocol::ExchangeRequest taken = exchange;
  if (options_.bug == AsyncBug::kRepeatCountsAgain && !mirror.IsNew(exchange)) ++taken.step;
  if (options_.bug == AsyncBug::kPlanNotPassedOn) taken.plan = nullptr;
  const auto effects = shards_[shard]->Handle(stream, taken, absl::UnixEpoch());
  const auto& core = static_cast<const server::AsyncShard&>(*shards_[shard]);
  const std::string wrong = mirror.Took(exchange, core);
  if (!wrong.empty()) Violated(wrong);
  report_.updates = std::max(report_.updates, mirror.updates());
  Deliver(shard, exchange, rank, effects);
  const server::ShardStats stats = shards_[shard]->Stats();
  if (stats.log_bytes > stats.log_limit) Violated("a log is over its limit");
}

void AsyncJob::Deliver(uint32_t shard, const protocol::ExchangeRequest& request, uint32_t sender,
                       const std::vector<server::ShardEffect>& effects) {
  for (const server::ShardEffect& effect : effects) {
    if (const auto* named = std::get_if<server::CheckpointNamed>(&effect)) {
      named_.insert(named->step);
    } else if (const auto* taken = std::get_if<server::WriteSnapshot>(&effect)) {
      Checkpoint& checkpoint = checkpoints_[taken->snapshot->step];
      checkpoint.shards.resize(options_.shards);
      checkpoint.mirrors.resize(options_.shards);
      checkpoint.shards[shard] = taken->snapshot;
      checkpoint.mirrors[shard] = mirrors_[shard];
      const std::string wrong = mirrors_[shard].CheckClocks(taken->snapshot->clocks);
      if (!wrong.empty()) Violated(wrong);
    } else if (const auto* alarm = std::get_if<server::Alarm>(&effect)) {
      Violated(absl::StrCat("an alarm: ", alarm->text));
    } else if (const auto* made = std::get_if<server::PlanMade>(&effect)) {
      ++report_.plans;
      if (shard != 0) Violated(absl::StrCat("shard ", shard, " makes a plan"));
      if (!plans_.emplace(made->plan->id, *made->plan).second) {
        Violated(absl::StrCat("there are two plans ", made->plan->id));
      }
    }
    const auto* reply = std::get_if<server::SendReply>(&effect);
    if (reply == nullptr) continue;
    if (reply->answer->outcome == protocol::Outcome::kPending) ++report_.waits;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (workers_[rank].streams[shard] != reply->stream) continue;
      if (reply->answer->outcome == protocol::Outcome::kResult)
        CheckResult(shard, rank, *reply->answer);
      if (options_.bug == AsyncBug::kWaitingForgotten && rank != sender && request.step > 0)
        continue;
      const protocol::ExchangeReply answer = Forged(options_.bug, rank, *reply->answer);
      if (Chance(options_.break_share)) {
        Break(rank, shard);
        continue;
      }
      for (int copies = Chance(options_.duplicate_share) ? 2 : 1; copies > 0; --copies) {
        After(0.1, [this, rank, shard, stream = reply->stream, answer] {
          Answer(rank, shard, stream, answer);
        });
      }
    }
  }
}

void AsyncJob::CheckResult(uint32_t shard, uint32_t rank, const protocol::ExchangeReply& answer) {
  if (answer.exact) ++report_.exact_results;
  report_.staleness_max = std::max(report_.staleness_max, answer.staleness);
  protocol::ExchangeReply told = answer;
  if (options_.bug == AsyncBug::kStalenessForgotten) told.staleness = 0;
  const std::string wrong = mirrors_[shard].CheckResult(rank, told);
  if (!wrong.empty()) Violated(wrong);
  if (shard == 0 && answer.bundle == 0) {
    const auto plan = shards_[0]->plan();
    // The check covers only mode async: in ssp, a rank that waited gets the plan of the time when
    // its request arrived.
    if (options_.mode == "async" && plan != nullptr && answer.record.plan_id != plan->id) {
      Violated(absl::StrCat("a result says plan ", answer.record.plan_id, ", plan ", plan->id,
                            " is made"));
    }
  }
  if (options_.mode != "ssp" || answer.step == 0) return;
  const uint64_t least = mirrors_[shard].LeastClock(answer.bundle);
  if (least + options_.staleness < answer.step) {
    Violated(absl::StrCat("too far ahead: rank ", rank, " may go past step ", answer.step,
                          ", and the slowest is at ", least));
  }
}

void AsyncJob::Answer(uint32_t rank, uint32_t shard, uint64_t stream,
                      const protocol::ExchangeReply& answer) {
  if (workers_[rank].streams[shard] != stream) return;
  worker::Pipeline::Effects effects;
  Worker& worker = workers_[rank];
  if (shard == 0 && answer.bundle == 0 && answer.outcome == protocol::Outcome::kResult &&
      answer.step == worker.pipeline->step() && worker.told_in != answer.step) {
    worker.told_plan = answer.record.plan_id;
    worker.told_in = answer.step;
  }
  worker.pipeline->Answer(shard, answer, &effects);
  CarryOut(rank, effects);
}

// Checks that a rank which received a plan uses and names the plan from the next step on.
void AsyncJob::CheckPlan(uint32_t rank, uint32_t shard, const protocol::ExchangeRequest& exchange) {
  const Worker& worker = workers_[rank];
  if (exchange.plan_id != worker.coded_by) {
    Violated(absl::StrCat("rank ", rank, " codes step ", exchange.step, " by plan ",
                          exchange.plan_id, " and was told of plan ", worker.coded_by));
    return;
  }
  if (!options_.control.makes_plans() || exchange.skip || exchange.step == 0) return;
  const std::vector<compress::ChunkConfig> base =
      protocol::ChunkConfigs(options_.compression, table_, layout_, protocol::Direction::kUplink);
  const std::vector<compress::CodecSpec> specs =
      protocol::SpecsUnder(&plans_.at(exchange.plan_id), protocol::Direction::kUplink, rank, base);
  const std::vector<uint32_t>& chunks = layout_.bundles[shard][exchange.bundle].chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const bool dense = !protocol::IsSparse(specs[chunks[i]].codec);
    const compress::FormatId format =
        compress::ReadFrameHeader(protocol::FrameBytes(exchange.frames[i]))->format;
    if (dense != (format == compress::FormatId::kFp16 || format == compress::FormatId::kNone)) {
      Violated(absl::StrCat("rank ", rank, ": plan ", exchange.plan_id, " has ",
                            ToString(specs[chunks[i]]), ", and a frame has format ",
                            static_cast<int>(format)));
    }
  }
}

// Checks that the parameters of the contribution's base version are those of that version.
void AsyncJob::CheckBase(uint32_t rank, uint32_t shard, const protocol::ExchangeRequest& exchange) {
  if (exchange.base_version == 0 || exchange.step == 0) return;
  const protocol::Bundle& bundle = layout_.bundles[shard][exchange.bundle];
  std::vector<float> have;
  for (const uint32_t id : bundle.chunks) {
    const protocol::Chunk& chunk = layout_.chunks[id];
    const auto from =
        workers_[rank].parameters[chunk.tensor].begin() + static_cast<std::ptrdiff_t>(chunk.offset);
    have.insert(have.end(), from, from + chunk.count);
  }
  const std::string wrong =
      mirrors_[shard].CheckHeld(rank, exchange.bundle, exchange.base_version, have);
  if (!wrong.empty()) Violated(wrong);
}

void AsyncJob::RollBack() {
  ++report_.rollbacks;
  ++term_;
  uint64_t newest = 0;
  for (const auto& [step, checkpoint] : checkpoints_) {
    const bool shards = checkpoint.shards.size() == options_.shards &&
                        std::all_of(checkpoint.shards.begin(), checkpoint.shards.end(),
                                    [](const auto& s) { return s != nullptr; });
    const bool workers =
        checkpoint.workers.size() == options_.ranks &&
        std::all_of(checkpoint.workers.begin(), checkpoint.workers.end(),
                    [](const std::optional<WorkerSave>& w) { return w.has_value(); });
    if (shards && workers) newest = step;
  }
  std::erase_if(checkpoints_, [newest](const auto& entry) { return entry.first != newest; });
  StartTerm(newest);
}

AsyncReport AsyncJob::Run() {
  StartTerm(0);
  const double length = static_cast<double>(options_.steps) * (options_.slowest + 0.5);
  for (uint32_t i = 0; i < options_.checkpoints; ++i) {
    events_.push({length * random_.Uniform(), ++events_made_, ~uint32_t{0},
                  [this] { shards_[0]->NameCheckpoint(1); }});
  }
  for (uint32_t i = 0; i < options_.rollbacks; ++i) {
    events_.push(
        {length * random_.Uniform(), ++events_made_, ~uint32_t{0}, [this] { RollBack(); }});
  }
  uint64_t events = 0;
  while (!events_.empty() && report_.violations.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (event.term == ~uint32_t{0} ? !Finished() : event.term == term_) event.act();
    if (++events > kEventsMax) Violated("the job does not end");
  }
  if (!report_.violations.empty()) return report_;
  if (!Finished()) Violated("stuck: nothing is on its way, and not all have finished");
  for (const uint64_t step : named_) {
    if (step > LastStep()) continue;
    const Checkpoint& checkpoint = checkpoints_[step];
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (rank < checkpoint.workers.size() && checkpoint.workers[rank].has_value()) continue;
      Violated(absl::StrCat("the checkpoint after step ", step, " lacks rank ", rank));
    }
    for (uint32_t shard = 0; shard < options_.shards; ++shard) {
      if (shard < checkpoint.shards.size() && checkpoint.shards[shard] != nullptr) continue;
      Violated(absl::StrCat("the checkpoint after step ", step, " lacks shard ", shard));
    }
    ++report_.checkpoints;
  }
  for (const std::unique_ptr<server::Shard>& shard : shards_) {
    report_.owed += shard->ResidualEnergy();
    report_.publications += shard->Stats().publications;
    report_.repeats += shard->Stats().repeats;
  }
  for (const Worker& worker : workers_)
    report_.owed += worker.encoder->compressor().ResidualEnergy();
  return report_;
}

}  // namespace

AsyncReport RunAsyncJob(const AsyncOptions& options) { return AsyncJob(options).Run(); }

}  // namespace sluice
