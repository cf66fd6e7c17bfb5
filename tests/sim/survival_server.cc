// The servers of a simulated job: coordinator, shards, and what stands between them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "job/checkpoint/snapshot_format.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kHeartbeat = 5'000;
constexpr Micros kTick = 2'000;
constexpr int kLeaseBeats = 6;
constexpr Micros kRedial = 5'000;
constexpr Micros kWriteMax = 8'000;  // Of a part.
constexpr uint64_t kJobUid = 77;
constexpr uint32_t kRetryMs = 2;

absl::Duration Of(Micros micros) { return absl::Microseconds(micros); }

}  // namespace

void SurvivalRun::StartCoordinator() {
  CoordinatorOptions options;
  options.job_name = std::string("sim");
  options.software_version = std::string("1");
  options.world_size = options_.ranks;
  options.shards = options_.shards;
  options.layout = options_.compression.layout;
  options.lease = Of(kLeaseBeats * kHeartbeat);
  options.heartbeat = Of(kHeartbeat);
  options.join_timeout = absl::Seconds(60);
  options.wait_limit = absl::Seconds(60);
  options.server_incarnation = servers_[0].incarnation;
  options.checkpoint_every = options_.checkpoint_every;
  options.checkpoint_keep = 2;
  options.job_uid = kJobUid;
  if (disk_.record.has_value() && disk_.record->finished) {
    // The program would say so and end: nothing is left to do.
    for (SimRank& rank : ranks_) rank.state = SimRank::State::kDone;
    return;
  }
  options.run = disk_.record;
  options.checkpoints = UsableCheckpoints();
  if (HasBug(SurvivalBug::kRestoresOlderCheckpoint) && options.checkpoints.size() > 1) {
    options.checkpoints.pop_back();
  }
  Coordinator::Effects effects;
  coordinator_ = std::make_unique<Coordinator>(std::move(options), Now());
  coordinator_->Begin(&effects);
  CarryOut(effects);
  At(kTick, 0, [this] { TickCoordinator(); });
}

void SurvivalRun::TickCoordinator() {
  Coordinator::Effects effects;
  coordinator_->Tick(Now(), &effects);
  CarryOut(effects);
  At(kTick, 0, [this] { TickCoordinator(); });
}

void SurvivalRun::CarryOut(const Coordinator::Effects& effects) {
  for (const CoordinatorEffect& effect : effects) {
    if (const auto* join = std::get_if<AnswerJoin>(&effect)) {
      const auto token = tokens_.find(join->token);
      if (token == tokens_.end()) continue;
      const auto [rank, session] = token->second;
      tokens_.erase(token);
      At(Delay(), WorkerProcess(rank), [this, rank, session, grant = join->grant] {
        if (ranks_[rank].session == session) Joined(rank, grant);
      });
    } else if (const auto* command = std::get_if<CommandShard>(&effect)) {
      Command(*command);
    } else if (const auto* refusal = std::get_if<RefuseShard>(&effect)) {
      const auto control = controls_.find(refusal->stream);
      if (control == controls_.end()) continue;
      const auto [shard, life] = control->second;
      controls_.erase(control);
      if (processes_[shard].life != life || servers_[shard].control != refusal->stream) continue;
      servers_[shard].control = 0;
      At(kRedial, shard, [this, shard = shard] { Dial(shard); });
    } else if (const auto* persist = std::get_if<PersistRun>(&effect)) {
      if (persist->record.term > (disk_.record.has_value() ? disk_.record->term : 0)) {
        ++report_.rollbacks;
      }
      if (!HasBug(SurvivalBug::kTermNotPersisted) || persist->record.term == 0) {
        disk_.record = persist->record;
      }
    } else if (const auto* write = std::get_if<WriteCheckpoint>(&effect)) {
      CheckManifest(write->manifest);
      const uint64_t step = write->manifest.step;
      absl::Status written = absl::OkStatus();
      if (disk_full()) {
        written = absl::ResourceExhaustedError("no space is left");
      } else {
        disk_.manifests[step] = write->manifest;
        ++report_.checkpoints;
      }
      Coordinator::Effects more;
      coordinator_->CheckpointWritten(step, written, Now(), &more);
      CarryOut(more);
    } else if (const auto* drop = std::get_if<DropCheckpoint>(&effect)) {
      disk_.manifests.erase(drop->step);
      disk_.parts.erase(drop->step);
      std::erase_if(damaged_, [&](const auto& part) { return part.first == drop->step; });
    }
  }
  if (coordinator_->phase() == JobPhase::kFailed) {
    Violate(absl::StrCat("the job failed: ", coordinator_->failure()));
  }
}

void SurvivalRun::CheckManifest(const CheckpointManifest& manifest) {
  if (manifest.parts.size() < options_.ranks + options_.shards) {
    Violate(absl::StrCat("the checkpoint of step ", manifest.step, " has ", manifest.parts.size(),
                         " parts"));
  }
  for (const CheckpointPart& part : manifest.parts) {
    const auto& parts = disk_.parts[manifest.step];
    const auto found = parts.find(part.name);
    if (part.term != manifest.term || found == parts.end() || found->second.size() != part.bytes) {
      Violate(absl::StrCat("the checkpoint of step ", manifest.step, " lists ", part.name,
                           " of term ", part.term, ", which is not there"));
    }
  }
}

