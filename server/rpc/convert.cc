#include "server/rpc/convert.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "job/wire/plan_message.h"
#include "proto/message_slices.h"

namespace sluice {
namespace {

constexpr size_t kTextMax = 4096;   // Of a reason, a host, an address.
constexpr int kDimensionsMax = 16;  // Of a tensor.
constexpr int kNameMax = 512;       // Of a tensor.
constexpr size_t kFileNameMax = 128;
constexpr size_t kSha256Size = 32;
constexpr int kContributionsMax = 1 << 20;
constexpr size_t kRanksMax = 1 << 16;
constexpr float kWeightMax = 1024;  // As workers of a job.

// A number of contributions; how many there can be the shard knows.
absl::StatusOr<uint32_t> WeightFromProto(float weight) {
  if (weight == 0) return 1;
  if (weight >= 1 && weight <= kWeightMax && weight == std::floor(weight)) {
    return static_cast<uint32_t>(weight);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weight ", weight, " is no number of contributions, 1 to ", kWeightMax));
}

std::string Shortened(const std::string& text) { return text.substr(0, kTextMax); }

absl::StatusOr<TensorTable> TableFromProto(const v1::TensorTable& table) {
  if (table.tensors_size() > static_cast<int>(kMaxTensors)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor table: ", table.tensors_size(), " tensors; at most ", kMaxTensors));
  }
  TensorTable out;
  out.reserve(table.tensors_size());
  for (const v1::TensorInfo& tensor : table.tensors()) {
    if (tensor.name().size() > kNameMax || tensor.shape_size() > kDimensionsMax ||
        tensor.strides_size() > kDimensionsMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor table: tensor ", out.size(), " (", tensor.name().substr(0, kNameMax),
          ") has a name of ", tensor.name().size(), " characters, ", tensor.shape_size(),
          " dimensions; at most ", kNameMax, " and ", kDimensionsMax));
    }
    if (tensor.dtype() < v1::DTYPE_FLOAT32 || tensor.dtype() > v1::DTYPE_BFLOAT16) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor table: ", tensor.name(), " has the unknown type ", tensor.dtype()));
    }
    if (tensor.role() < v1::TENSOR_ROLE_TRAINED || tensor.role() > v1::TENSOR_ROLE_BUFFER) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor table: ", tensor.name(), " has the unknown role ", tensor.role()));
    }
    out.push_back({.name = tensor.name(),
                   .shape = {tensor.shape().begin(), tensor.shape().end()},
                   .strides = {tensor.strides().begin(), tensor.strides().end()},
                   .dtype = static_cast<DType>(tensor.dtype()),
                   .role = static_cast<TensorRole>(tensor.role())});
  }
  if (table.hash() != 0 && table.hash() != HashTensorTable(out)) {
    return absl::InvalidArgumentError("tensor table: its hash does not fit its tensors");
  }
  return out;
}

void TableToProto(const TensorTable& table, v1::TensorTable* out) {
  for (const TensorInfo& tensor : table) {
    v1::TensorInfo* info = out->add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    info->mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
    info->set_dtype(static_cast<v1::DType>(tensor.dtype));
    info->set_role(static_cast<v1::TensorRole>(tensor.role));
  }
  out->set_hash(HashTensorTable(table));
}

void LayoutToProto(const LayoutParameters& layout, v1::LayoutParameters* out) {
  out->set_chunk_elements(layout.chunk_elements);
  out->set_bundle_elements(layout.bundle_elements);
}

v1::Outcome OutcomeToProto(Outcome outcome) {
  switch (outcome) {
    case Outcome::kResult:
      return v1::OUTCOME_RESULT;
    case Outcome::kPending:
      return v1::OUTCOME_PENDING;
    case Outcome::kNeed:
      return v1::OUTCOME_NEED;
    case Outcome::kFenced:
      return v1::OUTCOME_FENCED;
    case Outcome::kInvalid:
      return v1::OUTCOME_INVALID;
    case Outcome::kBusy:
      return v1::OUTCOME_BUSY;
  }
  return v1::OUTCOME_UNSPECIFIED;
}

