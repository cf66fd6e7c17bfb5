#include "worker/rpc/joined_session.h"

#include <algorithm>
#include <utility>

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
  options.lockstep = session.lockstep;
  options.elastic = session.elastic;
  options.late_joiner = membership.late_joiner;
  // Without lockstep only the lost shard knew the order of contributions, and with elastic
  // membership only it knew who took part. Such jobs do not replay.
  if (session.checkpoint.enabled() && session.lockstep && !session.elastic) {
    options.replay_bytes = session.checkpoint.replay_limit;
  }
  options.buffer_sync_interval = session.buffer_sync_interval;
  options.rack_of = session.rack_of;
  options.quorum = session.quorum;
  options.makes_plans = session.makes_plans;
  options.compression = session.compression;
  return options;
}

std::unique_ptr<StoreClient> MakeStore(const RemoteSessionOptions& options,
                                       const Membership& membership) {
  if (!options.checkpoint.enabled() || !options.checkpoint.at_shards()) return nullptr;
  return std::make_unique<StoreClient>(StoreClient::Options{.sender = membership.sender,
                                                            .shards = membership.shards,
                                                            .transport = options.transport,
                                                            .backoff_min = options.backoff_min,
                                                            .backoff_max = options.backoff_max,
                                                            .clock = options.clock});
}

std::unique_ptr<CheckpointWriter> MakeWriter(const RemoteSessionOptions& options,
                                             const Membership& membership, StoreClient* store) {
  if (!options.checkpoint.enabled()) return nullptr;
  return std::make_unique<CheckpointWriter>(
      CheckpointWriter::Options{.coordinator = options.coordinator,
                                .transport = options.transport,
                                .dir = options.checkpoint.dir,
                                .store = store,
                                .sender = membership.sender,
                                .report_timeout = options.connect_timeout,
                                .rest_of_checkpoint = options.rest_of_checkpoint,
                                .backoff_min = options.backoff_min,
                                .backoff_max = options.backoff_max,
                                .clock = options.clock,
                                .logger = options.logger});
}

std::string StepsName(uint64_t from, uint64_t to) {
  return from == to ? absl::StrCat("step ", from) : absl::StrCat("steps ", from, " to ", to);
}

}  // namespace

JoinedSession::JoinedSession(const RemoteSessionOptions& options,
                             const protocol::TensorTable& table, const Membership& membership)
    : options_(options),
      patience_(options.checkpoint.enabled() ? options.rejoin_timeout : options.connect_timeout),
      clock_(*options.clock),
      table_(table),
      membership_(membership),
      stages_(&CpuNanosecondsOfThisThread),
      encoder_(table, membership.layout, options.compression, options.rank,
               options.quality_interval, options.device),
      pipeline_(MakePipelineOptions(options, table, membership)),
      times_(options.trace),
      store_(MakeStore(options, membership)),
      writer_(MakeWriter(options, membership, store_.get())) {
  const absl::Time now = clock_.Now();
  last_progress_ = restoring_since_ = now;
  restoring_step_ = membership.restore_step;
  links_.resize(membership.shards.size());
  for (uint32_t shard = 0; shard < links_.size(); ++shard) {
    protocol::Sender sender = membership.sender;
    sender.server_incarnation = membership.shards[shard].server_incarnation;
    ShardLink& link = links_[shard];
    link.stream =
        std::make_unique<ShardStream>(shard, membership.shards[shard].address, *options.transport,
                                      sender, this, &clock_, &stages_, options.trace);
    link.silent_since = now;
    link.backoff = options.backoff_min;
    link.server_incarnation = sender.server_incarnation;
  }
  for (ShardLink& link : links_) link.stream->Open(link.server_incarnation);
  encoder_thread_ = std::thread([this] { RunEncoder(); });
  heartbeat_ = std::make_unique<Heartbeat>(Heartbeat::Options{
      .address = options.coordinator,
      .transport = options.transport,
      .interval = membership.heartbeat,
      .lease = membership.lease,
      .patience = options.checkpoint.enabled() ? std::max(membership.lease, options.rejoin_timeout)
                                               : membership.lease,
      .server_incarnation = membership.sender.server_incarnation,
      .term = membership.sender.term,
      .clock = options.clock,
      .logger = options.logger,
      .compose = [this] { return ComposeHeartbeat(); },
      .on_reply = [this](const protocol::HeartbeatReply& answer) { OnHeartbeatReply(answer); },
      .on_failure =
          [this](absl::Status status) {
            // A removed worker that is still alive joins again as a new one.
            const bool removed = options_.elastic && absl::IsFailedPrecondition(status);
            Fail(absl::IsUnavailable(status) || removed ? Lost(std::move(status)) : status);
          }});
}

