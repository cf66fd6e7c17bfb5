// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/shard_messages.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/tensor_table_message.h"

namespace sluice::protocol {
namespace {

constexpr size_t kRanksMax = 1 << 16;

void LinkToProto(const LinkFigures& link, v1::LinkFigures* message) {
  message->set_up_bytes_per_second(link.up_rate);
  message->set_up_latency_seconds(link.up_latency_s);
  message->set_down_bytes_per_second(link.down_rate);
  message->set_down_latency_seconds(link.down_latency_s);
  message->set_compute_late_seconds(link.compute_late_s);
  message->set_network_late_seconds(link.network_late_s);
}

LinkFigures LinkFromProto(const v1::LinkFigures& message) {
  return {.up_rate = AmountFromProto(message.up_bytes_per_second()),
          .up_latency_s = AmountFromProto(message.up_latency_seconds()),
          .down_rate = AmountFromProto(message.down_bytes_per_second()),
          .down_latency_s = AmountFromProto(message.down_latency_seconds()),
          .compute_late_s = AmountFromProto(message.compute_late_seconds()),
          .network_late_s = AmountFromProto(message.network_late_seconds())};
}

void MembersToProto(const SetMembers& members, v1::Membership* message) {
  message->set_generation(members.generation);
  for (uint32_t rank = 0; rank < members.incarnations.size(); ++rank) {
    v1::Member* member = message->add_members();
    member->set_rank(rank);
    member->set_incarnation(members.incarnations[rank]);
  }
}

absl::StatusOr<SetMembers> MembersFromProto(const v1::Membership& message) {
  SetMembers members{.generation = message.generation()};
  for (const v1::Member& member : message.members()) {
    if (member.rank() != members.incarnations.size() || member.learner()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "membership: found rank ", member.rank(), member.learner() ? " (late joiner)" : "",
          " where rank ", members.incarnations.size(), " belongs"));
    }
    members.incarnations.push_back(member.incarnation());
  }
  return members;
}

void StartToProto(const StartShard& start, v1::StartJob* message) {
  message->set_job_uid(start.job_uid);
  message->set_term(start.term);
  message->set_first_step(start.first_step);
  TableToProto(start.table, message->mutable_table());
  LayoutToProto(start.layout, message->mutable_layout());
  MembersToProto({start.generation, start.incarnations}, message->mutable_membership());
  message->mutable_membership()->set_from_step(start.first_step);
  message->set_window_bytes(start.window_bytes);
  message->set_coordinator_incarnation(start.coordinator_incarnation);
  message->set_parameters_agree(start.parameters_agree);
  message->set_restore_step(start.restore_step);
  message->set_replay(start.replay);
  message->set_restore_world_size(start.restore_world_size);
  if (!start.restore_part.name.empty()) {
    PartToProto(start.restore_part, message->mutable_restore_part());
  }
  for (const FormerState& former : start.former_states) {
    v1::FormerState* const added = message->add_former_states();
    PartToProto(former.part, added->mutable_part());
    added->set_address(former.address);
  }
}

absl::StatusOr<StartShard> StartFromProto(const v1::StartJob& message) {
  absl::StatusOr<TensorTable> table = TableFromProto(message.table());
  if (!table.ok()) return table.status();
  StartShard start{.job_uid = message.job_uid(),
                   .term = message.term(),
                   .first_step = message.first_step(),
                   .table = *std::move(table),
                   .layout = LayoutFromProto(message.layout()),
                   .generation = message.membership().generation(),
                   .window_bytes = message.window_bytes(),
                   .coordinator_incarnation = message.coordinator_incarnation(),
                   .parameters_agree = message.parameters_agree(),
                   .restore_step = message.restore_step(),
                   .replay = message.replay(),
                   .restore_world_size = message.restore_world_size()};
  if (message.has_restore_part()) {
    start.restore_part = CheckedPartFromProto(message.restore_part());
  }
  if (static_cast<uint64_t>(message.former_states_size()) > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat("the job is said to have had ",
                                                   message.former_states_size(),
                                                   " shards; the limit is ", kMaxShards));
  }
  for (const v1::FormerState& former : message.former_states()) {
    start.former_states.push_back({CheckedPartFromProto(former.part()), former.address()});
  }
  if (start.restore_step != 0 && start.first_step != start.restore_step + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job is to begin with step ", start.first_step,
                     " from the checkpoint after step ", start.restore_step));
  }
  absl::StatusOr<SetMembers> members = MembersFromProto(message.membership());
  if (!members.ok()) return members.status();
  start.incarnations = std::move(members->incarnations);
  return start;
}

}  // namespace

v1::ShardHello HelloToProto(const ShardArrival& arrival) {
  v1::ShardHello message;
  message.set_job_name(ValidText(arrival.job_name));
  message.set_job_hash(arrival.job_hash);
  message.set_shard(arrival.shard);
  message.set_address(ValidText(arrival.address));
  message.set_server_incarnation(arrival.server_incarnation);
  message.set_software_version(ValidText(arrival.software_version));
  message.set_job_uid(arrival.job_uid);
  message.set_term(arrival.term);
  message.set_running(arrival.running);
  message.set_nonce(arrival.nonce);
  return message;
}

ShardArrival HelloFromProto(const v1::ShardHello& message) {
  return {.job_name = Shortened(message.job_name()),
          .job_hash = message.job_hash(),
          .shard = message.shard(),
          .address = Shortened(message.address()),
          .server_incarnation = message.server_incarnation(),
          .software_version = Shortened(message.software_version()),
          .job_uid = message.job_uid(),
          .term = message.term(),
          .running = message.running(),
          .nonce = message.nonce()};
}

