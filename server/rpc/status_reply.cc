// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status_reply.h"

#include <string>

#include "base/text.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/membership_messages.h"

namespace sluice::server {
namespace {

void LinkToProto(const protocol::LinkFigures& link, v1::LinkStatus* message) {
  message->set_up_bytes_per_second(link.up_rate);
  message->set_up_latency_seconds(link.up_latency_s);
  message->set_down_bytes_per_second(link.down_rate);
  message->set_down_latency_seconds(link.down_latency_s);
}

void CodecsToProto(const JobCodecs& codecs, v1::JobCodecs* message) {
  message->set_uplink(ValidText(codecs.uplink));
  message->set_downlink(ValidText(codecs.downlink));
  message->set_policy(ValidText(codecs.policy));
  message->set_plans_made(codecs.plans_made);
  message->set_momentum(ValidText(codecs.momentum));
  for (const PlanChange& plan : codecs.plans) {
    v1::PlanChange* out = message->add_plans();
    out->set_id(plan.id);
    out->set_effective_step(plan.effective_step);
    out->set_what(ValidText(plan.what));
    out->set_reason(ValidText(plan.reason));
  }
}

}  // namespace

void StatusToProto(const JobStatus& status, const std::vector<JobWarning>& warnings,
                   v1::GetStatusReply* reply) {
  reply->set_job_name(ValidText(status.job_name));
  reply->set_job_uid(status.job_uid);
  reply->set_phase(protocol::PhaseToProto(status.phase));
  reply->set_failure(ValidText(status.failure));
  reply->set_generation(status.generation);
  reply->set_term(status.term);
  reply->set_world_size(status.world_size);
  reply->set_steps_per_exchange(status.steps_per_exchange);
  for (const MemberStatus& member : status.members) {
    v1::MemberStatus* out = reply->add_members();
    out->set_rank(member.rank);
    out->set_host(ValidText(member.host));
    out->set_pid(member.pid);
    out->set_joined(member.joined);
    out->set_left(member.left);
    out->set_lost(member.lost);
    out->set_seconds_since_heartbeat(absl::ToDoubleSeconds(member.since_heartbeat));
    protocol::ProgressToProto(member.progress, out->mutable_progress());
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
  CodecsToProto(status.codecs, reply->mutable_codecs());
  for (const JobWarning& warning : warnings) {
    v1::StatusWarning* out = reply->add_warnings();
    out->set_kind(std::string(ToString(warning.kind)));
    out->set_text(ValidText(warning.text));
    out->set_action(ValidText(warning.action));
    out->set_runbook(std::string(NameOf(warning.runbook)));
  }
}

}  // namespace sluice::server