JoinedSession::~JoinedSession() {
  heartbeat_.reset();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    WakeStrand();
  }
  encoder_thread_.join();
  for (ShardLink& link : links_) link.stream.reset();
}

void JoinedSession::CarryOut(const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) {
      const uint64_t step = send->exchange->step;
      if (step > 0 && step == pipeline_.step() && pipeline_.step_open()) {
        times_.ExchangeBegan(clock_.Now());
      }
      links_[send->shard].stream->Enqueue(send->exchange);
    } else if (const auto* retry = std::get_if<RetryLater>(&effect)) {
      links_[retry->shard].retry_at = clock_.Now() + retry->delay;
      WakeStrand();
    } else if (const auto* failed = std::get_if<PipelineFailed>(&effect)) {
      // While this worker is leaving, other failures may just mean that the job has ended.
      if (!leaving_ || IsRollback(failed->status) || absl::IsDataLoss(failed->status)) {
        const bool removed = options_.elastic && absl::IsAborted(failed->status);
        (void)FailLocked(removed ? Lost(failed->status) : failed->status);
      }
    } else if (const auto* replay = std::get_if<ReplayBegun>(&effect)) {
      options_.logger.Info("shard ", replay->shard, " was restarted and asked for ",
                           StepsName(replay->from, replay->to), "; resending ",
                           replay->from == replay->to ? "it" : "them");
    } else {
      times_.ExchangeEnded(pipeline_.step(), clock_.Now());
      step_changed_.SignalAll();
    }
  }
}

void JoinedSession::Flush(const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) links_[send->shard].stream->Flush();
  }
}

void JoinedSession::OnHeartbeatReply(const protocol::HeartbeatReply& answer) {
  MutexLock lock(&mutex_);
  pipeline_.Release(answer.job.durable_step);
  for (const protocol::ShardPlace& place : answer.job.shards) Follow(place);
}

absl::Status JoinedSession::SetPlans(const std::vector<protocol::CompressionPlan>& plans) {
  MutexLock lock(&mutex_);
  return pipeline_.SetPlans(plans);
}

absl::Status JoinedSession::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void JoinedSession::WakeStrand() {
  encoder_asked_ = true;
  encoder_wake_.SignalAll();
}

void JoinedSession::Fail(absl::Status status) {
  MutexLock lock(&mutex_);
  if (!leaving_) (void)FailLocked(std::move(status));
}

absl::Status JoinedSession::FailLocked(absl::Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
    if (store_ != nullptr) store_->Cancel();
    if (options_.on_end) options_.on_end(status_);
    step_changed_.SignalAll();
    WakeStrand();
  }
  return status_;
}

absl::Status JoinedSession::Lost(absl::Status status) const {
  return options_.checkpoint.enabled() ? RollbackError(status.message()) : std::move(status);
}

absl::Status JoinedSession::BeginStep() {
  last_progress_ = clock_.Now();
  if (!status_.ok()) return status_;
  if (leaving_) return absl::FailedPreconditionError("this worker has left the job");
  if (!begun_) {
    if (save_due_) ReportNotSaved("the program continued without SaveCheckpoint");
    pipeline_.StartStep();
    times_.StepBegan(last_progress_);
    begun_ = true;
    has_result_ = false;
  }
  return absl::OkStatus();
}

