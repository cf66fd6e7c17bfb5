#include "worker/rpc/live_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process_usage.h"
#include "protocol/wire/exchange_messages.h"
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
  options.learner = membership.learner;
  // In what order shards took what was sent before, or who was there, is in nobody's memory but
  // theirs.
  if (session.checkpoint.enabled() && session.lockstep && !session.elastic) {
    options.replay_bytes = session.checkpoint.replay_limit;
  }
  options.average_buffers_every = session.average_buffers_every;
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

LiveSession::LiveSession(const RemoteSessionOptions& options, const protocol::TensorTable& table,
                         const Membership& membership)
    : options_(options),
      patience_(options.checkpoint.enabled() ? options.wait_limit : options.connect_timeout),
      clock_(*options.clock),
      table_(table),
      membership_(membership),
      stages_(&CpuNanosecondsOfThisThread),
      encoder_(table, membership.layout, options.compression, options.rank, options.quality_every,
               options.device),
      pipeline_(MakePipelineOptions(options, table, membership)),
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
  strand_ = std::thread([this] { RunStrand(); });
  heartbeat_ = std::make_unique<Heartbeat>(Heartbeat::Options{
      .address = options.coordinator,
      .transport = options.transport,
      .interval = membership.heartbeat,
      .lease = membership.lease,
      .patience = options.checkpoint.enabled() ? std::max(membership.lease, options.wait_limit)
                                               : membership.lease,
      .server_incarnation = membership.sender.server_incarnation,
      .term = membership.sender.term,
      .clock = options.clock,
      .logger = options.logger,
      .compose = [this] { return ComposeHeartbeat(); },
      .on_reply = [this](const v1::HeartbeatReply& reply) { Heard(reply); },
      .on_failure =
          [this](absl::Status status) {
            // Whoever was taken for lost, and lives, comes as another.
            const bool removed = options_.elastic && absl::IsFailedPrecondition(status);
            Fail(absl::IsUnavailable(status) || removed ? Lost(std::move(status)) : status);
          }});
}

LiveSession::~LiveSession() {
  heartbeat_.reset();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    WakeStrand();
  }
  strand_.join();
  for (ShardLink& link : links_) link.stream.reset();
}

void LiveSession::CarryOut(const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) {
      TimeExchange(send);
      links_[send->shard].stream->Enqueue(send->exchange);
    } else if (const auto* retry = std::get_if<RetryLater>(&effect)) {
      links_[retry->shard].retry_at = clock_.Now() + retry->delay;
      WakeStrand();
    } else if (const auto* failed = std::get_if<PipelineFailed>(&effect)) {
      // Without this worker's doing the job may be over by then.
      if (!leaving_ || IsRollback(failed->status) || absl::IsDataLoss(failed->status)) {
        const bool removed = options_.elastic && absl::IsAborted(failed->status);
        (void)FailLocked(removed ? Lost(failed->status) : failed->status);
      }
    } else if (const auto* replay = std::get_if<ReplayBegun>(&effect)) {
      options_.logger.Info("shard ", replay->shard, " was started again and asked for ",
                           StepsName(replay->from, replay->to), "; sending ",
                           replay->from == replay->to ? "it again" : "them again");
    } else {
      TimeExchange(nullptr);
      step_changed_.SignalAll();
    }
  }
}

void LiveSession::Flush(const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) links_[send->shard].stream->Flush();
  }
}

void LiveSession::Heard(const v1::HeartbeatReply& reply) {
  MutexLock lock(&mutex_);
  pipeline_.Release(reply.durable_step());
  for (const v1::ShardAddress& place : reply.shards()) Follow(place);
}

absl::Status LiveSession::SetPlans(const std::vector<protocol::CompressionPlan>& plans) {
  MutexLock lock(&mutex_);
  return pipeline_.SetPlans(plans);
}

absl::Status LiveSession::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void LiveSession::WakeStrand() {
  strand_asked_ = true;
  strand_wake_.SignalAll();
}

void LiveSession::Fail(absl::Status status) {
  MutexLock lock(&mutex_);
  if (!leaving_) (void)FailLocked(std::move(status));
}

absl::Status LiveSession::FailLocked(absl::Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
    if (store_ != nullptr) store_->Cancel();
    if (options_.on_end) options_.on_end(status_);
    step_changed_.SignalAll();
    WakeStrand();
  }
  return status_;
}

absl::Status LiveSession::Lost(absl::Status status) const {
  return options_.checkpoint.enabled() ? RollbackError(status.message()) : std::move(status);
}

