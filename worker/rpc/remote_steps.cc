// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/remote_steps.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/process_usage.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {
namespace {

PipelineOptions MakePipelineOptions(const RemoteSessionOptions& session,
                                    const protocol::TensorTable& table,
                                    const Membership& membership) {
  PipelineOptions options;
  options.table = table;
  options.layout = membership.layout;
  options.sender = membership.sender;
  options.world_size = membership.world_size;
  options.first_step = membership.first_step;
  options.parameters_agree = membership.parameters_agree;
  options.window_bytes = membership.window_bytes;
  options.late_joiner = membership.late_joiner;
  // Without lockstep only the lost shard knew the order of contributions, and with elastic
  // membership only it knew who took part. Such jobs do not replay.
  if (session.checkpoint.enabled() && session.exchange.in_lockstep() &&
      !session.exchange.elastic()) {
    options.replay_bytes = session.checkpoint.replay_limit;
  }
  options.exchange = session.exchange;
  options.rack_of = session.rack_of;
  return options;
}

std::string StepsName(uint64_t from, uint64_t to) {
  return from == to ? absl::StrCat("step ", from) : absl::StrCat("steps ", from, " to ", to);
}

void LogReplay(const Logger& logger, const ReplayBegun& replay) {
  logger.Info("shard ", replay.shard, " was restarted and asked for ",
              StepsName(replay.from, replay.to), "; resending ",
              replay.from == replay.to ? "it" : "them");
}

}  // namespace

RemoteSteps::RemoteSteps(const RemoteSessionOptions& options, const protocol::TensorTable& table,
                         const Membership& membership, SessionCheckpoints* checkpoints,
                         SessionActivity* activity)
    : options_(options),
      clock_(*options.clock),
      table_(table),
      sender_(membership.sender),
      checkpoints_(*checkpoints),
      activity_(*activity),
      stages_(&CpuNanosecondsOfThisThread),
      encoder_(table, membership.layout, options.exchange.compression, options.rank,
               {.quality_interval = options.quality_interval,
                .device = options.device,
                .threads = options.encode_threads,
                .stages = &stages_}),
      applier_(options.encode_threads, &stages_),
      streams_(MakeShardStreams(options, membership, this, &stages_)),
      pipeline_(MakePipelineOptions(options, table, membership)),
      links_(options, membership, streams_),
      times_(options.trace),
      strand_(options.clock, [this, named = false]() mutable {
        if (options_.trace != nullptr && !std::exchange(named, true)) {
          options_.trace->NameThread("encoder");
        }
        return RunEncoder();
      }) {
  MutexLock lock(&mutex_);
  links_.Open();
}

RemoteSteps::~RemoteSteps() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  strand_.Stop();
  streams_.clear();  // Waits for their events, which use the other members.
}

absl::Status RemoteSteps::SetPlans(const std::vector<protocol::CompressionPlan>& plans) {
  MutexLock lock(&mutex_);
  return pipeline_.SetPlans(plans);
}

void RemoteSteps::CarryOut(const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) {
      CarryOut(*send);
    } else if (const auto* retry = std::get_if<RetryLater>(&effect)) {
      links_.RetryAt(retry->shard, clock_.Now() + retry->delay);
      strand_.Wake();
    } else if (const auto* failed = std::get_if<PipelineFailed>(&effect)) {
      CarryOut(*failed);
    } else if (const auto* replay = std::get_if<ReplayBegun>(&effect)) {
      LogReplay(options_.logger, *replay);
    } else {
      times_.ExchangeEnded(pipeline_.step(), clock_.Now());
      step_changed_.SignalAll();
    }
  }
}

void RemoteSteps::CarryOut(const SendExchange& send) {
  const uint64_t step = send.exchange->step;
  if (step > 0 && step == pipeline_.step() && pipeline_.step_open()) {
    times_.ExchangeBegan(clock_.Now());
  }
  streams_[send.shard]->Enqueue(send.exchange);
}

