// SPDX-License-Identifier: Apache-2.0
// The shards of a simulated job, and their link to the coordinator.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "tests/server/shard/shard_log_peer.h"
#include "tests/sim/core_options.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/survival_run.h"

namespace sluice {

void SurvivalRun::StartServer(ProcessId process) {
  const uint32_t shard = servers_[process].shard;
  SimServer& server = servers_[process] = SimServer();
  server.shard = shard;
  server.number = ++last_number_;
  if (process == 0) StartCoordinator();
  if (process == 0 && coordinator_ == nullptr) return;
  At(Delay({"dial", process}), process, [this, process] { Dial(process); });
  At(kHeartbeat, process, [this, process] { Beat(process); });
}

void SurvivalRun::Dial(ProcessId process) {
  SimServer& server = servers_[process];
  if (server.control != 0) return;
  if (!CanConnect(process, 0)) {
    At(kRedial, process, [this, process] { Dial(process); });
    return;
  }
  if (server.incarnation == 0) {
    if (coordinator_->persisting()) {  // The coordinator's own number may not be on disk yet.
      return At(kRedial, process, [this, process] { Dial(process); });
    }
    server.incarnation = coordinator_->core().NumberShard();
    // The process with the higher number serves the shard, regardless of which process began first.
    serving_[server.shard] = process;
  }
  if (server.core != nullptr && server.start_told == processes_[0].life) ++report_.starts_unheard;
  server.start_told = 0;
  server.control = ++last_id_;
  controls_[server.control] = {process, processes_[process].life};
  server.last_command = now_;
  server.last_report = now_;
  protocol::ShardArrival arrival{.job_name = "sim",
                                 .shard = server.shard,
                                 .address = absl::StrCat("shard-", server.shard),
                                 .server_incarnation = server.incarnation,
                                 .software_version = processes_[process].software_version()};
  if (server.start.has_value()) arrival.job_uid = server.start->job_uid;
  arrival.term = server.term;
  arrival.running = server.core != nullptr;
  Report(process,
         [this, arrival](server::ControlStreamId stream, server::Coordinator::Effects* effects) {
           coordinator_->core().AttachShard(stream, arrival, Now(), effects);
         });
  if (server.named.has_value()) {
    Report(process, [this, step = *server.named](server::ControlStreamId stream,
                                                 server::Coordinator::Effects*) {
      coordinator_->core().ShardNamedCheckpoint(stream, step);
    });
  }
  if (server.part.has_value()) ReportPart(process, *server.part);
  ReportHealth(process);
}

// Both ends notice the loss, each after its own delay.
void SurvivalRun::LoseControl(ProcessId process) {
  SimServer& server = servers_[process];
  if (server.control == 0) return;
  At(Delay({"detach", process}), 0, [this, control = server.control] {
    if (controls_.erase(control) > 0) coordinator_->core().ShardDetached(control);
  });
  server.control = 0;
  At(kRedial, process, [this, process] { Dial(process); });
}

// Sends a report on the control stream, in order. The report is lost with the stream.
void SurvivalRun::Report(
    ProcessId process,
    std::function<void(server::ControlStreamId, server::Coordinator::Effects*)> what) {
  SimServer& server = servers_[process];
  if (server.control == 0) return;
  server.last_report = std::max(server.last_report, CutUntil(process, 0));
  ArriveAt({"report", process}, 0, processes_[0].life, &server.last_report,
           [this, stream = server.control, what = std::move(what)] {
             if (!controls_.contains(stream)) return;
             server::Coordinator::Effects effects;
             what(stream, &effects);
             coordinator_->CarryOut(effects);
           });
}

void SurvivalRun::ReportHealth(ProcessId process) {
  const SimServer& server = servers_[process];
  protocol::ShardHealthReport health;
  if (server.core != nullptr) {
    const server::ShardStats stats = server.core->Stats();
    health.highest_closed_step = stats.highest_closed_step;
    health.highest_open_step = stats.open_step;
    health.results_from = server.core->results_from();
    CheckCaps(server);
  }
  Report(process, [this, health](server::ControlStreamId stream, server::Coordinator::Effects*) {
    coordinator_->core().ShardHealth(stream, health, Now());
  });
}

void SurvivalRun::ReportPart(ProcessId process, protocol::CheckpointPart part) {
  Report(process, [this, part = std::move(part)](server::ControlStreamId stream,
                                                 server::Coordinator::Effects* effects) {
    coordinator_->core().ShardPart(stream, part, Now(), effects);
  });
}

void SurvivalRun::Beat(ProcessId process) {
  SimServer& server = servers_[process];
  ReportHealth(process);
  if (server.core != nullptr) {
    TickShard(process);
    if (HasBug(SurvivalBug::kResultsLetGoTooEarly) && server.core->open_step() > 1) {
      server.core->ReleaseResults(server.core->open_step() - 1);
    }
  }
  At(kHeartbeat, process, [this, process] { Beat(process); });
}

void SurvivalRun::TickShard(ProcessId process) {
  const std::vector<server::ShardEffect> effects = servers_[process].core->Tick(Now());
  if (async_ != nullptr) async_->Ticked(process, *servers_[process].core, effects);
  CarryOut(process, effects);
}

void SurvivalRun::Obey(ProcessId process, const server::CommandShard& command) {
  SimServer& server = servers_[process];
  bool done = true;
  if (const auto* start = std::get_if<protocol::StartShard>(&command.command)) {
    done = Begin(process, *start);
  } else if (const auto* suspend = std::get_if<protocol::SuspendShard>(&command.command)) {
    Suspend(process, *suspend);
  } else if (const auto* examine = std::get_if<protocol::ExaminePart>(&command.command)) {
    if (!CanRead(process, server.shard)) return LoseControl(process);
    Report(process, [this, read = disk_.Examine(examine->part)](auto stream, auto* effects) {
      coordinator_->core().PartExamined(stream, read.part, Now(), effects);
    });
  } else if (server.core == nullptr) {
    // The shard is in no term and has nothing to do.
  } else if (const auto* name = std::get_if<protocol::NameCheckpoint>(&command.command)) {
    (void)server.core->NameCheckpoint(name->minimum_step);
  } else if (const auto* members = std::get_if<protocol::SetMembers>(&command.command)) {
    server.members = HeardMembers(options_.bug, members->incarnations, server.members);
    const absl::Status set = server.core->SetMembership(members->generation, server.members);
    if (!set.ok()) Violate(absl::StrCat("shard ", server.shard, ": ", set.message()));
    if (async_ != nullptr) async_->HoldersChanged(process, server.members);
    TickShard(process);
    if (HasBug(SurvivalBug::kPredecessorDropped) && server.start.has_value()) {
      server.start->generation = members->generation;
      server.start->incarnations = members->incarnations;
      server.core.reset();
      Begin(process, protocol::StartShard(*server.start));
    }
  } else if (std::holds_alternative<protocol::KeepCheckpoints>(command.command)) {
    // SimDisk::Drop has removed the parts of all servers.
  } else if (const auto* release = std::get_if<protocol::ReleaseResults>(&command.command)) {
    server.core->ReleaseResults(release->durable_step);
  } else {
    FinishLastWork(process);
    CarryOut(process, server.core->End("the job has ended"));
  }
  if (!done) return;
  const bool begins = std::holds_alternative<protocol::StartShard>(command.command);
  if (begins) server.start_told = processes_[0].life;
  Report(process, [this, process, begins, sequence = command.sequence](
                      server::ControlStreamId stream, server::Coordinator::Effects* effects) {
    if (begins) servers_[process].start_told = 0;
    coordinator_->core().ShardAcknowledged(stream, sequence, Now(), effects);
  });
}

bool SurvivalRun::Begin(ProcessId process, const protocol::StartShard& start) {
  SimServer& server = servers_[process];
  if (start.coordinator_incarnation < server.coordinator_incarnation) return false;
  server.coordinator_incarnation = start.coordinator_incarnation;
  if (server.core != nullptr && server.core->options().term >= start.term) return true;
  // A shard that has written something was not lost.
  const bool survived = server.last_owed != nullptr;
  Suspend(process, {.term = start.term, .reason = "rolled back"});
  server.start = start;
  server.members = start.incarnations;
  if (start.restore_step > 0 && !CanRead(process, server.shard)) {
    // The coordinator repeats its commands on the next stream.
    LoseControl(process);
    return false;
  }
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> snapshot =
      ReadShardSnapshot(&server, start, survived);
  if (!snapshot.ok()) {
    ReportPart(process, {.term = start.term,
                         .step = start.restore_step,
                         .name = protocol::ShardPartName(server.shard, start.term),
                         .error = std::string(snapshot.status().message()),
                         .unreadable = true});
    return false;
  }
  server::ShardOptions options = ShardOptionsOf(options_, start);
  options.shard = server.shard;
  options.layout = layout_;
  options.server_incarnation = server.incarnation;
  options.restore = *std::move(snapshot);
  if (options_.tight_memory) {
    options.max_memory = TightMemory(options_, table_, layout_, server.shard);
  }
  absl::StatusOr<std::unique_ptr<server::Shard>> core = server::Shard::Create(std::move(options));
  Check(core.ok(), core.status().message());
  server.core = *std::move(core);
  server.recorded.clear();
  if (async_ != nullptr) {
    async_->ShardBegins(process, *server.core, start, disk_.TermOf(start.restore_step));
  }
  return true;
}

// Returns null if the shard begins without a snapshot.
absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> SurvivalRun::ReadShardSnapshot(
    SimServer* server, const protocol::StartShard& start, bool survived) {
  if (start.restore_step == 0) return nullptr;
  const uint32_t term = disk_.TermOf(start.restore_step);
  const absl::StatusOr<std::string> bytes =
      disk_.ReadPart(start.restore_step, protocol::ShardPartName(server->shard, term));
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<protocol::ShardSnapshot> snapshot = protocol::ParseShardSnapshot(*bytes);
  if (!snapshot.ok()) return snapshot.status();
  if (HasBug(SurvivalBug::kDownlinkNotRestored)) {
    for (compress::SavedCompressor::Chunk& chunk : snapshot->downlink.chunks) chunk.state.clear();
  }
  if (HasBug(SurvivalBug::kSurvivorKeepsItsState) && survived && server->last_owed != nullptr) {
    snapshot->downlink = server->last_owed->downlink;
    snapshot->replica = server->last_owed->replica;
  }
  PlantInReplica(options_.bug, &*snapshot);
  return std::make_shared<const protocol::ShardSnapshot>(*std::move(snapshot));
}

void SurvivalRun::Suspend(ProcessId process, const protocol::SuspendShard& suspend) {
  SimServer& server = servers_[process];
  // The coordinator repeated the Suspend after its Start. The core already has the right term.
  if (suspend.term < server.term) return;
  if (server.core != nullptr && server.core->options().term >= suspend.term) return;
  if (suspend.term > server.term) {
    server.named.reset();
    server.part.reset();
  }
  server.term = suspend.term;
  if (server.core == nullptr) return;
  CarryOut(process, server.core->Suspend(suspend.term, suspend.reason));
  server.core.reset();
}

void SurvivalRun::CarryOut(ProcessId process, const std::vector<server::ShardEffect>& effects) {
  SimServer& server = servers_[process];
  if (GoesManyWays(options_) && server.core != nullptr) {
    Record(&server, effects);
    TickWhenDue(process);
  }
  if (HasBug(SurvivalBug::kLateAnsweredEarly)) AnswerTheOthersToo(process, effects);
  for (const server::ShardEffect& effect : effects) {
    if (const auto* reply = std::get_if<server::SendReply>(&effect)) {
      Answer(reply->stream, forger_.Answer(server.shard, reply->answer));
    } else if (std::holds_alternative<server::PlanMade>(effect)) {
      ++report_.plans;
    } else if (const auto* named = std::get_if<server::CheckpointNamed>(&effect)) {
      server.named = named->step;
      Report(process, [this, step = named->step](server::ControlStreamId stream,
                                                 server::Coordinator::Effects*) {
        coordinator_->core().ShardNamedCheckpoint(stream, step);
      });
    } else if (const auto* take = std::get_if<server::WriteSnapshot>(&effect)) {
      WriteSnapshot(process, *take);
    } else if (const auto* summed = std::get_if<server::BundleSummed>(&effect)) {
      Summed(server.shard, summed->sum);
    } else if (const auto* other = std::get_if<server::NotReproducible>(&effect)) {
      ++report_.not_reproducible;
      Report(process, [this, other = *other](server::ControlStreamId stream,
                                             server::Coordinator::Effects* out) {
        coordinator_->core().ShardNotReproducible(stream, other.rank, other.text, Now(), out);
      });
    } else if (const auto* alarm = std::get_if<server::Alarm>(&effect)) {
      Violate(absl::StrCat("shard ", server.shard, ": ", alarm->text));
    }
  }
}

// Ticks the core when it asks for it, as its host does.
void SurvivalRun::TickWhenDue(ProcessId process) {
  SimServer& server = servers_[process];
  const absl::Time due = server.core->tick_due();
  if (due == absl::InfiniteFuture()) return;
  const Micros at = std::max(now_ + 1, absl::ToInt64Microseconds(due - absl::UnixEpoch()));
  if (server.tick_at > now_ && server.tick_at <= at) return;
  server.tick_at = at;
  At(at - now_, process, [this, process, at] {
    SimServer& then = servers_[process];
    if (then.tick_at != at || then.core == nullptr) return;
    then.tick_at = 0;
    TickShard(process);
  });
}

// Gives the ledger all closed bundles and the state after them.
void SurvivalRun::Record(SimServer* at, const std::vector<server::ShardEffect>& effects) {
  SimServer& server = *at;
  std::map<std::pair<uint64_t, uint32_t>, std::shared_ptr<const protocol::ExchangeReply>> closed;
  std::shared_ptr<const protocol::ShardSnapshot> taken;
  for (const server::ShardEffect& effect : effects) {
    if (const auto* take = std::get_if<server::WriteSnapshot>(&effect)) taken = take->snapshot;
    const auto* reply = std::get_if<server::SendReply>(&effect);
    // Results of later steps come from the log, which has them even if no worker receives them.
    if (reply == nullptr || reply->answer->outcome != protocol::Outcome::kResult) continue;
    if (reply->answer->step == 0) closed[{0, reply->answer->bundle}] = reply->answer;
  }
  if (const auto plan = server.core->plan()) ledger_.Knows(*plan);
  const uint64_t open = server.core->open_step();
  const uint64_t oldest = open < 4 ? 1 : open - 3;
  server.recorded.erase(server.recorded.begin(), server.recorded.lower_bound({oldest, 0}));
  for (uint64_t step = oldest; step <= open; ++step) {
    for (uint32_t bundle = 0; bundle < server.core->bundles(); ++bundle) {
      if (server.recorded.contains({step, bundle})) continue;
      auto result = server::ShardLogPeer::Find(*server.core, step, bundle);
      if (result != nullptr) closed[{step, bundle}] = std::move(result);
    }
  }
  for (const auto& [place, answer] : closed) {
    if (taken != nullptr && answer->step > taken->step) {
      ledger_.Wrote(server.shard, *std::exchange(taken, nullptr));
    }
    ledger_.Closed(server.shard, *answer);
    server.recorded.insert(place);
  }
  if (taken != nullptr) ledger_.Wrote(server.shard, *taken);
}

// Late work for the last steps waits for steps that no worker begins. Closes these: all ranks skip.
void SurvivalRun::FinishLastWork(ProcessId process) {
  SimServer& server = servers_[process];
  uint64_t step = server.core->open_step();
  if (options_.quorum == 0 || step <= options_.steps) return;
  for (; step <= options_.steps + layout_.fragments; ++step) {
    for (uint32_t bundle = 0; bundle < server.core->bundles(); ++bundle) {
      for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
        if (server.members[rank] == 0) continue;
        const auto skip = SkipOf(server.core->options(), rank, server.members[rank], step, bundle);
        ledger_.Sent(server.shard, skip);
        Record(&server, server.core->Handle(/*stream=*/0, skip, Now()));
      }
    }
  }
}