v1::ShardHealth HealthToProto(const ShardHealthReport& health) {
  v1::ShardHealth message;
  message.set_highest_closed_step(health.highest_closed_step);
  message.set_highest_open_step(health.highest_open_step);
  message.set_elements(health.elements);
  message.set_in_flight_bytes(health.in_flight_bytes);
  message.set_results_from(health.results_from);
  for (const double seconds : health.waited_seconds) message.add_waited_seconds(seconds);
  for (const LinkFigures& link : health.links) LinkToProto(link, message.add_links());
  if (!health.disk_wait.what.empty()) WaitToProto(health.disk_wait, message.mutable_disk_wait());
  for (const SuspectRank& suspect : health.suspects) {
    v1::SuspectRank* const to = message.add_suspects();
    to->set_rank(suspect.rank);
    to->set_opposes(suspect.opposes);
    to->set_counts(suspect.counts);
  }
  return message;
}

ShardHealthReport HealthFromProto(const v1::ShardHealth& message) {
  ShardHealthReport health{.highest_closed_step = message.highest_closed_step(),
                           .highest_open_step = message.highest_open_step(),
                           .elements = message.elements(),
                           .in_flight_bytes = message.in_flight_bytes(),
                           .results_from = message.results_from(),
                           .disk_wait = WaitFromProto(message.disk_wait())};
  for (const double seconds : message.waited_seconds()) {
    if (health.waited_seconds.size() == kRanksMax) break;
    health.waited_seconds.push_back(AmountFromProto(seconds));
  }
  for (const v1::LinkFigures& link : message.links()) {
    if (health.links.size() == kRanksMax) break;
    health.links.push_back(LinkFromProto(link));
  }
  for (const v1::SuspectRank& suspect : message.suspects()) {
    if (health.suspects.size() == kRanksMax) break;
    health.suspects.push_back(
        {.rank = suspect.rank(), .opposes = suspect.opposes(), .counts = suspect.counts()});
  }
  return health;
}

v1::ShardCommand CommandToProto(uint64_t sequence, const ShardCommand& command) {
  v1::ShardCommand message;
  message.set_sequence(sequence);
  if (const auto* start = std::get_if<StartShard>(&command)) {
    StartToProto(*start, message.mutable_start());
  } else if (const auto* name = std::get_if<NameCheckpoint>(&command)) {
    message.mutable_name_checkpoint()->set_minimum_step(name->minimum_step);
  } else if (const auto* suspend = std::get_if<SuspendShard>(&command)) {
    message.mutable_suspend()->set_term(suspend->term);
    message.mutable_suspend()->set_reason(ValidText(suspend->reason));
  } else if (const auto* members = std::get_if<SetMembers>(&command)) {
    MembersToProto(*members, message.mutable_membership());
  } else if (const auto* release = std::get_if<ReleaseResults>(&command)) {
    message.mutable_release()->set_durable_step(release->durable_step);
  } else if (const auto* keep = std::get_if<KeepCheckpoints>(&command)) {
    message.mutable_keep()->mutable_steps()->Add(keep->steps.begin(), keep->steps.end());
    message.mutable_keep()->set_before(keep->before);
  } else if (const auto* examine = std::get_if<ExaminePart>(&command)) {
    PartToProto(examine->part, message.mutable_examine());
  } else if (const auto* log = std::get_if<SetLogLevel>(&command)) {
    message.set_log_level(LevelToProto(log->lowest));
  } else {
    const EndShard& end = std::get<EndShard>(command);
    message.mutable_end()->set_phase(PhaseToProto(end.phase));
    message.mutable_end()->set_reason(ValidText(end.reason));
  }
  return message;
}

absl::StatusOr<ShardCommand> CommandFromProto(const v1::ShardCommand& message) {
  switch (message.command_case()) {
    case v1::ShardCommand::kStart:
      return StartFromProto(message.start());
    case v1::ShardCommand::kMembership:
      return MembersFromProto(message.membership());
    case v1::ShardCommand::kEnd:
      return EndShard{.phase = PhaseFromProto(message.end().phase(), JobPhase::kFailed),
                      .reason = message.end().reason()};
    case v1::ShardCommand::kNameCheckpoint:
      return NameCheckpoint{.minimum_step = message.name_checkpoint().minimum_step()};
    case v1::ShardCommand::kSuspend:
      return SuspendShard{.term = message.suspend().term(), .reason = message.suspend().reason()};
    case v1::ShardCommand::kRelease:
      return ReleaseResults{.durable_step = message.release().durable_step()};
    case v1::ShardCommand::kKeep:
      return KeepCheckpoints{
          .steps = {message.keep().steps().begin(), message.keep().steps().end()},
          .before = message.keep().before()};
    case v1::ShardCommand::kExamine:
      return ExaminePart{.part = PartFromProto(message.examine())};
    case v1::ShardCommand::kLogLevel:
      if (const std::optional<LogLevel> lowest = LevelFromProto(message.log_level())) {
        return SetLogLevel{.lowest = *lowest};
      }
      break;
    case v1::ShardCommand::kPlan:
    case v1::ShardCommand::COMMAND_NOT_SET:
      break;
  }
  return absl::UnimplementedError("the coordinator sent a command that this version does not know");
}

}  // namespace sluice::protocol
