// SPDX-License-Identifier: Apache-2.0
#include "job/file/job_conversion.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "compress/codec_spec.h"
#include "job/file/job_text.h"

namespace sluice::job {
namespace {

compress::CodecSpec Codec(const std::string& text) {
  const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
  Check(spec.ok(), "the mapper keeps canonical codec specs");
  return *spec;
}

// Returns the value with this name. The mapper has checked the name (WordProblem).
template <typename Enum>
Enum Value(const std::string& name) {
  const std::optional<Enum> value = FindByName<Enum>(name);
  Check(value.has_value(), "the mapper keeps only known names");
  return *value;
}

// Keys that a model or an optimizer does not take are absent, and the struct keeps its default
// values.
ModelSpec Convert(const v1::ModelSpec& from) {
  ModelSpec to;
  to.name = from.name();
  to.hidden = {from.hidden().begin(), from.hidden().end()};
  if (from.has_stem()) to.stem = from.stem();
  to.batch_norm = from.batch_norm();
  if (from.has_layers()) to.layers = from.layers();
  if (from.has_heads()) to.heads = from.heads();
  if (from.has_width()) to.width = from.width();
  to.dropout = from.dropout();
  return to;
}

// Keys that the format does not take are absent, and the struct keeps its default values.
DataSpec Convert(const v1::DataSpec& from) {
  DataSpec to;
  to.format = Value<DataFormat>(from.format());
  to.path = from.path();
  to.train_images = from.train_images();
  to.train_labels = from.train_labels();
  to.test_images = from.test_images();
  to.test_labels = from.test_labels();
  to.limit = from.limit();
  to.test_limit = from.test_limit();
  if (from.has_labels()) to.labels = from.labels();
  to.train_folder = from.train_folder();
  to.test_folder = from.test_folder();
  if (from.has_image_size()) to.image_size = from.image_size();
  if (from.has_level()) to.level = from.level();
  if (from.has_context()) to.context = from.context();
  if (from.has_validation_fraction()) to.validation_fraction = from.validation_fraction();
  to.crop_padding = from.crop_padding();
  to.flip = from.flip();
  to.random_resized_crop = from.random_resized_crop();
  to.mean.assign(from.mean().begin(), from.mean().end());
  to.std.assign(from.std().begin(), from.std().end());
  to.prefetch = from.prefetch();
  return to;
}

// Keys of other optimizers are absent, and the struct keeps its default values.
OptimizerSpec Convert(const v1::OptimizerSpec& from) {
  OptimizerSpec to;
  to.name = from.name();
  to.lr = from.lr();
  to.momentum = from.momentum();
  to.nesterov = from.nesterov();
  if (from.has_beta1()) to.beta1 = from.beta1();
  if (from.has_beta2()) to.beta2 = from.beta2();
  if (from.has_eps()) to.eps = from.eps();
  if (from.has_alpha()) to.alpha = from.alpha();
  to.weight_decay = from.weight_decay();
  to.clip_norm = from.clip_norm();
  to.clip_value = from.clip_value();
  if (from.has_location()) to.location = Value<UpdateLocation>(from.location());
  double delayed = 0;  // If the text is not a number, it is `auto`.
  if (absl::SimpleAtod(from.delayed_momentum(), &delayed)) to.delayed_momentum = delayed;
  return to;
}

LrScheduleSpec Convert(const v1::LrScheduleSpec& from) {
  LrScheduleSpec to;
  to.name = from.name();
  to.warmup_steps = from.warmup_steps();
  to.step_size = from.step_size();
  if (from.has_gamma()) to.gamma = from.gamma();
  to.final_lr = from.final_lr();
  if (from.has_warmup_fraction()) to.warmup_fraction = from.warmup_fraction();
  return to;
}

protocol::CompressionSpec Convert(const v1::CompressionSpec& from) {
  protocol::CompressionSpec to;
  to.uplink = Codec(from.uplink());
  to.downlink = Codec(from.downlink());
  for (const v1::CompressionOverride& entry : from.overrides()) {
    protocol::CompressionOverride& converted = to.overrides.emplace_back();
    converted.tensors = entry.tensors();
    if (entry.has_uplink()) converted.uplink = Codec(entry.uplink());
    if (entry.has_downlink()) converted.downlink = Codec(entry.downlink());
  }
  to.min_elements = from.min_elements();
  // The schema's limits keep both of these values in range.
  to.layout.chunk_elements = static_cast<uint32_t>(from.chunk_bytes() / sizeof(float));
  to.layout.bundle_elements = from.has_bundle_bytes()
                                  ? static_cast<uint32_t>(from.bundle_bytes() / sizeof(float))
                                  : protocol::UsualBundleElements(to.uplink, to.downlink);
  return to;
}

ScheduleKind Kind(const std::string& name) {
  if (name == "exponential") return ScheduleKind::kExponential;
  if (name == "piecewise") return ScheduleKind::kPiecewise;
  return name == "cyclic" ? ScheduleKind::kCyclic : ScheduleKind::kConstant;
}

}  // namespace

ControlSpec ConvertControl(const v1::ControlSpec& from) {
  ControlSpec to;
  // Without a policy, the file has no `control` section.
  if (!from.policy().empty()) to.policy = Value<PolicyKind>(from.policy());
  ScheduleSpec& schedule = to.schedule;
  schedule.kind = Kind(from.schedule());
  schedule.dense_steps = from.dense_steps();
  if (from.has_start()) schedule.start = from.start();
  if (from.has_end()) schedule.end = from.end();
  schedule.steps = from.steps();
  if (from.has_stages()) schedule.stages = from.stages();
  for (const v1::SchedulePiece& piece : from.pieces()) {
    schedule.pieces.push_back({.from = piece.from(), .density = piece.density()});
  }
  for (const std::string& candidate : from.candidates()) to.candidates.push_back(Codec(candidate));
  if (from.has_step_time()) to.step_time_s = from.step_time();
  if (from.has_overlap()) to.overlap = from.overlap();
  for (const v1::ReferencePoint& point : from.reference_points()) {
    to.reference.push_back({.step = point.step(), .metric = 100 * point.accuracy()});
  }
  if (from.has_tolerance()) to.tolerance = from.tolerance();
  return to;
}

GuardSpec ConvertGuard(const v1::JobSpec& job) {
  if (!job.has_guard()) return {};
  return {.policy = Value<GuardPolicy>(job.guard().policy()), .limit = job.guard().limit()};
}

MergeSpec ConvertMerge(const v1::JobSpec& job) {
  MergeSpec to;
  if (job.has_merge_weights()) to.weights = Value<MergeWeights>(job.merge_weights());
  if (job.has_merge_over()) to.over = Value<MergeOver>(job.merge_over());
  if (job.has_merge_method()) to.method = Value<MergeMethod>(job.merge_method());
  to.late_decay = job.late_decay();
  return to;
}

namespace {

protocol::CheckpointSpec Convert(const v1::CheckpointSpec& from) {
  protocol::CheckpointSpec to;
  to.dir = from.dir();
  to.interval = from.interval();
  to.keep = from.keep();
  to.store = Value<protocol::CheckpointStore>(from.store());
  to.replay_limit = from.replay_limit();
  return to;
}

ServerSpec Convert(const v1::ServerSpec& from) {
  ServerSpec to;
  to.lease_timeout = absl::Seconds(from.lease_timeout());
  to.heartbeat_interval = absl::Seconds(from.heartbeat_interval());
  to.join_timeout = absl::Seconds(from.join_timeout());
  to.connect_timeout = absl::Seconds(from.connect_timeout());
  to.window_bytes = from.window_bytes();
  to.max_memory = from.max_memory();
  to.rejoin_timeout = absl::Seconds(from.rejoin_timeout());
  to.stall_timeout = absl::Seconds(from.stall_timeout());
  to.port = static_cast<uint16_t>(from.port());
  to.http_port = static_cast<uint16_t>(from.http_port());
  return to;
}

TrainingSpec ConvertTraining(const v1::JobSpec& job) {
  TrainingSpec to;
  to.batch_size_per_worker = job.batch_size_per_worker();
  to.gradient_accumulation_steps = job.gradient_accumulation_steps();
  to.epochs = job.epochs();
  to.steps = job.steps();
  to.label_smoothing = job.label_smoothing();
  to.ema_decay = job.ema_decay();
  to.precision = Value<Precision>(job.precision());
  to.device = job.device();
  to.gpus_per_worker = job.gpus_per_worker();
  to.encode_location = Value<EncodeLocation>(job.encode_location());
  return to;
}

ExchangeSpec ConvertExchange(const v1::JobSpec& job) {
  ExchangeSpec to;
  to.mode = Value<Mode>(job.mode());
  to.staleness = job.staleness();
  to.staleness_aware_lr = job.staleness_aware_lr();
  to.membership = Value<Membership>(job.membership());
  to.quorum = job.quorum();
  to.straggler_timeout = absl::Seconds(job.straggler_timeout());
  to.buffer_sync_interval = job.buffer_sync_interval();
  to.compression = Convert(job.compression());
  to.compression.seed = job.seed();
  if (job.has_fragments()) to.compression.layout.fragments = job.fragments();
  if (job.has_control()) to.control = ConvertControl(job.control());
  to.guard = ConvertGuard(job);
  to.merge = ConvertMerge(job);
  return to;
}

FollowersSpec Convert(const v1::FollowersSpec& followers) {
  FollowersSpec to;
  for (const std::string& type : followers.types()) {
    to.types.push_back(Value<compress::ElementType>(type));
  }
  to.every = followers.every();
  to.max_connected = followers.max_connected();
  return to;
}

LocalStepsSpec ConvertLocalSteps(const v1::JobSpec& job) {
  LocalStepsSpec to;
  if (job.has_local_steps()) to.steps = job.local_steps();
  if (job.has_outer_optimizer()) {
    to.outer_optimizer = Value<OuterOptimizer>(job.outer_optimizer());
  }
  if (to.outer_optimizer == OuterOptimizer::kAverage) to.outer_lr = 1;
  if (job.has_outer_lr()) to.outer_lr = job.outer_lr();
  if (job.has_outer_momentum()) to.outer_momentum = job.outer_momentum();
  to.fragment_delay = job.fragment_delay();
  to.merge_alpha = job.merge_alpha();
  return to;
}

}  // namespace

JobSpec ConvertJob(const v1::JobSpec& job) {
  JobSpec spec;
  spec.name = job.name();
  spec.workers = job.workers();
  spec.shards = job.shards();
  spec.max_workers = job.has_max_workers() ? job.max_workers() : job.workers();
  if (job.has_min_workers()) spec.min_workers = job.min_workers();
  spec.seed = job.seed();
  spec.model = Convert(job.model());
  spec.data = Convert(job.data());
  spec.training = ConvertTraining(job);
  spec.optimizer = Convert(job.optimizer());
  spec.lr_schedule = Convert(job.lr_schedule());
  spec.exchange = ConvertExchange(job);
  spec.local = ConvertLocalSteps(job);
  if (job.has_checkpoint()) spec.checkpoint = Convert(job.checkpoint());
  if (!WhyNoReplay(spec).empty()) spec.checkpoint.replay_limit = 0;
  spec.server = Convert(job.server());
  if (job.has_followers()) spec.followers = Convert(job.followers());
  if (job.has_relays()) {
    spec.relays.workers = {job.relays().workers().begin(), job.relays().workers().end()};
    spec.relays.uplink = Codec(job.relays().uplink());
  }
  spec.output = job.output();
  spec.log_interval = job.log_interval();
  spec.metrics_enabled = job.metrics().enabled();
  spec.hash = HashJob(job);
  return spec;
}

}  // namespace sluice::job