void RecordToProto(const ClosingRecord& record, v1::ClosingRecord* out) {
  out->set_term(record.term);
  out->set_step(record.step);
  out->set_bundle(record.bundle);
  out->set_generation(record.generation);
  for (const Included& included : record.included) {
    v1::Included* one = out->add_included();
    one->set_rank(included.rank);
    one->set_origin_step(included.origin_step);
    one->set_checksum(included.checksum);
    one->set_skipped(included.skipped);
    if (included.weight != 1) one->set_weight(included.weight);
  }
  out->set_n(record.n);
  out->set_plan_id(record.plan_id);
  out->set_rate(record.rate);
  out->set_momentum(record.momentum);
  out->set_result_checksum(record.result_checksum);
}

MemberProgress ProgressFromProto(const v1::WorkerProgress& progress) {
  return {.step = progress.step(),
          .total_steps = progress.total_steps(),
          .epoch = progress.epoch(),
          .loss = progress.loss(),
          .samples_per_second = progress.samples_per_second(),
          .bytes_up = progress.bytes_up(),
          .bytes_down = progress.bytes_down(),
          .dense_bytes_up = progress.dense_bytes_up(),
          .dense_bytes_down = progress.dense_bytes_down(),
          .step_ms_p50 = progress.step_ms_p50(),
          .validation_metric = progress.validation_metric(),
          .skipped_bundles = progress.skipped_bundles(),
          .seconds_left = progress.has_seconds_left()
                              ? std::optional<double>(progress.seconds_left())
                              : std::nullopt};
}

// Whatever is no time is none.
double SecondsFromProto(double seconds) {
  return seconds > 0 && std::isfinite(seconds) ? seconds : 0;
}

MemberTimings TimingsFromProto(const v1::WorkerTimings& timings) {
  return {.steps = timings.steps(),
          .compute_seconds = SecondsFromProto(timings.compute_seconds()),
          .encode_seconds = SecondsFromProto(timings.exposed_encode_seconds()),
          .decode_seconds = SecondsFromProto(timings.decode_seconds()),
          .exchange_seconds = SecondsFromProto(timings.exposed_communication_seconds())};
}

void ProgressToProto(const MemberProgress& progress, v1::WorkerProgress* out) {
  out->set_step(progress.step);
  out->set_total_steps(progress.total_steps);
  out->set_epoch(progress.epoch);
  out->set_loss(progress.loss);
  out->set_samples_per_second(progress.samples_per_second);
  out->set_bytes_up(progress.bytes_up);
  out->set_bytes_down(progress.bytes_down);
  out->set_dense_bytes_up(progress.dense_bytes_up);
  out->set_dense_bytes_down(progress.dense_bytes_down);
  out->set_step_ms_p50(progress.step_ms_p50);
  out->set_validation_metric(progress.validation_metric);
  out->set_skipped_bundles(progress.skipped_bundles);
  if (progress.seconds_left.has_value()) out->set_seconds_left(*progress.seconds_left);
}

absl::Status CheckParametersHash(uint64_t step, const std::string& sha256) {
  if (step == 0 || sha256.size() == kSha256Size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameters_sha256 has ", sha256.size(), " bytes instead of ", kSha256Size));
}

void MembershipToProto(uint32_t generation, const std::vector<uint64_t>& incarnations,
                       v1::Membership* out) {
  out->set_generation(generation);
  for (uint32_t rank = 0; rank < incarnations.size(); ++rank) {
    v1::Member* member = out->add_members();
    member->set_rank(rank);
    member->set_incarnation(incarnations[rank]);
  }
}

void StartToProto(const StartShard& start, v1::StartJob* job) {
  job->set_job_uid(start.job_uid);
  job->set_term(start.term);
  job->set_first_step(start.first_step);
  TableToProto(start.table, job->mutable_table());
  LayoutToProto(start.layout, job->mutable_layout());
  MembershipToProto(start.generation, start.incarnations, job->mutable_membership());
  job->mutable_membership()->set_from_step(start.first_step);
  job->set_window_bytes(start.window_bytes);
  job->set_coordinator_incarnation(start.coordinator_incarnation);
  job->set_parameters_agree(start.parameters_agree);
  job->set_restore_step(start.restore_step);
  job->set_replay(start.replay);
  job->set_restore_world_size(start.restore_world_size);
  if (!start.restore_part.name.empty())
    PartToProto(start.restore_part, job->mutable_restore_part());
}

// Of a plain file that leads out of no folder and can be read in a log.
bool IsFileName(absl::string_view name) {
  return !name.empty() && name.size() <= kFileNameMax && name[0] != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isgraph(c) && c != '/' && c != '\\'; });
}

std::string PrintableName(absl::string_view name) {
  return absl::CHexEscape(name.substr(0, kFileNameMax));
}