absl::Status LiveSession::BeginStep() {
  last_progress_ = clock_.Now();
  if (!status_.ok()) return status_;
  if (leaving_) return absl::FailedPreconditionError("this worker has left the job");
  if (!begun_) {
    if (save_due_) ReportNotSaved("the program went on without SaveCheckpoint");
    pipeline_.StartStep();
    if (step_began_ == absl::Time()) step_began_ = last_progress_;
    begun_ = true;
    has_result_ = false;
  }
  return absl::OkStatus();
}

bool LiveSession::BuffersDue() const {
  MutexLock lock(&mutex_);
  return status_.ok() && pipeline_.BuffersDue(begun_);
}

absl::Status LiveSession::Submit(uint32_t tensor, const GradientView& gradient) {
  MutexLock lock(&mutex_);
  absl::Status status = BeginStep();
  if (status.ok()) status = pipeline_.TensorReady(tensor, gradient);
  if (!status.ok()) return FailLocked(std::move(status));
  WakeStrand();
  return absl::OkStatus();
}

absl::Status LiveSession::SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) {
  MutexLock lock(&mutex_);
  absl::Status status = BeginStep();
  if (status.ok()) status = pipeline_.SetWeight(shard, bundle, contributions);
  return status.ok() ? status : FailLocked(std::move(status));
}

uint32_t LiveSession::Contributions(uint32_t shard, uint32_t bundle) const {
  MutexLock lock(&mutex_);
  return pipeline_.Record(shard, bundle).n;
}

uint64_t LiveSession::named_checkpoint() const {
  MutexLock lock(&mutex_);
  return pipeline_.named_checkpoint();
}

uint64_t LiveSession::durable_step() const {
  MutexLock lock(&mutex_);
  return pipeline_.durable_step();
}

absl::Status LiveSession::Skip() {
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

absl::StatusOr<StepResult> LiveSession::Wait() {
  std::optional<protocol::LinkReport> times;
  absl::StatusOr<StepResult> result = WaitForStep(&times);
  if (times.has_value()) {
    for (const ShardLink& link : links_) link.stream->EndStep(*times);
  }
  return result;
}

absl::StatusOr<StepResult> LiveSession::WaitForStep(std::optional<protocol::LinkReport>* times) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  if (status_.ok() && !begun_) {
    (void)FailLocked(absl::FailedPreconditionError("Wait was called before any Submit or Skip"));
  }
  if (status_.ok()) {
    if (const auto missing = pipeline_.MissingTensor()) {
      (void)FailLocked(absl::FailedPreconditionError(
          absl::StrCat("Wait was called in step ", pipeline_.step(), " before ",
                       table_[*missing].name, " was submitted: submit ",
                       table_[*missing].role == protocol::TensorRole::kBuffer
                           ? "the buffers too in a step that BuffersDue says"
                           : "zeros for a tensor that has no gradient")));
    }
  }
  // The strand may still read gradients that the caller is about to change.
  waiting_ = true;
  while ((status_.ok() && pipeline_.step_open()) || encoding_) step_changed_.Wait(&mutex_);
  waiting_ = false;
  last_progress_ = clock_.Now();
  if (!status_.ok()) return status_;
  begun_ = false;
  has_result_ = true;
  const StepResult result = pipeline_.Result();
  if (result.checkpoint_due && writer_ == nullptr) {
    return FailLocked(absl::FailedPreconditionError(
        "the servers take checkpoints, but this worker's job file has no checkpoint.dir: give all "
        "servers and workers of a job the same one"));
  }
  save_due_ = result.checkpoint_due;
  skipped_bundles_ += result.bundles_skipped_here;
  if (result.step > 0) {
    ++counters_.steps;
    counters_.exposed_seconds += absl::ToDoubleSeconds(last_progress_ - started);
    const StepSeconds before = step_clock_.seconds();
    step_clock_.Waited(started, last_progress_);
    const StepSeconds& now = step_clock_.seconds();
    *times = protocol::LinkReport{
        .step = result.step,
        .compute_s = now.compute - before.compute,
        .encode_s = now.encode_hidden_too - before.encode_hidden_too,
        .apply_s = now.decode - before.decode,
        .exposed_s = now.encode - before.encode + now.exchange - before.exchange};
  }
  if (options_.trace != nullptr) TraceStep(started, last_progress_);
  return result;
}

