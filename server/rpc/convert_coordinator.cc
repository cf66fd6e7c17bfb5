// Workers' messages to the coordinator and its answers.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/exchange_messages.h"
#include "protocol/wire/plan_message.h"
#include "protocol/wire/tensor_table_message.h"
#include "server/rpc/convert.h"
#include "server/rpc/convert_links.h"
#include "server/rpc/convert_parts.h"

namespace sluice::server {
namespace {

constexpr size_t kSha256Size = 32;

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
                              : std::nullopt,
          .residual_energy = AmountFromProto(progress.residual_energy())};
}

MemberTimings TimingsFromProto(const v1::WorkerTimings& timings) {
  return {.steps = timings.steps(),
          .compute_seconds = AmountFromProto(timings.compute_seconds()),
          .encode_seconds = AmountFromProto(timings.exposed_encode_seconds()),
          .decode_seconds = AmountFromProto(timings.decode_seconds()),
          .exchange_seconds = AmountFromProto(timings.exposed_communication_seconds())};
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
  out->set_residual_energy(progress.residual_energy);
}

absl::Status CheckParametersHash(uint64_t step, const std::string& sha256) {
  if (step == 0 || sha256.size() == kSha256Size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameters_sha256 has ", sha256.size(), " bytes instead of ", kSha256Size));
}

std::vector<protocol::CheckpointPart> PartsFromProto(
    const google::protobuf::RepeatedPtrField<v1::CheckpointPart>& parts) {
  std::vector<protocol::CheckpointPart> out;
  for (const v1::CheckpointPart& part : parts) {
    if (out.size() == kPartsMax) break;
    out.push_back(PartFromProto(part));
  }
  return out;
}

// Whatever is no time is none.
absl::Duration DurationFromSeconds(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
}

}  // namespace

absl::StatusOr<WorkerJoin> JoinFromProto(const v1::JoinRequest& request) {
  absl::StatusOr<protocol::TensorTable> table = protocol::TableFromProto(request.table());
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

void PlaceToProto(const ShardPlace& place, v1::ShardAddress* address) {
  address->set_shard(place.shard);
  address->set_address(ValidText(place.address));
  address->set_server_incarnation(place.server_incarnation);
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
  for (const ShardPlace& place : grant.shards) PlaceToProto(place, reply->add_shards());
  reply->set_window_bytes(grant.window_bytes);
  reply->set_parameters_agree(grant.parameters_agree);
  reply->set_restore_step(grant.restore_step);
  reply->set_restore_world_size(grant.restore_world_size);
  for (const protocol::CheckpointPart& part : grant.restore_parts) {
    PartToProto(part, reply->add_restore_parts());
  }
  reply->set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(grant.lease)));
  reply->set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(grant.heartbeat)));
  reply->set_server_incarnation(grant.server_incarnation);
  reply->set_learner(grant.learner);
  if (grant.plan != nullptr) protocol::PlanToProto(*grant.plan, reply->mutable_plan());
  reply->mutable_members()->Add(grant.members.begin(), grant.members.end());
}

absl::StatusOr<WorkerHeartbeat> HeartbeatFromProto(const v1::HeartbeatRequest& request) {
  const absl::Status hash =
      CheckParametersHash(request.parameters_hash_step(), request.parameters_sha256());
  if (!hash.ok()) return hash;
  return WorkerHeartbeat{
      .sender = protocol::SenderFromProto(request.sender()),
      .progress = ProgressFromProto(request.progress()),
      .timings = TimingsFromProto(request.timings()),
      .since_progress = DurationFromSeconds(request.seconds_since_progress()),
      .parameters_hash_step = request.parameters_hash_step(),
      .parameters_sha256 = request.parameters_sha256(),
      .replay_from = request.replay_from(),
      .parts = PartsFromProto(request.parts()),
      .known_shards = {request.known_shards().begin(), request.known_shards().end()},
      .restoring_step = request.restoring_step(),
      .disk_wait = WaitFromProto(request.disk_wait())};
}

absl::StatusOr<WorkerLeave> LeaveFromProto(const v1::LeaveRequest& request) {
  const absl::Status hash =
      CheckParametersHash(request.parameters_hash_step(), request.parameters_sha256());
  if (!hash.ok()) return hash;
  return WorkerLeave{.last = {.sender = protocol::SenderFromProto(request.sender()),
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

void StatusToProto(const JobStatus& status, const std::vector<JobWarning>& warnings,
                   v1::GetStatusReply* reply) {
  reply->set_job_name(ValidText(status.job_name));
  reply->set_job_uid(status.job_uid);
  reply->set_phase(PhaseToProto(status.phase));
  reply->set_failure(ValidText(status.failure));
  reply->set_generation(status.generation);
  reply->set_term(status.term);
  reply->set_world_size(status.world_size);
  for (const MemberStatus& member : status.members) {
    v1::MemberStatus* out = reply->add_members();
    out->set_rank(member.rank);
    out->set_host(ValidText(member.host));
    out->set_pid(member.pid);
    out->set_joined(member.joined);
    out->set_left(member.left);
    out->set_lost(member.lost);
    out->set_seconds_since_heartbeat(absl::ToDoubleSeconds(member.since_heartbeat));
    ProgressToProto(member.progress, out->mutable_progress());
    LinkToProto(member.link, out->mutable_link());
  }
  for (const ShardStatus& shard : status.shards) {
    v1::ShardStatus* out = reply->add_shards();
    out->set_shard(shard.shard);
    out->set_address(ValidText(shard.address));
    out->set_attached(shard.attached);
    out->set_lost(shard.lost);
    out->set_seconds_since_report(absl::ToDoubleSeconds(shard.since_report));
    out->set_elements(shard.elements);
    out->set_highest_closed_step(shard.highest_closed_step);
  }
  reply->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(status.uptime)));
  reply->set_software_version(ValidText(status.software_version));
  reply->set_checkpoint_step(status.checkpoint_step);
  if (status.checkpoint_age.has_value()) {
    reply->set_seconds_since_checkpoint(absl::ToDoubleSeconds(*status.checkpoint_age));
  }
  reply->set_rollbacks(status.rollbacks);
  reply->set_last_rollback(ValidText(status.last_rollback));
  reply->set_recovery_class(std::string(ToString(status.recovery_class)));
  reply->set_recovery_reason(ValidText(status.recovery_reason));
  reply->set_repairs(status.repairs);
  reply->set_last_repair(ValidText(status.last_repair));
  v1::JobCodecs* codecs = reply->mutable_codecs();
  codecs->set_uplink(ValidText(status.codecs.uplink));
  codecs->set_downlink(ValidText(status.codecs.downlink));
  codecs->set_policy(ValidText(status.codecs.policy));
  codecs->set_plans_made(status.codecs.plans_made);
  codecs->set_momentum(ValidText(status.codecs.momentum));
  for (const PlanChange& plan : status.codecs.plans) {
    v1::PlanChange* out = codecs->add_plans();
    out->set_id(plan.id);
    out->set_effective_step(plan.effective_step);
    out->set_what(ValidText(plan.what));
    out->set_reason(ValidText(plan.reason));
  }
  for (const JobWarning& warning : warnings) {
    v1::StatusWarning* out = reply->add_warnings();
    out->set_kind(std::string(ToString(warning.kind)));
    out->set_text(ValidText(warning.text));
  }
}

}  // namespace sluice::server
