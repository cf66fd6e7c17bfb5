// SPDX-License-Identifier: Apache-2.0
#include "tests/server/coordinator/effect_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace sluice::server {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;  // clang 14 does not deduce it.

std::string HoldersText(const std::vector<uint64_t>& incarnations, EffectNames* names) {
  std::vector<std::string> holders;
  for (uint32_t rank = 0; rank < incarnations.size(); ++rank) {
    holders.push_back(names->Holder(rank, incarnations[rank]));
  }
  return absl::StrJoin(holders, " ");
}

std::string PartsText(const std::vector<protocol::CheckpointPart>& parts, uint64_t step) {
  return absl::StrJoin(parts, " ", [&](std::string* out, const protocol::CheckpointPart& part) {
    absl::StrAppend(out, part.name);
    if (part.step != step) absl::StrAppend(out, " of step ", part.step);
    if (part.server > 0) absl::StrAppend(out, "@", part.server);
    if (part.checksum > 0) absl::StrAppend(out, "#", part.checksum);
  });
}

std::string If(bool condition, const std::string& text) { return condition ? text : ""; }

std::string PlacesText(const std::vector<protocol::ShardPlace>& places) {
  std::vector<std::string> texts;
  for (const protocol::ShardPlace& place : places) {
    const bool in_order = place.shard == texts.size();
    texts.push_back(absl::StrCat(If(!in_order, absl::StrCat("shard ", place.shard, ": ")),
                                 place.address, "/", place.server_incarnation));
  }
  return absl::StrJoin(texts, " ");
}

std::string TextOf(const protocol::JoinGrant& grant, EffectNames* names) {
  return absl::StrCat(
      "granted ", names->Holder(grant.rank, grant.incarnation), " term ", grant.term,
      " generation ", grant.generation, ", ", grant.world_size, " ranks, from step ",
      grant.first_step, If(grant.late_joiner, ", late joiner"),
      If(!grant.parameters_agree, ", parameters differ"),
      If(grant.restore_step > 0, absl::StrCat(", restores step ", grant.restore_step, " of ",
                                              grant.restore_world_size, " ranks")),
      If(!grant.restore_parts.empty(),
         absl::StrCat(": ", PartsText(grant.restore_parts, grant.restore_step))),
      If(!grant.members.empty(), absl::StrCat(", members ", absl::StrJoin(grant.members, " "))),
      ", shards ", PlacesText(grant.shards));
}

std::string FormerStatesText(const std::vector<protocol::FormerState>& states) {
  std::string text;
  for (const protocol::FormerState& state : states) {
    absl::StrAppend(&text, text.empty() ? ": " : " ", state.part.name, " at ", state.address);
  }
  return text;
}

std::string TextOf(const protocol::ShardCommand& command, EffectNames* names) {
  return std::visit(
      Overloaded{
          [&](const protocol::StartShard& start) {
            return absl::StrCat(
                "start term ", start.term, " generation ", start.generation, " from step ",
                start.first_step, " with ", HoldersText(start.incarnations, names),
                If(!start.parameters_agree, ", parameters differ"),
                If(start.restore_step > 0,
                   absl::StrCat(", restores step ", start.restore_step, " of ",
                                start.restore_world_size, " ranks")),
                If(!start.restore_part.name.empty(), absl::StrCat(": ", start.restore_part.name)),
                FormerStatesText(start.former_states), If(start.replay, ", replays"),
                ", by coordinator ", start.coordinator_incarnation);
          },
          [](const protocol::EndShard& end) {
            return absl::StrCat("end ", protocol::ToString(end.phase),
                                If(!end.reason.empty(), absl::StrCat(": ", end.reason)));
          },
          [](const protocol::NameCheckpoint& name) {
            return absl::StrCat("name a checkpoint from step ", name.minimum_step, " on");
          },
          [](const protocol::SuspendShard& suspend) {
            return absl::StrCat("suspend for term ", suspend.term);
          },
          [&](const protocol::SetMembers& members) {
            return absl::StrCat("members generation ", members.generation, ": ",
                                HoldersText(members.incarnations, names));
          },
          [](const protocol::ReleaseResults& release) {
            return absl::StrCat("release results up to step ", release.durable_step);
          },
          [](const protocol::KeepCheckpoints& keep) {
            return absl::StrCat("keep checkpoints ", absl::StrJoin(keep.steps, " "),
                                " of those before ", keep.before);
          },
          [](const protocol::ExaminePart& examine) {
            return absl::StrCat("examine ", examine.part.name, " of step ", examine.part.step);
          },
          [](const protocol::SetLogLevel& log) {
            return absl::StrCat("log from level ", NameOf(log.lowest), " on");
          }},
      command);
}

std::string TextOf(const protocol::RunRecord& record, EffectNames* names) {
  std::vector<uint64_t> holders;
  for (const protocol::RunMember& member : record.members) holders.push_back(member.incarnation);
  return absl::StrCat("record: term ", record.term, " generation ", record.generation,
                      " coordinator ", record.coordinator_incarnation,
                      If(record.restore_step > 0,
                         absl::StrCat(", from the checkpoint after step ", record.restore_step)),
                      If(!record.parameters_agree, ", parameters differ"),
                      If(!holders.empty(), absl::StrCat(", members ", HoldersText(holders, names))),
                      If(record.finished, ", finished"));
}