v1::ExchangeReply ReplyWithoutResults(const ExchangeAnswer& answer, uint64_t server_incarnation) {
  v1::ExchangeReply reply;
  reply.set_outcome(OutcomeToProto(answer.outcome));
  reply.set_step(answer.step);
  reply.set_bundle(answer.bundle);
  if (answer.outcome == Outcome::kResult) RecordToProto(answer.record, reply.mutable_record());
  reply.set_base_version(answer.base_version);
  reply.set_version(answer.version);
  reply.set_need_from(answer.need_from);
  reply.set_retry_after_ms(answer.retry_after_ms);
  reply.set_message(answer.message);
  reply.set_server_incarnation(server_incarnation);
  reply.set_checkpoint_step(answer.checkpoint_step);
  reply.set_term(answer.term);
  reply.set_exact(answer.exact);
  reply.set_staleness(answer.staleness);
  reply.set_open_step(answer.open_step);
  if (answer.plan != nullptr) PlanToProto(*answer.plan, reply.mutable_plan());
  return reply;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

Sender SenderFromProto(const v1::Sender& sender) {
  return {.job_uid = sender.job_uid(),
          .term = sender.term(),
          .rank = sender.rank(),
          .incarnation = sender.incarnation(),
          .generation = sender.generation(),
          .server_incarnation = sender.server_incarnation()};
}

absl::StatusOr<Exchange> ExchangeFromProto(const Sender& known, v1::ExchangeRequest* request) {
  if (request->contributions_size() > kContributionsMax) {
    return absl::InvalidArgumentError(absl::StrCat(request->contributions_size(),
                                                   " contributions in one request; at most ",
                                                   kContributionsMax));
  }
  const absl::StatusOr<uint32_t> weight = WeightFromProto(request->weight());
  if (!weight.ok()) return weight.status();
  Exchange exchange{.sender = request->has_sender() ? SenderFromProto(request->sender()) : known,
                    .step = request->step(),
                    .bundle = request->bundle(),
                    .skip = request->skip(),
                    .keys_only = request->keys_only(),
                    .frames = {},
                    .checksums = {},
                    .plan_id = request->plan_id(),
                    .base_version = request->base_version(),
                    .acked_step = request->acked_step(),
                    .checkpoint_step = request->checkpoint_step(),
                    .rate = request->rate(),
                    .weight = *weight,
                    .plan = {}};
  if (request->has_plan()) {
    absl::StatusOr<CompressionPlan> plan = PlanFromProto(request->plan());
    if (!plan.ok()) return plan.status();
    exchange.plan = std::make_shared<const CompressionPlan>(*std::move(plan));
  }
  if (request->generation() != 0) exchange.sender.generation = request->generation();
  for (v1::Contribution& contribution : *request->mutable_contributions()) {
    if (exchange.keys_only) {
      exchange.checksums.push_back(contribution.checksum());
    } else {
      exchange.frames.push_back(std::move(*contribution.mutable_frame()));
    }
  }
  return exchange;
}

v1::ExchangeReply ReplyToProto(const ExchangeAnswer& answer, uint64_t server_incarnation) {
  v1::ExchangeReply reply = ReplyWithoutResults(answer, server_incarnation);
  for (const std::string& result : answer.results) reply.add_results(result);
  return reply;
}

grpc::ByteBuffer ReplyBytes(const std::shared_ptr<const ExchangeAnswer>& answer,
                            uint64_t server_incarnation) {
  MessageSlices message(ReplyWithoutResults(*answer, server_incarnation));
  for (const std::string& result : answer->results) {
    message.AppendBytes(v1::ExchangeReply::kResultsFieldNumber, result, answer);
  }
  return message.Take();
}

absl::StatusOr<WorkerJoin> JoinFromProto(const v1::JoinRequest& request) {
  absl::StatusOr<TensorTable> table = TableFromProto(request.table());
  if (!table.ok()) return table.status();
  const absl::Status hash = CheckParametersHash(1, request.parameters_sha256());
  if (!hash.ok()) return hash;
  if (request.resume_step() != 0) {
    return absl::InvalidArgumentError("resume_step: a worker cannot resume in this version");
  }
  return WorkerJoin{.job_name = Shortened(request.job_name()),
                    .job_hash = request.job_hash(),
                    .nonce = request.nonce(),
                    .rank = request.rank(),
                    .table = *std::move(table),
                    .parameters_sha256 = request.parameters_sha256(),
                    .software_version = Shortened(request.software_version()),
                    .host = Shortened(request.host()),
                    .pid = request.pid()};
}

void GrantToProto(const JoinGrant& grant, v1::JoinReply* reply) {
  reply->set_job_uid(grant.job_uid);
  reply->set_term(grant.term);
  reply->set_rank(grant.rank);
  reply->set_incarnation(grant.incarnation);
  reply->set_generation(grant.generation);
  reply->set_world_size(grant.world_size);
  reply->set_first_step(grant.first_step);
  LayoutToProto(grant.layout, reply->mutable_layout());
  for (const ShardPlace& place : grant.shards) {
    v1::ShardAddress* address = reply->add_shards();
    address->set_shard(place.shard);
    address->set_address(place.address);
    address->set_server_incarnation(place.server_incarnation);
  }
  reply->set_window_bytes(grant.window_bytes);
  reply->set_parameters_agree(grant.parameters_agree);
  reply->set_restore_step(grant.restore_step);
  reply->set_restore_world_size(grant.restore_world_size);
  for (const CheckpointPart& part : grant.restore_parts) {
    PartToProto(part, reply->add_restore_parts());
  }
  reply->set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(grant.lease)));
  reply->set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(grant.heartbeat)));
  reply->set_server_incarnation(grant.server_incarnation);
  reply->set_learner(grant.learner);
  if (grant.plan != nullptr) PlanToProto(*grant.plan, reply->mutable_plan());
  reply->mutable_members()->Add(grant.members.begin(), grant.members.end());
}