absl::Status LiveSession::Apply(uint32_t tensor, absl::Span<float> mean) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  absl::Status status = MayApply();
  if (status.ok() && tensor < protocol::TrainedTensors(table_)) status = MayTake(/*update=*/false);
  return Applied(started, status.ok() ? pipeline_.DecodeMean(tensor, mean) : std::move(status));
}

absl::Status LiveSession::ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  absl::Status status = MayApply();
  if (status.ok()) status = MayTake(/*update=*/false);
  return Applied(started,
                 status.ok() ? pipeline_.AddMean(tensor, scale, values) : std::move(status));
}

absl::Status LiveSession::ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  absl::Status status = MayApply();
  if (status.ok()) status = MayTake(/*update=*/true);
  return Applied(started,
                 status.ok() ? pipeline_.ApplyUpdate(tensor, parameters) : std::move(status));
}

absl::Status LiveSession::ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  absl::Status status = MayApply();
  if (status.ok() && options_.device == nullptr) {
    status = absl::FailedPreconditionError("this session was given no GPU: use Apply");
  }
  std::vector<compress::DeviceSum> sums;
  for (const GpuTensor& tensor : tensors) {
    if (!status.ok()) break;
    status = pipeline_.AppendSums(tensor.tensor, options_.shards_update,
                                  absl::MakeSpan(tensor.values, tensor.size), &sums);
  }
  return Applied(started, status.ok() ? options_.device->Add(sums, ready) : std::move(status));
}

void LiveSession::SetRate(float rate) {
  MutexLock lock(&mutex_);
  pipeline_.SetRate(rate);
}

// What one job publishes would look like the other's, and train nothing. Step 0 brings parameters.
absl::Status LiveSession::MayTake(bool update) const {
  if (update == options_.shards_update || pipeline_.step() == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      update ? "the workers' optimizers do the updates in this job, and a mean is no update: use "
               "Apply, or optimizer.on: shards"
             : "the shards do the updates in this job (optimizer.on, or its mode), and publish no "
               "means: use ApplyUpdate, and no optimizer here");
}

absl::Status LiveSession::MayApply() const {
  if (!status_.ok() || has_result_) return status_;
  return absl::FailedPreconditionError("Apply was called before Wait");
}

absl::Status LiveSession::Applied(absl::Time started, absl::Status status) {
  last_progress_ = clock_.Now();
  if (!status.ok()) return FailLocked(std::move(status));
  if (pipeline_.step() > 0) {
    counters_.decode_seconds += absl::ToDoubleSeconds(last_progress_ - started);
    step_clock_.Decoded(last_progress_ - started);
    if (options_.trace != nullptr) TraceDecoding(started, last_progress_);
  }
  return absl::OkStatus();
}

absl::Status LiveSession::SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) {
  protocol::WorkerSnapshot snapshot;
  std::vector<Published> published;
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
    published = pipeline_.TakePublished();
  }
  // No step is open, so the strand leaves the encoder alone.
  for (const Published& bundle : published) encoder_.Observe(bundle.chunks, bundle.frames);
  if (absl::Status fetched = encoder_.FetchResiduals(); !fetched.ok()) {
    MutexLock lock(&mutex_);
    return FailLocked(fetched);
  }
  snapshot.uplink = encoder_.Save();
  writer_->Write(std::move(snapshot), std::move(files));
  return absl::OkStatus();
}

void LiveSession::ReportNotSaved(absl::string_view why) {
  save_due_ = false;
  writer_->ReportFailure(pipeline_.step(), why);
}

bool LiveSession::FinishCheckpoints(absl::Duration limit) {
  if (writer_ == nullptr) return true;
  const auto set_waiting = [this](bool waiting) {
    MutexLock lock(&mutex_);
    waiting_ = waiting;
    last_progress_ = clock_.Now();
  };
  set_waiting(true);
  const bool finished = writer_->Finish(limit);
  set_waiting(false);
  return finished;
}

void LiveSession::RestoreFails(absl::string_view why) {
  MutexLock lock(&mutex_);
  restore_trouble_ = std::string(why);
}

void LiveSession::RestoreEnded() {
  MutexLock lock(&mutex_);
  restoring_step_ = 0;
  last_progress_ = clock_.Now();
}

bool LiveSession::SleepFor(absl::Duration duration) {
  const absl::Time until = clock_.Now() + duration;
  MutexLock lock(&mutex_);
  while (status_.ok()) {
    const absl::Duration left = until - clock_.Now();
    if (left <= absl::ZeroDuration()) return true;
    step_changed_.WaitFor(&mutex_, left);
  }
  return false;
}

