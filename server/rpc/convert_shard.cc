// Messages between shards and the coordinator.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/tensor_table_message.h"
#include "server/rpc/convert.h"
#include "server/rpc/convert_links.h"
#include "server/rpc/convert_parts.h"

namespace sluice::server {
namespace {

constexpr size_t kFileNameMax = 128;
constexpr size_t kRanksMax = 1 << 16;

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
  protocol::TableToProto(start.table, job->mutable_table());
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

}  // namespace

v1::ShardHello HelloToProto(const ShardArrival& arrival) {
  v1::ShardHello hello;
  hello.set_job_name(ValidText(arrival.job_name));
  hello.set_job_hash(arrival.job_hash);
  hello.set_shard(arrival.shard);
  hello.set_address(ValidText(arrival.address));
  hello.set_server_incarnation(arrival.server_incarnation);
  hello.set_software_version(ValidText(arrival.software_version));
  hello.set_job_uid(arrival.job_uid);
  hello.set_term(arrival.term);
  hello.set_running(arrival.running);
  hello.set_nonce(arrival.nonce);
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
          .running = hello.running(),
          .nonce = hello.nonce()};
}

v1::ShardHealth HealthToProto(const ShardHealthReport& health) {
  v1::ShardHealth out;
  out.set_highest_closed_step(health.highest_closed_step);
  out.set_highest_open_step(health.highest_open_step);
  out.set_elements(health.elements);
  out.set_in_flight_bytes(health.in_flight_bytes);
  out.set_results_from(health.results_from);
  for (const double seconds : health.waited_seconds) out.add_waited_seconds(seconds);
  for (const LinkFigures& link : health.links) LinkToProto(link, out.add_links());
  if (!health.disk_wait.what.empty()) WaitToProto(health.disk_wait, out.mutable_disk_wait());
  return out;
}

ShardHealthReport HealthFromProto(const v1::ShardHealth& health) {
  ShardHealthReport out{.highest_closed_step = health.highest_closed_step(),
                        .highest_open_step = health.highest_open_step(),
                        .elements = health.elements(),
                        .in_flight_bytes = health.in_flight_bytes(),
                        .results_from = health.results_from(),
                        .disk_wait = WaitFromProto(health.disk_wait())};
  for (const double seconds : health.waited_seconds()) {
    if (out.waited_seconds.size() == kRanksMax) break;
    out.waited_seconds.push_back(AmountFromProto(seconds));
  }
  for (const v1::LinkFigures& link : health.links()) {
    if (out.links.size() == kRanksMax) break;
    out.links.push_back(LinkFromProto(link));
  }
  return out;
}

void PartToProto(const protocol::CheckpointPart& part, v1::CheckpointPart* out) {
  out->set_term(part.term);
  out->set_step(part.step);
  out->set_name(ValidText(part.name));
  out->set_bytes(part.bytes);
  out->set_checksum(part.checksum);
  out->set_error(ValidText(part.error));
  out->set_server(part.server);
  out->set_file(part.file);
  out->set_unreadable(part.unreadable);
}

protocol::CheckpointPart PartFromProto(const v1::CheckpointPart& part) {
  protocol::CheckpointPart out{.term = part.term(),
                               .step = part.step(),
                               .name = part.name(),
                               .bytes = part.bytes(),
                               .checksum = part.checksum(),
                               .error = Shortened(part.error()),
                               .server = part.server(),
                               .unreadable = part.unreadable(),
                               .file = part.file()};
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
    out.mutable_suspend()->set_reason(ValidText(suspend->reason));
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
    out.mutable_end()->set_reason(ValidText(end.reason));
  }
  return out;
}

absl::StatusOr<StartShard> StartFromProto(const v1::StartJob& job) {
  absl::StatusOr<protocol::TensorTable> table = protocol::TableFromProto(job.table());
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

}  // namespace sluice::server