std::string TextOf(const protocol::CheckpointManifest& manifest) {
  return absl::StrCat("write checkpoint ", manifest.step, " term ", manifest.term, " of ",
                      manifest.world_size, " ranks", If(manifest.at_shards, " at the shards"), ": ",
                      PartsText(manifest.parts, manifest.step));
}

}  // namespace

std::string EffectNames::Holder(uint32_t rank, uint64_t incarnation) {
  if (incarnation == 0) return "-";
  std::vector<uint64_t>& known = holders_[rank];
  const auto found = std::find(known.begin(), known.end(), incarnation);
  const auto index = static_cast<size_t>(found - known.begin());
  if (found == known.end()) known.push_back(incarnation);
  return absl::StrCat("w", rank, std::string(index, '\''));
}

std::string TextOf(const absl::Status& error) {
  return absl::StrCat(absl::StatusCodeToString(error.code()), " ", error.message());
}

std::string TextOf(const CoordinatorEffect& effect, EffectNames* names) {
  return std::visit(
      Overloaded{
          [&](const AnswerJoin& answer) {
            return absl::StrCat(
                names->Call(answer.token), ": ",
                answer.grant.ok() ? TextOf(*answer.grant, names) : TextOf(answer.grant.status()));
          },
          [&](const CommandShard& command) {
            return absl::StrCat(names->Call(command.stream), " <- ",
                                TextOf(command.command, names));
          },
          [&](const RefuseShard& refusal) {
            return absl::StrCat(names->Call(refusal.stream), " closed: ", TextOf(refusal.why));
          },
          [&](const PersistRun& run) { return TextOf(run.record, names); },
          [](const WriteCheckpoint& write) { return TextOf(write.manifest); },
          [](const DropCheckpoint& drop) { return absl::StrCat("remove checkpoint ", drop.step); },
          [&](const AnswerCheckpoint& answer) {
            return absl::StrCat(names->Call(answer.token), ": ",
                                answer.step.ok() ? absl::StrCat("checkpoint ", *answer.step)
                                                 : TextOf(answer.step.status()));
          },
          [](const AskParent& ask) { return absl::StrCat("ask the parent: term ", ask.term); },
          [](const LeaveParent& leave) {
            return absl::StrCat("leave the parent: term ", leave.term);
          },
          [](const Notice& notice) {
            return absl::StrCat(notice.warning ? "warning: " : "notice: ", notice.text);
          }},
      effect);
}

std::string TextOf(const absl::StatusOr<protocol::JobState>& state, uint32_t term) {
  if (!state.ok()) return TextOf(state.status());
  return absl::StrCat(
      protocol::ToString(state->phase),
      If(state->term != term, absl::StrCat(" term ", state->term)),
      If(state->durable_step > 0, absl::StrCat(" durable ", state->durable_step)),
      If(!state->shards.empty(), absl::StrCat(" shards ", PlacesText(state->shards))),
      If(!state->failure.empty(), absl::StrCat(": ", state->failure)));
}

std::vector<std::string> TextOf(const JobStatus& status) {
  std::vector<std::string> lines = {absl::StrCat(
      protocol::ToString(status.phase), " term ", status.term, " generation ", status.generation,
      ", recovery class ", ToString(status.recovery_class),
      If(!status.recovery_reason.empty(), absl::StrCat(": ", status.recovery_reason)))};
  for (const MemberStatus& member : status.members) {
    lines.push_back(absl::StrCat("rank ", member.rank, member.joined ? " joined" : " absent",
                                 If(member.left, ", left"), If(member.lost, ", lost"), ", step ",
                                 member.progress.step));
  }
  for (const ShardStatus& shard : status.shards) {
    lines.push_back(absl::StrCat("shard ", shard.shard, shard.attached ? " attached" : " absent",
                                 If(shard.lost, ", lost"), ", step ", shard.highest_closed_step));
  }
  const auto count = [&](absl::string_view what, uint64_t number, absl::string_view last = "") {
    if (number == 0) return;
    lines.push_back(absl::StrCat(what, " ", number, last.empty() ? "" : ", the last one: ", last));
  };
  if (status.has_checkpoints && status.checkpoint_step == 0)
    lines.emplace_back("no checkpoint yet");
  if (status.checkpoint_step > 0) {
    lines.push_back(
        absl::StrCat("checkpoint ", status.checkpoint_step,
                     status.checkpoint_age.has_value()
                         ? absl::StrCat(", ", absl::FormatDuration(*status.checkpoint_age), " old")
                         : " of an earlier coordinator"));
  }
  count("rollbacks", status.rollbacks, status.last_rollback);
  count("repairs", status.repairs, status.last_repair);
  count("lost workers", status.lost_workers);
  if (status.lost_residual_energy > 0) {
    lines.push_back(absl::StrCat("lost residuals ", status.lost_residual_energy));
  }
  if (!status.checkpoint_trouble.empty()) {
    lines.push_back(absl::StrCat("trouble: ", status.checkpoint_trouble));
  }
  return lines;
}

}  // namespace sluice::server