bool JoinedSession::BuffersDue() const {
  MutexLock lock(&mutex_);
  return status_.ok() && pipeline_.BuffersDue(begun_);
}

absl::Status JoinedSession::Submit(uint32_t tensor, const GradientView& gradient) {
  MutexLock lock(&mutex_);
  absl::Status status = BeginStep();
  if (status.ok()) status = pipeline_.TensorReady(tensor, gradient);
  if (!status.ok()) return FailLocked(std::move(status));
  WakeStrand();
  return absl::OkStatus();
}

absl::Status JoinedSession::SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) {
  MutexLock lock(&mutex_);
  absl::Status status = BeginStep();
  if (status.ok()) status = pipeline_.SetWeight(shard, bundle, contributions);
  return status.ok() ? status : FailLocked(std::move(status));
}

uint32_t JoinedSession::Contributions(uint32_t shard, uint32_t bundle) const {
  MutexLock lock(&mutex_);
  return pipeline_.Record(shard, bundle).n;
}

uint64_t JoinedSession::named_checkpoint() const {
  MutexLock lock(&mutex_);
  return pipeline_.named_checkpoint();
}

uint64_t JoinedSession::durable_step() const {
  MutexLock lock(&mutex_);
  return pipeline_.durable_step();
}

absl::Status JoinedSession::Skip() {
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

void JoinedSession::SetRate(float rate) {
  MutexLock lock(&mutex_);
  pipeline_.SetRate(rate);
}

absl::StatusOr<BundleEncoder*> JoinedSession::EncoderBetweenSteps() {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (begun_) {
    return absl::FailedPreconditionError(absl::StrCat("step ", pipeline_.step(), " is open"));
  }
  // No step is open, so the encoder thread does not use the encoder.
  for (const Published& b : pipeline_.TakePublished()) encoder_.Observe(b.chunks, b.frames);
  if (absl::Status fetched = encoder_.FetchResiduals(); !fetched.ok()) return FailLocked(fetched);
  return &encoder_;
}

absl::Status JoinedSession::SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) {
  protocol::WorkerSnapshot snapshot;
  {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    if (!save_due_) {
      return FailLocked(absl::FailedPreconditionError(
          absl::StrCat("SaveCheckpoint was called after step ", pipeline_.step(),
                       ", but no checkpoint is due: call it once, after the step whose result says "
                       "checkpoint_due, before the next")));
    }
    save_due_ = false;
    snapshot = {.job_uid = membership_.sender.job_uid,
                .term = membership_.sender.term,
                .step = pipeline_.step(),
                .rank = membership_.sender.rank,
                .uplink = {},
                .trainer = std::move(state),
                .plans = pipeline_.KnownPlans()};
  }
  const absl::StatusOr<BundleEncoder*> encoder = EncoderBetweenSteps();
  if (!encoder.ok()) return encoder.status();
  snapshot.uplink = (*encoder)->Save();
  writer_->Write(std::move(snapshot), std::move(files));
  return absl::OkStatus();
}

void JoinedSession::ReportNotSaved(absl::string_view why) {
  save_due_ = false;
  writer_->ReportFailure(pipeline_.step(), why);
}

bool JoinedSession::FinishCheckpoints(absl::Duration limit) {
  if (writer_ == nullptr) return true;
  const auto set_waiting = [this](bool waiting) {
    MutexLock lock(&mutex_);
    waiting_since_ = waiting ? std::optional(last_progress_) : std::nullopt;
    last_progress_ = clock_.Now();
  };
  set_waiting(true);
  const bool finished = writer_->Finish(limit);
  set_waiting(false);
  return finished;
}

void JoinedSession::RestoreFails(absl::string_view why) {
  MutexLock lock(&mutex_);
  restore_trouble_ = std::string(why);
}

void JoinedSession::RestoreEnded() {
  MutexLock lock(&mutex_);
  restoring_step_ = 0;
  last_progress_ = clock_.Now();
}