// Returns true if it handled the request as a shard with the bug does.
bool SurvivalRun::PlantInLateWork(ProcessId process, server::StreamId id,
                                  const protocol::ExchangeRequest& exchange) {
  server::Shard& core = *servers_[process].core;
  const bool late = exchange.step > 0 && exchange.step < core.open_step() && !exchange.skip &&
                    !exchange.keys_only && exchange.sender.term == core.options().term;
  if (!late || options_.quorum == 0) return false;
  protocol::ExchangeRequest changed = exchange;
  if (HasBug(SurvivalBug::kLateWorkDropped)) {
    changed.skip = true;
    changed.frames.clear();
  } else if (HasBug(SurvivalBug::kLateWorkCountsNow)) {
    changed.step = core.open_step();
  } else {
    return false;
  }
  CarryOut(process, core.Handle(id, changed, Now()));
  return true;
}

void SurvivalRun::AnswerTheOthersToo(ProcessId process,
                                     const std::vector<server::ShardEffect>& effects) {
  const SimServer& server = servers_[process];
  std::set<server::StreamId> answered;
  std::shared_ptr<const protocol::ExchangeReply> result;
  for (const server::ShardEffect& effect : effects) {
    const auto* reply = std::get_if<server::SendReply>(&effect);
    if (reply == nullptr || reply->answer->outcome != protocol::Outcome::kResult) continue;
    answered.insert(reply->stream);
    result = reply->answer;
  }
  if (result == nullptr) return;
  for (const auto& [rank, stream] : server.latest) {
    if (!answered.contains(stream)) Answer(stream, result);
  }
}

