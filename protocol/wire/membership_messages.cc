// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/membership_messages.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/plan_message.h"
#include "protocol/wire/tensor_table_message.h"

namespace sluice::protocol {
namespace {

constexpr size_t kSha256Size = 32;
// Limit on the parts in one message. A worker reports fewer: its state and, on rank 0, the
// additional files.
constexpr int kPartsMax = 16;

MemberProgress ProgressFromProto(const v1::WorkerProgress& message) {
  return {.step = message.step(),
          .total_steps = message.total_steps(),
          .epoch = message.epoch(),
          .loss = message.loss(),
          .samples_per_second = message.samples_per_second(),
          .bytes_up = message.bytes_up(),
          .bytes_down = message.bytes_down(),
          .dense_bytes_up = message.dense_bytes_up(),
          .dense_bytes_down = message.dense_bytes_down(),
          .step_ms_p50 = message.step_ms_p50(),
          .validation_metric = message.validation_metric(),
          .skipped_bundles = message.skipped_bundles(),
          .seconds_left = message.has_seconds_left() ? std::optional<double>(message.seconds_left())
                                                     : std::nullopt,
          .residual_energy = AmountFromProto(message.residual_energy())};
}

void TimingsToProto(const MemberTimings& timings, v1::WorkerTimings* message) {
  message->set_compute_seconds(timings.compute_seconds);
  message->set_decode_seconds(timings.decode_seconds);
  message->set_exposed_communication_seconds(timings.exchange_seconds);
  message->set_exposed_encode_seconds(timings.encode_seconds);
  message->set_steps(timings.steps);
}

MemberTimings TimingsFromProto(const v1::WorkerTimings& message) {
  return {.steps = message.steps(),
          .compute_seconds = AmountFromProto(message.compute_seconds()),
          .encode_seconds = AmountFromProto(message.exposed_encode_seconds()),
          .decode_seconds = AmountFromProto(message.decode_seconds()),
          .exchange_seconds = AmountFromProto(message.exposed_communication_seconds())};
}

absl::Status CheckParametersHash(uint64_t step, const std::string& sha256) {
  if (step == 0 || sha256.size() == kSha256Size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameters_sha256 has ", sha256.size(), " bytes instead of ", kSha256Size));
}

std::vector<CheckpointPart> CheckedPartsFromProto(
    const google::protobuf::RepeatedPtrField<v1::CheckpointPart>& messages) {
  std::vector<CheckpointPart> parts;
  for (const v1::CheckpointPart& message : messages) {
    if (parts.size() == kPartsMax) break;
    parts.push_back(CheckedPartFromProto(message));
  }
  return parts;
}

// Converts seconds. Returns 0 for an impossible duration.
absl::Duration DurationFromSeconds(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
}

uint32_t Milliseconds(absl::Duration duration) {
  return static_cast<uint32_t>(absl::ToInt64Milliseconds(duration));
}

template <typename Message>
void StateToProto(const JobState& state, Message* message) {
  message->set_phase(PhaseToProto(state.phase));
  message->set_failure(ValidText(state.failure));
  message->set_term(state.term);
}

template <typename Message>
JobState StateFromProto(const Message& message) {
  JobState state;
  state.phase = PhaseFromProto(message.phase(), JobPhase::kRunning);
  state.failure = message.failure();
  state.term = message.term();
  return state;
}

}  // namespace

void JoinToProto(const WorkerJoin& join, v1::JoinRequest* message) {
  message->set_job_name(ValidText(join.job_name));
  message->set_job_hash(join.job_hash);
  message->set_nonce(join.nonce);
  message->set_rank(join.rank);
  TableToProto(join.table, message->mutable_table());
  message->set_parameters_sha256(join.parameters_sha256);
  message->set_software_version(ValidText(join.software_version));
  message->set_host(ValidText(join.host));
  message->set_pid(join.pid);
}

absl::StatusOr<WorkerJoin> JoinFromProto(const v1::JoinRequest& message) {
  absl::StatusOr<TensorTable> table = TableFromProto(message.table());
  if (!table.ok()) return table.status();
  const absl::Status hash = CheckParametersHash(1, message.parameters_sha256());
  if (!hash.ok()) return hash;
  if (message.resume_step() != 0) {
    return absl::InvalidArgumentError("resume_step: a worker cannot resume in this version");
  }
  return WorkerJoin{.job_name = Shortened(message.job_name()),
                    .job_hash = message.job_hash(),
                    .nonce = message.nonce(),
                    .rank = message.rank(),
                    .table = *std::move(table),
                    .parameters_sha256 = message.parameters_sha256(),
                    .software_version = Shortened(message.software_version()),
                    .host = Shortened(message.host()),
                    .pid = message.pid()};
}

void PlaceToProto(const ShardPlace& place, v1::ShardAddress* message) {
  message->set_shard(place.shard);
  message->set_address(ValidText(place.address));
  message->set_server_incarnation(place.server_incarnation);
}

ShardPlace PlaceFromProto(const v1::ShardAddress& message) {
  return {.shard = message.shard(),
          .address = message.address(),
          .server_incarnation = message.server_incarnation()};
}

void GrantToProto(const JoinGrant& grant, v1::JoinReply* message) {
  message->set_job_uid(grant.job_uid);
  message->set_term(grant.term);
  message->set_rank(grant.rank);
  message->set_incarnation(grant.incarnation);
  message->set_generation(grant.generation);
  message->set_world_size(grant.world_size);
  message->set_first_step(grant.first_step);
  LayoutToProto(grant.layout, message->mutable_layout());
  for (const ShardPlace& place : grant.shards) PlaceToProto(place, message->add_shards());
  message->set_window_bytes(grant.window_bytes);
  message->set_parameters_agree(grant.parameters_agree);
  message->set_restore_step(grant.restore_step);
  message->set_restore_world_size(grant.restore_world_size);
  for (const CheckpointPart& part : grant.restore_parts) {
    PartToProto(part, message->add_restore_parts());
  }
  message->set_lease_ms(Milliseconds(grant.lease));
  message->set_heartbeat_ms(Milliseconds(grant.heartbeat));
  message->set_server_incarnation(grant.server_incarnation);
  message->set_learner(grant.late_joiner);
  if (grant.plan != nullptr) PlanToProto(*grant.plan, message->mutable_plan());
  message->mutable_members()->Add(grant.members.begin(), grant.members.end());
}

absl::StatusOr<JoinGrant> GrantFromProto(const v1::JoinReply& message) {
  JoinGrant grant{.job_uid = message.job_uid(),
                  .term = message.term(),
                  .rank = message.rank(),
                  .incarnation = message.incarnation(),
                  .generation = message.generation(),
                  .world_size = message.world_size(),
                  .first_step = message.first_step(),
                  .layout = LayoutFromProto(message.layout()),
                  .window_bytes = message.window_bytes(),
                  .parameters_agree = message.parameters_agree(),
                  .restore_step = message.restore_step(),
                  .restore_world_size = message.restore_world_size(),
                  .lease = absl::Milliseconds(message.lease_ms()),
                  .heartbeat = absl::Milliseconds(message.heartbeat_ms()),
                  .server_incarnation = message.server_incarnation(),
                  .late_joiner = message.learner(),
                  .members = {message.members().begin(), message.members().end()}};
  for (const v1::ShardAddress& place : message.shards()) {
    grant.shards.push_back(PlaceFromProto(place));
  }
  for (const v1::CheckpointPart& part : message.restore_parts()) {
    grant.restore_parts.push_back(PartFromProto(part));
  }
  if (message.has_plan()) {
    absl::StatusOr<CompressionPlan> plan = PlanFromProto(message.plan());
    if (!plan.ok()) return plan.status();
    grant.plan = std::make_shared<const CompressionPlan>(*std::move(plan));
  }
  return grant;
}

void ProgressToProto(const MemberProgress& progress, v1::WorkerProgress* message) {
  message->set_step(progress.step);
  message->set_total_steps(progress.total_steps);
  message->set_epoch(progress.epoch);
  message->set_loss(progress.loss);
  message->set_samples_per_second(progress.samples_per_second);
  message->set_bytes_up(progress.bytes_up);
  message->set_bytes_down(progress.bytes_down);
  message->set_dense_bytes_up(progress.dense_bytes_up);
  message->set_dense_bytes_down(progress.dense_bytes_down);
  message->set_step_ms_p50(progress.step_ms_p50);
  message->set_validation_metric(progress.validation_metric);
  message->set_skipped_bundles(progress.skipped_bundles);
  if (progress.seconds_left.has_value()) message->set_seconds_left(*progress.seconds_left);
  message->set_residual_energy(progress.residual_energy);
}

void HeartbeatToProto(const WorkerHeartbeat& heartbeat, v1::HeartbeatRequest* message) {
  SenderToProto(heartbeat.sender, message->mutable_sender());
  ProgressToProto(heartbeat.progress, message->mutable_progress());
  TimingsToProto(heartbeat.timings, message->mutable_timings());
  message->set_seconds_since_progress(absl::ToDoubleSeconds(heartbeat.since_progress));
  message->set_parameters_hash_step(heartbeat.parameters_hash_step);
  message->set_parameters_sha256(heartbeat.parameters_sha256);
  message->set_replay_from(heartbeat.replay_from);
  for (const CheckpointPart& part : heartbeat.parts) PartToProto(part, message->add_parts());
  message->mutable_known_shards()->Add(heartbeat.known_shards.begin(),
                                       heartbeat.known_shards.end());
  message->set_restoring_step(heartbeat.restoring_step);
  if (!heartbeat.disk_wait.what.empty()) {
    WaitToProto(heartbeat.disk_wait, message->mutable_disk_wait());
  }
}

absl::StatusOr<WorkerHeartbeat> HeartbeatFromProto(const v1::HeartbeatRequest& message) {
  const absl::Status hash =
      CheckParametersHash(message.parameters_hash_step(), message.parameters_sha256());
  if (!hash.ok()) return hash;
  return WorkerHeartbeat{
      .sender = SenderFromProto(message.sender()),
      .progress = ProgressFromProto(message.progress()),
      .timings = TimingsFromProto(message.timings()),
      .since_progress = DurationFromSeconds(message.seconds_since_progress()),
      .parameters_hash_step = message.parameters_hash_step(),
      .parameters_sha256 = message.parameters_sha256(),
      .replay_from = message.replay_from(),
      .parts = CheckedPartsFromProto(message.parts()),
      .known_shards = {message.known_shards().begin(), message.known_shards().end()},
      .restoring_step = message.restoring_step(),
      .disk_wait = WaitFromProto(message.disk_wait())};
}

void HeartbeatReplyToProto(const HeartbeatReply& answer, v1::HeartbeatReply* message) {
  StateToProto(answer.job, message);
  message->set_generation(answer.job.generation);
  message->set_durable_step(answer.job.durable_step);
  for (const ShardPlace& place : answer.job.shards) PlaceToProto(place, message->add_shards());
  message->set_server_incarnation(answer.server_incarnation);
  message->set_log_level(LevelToProto(answer.job.log_level));
}

HeartbeatReply HeartbeatReplyFromProto(const v1::HeartbeatReply& message) {
  HeartbeatReply answer{.job = StateFromProto(message),
                        .server_incarnation = message.server_incarnation()};
  answer.job.generation = message.generation();
  answer.job.durable_step = message.durable_step();
  for (const v1::ShardAddress& place : message.shards()) {
    answer.job.shards.push_back(PlaceFromProto(place));
  }
  answer.job.log_level = LevelFromProto(message.log_level());
  return answer;
}

void LeaveToProto(const WorkerLeave& leave, v1::LeaveRequest* message) {
  SenderToProto(leave.last.sender, message->mutable_sender());
  ProgressToProto(leave.last.progress, message->mutable_progress());
  TimingsToProto(leave.last.timings, message->mutable_timings());
  message->set_parameters_hash_step(leave.last.parameters_hash_step);
  message->set_parameters_sha256(leave.last.parameters_sha256);
  message->set_finished(leave.finished);
  message->set_reason(ValidText(leave.reason));
}

absl::StatusOr<WorkerLeave> LeaveFromProto(const v1::LeaveRequest& message) {
  const absl::Status hash =
      CheckParametersHash(message.parameters_hash_step(), message.parameters_sha256());
  if (!hash.ok()) return hash;
  return WorkerLeave{.last = {.sender = SenderFromProto(message.sender()),
                              .progress = ProgressFromProto(message.progress()),
                              .timings = TimingsFromProto(message.timings()),
                              .parameters_hash_step = message.parameters_hash_step(),
                              .parameters_sha256 = message.parameters_sha256()},
                     .finished = message.finished(),
                     .reason = Shortened(message.reason())};
}

void LeaveAnswerToProto(const JobState& job, v1::LeaveReply* message) {
  StateToProto(job, message);
}

JobState LeaveAnswerFromProto(const v1::LeaveReply& message) { return StateFromProto(message); }

}  // namespace sluice::protocol
