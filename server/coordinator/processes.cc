// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/processes.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::server {

std::string MissingProcesses(const Roster& roster, const ShardFleet& fleet) {
  std::vector<uint32_t> shards;
  for (const ShardSeat& seat : fleet) {
    if (!seat.is_attached()) shards.push_back(seat.arrival.shard);
  }
  std::vector<std::string> missing;
  if (std::string workers = roster.Missing(); !workers.empty()) {
    missing.push_back(std::move(workers));
  }
  if (!shards.empty()) missing.push_back(absl::StrCat("shard ", absl::StrJoin(shards, ", ")));
  return absl::StrJoin(missing, " and ");
}

std::string LostProcesses(const Roster& roster, const ShardFleet& fleet) {
  std::vector<std::string> lost;
  for (const ShardSeat& seat : fleet) {
    if (seat.lost) lost.push_back(Describe(seat));
  }
  for (std::string& name : roster.NamesOfLost()) lost.push_back(std::move(name));
  return absl::StrJoin(lost, " and ");
}

std::vector<ShardStreams> StreamsOf(const ShardFleet& fleet) {
  std::vector<ShardStreams> streams;
  for (const ShardSeat& seat : fleet) {
    streams.push_back({.elements = seat.health.elements, .ranks = seat.health.links});
  }
  return streams;
}

void AddProcesses(const Roster& roster, const ShardFleet& fleet, absl::Time now,
                  JobStatus* status) {
  for (const Member& member : roster) {
    const uint32_t rank = member.join.rank;
    status->members.push_back(
        {.rank = rank,
         .host = member.join.host,
         .pid = member.join.pid,
         .joined = member.is_present(),
         .left = member.has_left(),
         .lost = member.is_lost(),
         .since_heartbeat = member.is_present() ? now - member.heard : absl::ZeroDuration(),
         .progress = member.progress,
         .timings = member.timings,
         .waited_seconds = fleet.WaitedSeconds(rank),
         .link = fleet.SlowestLink(rank),
         .suspect = fleet.Suspect(rank)});
  }
  for (const ShardSeat& seat : fleet) {
    status->shards.push_back(
        {.shard = seat.arrival.shard,
         .address = seat.arrival.address,
         .attached = seat.is_attached(),
         .lost = seat.lost,
         .since_report = seat.is_known() ? now - seat.heard : absl::ZeroDuration(),
         .elements = seat.health.elements,
         .highest_closed_step = seat.health.highest_closed_step});
  }
  status->lost_workers = roster.lost_workers();
  status->lost_residual_energy = roster.lost_residual_energy();
}

void AddWaits(const Roster& roster, const ShardFleet& fleet, absl::Time now, JobStatus* status) {
  const auto add = [status](std::string who, const protocol::DiskWait& wait,
                            absl::Duration since_heard) {
    if (wait.what.empty()) return;
    status->waits.push_back({std::move(who), wait.what, wait.lasts + since_heard, wait.trouble});
  };
  for (const Member& member : roster) {
    if (!member.is_present()) continue;
    add(roster.Describe(member.join), member.disk_wait, now - member.heard);
  }
  for (const ShardSeat& seat : fleet) {
    if (seat.is_known()) add(Describe(seat), seat.health.disk_wait, now - seat.heard);
  }
}

}  // namespace sluice::server