void SurvivalRun::WriteSnapshot(ProcessId process, const server::WriteSnapshot& take) {
  SimServer& server = servers_[process];
  auto snapshot = std::make_shared<protocol::ShardSnapshot>(*take.snapshot);
  if (HasBug(SurvivalBug::kStaleSnapshot) && server.last_owed != nullptr) {
    snapshot->downlink = server.last_owed->downlink;
    snapshot->replica = server.last_owed->replica;
  }
  server.last_owed = take.snapshot;
  if (HasBug(SurvivalBug::kShardForgetsPlans)) snapshot->plans = FirstPlans();
  if (HasBug(SurvivalBug::kAnnouncedPlanNotKept) && !snapshot->plans.empty())
    snapshot->plans.resize(1);
  protocol::CheckpointPart part;
  part.term = snapshot->term;
  part.step = snapshot->step;
  part.name = protocol::ShardPartName(server.shard, snapshot->term);
  if (options_.parts_at_shards) part.server = server.shard;
  WritePart(process, std::move(part), protocol::FormatShardSnapshot(*snapshot),
            [this, process](protocol::CheckpointPart written) {
              servers_[process].part = written;
              ReportPart(process, std::move(written));
            });
}

void SurvivalRun::Handle(server::StreamId id, const protocol::ExchangeRequest& exchange) {
  const SimLink& link = links_[id - 1];
  const ProcessId process = link.server;
  SimServer& server = servers_[process];
  server::StreamId& latest = server.latest[link.rank];
  if (id < latest) ++report_.faults[Fault::kReordered];
  latest = std::max(latest, id);
  if (server.core != nullptr && async_ != nullptr) {
    return CarryOut(process, async_->Handle(process, id, exchange, Now(), server.core.get()));
  }
  if (server.core != nullptr) {
    forger_.Arrived(server.shard, exchange);
    if (PlantInLateWork(process, id, exchange)) return;
    if (planned_ != nullptr && options_.control.measures()) {
      server.core->Measured(
          MadeUpMeasurements(options_, table_, server.core->open_step(), server.number));
    }
    CarryOut(process, server.core->Handle(id, exchange, Now()));
    if (!HasBug(SurvivalBug::kRestoredShardClosesAlone) || !server.core->options().replay) return;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      if (rank == exchange.sender.rank) continue;
      protocol::ExchangeRequest skip = exchange;
      skip.sender.rank = rank;
      skip.sender.incarnation = server.core->options().incarnations[rank];
      skip.skip = true;
      skip.keys_only = false;
      skip.frames.clear();
      CarryOut(process, server.core->Handle(id, skip, Now()));
    }
    return;
  }
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome =
      exchange.sender.term < server.term ? protocol::Outcome::kFenced : protocol::Outcome::kBusy;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->retry_after_ms = kRetryMs;
  answer->term = server.term;
  Answer(id, std::move(answer));
}

}  // namespace sluice