void LiveSession::AddWait(v1::HeartbeatRequest* request) const {
  v1::DiskWait* const wait = request->mutable_disk_wait();
  const absl::Time now = clock_.Now();
  if (restoring_step_ > 0) {
    request->set_restoring_step(restoring_step_);
    wait->set_what(
        absl::StrCat("its part of the checkpoint after step ", restoring_step_, " to be read"));
    wait->set_seconds(absl::ToDoubleSeconds(now - restoring_since_));
    wait->set_trouble(restore_trouble_);
    return;
  }
  const std::optional<CheckpointWriter::Writing> writing =
      writer_ == nullptr ? std::nullopt : writer_->writing();
  if (!writing.has_value()) return request->clear_disk_wait();
  wait->set_what(writing->what);
  wait->set_seconds(absl::ToDoubleSeconds(now - writing->since));
}

void LiveSession::Report(const Progress& progress) {
  MutexLock lock(&mutex_);
  progress_ = progress;
  reported_ = last_progress_ = clock_.Now();
}

void LiveSession::ReportParameters(uint64_t step, absl::string_view parameters_sha256) {
  // Ranks that have done the same step have seen different versions.
  if (!options_.lockstep) return;
  {
    MutexLock lock(&mutex_);
    hash_step_ = step;
    parameters_sha256_ = std::string(parameters_sha256);
  }
  heartbeat_->ReportParameters(step, std::string(parameters_sha256));
}

absl::Status LiveSession::BeginLeaving() {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  if (begun_) {
    return FailLocked(absl::FailedPreconditionError(absl::StrCat(
        "Leave was called while step ", pipeline_.step(), " is open: Wait for it first")));
  }
  leaving_ = true;
  EndDecoding();
  return absl::OkStatus();
}

v1::HeartbeatRequest LiveSession::LastWords() {
  v1::HeartbeatRequest request = ComposeHeartbeat();
  MutexLock lock(&mutex_);
  request.set_parameters_hash_step(hash_step_);
  request.set_parameters_sha256(parameters_sha256_);
  return request;
}

v1::HeartbeatRequest LiveSession::ComposeHeartbeat() {
  const TrafficCounters counters = traffic();
  const uint64_t dense_bytes = DenseBytes(counters);
  v1::HeartbeatRequest request;
  protocol::SetSender(membership_.sender, request.mutable_sender());
  if (writer_ != nullptr) {
    for (const protocol::CheckpointPart& part : writer_->newest_parts())
      protocol::SetPart(part, request.add_parts());
  }
  MutexLock lock(&mutex_);
  request.set_replay_from(pipeline_.replay_from());
  for (const ShardLink& link : links_) request.add_known_shards(link.newest());
  const absl::Time now = clock_.Now();
  const bool waits = waiting_ || restoring_step_ > 0;
  request.set_seconds_since_progress(waits ? 0 : absl::ToDoubleSeconds(now - last_progress_));
  AddWait(&request);
  v1::WorkerProgress* progress = request.mutable_progress();
  progress->set_step(progress_.step);
  progress->set_total_steps(progress_.total_steps);
  progress->set_epoch(progress_.epoch);
  progress->set_loss(progress_.loss);
  progress->set_samples_per_second(progress_.samples_per_second);
  progress->set_bytes_up(counters.bytes_up);
  progress->set_bytes_down(counters.bytes_down);
  progress->set_dense_bytes_up(dense_bytes);
  progress->set_dense_bytes_down(dense_bytes);
  progress->set_step_ms_p50(progress_.step_ms_p50);
  progress->set_validation_metric(progress_.validation_metric);
  progress->set_skipped_bundles(skipped_bundles_);
  if (quality_.has_value()) progress->set_residual_energy(quality_->owed);
  if (progress_.seconds_left.has_value()) {
    // A long step or test reports nothing, and time goes on.
    const double since = absl::ToDoubleSeconds(now - reported_);
    progress->set_seconds_left(std::max(0.0, *progress_.seconds_left - since));
  }
  const StepSeconds& seconds = step_clock_.seconds();
  v1::WorkerTimings* timings = request.mutable_timings();
  timings->set_compute_seconds(seconds.compute);
  timings->set_decode_seconds(seconds.decode);
  timings->set_exposed_communication_seconds(seconds.exchange);
  timings->set_exposed_encode_seconds(seconds.encode);
  timings->set_steps(seconds.steps);
  return request;
}

}  // namespace sluice::worker