namespace {

// More than a worker has: its state and, of rank 0, files beside it.
constexpr int kPartsMax = 16;

std::vector<CheckpointPart> PartsFromProto(
    const google::protobuf::RepeatedPtrField<v1::CheckpointPart>& parts) {
  std::vector<CheckpointPart> out;
  for (const v1::CheckpointPart& part : parts) {
    if (out.size() == kPartsMax) break;
    out.push_back(PartFromProto(part));
  }
  return out;
}

}  // namespace

// Whatever is no time is none.
absl::Duration DurationFromSeconds(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
}

absl::StatusOr<WorkerHeartbeat> HeartbeatFromProto(const v1::HeartbeatRequest& request) {
  const absl::Status hash =
      CheckParametersHash(request.parameters_hash_step(), request.parameters_sha256());
  if (!hash.ok()) return hash;
  return WorkerHeartbeat{.sender = SenderFromProto(request.sender()),
                         .progress = ProgressFromProto(request.progress()),
                         .timings = TimingsFromProto(request.timings()),
                         .since_progress = DurationFromSeconds(request.seconds_since_progress()),
                         .parameters_hash_step = request.parameters_hash_step(),
                         .parameters_sha256 = request.parameters_sha256(),
                         .replay_from = request.replay_from(),
                         .parts = PartsFromProto(request.parts())};
}

absl::StatusOr<WorkerLeave> LeaveFromProto(const v1::LeaveRequest& request) {
  const absl::Status hash =
      CheckParametersHash(request.parameters_hash_step(), request.parameters_sha256());
  if (!hash.ok()) return hash;
  return WorkerLeave{.last = {.sender = SenderFromProto(request.sender()),
                              .progress = ProgressFromProto(request.progress()),
                              .timings = TimingsFromProto(request.timings()),
                              .parameters_hash_step = request.parameters_hash_step(),
                              .parameters_sha256 = request.parameters_sha256()},
                     .finished = request.finished(),
                     .reason = Shortened(request.reason())};
}

v1::JobPhase PhaseToProto(JobPhase phase) {
  switch (phase) {
    case JobPhase::kWaiting:
      return v1::JOB_PHASE_WAITING;
    case JobPhase::kRunning:
      return v1::JOB_PHASE_RUNNING;
    case JobPhase::kFinished:
      return v1::JOB_PHASE_FINISHED;
    case JobPhase::kFailed:
      return v1::JOB_PHASE_FAILED;
    case JobPhase::kRecovering:
      return v1::JOB_PHASE_RECOVERING;
  }
  return v1::JOB_PHASE_UNSPECIFIED;
}

JobPhase PhaseFromProto(v1::JobPhase phase) {
  switch (phase) {
    case v1::JOB_PHASE_WAITING:
      return JobPhase::kWaiting;
    case v1::JOB_PHASE_RUNNING:
      return JobPhase::kRunning;
    case v1::JOB_PHASE_FINISHED:
      return JobPhase::kFinished;
    case v1::JOB_PHASE_RECOVERING:
      return JobPhase::kRecovering;
    default:
      return JobPhase::kFailed;
  }
}