void SurvivalRun::CheckStart(const StartShard& start) {
  if (!disk_.record.has_value() || disk_.record->term != start.term) {
    Violate(absl::StrCat("term ", start.term, " was announced before it was on disk"));
  }
  for (const auto& [step, manifest] : disk_.manifests) {
    if (step > start.restore_step && IsWhole(manifest)) {
      Violate(absl::StrCat("term ", start.term, " goes back to step ", start.restore_step,
                           " though the checkpoint of step ", step, " is good"));
    }
  }
}

void SurvivalRun::Command(const CommandShard& command) {
  const auto control = controls_.find(command.stream);
  if (control == controls_.end()) return;
  const auto [shard, life] = control->second;
  if (const auto* start = std::get_if<StartShard>(&command.command)) CheckStart(*start);
  ArriveAt(shard, life, &servers_[shard].last_command, [this, shard = shard, command] {
    if (servers_[shard].control == command.stream) Obey(shard, command);
  });
}

void SurvivalRun::StartServer(uint32_t shard) {
  SimServer& server = servers_[shard];
  server = SimServer();
  server.incarnation = ++last_incarnation_;
  if (shard == 0) StartCoordinator();
  if (shard == 0 && coordinator_ == nullptr) return;
  At(Delay(), shard, [this, shard] { Dial(shard); });
  At(kHeartbeat, shard, [this, shard] { Beat(shard); });
}

void SurvivalRun::Dial(uint32_t shard) {
  SimServer& server = servers_[shard];
  if (server.control != 0) return;
  if (!Reaches(shard, 0)) {
    At(kRedial, shard, [this, shard] { Dial(shard); });
    return;
  }
  server.control = ++last_id_;
  controls_[server.control] = {shard, processes_[shard].life};
  server.last_command = now_;
  server.last_report = now_;
  Tell(shard, [this, shard, incarnation = server.incarnation](ControlStreamId stream) {
    Coordinator::Effects effects;
    coordinator_->AttachShard(stream,
                              {.job_name = "sim",
                               .shard = shard,
                               .address = absl::StrCat("shard-", shard),
                               .server_incarnation = incarnation,
                               .software_version = "1"},
                              Now(), &effects);
    CarryOut(effects);
  });
}

// Both ends see it, each in its time.
void SurvivalRun::LoseControl(uint32_t shard) {
  SimServer& server = servers_[shard];
  if (server.control == 0) return;
  At(Delay(), 0, [this, control = server.control] {
    if (controls_.erase(control) > 0) coordinator_->ShardDetached(control);
  });
  server.control = 0;
  At(kRedial, shard, [this, shard] { Dial(shard); });
}

// On the control stream, in order; lost with it.
void SurvivalRun::Tell(uint32_t shard, std::function<void(ControlStreamId)> what) {
  SimServer& server = servers_[shard];
  if (server.control == 0) return;
  ArriveAt(0, processes_[0].life, &server.last_report,
           [this, stream = server.control, what = std::move(what)] {
             if (controls_.contains(stream)) what(stream);
           });
}

void SurvivalRun::Beat(uint32_t shard) {
  SimServer& server = servers_[shard];
  Tell(shard, [this](ControlStreamId stream) { coordinator_->ShardHealth(stream, {}, Now()); });
  if (server.core != nullptr) CarryOut(shard, server.core->Tick(Now()));
  At(kHeartbeat, shard, [this, shard] { Beat(shard); });
}

void SurvivalRun::Obey(uint32_t shard, const CommandShard& command) {
  SimServer& server = servers_[shard];
  bool done = true;
  if (const auto* start = std::get_if<StartShard>(&command.command)) {
    done = Begin(shard, *start);
  } else if (const auto* suspend = std::get_if<SuspendShard>(&command.command)) {
    Suspend(shard, *suspend);
  } else if (const auto* name = std::get_if<NameCheckpoint>(&command.command)) {
    if (server.core != nullptr) (void)server.core->NameCheckpoint(name->minimum_step);
  } else if (server.core != nullptr) {
    CarryOut(shard, server.core->End("the job has ended"));
  }
  if (!done) return;
  Tell(shard, [this, sequence = command.sequence](ControlStreamId stream) {
    Coordinator::Effects effects;
    coordinator_->ShardAcknowledged(stream, sequence, Now(), &effects);
    CarryOut(effects);
  });
}