bool JoinedSession::SleepFor(absl::Duration duration) {
  const absl::Time until = clock_.Now() + duration;
  MutexLock lock(&mutex_);
  while (status_.ok()) {
    const absl::Duration left = until - clock_.Now();
    if (left <= absl::ZeroDuration()) return true;
    step_changed_.WaitFor(&mutex_, left);
  }
  return false;
}

protocol::DiskWait JoinedSession::WaitForDisk() const {
  const absl::Time now = clock_.Now();
  if (restoring_step_ > 0) {
    return {.what = absl::StrCat("its part of the checkpoint after step ", restoring_step_,
                                 " to be read"),
            .lasts = now - restoring_since_,
            .trouble = restore_trouble_};
  }
  const std::optional<CheckpointWriter::Writing> writing =
      writer_ == nullptr ? std::nullopt : writer_->writing();
  if (!writing.has_value()) return {};
  return {.what = writing->what, .lasts = now - writing->since};
}

void JoinedSession::ReportParameters(uint64_t step, absl::string_view parameters_sha256) {
  // Without lockstep, ranks at the same step have seen different versions, so their hashes differ.
  if (!options_.lockstep) return;
  {
    MutexLock lock(&mutex_);
    hash_step_ = step;
    parameters_sha256_ = std::string(parameters_sha256);
  }
  heartbeat_->ReportParameters(step, std::string(parameters_sha256));
}

absl::Status JoinedSession::BeginLeaving() {
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

protocol::WorkerHeartbeat JoinedSession::LastWords() {
  protocol::WorkerHeartbeat heartbeat = ComposeHeartbeat();
  MutexLock lock(&mutex_);
  heartbeat.parameters_hash_step = hash_step_;
  heartbeat.parameters_sha256 = parameters_sha256_;
  return heartbeat;
}

protocol::WorkerHeartbeat JoinedSession::ComposeHeartbeat() {
  const TrafficCounters counters = traffic();
  const uint64_t dense_bytes = DenseBytes(counters);
  protocol::WorkerHeartbeat heartbeat;
  heartbeat.sender = membership_.sender;
  if (writer_ != nullptr) heartbeat.parts = writer_->newest_parts();
  MutexLock lock(&mutex_);
  heartbeat.replay_from = pipeline_.replay_from();
  for (const ShardLink& link : links_) heartbeat.known_shards.push_back(link.newest());
  const absl::Time now = clock_.Now();
  const bool waits = waiting_since_.has_value() || restoring_step_ > 0;
  heartbeat.since_progress = waits ? absl::ZeroDuration() : now - last_progress_;
  heartbeat.restoring_step = restoring_step_;
  heartbeat.disk_wait = WaitForDisk();
  heartbeat.progress = {.step = progress_.step,
                        .total_steps = progress_.total_steps,
                        .epoch = progress_.epoch,
                        .loss = progress_.loss,
                        .samples_per_second = progress_.samples_per_second,
                        .bytes_up = counters.bytes_up,
                        .bytes_down = counters.bytes_down,
                        .dense_bytes_up = dense_bytes,
                        .dense_bytes_down = dense_bytes,
                        .step_ms_p50 = progress_.step_ms_p50,
                        .validation_metric = progress_.validation_metric,
                        .skipped_bundles = skipped_bundles_,
                        .residual_energy = quality_.has_value() ? quality_->owed : 0};
  if (progress_.seconds_left.has_value()) {
    // During a long step or test no report arrives, so subtract the time since the last report.
    const double since = absl::ToDoubleSeconds(now - reported_);
    heartbeat.progress.seconds_left = std::max(0.0, *progress_.seconds_left - since);
  }
  const StepSeconds& seconds = times_.seconds();
  heartbeat.timings = {.steps = seconds.steps,
                       .compute_seconds = seconds.compute,
                       .encode_seconds = seconds.encode,
                       .decode_seconds = seconds.decode,
                       .exchange_seconds = seconds.exchange};
  return heartbeat;
}

}  // namespace sluice::worker