void StatusToProto(const JobStatus& status, v1::GetStatusReply* reply) {
  reply->set_job_name(status.job_name);
  reply->set_job_uid(status.job_uid);
  reply->set_phase(PhaseToProto(status.phase));
  reply->set_failure(status.failure);
  reply->set_generation(status.generation);
  reply->set_term(status.term);
  reply->set_world_size(status.world_size);
  for (const MemberStatus& member : status.members) {
    v1::MemberStatus* out = reply->add_members();
    out->set_rank(member.rank);
    out->set_host(member.host);
    out->set_pid(member.pid);
    out->set_joined(member.joined);
    out->set_left(member.left);
    out->set_lost(member.lost);
    out->set_seconds_since_heartbeat(absl::ToDoubleSeconds(member.since_heartbeat));
    ProgressToProto(member.progress, out->mutable_progress());
  }
  for (const ShardStatus& shard : status.shards) {
    v1::ShardStatus* out = reply->add_shards();
    out->set_shard(shard.shard);
    out->set_address(shard.address);
    out->set_attached(shard.attached);
    out->set_lost(shard.lost);
    out->set_seconds_since_report(absl::ToDoubleSeconds(shard.since_report));
    out->set_elements(shard.elements);
    out->set_highest_closed_step(shard.highest_closed_step);
  }
  reply->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(status.uptime)));
  reply->set_software_version(status.software_version);
  reply->set_checkpoint_step(status.checkpoint_step);
  if (status.checkpoint_age.has_value()) {
    reply->set_seconds_since_checkpoint(absl::ToDoubleSeconds(*status.checkpoint_age));
  }
  reply->set_rollbacks(status.rollbacks);
  reply->set_last_rollback(status.last_rollback);
  reply->set_recovery_class(std::string(ToString(status.recovery_class)));
  reply->set_recovery_reason(status.recovery_reason);
  reply->set_repairs(status.repairs);
  reply->set_last_repair(status.last_repair);
  v1::JobCodecs* codecs = reply->mutable_codecs();
  codecs->set_uplink(status.codecs.uplink);
  codecs->set_downlink(status.codecs.downlink);
  codecs->set_policy(status.codecs.policy);
  codecs->set_plans_made(status.codecs.plans_made);
  for (const PlanChange& plan : status.codecs.plans) {
    v1::PlanChange* out = codecs->add_plans();
    out->set_id(plan.id);
    out->set_effective_step(plan.effective_step);
    out->set_what(plan.what);
    out->set_reason(plan.reason);
  }
}

v1::ShardHello HelloToProto(const ShardArrival& arrival) {
  v1::ShardHello hello;
  hello.set_job_name(arrival.job_name);
  hello.set_job_hash(arrival.job_hash);
  hello.set_shard(arrival.shard);
  hello.set_address(arrival.address);
  hello.set_server_incarnation(arrival.server_incarnation);
  hello.set_software_version(arrival.software_version);
  hello.set_job_uid(arrival.job_uid);
  hello.set_term(arrival.term);
  hello.set_running(arrival.running);
  return hello;
}

ShardArrival HelloFromProto(const v1::ShardHello& hello) {
  return {.job_name = Shortened(hello.job_name()),
          .job_hash = hello.job_hash(),
          .shard = hello.shard(),
          .address = Shortened(hello.address()),
          .server_incarnation = hello.server_incarnation(),
          .software_version = Shortened(hello.software_version()),
          .job_uid = hello.job_uid(),
          .term = hello.term(),
          .running = hello.running()};
}

v1::ShardHealth HealthToProto(const ShardHealthReport& health) {
  v1::ShardHealth out;
  out.set_highest_closed_step(health.highest_closed_step);
  out.set_highest_open_step(health.highest_open_step);
  out.set_elements(health.elements);
  out.set_in_flight_bytes(health.in_flight_bytes);
  out.set_results_from(health.results_from);
  for (const double seconds : health.waited_seconds) out.add_waited_seconds(seconds);
  return out;
}