bool SurvivalRun::Begin(uint32_t shard, const StartShard& start) {
  SimServer& server = servers_[shard];
  if (server.core != nullptr && server.core->options().term >= start.term) return true;
  const bool survived = server.core != nullptr;
  if (survived) CarryOut(shard, server.core->Suspend(start.term, "rolled back"));
  absl::StatusOr<Layout> layout = BuildLayout(start.table, options_.shards, start.layout,
                                              WholeRows(options_.compression, start.table));
  Check(layout.ok(), layout.status().message());
  ShardOptions options;
  options.shard = shard;
  options.table = start.table;
  options.layout = *std::move(layout);
  options.compression = options_.compression;
  options.job_uid = start.job_uid;
  options.term = start.term;
  options.generation = start.generation;
  options.server_incarnation = server.incarnation;
  options.incarnations = start.incarnations;
  options.first_step = start.first_step;
  options.parameters_agree = start.parameters_agree;
  options.busy_retry_ms = kRetryMs;
  if (start.restore_step > 0) {
    const CheckpointManifest& manifest = disk_.manifests.at(start.restore_step);
    const std::string name = ShardPartName(shard, manifest.term);
    const absl::StatusOr<std::string> bytes = ReadPart(start.restore_step, name);
    absl::StatusOr<ShardSnapshot> snapshot =
        bytes.ok() ? ParseShardSnapshot(*bytes) : bytes.status();
    if (!snapshot.ok()) {
      CheckpointPart part;
      part.term = start.term;
      part.step = start.restore_step;
      part.name = name;
      part.error = std::string(snapshot.status().message());
      TellPart(shard, std::move(part));
      return false;
    }
    if (HasBug(SurvivalBug::kDownlinkNotRestored)) {
      for (SavedCompressor::Chunk& chunk : snapshot->downlink.chunks) chunk.state.clear();
    }
    if (HasBug(SurvivalBug::kSurvivorKeepsItsState) && survived && server.last_owed != nullptr) {
      snapshot->downlink = server.last_owed->downlink;
    }
    options.restore = std::make_shared<const ShardSnapshot>(*std::move(snapshot));
  }
  absl::StatusOr<std::unique_ptr<Shard>> core = Shard::Create(std::move(options));
  Check(core.ok(), core.status().message());
  server.core = *std::move(core);
  server.suspended_term = 0;
  return true;
}

void SurvivalRun::Suspend(uint32_t shard, const SuspendShard& suspend) {
  SimServer& server = servers_[shard];
  if (server.core != nullptr) {
    if (server.core->options().term >= suspend.term) return;
    CarryOut(shard, server.core->Suspend(suspend.term, suspend.reason));
    return;
  }
  server.suspended_term = suspend.term;
  for (StreamId id = 1; id <= links_.size(); ++id) {
    const SimLink& link = links_[id - 1];
    if (link.shard != shard || link.server_life != processes_[shard].life) continue;
    auto answer = std::make_shared<ExchangeAnswer>();
    answer->outcome = Outcome::kFenced;
    answer->term = suspend.term;
    answer->message = suspend.reason;
    Answer(id, std::move(answer));
  }
}

void SurvivalRun::TellPart(uint32_t shard, CheckpointPart part) {
  Tell(shard, [this, part = std::move(part)](ControlStreamId stream) {
    Coordinator::Effects effects;
    coordinator_->ShardPart(stream, part, Now(), &effects);
    CarryOut(effects);
  });
}

void SurvivalRun::CarryOut(uint32_t shard, const std::vector<ShardEffect>& effects) {
  for (const ShardEffect& effect : effects) {
    if (const auto* reply = std::get_if<Reply>(&effect)) {
      if (reply->answer->outcome == Outcome::kResult) CheckResult(shard, *reply->answer);
      Answer(reply->stream, reply->answer);
    } else if (const auto* named = std::get_if<CheckpointNamed>(&effect)) {
      Tell(shard, [this, step = named->step](ControlStreamId stream) {
        coordinator_->ShardNamedCheckpoint(stream, step);
      });
    } else if (const auto* take = std::get_if<TakeSnapshot>(&effect)) {
      auto snapshot = std::make_shared<ShardSnapshot>(*take->snapshot);
      if (HasBug(SurvivalBug::kStaleSnapshot) && servers_[shard].last_owed != nullptr) {
        snapshot->downlink = servers_[shard].last_owed->downlink;
      }
      servers_[shard].last_owed = take->snapshot;
      At(static_cast<Micros>(random_.Below(kWriteMax)), shard,
         [this, shard, snapshot = std::move(snapshot)] {
           TellPart(shard,
                    WritePart(snapshot->term, snapshot->step, ShardPartName(shard, snapshot->term),
                              FormatShardSnapshot(*snapshot)));
         });
    } else if (const auto* alarm = std::get_if<Alarm>(&effect)) {
      Violate(absl::StrCat("shard ", shard, ": ", alarm->text));
    }
  }
}

void SurvivalRun::Handle(StreamId id, const Exchange& exchange) {
  const uint32_t shard = links_[id - 1].shard;
  SimServer& server = servers_[shard];
  if (server.core != nullptr) {
    return CarryOut(shard, server.core->Handle(id, exchange, Now()));
  }
  auto answer = std::make_shared<ExchangeAnswer>();
  answer->outcome =
      exchange.sender.term < server.suspended_term ? Outcome::kFenced : Outcome::kBusy;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->retry_after_ms = kRetryMs;
  answer->term = server.suspended_term;
  Answer(id, std::move(answer));
}

}  // namespace sluice