void RemoteSteps::CarryOut(const PipelineFailed& failed) {
  // While this worker is leaving, other failures may just mean that the job has ended.
  if (leaving_ && !IsRollback(failed.status) && !absl::IsDataLoss(failed.status)) return;
  const bool removed = options_.exchange.elastic() && absl::IsAborted(failed.status);
  (void)FailLocked(removed ? LostServer(failed.status, options_.checkpoint.enabled())
                           : failed.status);
}

void RemoteSteps::Flush(const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) streams_[send->shard]->Flush();
  }
}

absl::Status RemoteSteps::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void RemoteSteps::Fail(absl::Status status) {
  MutexLock lock(&mutex_);
  if (!leaving_) (void)FailLocked(std::move(status));
}

absl::Status RemoteSteps::FailLocked(absl::Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
    checkpoints_.CancelStore();
    if (options_.on_end) options_.on_end(status_);
    step_changed_.SignalAll();
    strand_.Wake();
  }
  return status_;
}

absl::Status RemoteSteps::BeginStep() {
  const absl::Time now = clock_.Now();
  activity_.Moved(now);
  if (!status_.ok()) return status_;
  if (leaving_) return absl::FailedPreconditionError("this worker has left the job");
  if (!begun_) {
    checkpoints_.StepBegins(pipeline_.step());
    pipeline_.LimitLead(times_.lead().Share(links_.RoundTrip()));
    pipeline_.StartStep();
    times_.StepBegan(now);
    begun_ = true;
    has_result_ = false;
  }
  return absl::OkStatus();
}

bool RemoteSteps::BuffersDue() const {
  MutexLock lock(&mutex_);
  return status_.ok() && pipeline_.BuffersDue(begun_);
}

std::vector<protocol::TensorPart> RemoteSteps::PartsDue() const {
  MutexLock lock(&mutex_);
  return pipeline_.PartsDue(begun_);
}

absl::Status RemoteSteps::Submit(uint32_t tensor, const GradientView& gradient) {
  MutexLock lock(&mutex_);
  absl::Status status = BeginStep();
  if (status.ok()) status = pipeline_.TensorReady(tensor, gradient);
  if (!status.ok()) return FailLocked(std::move(status));
  strand_.Wake();
  return absl::OkStatus();
}

absl::Status RemoteSteps::SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) {
  MutexLock lock(&mutex_);
  absl::Status status = BeginStep();
  if (status.ok()) status = pipeline_.SetWeight(shard, bundle, contributions);
  return status.ok() ? status : FailLocked(std::move(status));
}

uint32_t RemoteSteps::Contributions(uint32_t shard, uint32_t bundle) const {
  MutexLock lock(&mutex_);
  return pipeline_.Record(shard, bundle).n;
}

protocol::PlanHistory::Plan RemoteSteps::AnnouncedPlan() const {
  MutexLock lock(&mutex_);
  return pipeline_.AnnouncedPlan();
}

uint64_t RemoteSteps::named_checkpoint() const {
  MutexLock lock(&mutex_);
  return pipeline_.named_checkpoint();
}

uint64_t RemoteSteps::durable_step() const {
  MutexLock lock(&mutex_);
  return pipeline_.durable_step();
}

absl::Status RemoteSteps::Skip() {
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    absl::Status status = BeginStep();
    if (status.ok()) status = pipeline_.SkipStep(&effects);
    if (!status.ok()) return FailLocked(std::move(status));
    CarryOut(effects);
  }
  Flush(effects);
  return absl::OkStatus();
}

void RemoteSteps::SetRate(float rate) {
  MutexLock lock(&mutex_);
  pipeline_.SetRate(rate);
}

void RemoteSteps::SetWork(const protocol::Work& work) {
  MutexLock lock(&mutex_);
  pipeline_.SetWork(work);
}