ShardHealthReport HealthFromProto(const v1::ShardHealth& health) {
  ShardHealthReport out{.highest_closed_step = health.highest_closed_step(),
                        .highest_open_step = health.highest_open_step(),
                        .elements = health.elements(),
                        .in_flight_bytes = health.in_flight_bytes(),
                        .results_from = health.results_from()};
  for (const double seconds : health.waited_seconds()) {
    if (out.waited_seconds.size() == kRanksMax) break;
    out.waited_seconds.push_back(SecondsFromProto(seconds));
  }
  return out;
}

void PartToProto(const CheckpointPart& part, v1::CheckpointPart* out) {
  out->set_term(part.term);
  out->set_step(part.step);
  out->set_name(part.name);
  out->set_bytes(part.bytes);
  out->set_checksum(part.checksum);
  out->set_error(part.error);
  out->set_server(part.server);
}

CheckpointPart PartFromProto(const v1::CheckpointPart& part) {
  CheckpointPart out{.term = part.term(),
                     .step = part.step(),
                     .name = part.name(),
                     .bytes = part.bytes(),
                     .checksum = part.checksum(),
                     .error = Shortened(part.error()),
                     .server = part.server()};
  if (IsFileName(out.name)) return out;
  out.name = PrintableName(out.name);
  if (out.error.empty()) {
    out.error = absl::StrCat("\"", out.name, "\" is no name for a file of a checkpoint");
  }
  return out;
}

v1::ShardCommand CommandToProto(const CommandShard& command) {
  v1::ShardCommand out;
  out.set_sequence(command.sequence);
  if (const auto* start = std::get_if<StartShard>(&command.command)) {
    StartToProto(*start, out.mutable_start());
  } else if (const auto* name = std::get_if<NameCheckpoint>(&command.command)) {
    out.mutable_name_checkpoint()->set_minimum_step(name->minimum_step);
  } else if (const auto* suspend = std::get_if<SuspendShard>(&command.command)) {
    out.mutable_suspend()->set_term(suspend->term);
    out.mutable_suspend()->set_reason(suspend->reason);
  } else if (const auto* members = std::get_if<SetMembers>(&command.command)) {
    MembershipToProto(members->generation, members->incarnations, out.mutable_membership());
  } else if (const auto* release = std::get_if<ReleaseResults>(&command.command)) {
    out.mutable_release()->set_durable_step(release->durable_step);
  } else if (const auto* keep = std::get_if<KeepCheckpoints>(&command.command)) {
    out.mutable_keep()->mutable_steps()->Add(keep->steps.begin(), keep->steps.end());
    out.mutable_keep()->set_before(keep->before);
  } else {
    const EndShard& end = std::get<EndShard>(command.command);
    out.mutable_end()->set_phase(PhaseToProto(end.phase));
    out.mutable_end()->set_reason(end.reason);
  }
  return out;
}

absl::StatusOr<StartShard> StartFromProto(const v1::StartJob& job) {
  absl::StatusOr<TensorTable> table = TableFromProto(job.table());
  if (!table.ok()) return table.status();
  StartShard start{.job_uid = job.job_uid(),
                   .term = job.term(),
                   .first_step = job.first_step(),
                   .table = *std::move(table),
                   .layout = {.chunk_elements = job.layout().chunk_elements(),
                              .bundle_elements = job.layout().bundle_elements()},
                   .generation = job.membership().generation(),
                   .window_bytes = job.window_bytes(),
                   .coordinator_incarnation = job.coordinator_incarnation(),
                   .parameters_agree = job.parameters_agree(),
                   .restore_step = job.restore_step(),
                   .replay = job.replay(),
                   .restore_world_size = job.restore_world_size()};
  if (job.has_restore_part()) start.restore_part = PartFromProto(job.restore_part());
  if (start.restore_step != 0 && start.first_step != start.restore_step + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job is to begin with step ", start.first_step,
                     " from the checkpoint after step ", start.restore_step));
  }
  absl::StatusOr<SetMembers> members = MembersFromProto(job.membership());
  if (!members.ok()) return members.status();
  start.incarnations = std::move(members->incarnations);
  return start;
}

absl::StatusOr<SetMembers> MembersFromProto(const v1::Membership& membership) {
  SetMembers members{.generation = membership.generation()};
  for (const v1::Member& member : membership.members()) {
    if (member.rank() != members.incarnations.size() || member.learner()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "membership: found rank ", member.rank(), member.learner() ? " (learner)" : "",
          " where rank ", members.incarnations.size(), " belongs"));
    }
    members.incarnations.push_back(member.incarnation());
  }
  return members;
}

}  // namespace sluice