absl::StatusOr<BundleEncoder*> RemoteSteps::EncoderBetweenSteps() {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (begun_) {
    return absl::FailedPreconditionError(absl::StrCat("step ", pipeline_.step(), " is open"));
  }
  // No step is open, so the encoder thread does not use the encoder.
  for (const Published& b : pipeline_.TakePublished()) encoder_.Observe(b.chunks, b.frames);
  if (auto done = encoder_.Settle(pipeline_.TakeLate()); !done.ok()) return FailLocked(done);
  return &encoder_;
}

absl::StatusOr<protocol::WorkerSnapshot> RemoteSteps::SnapshotWhenDue() {
  protocol::WorkerSnapshot snapshot;
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    if (absl::Status due = checkpoints_.TakeDue(pipeline_.step()); !due.ok()) {
      return FailLocked(std::move(due));
    }
    snapshot = {.job_uid = sender_.job_uid,
                .term = sender_.term,
                .step = pipeline_.step(),
                .rank = sender_.rank,
                .uplink = {},
                .trainer = {},
                .plans = pipeline_.KnownPlans()};
  }
  const absl::StatusOr<BundleEncoder*> encoder = EncoderBetweenSteps();
  if (!encoder.ok()) return encoder.status();
  snapshot.uplink = (*encoder)->Save();
  return snapshot;
}

void RemoteSteps::Tested(double accuracy) {
  for (const auto& stream : streams_) stream->Tested(accuracy);
}

bool RemoteSteps::SleepFor(absl::Duration duration) {
  const absl::Time until = clock_.Now() + duration;
  MutexLock lock(&mutex_);
  while (status_.ok()) {
    const absl::Duration left = until - clock_.Now();
    if (left <= absl::ZeroDuration()) return true;
    step_changed_.WaitFor(&mutex_, left);
  }
  return false;
}

absl::Status RemoteSteps::BeginLeaving() {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (begun_) {
    return FailLocked(absl::FailedPreconditionError(absl::StrCat(
        "Leave was called while step ", pipeline_.step(), " is open: Wait for it first")));
  }
  leaving_ = true;
  times_.EndDecoding();
  return absl::OkStatus();
}

TrafficCounters RemoteSteps::TrafficLocked() const {
  TrafficCounters counters = times_.counters();
  for (const auto& stream : streams_) {
    counters.bytes_up += stream->bytes_up();
    counters.bytes_down += stream->bytes_down();
  }
  return counters;
}

TrafficCounters RemoteSteps::traffic() const {
  MutexLock lock(&mutex_);
  return TrafficLocked();
}

void RemoteSteps::FillHeartbeat(protocol::WorkerHeartbeat* heartbeat) const {
  MutexLock lock(&mutex_);
  heartbeat->replay_from = pipeline_.replay_from();
  heartbeat->known_shards = links_.KnownProcesses();
  const TrafficCounters counters = TrafficLocked();
  protocol::MemberProgress& progress = heartbeat->progress;
  progress.bytes_up = counters.bytes_up;
  progress.bytes_down = counters.bytes_down;
  progress.dense_bytes_up = progress.dense_bytes_down = DenseBytes(counters.steps);
  const StepSeconds& seconds = times_.seconds();
  heartbeat->timings = {.steps = seconds.steps,
                        .compute_seconds = seconds.compute,
                        .encode_seconds = seconds.encode,
                        .decode_seconds = seconds.decode,
                        .exchange_seconds = seconds.exchange};
}

void RemoteSteps::FillFigures(SessionFigures* figures) const {
  figures->stages = stages();
  MutexLock lock(&mutex_);
  figures->traffic = TrafficLocked();
  figures->dense_bytes = DenseBytes(figures->traffic.steps);
  figures->bytes_in_flight = pipeline_.bytes_in_flight();
  figures->fragments_in_flight = begun_ ? 1 : 0;
  figures->seconds = times_.seconds();
  figures->exchanges = times_.exchanges();
}

}  // namespace sluice::worker
