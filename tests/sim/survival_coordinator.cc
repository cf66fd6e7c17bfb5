// The coordinator of a simulated job, and the code that carries out its effects.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kTick = 2'000;
constexpr int kLeaseBeats = 6;
constexpr uint64_t kJobUid = 77;

}  // namespace

void SurvivalRun::StartCoordinator() {
  server::CoordinatorOptions options;
  options.job_name = std::string("sim");
  options.software_version = std::string("1");
  options.world_size = options_.ranks;
  if (options_.elastic) options.elastic = {.start = options_.begin, .least = options_.least};
  options.shards = options_.shards;
  options.layout = options_.compression.layout;
  options.shards_update = options_.rule.has_value();
  options.window_bytes = options_.window_bytes;
  options.lease = Of(kLeaseBeats * kHeartbeat);
  options.heartbeat = Of(kHeartbeat);
  options.join_timeout = absl::Seconds(60);
  options.rejoin_timeout = absl::Seconds(60);
  options.checkpoint_interval = options_.checkpoint_interval;
  options.checkpoint_keep = 2;
  options.replay_limit = options_.replay_limit;
  options.job_uid = kJobUid;
  options.relays = of_relays();
  options.in_rack = in_rack();
  if (disk_.finished()) {
    // The program would report that the run has finished and exit. All workers are done.
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      ranks_[rank].state = SimRank::State::kDone;
      Done(rank);
    }
    return;
  }
  options.run = disk_.record();
  options.checkpoints = disk_.UsableCheckpoints();
  if (HasBug(SurvivalBug::kRestoresOlderCheckpoint) && options.checkpoints.size() > 1) {
    options.checkpoints.pop_back();
  }
  server::Coordinator::Effects effects;
  coordinator_ = std::make_unique<server::Coordinator>(std::move(options), Now());
  coordinator_->Begin(&effects);
  CarryOut(effects);
  At(kTick, 0, [this] { TickCoordinator(); });
}

void SurvivalRun::TickCoordinator() {
  server::Coordinator::Effects effects;
  coordinator_->Tick(Now(), &effects);
  CarryOut(effects);
  At(kTick, 0, [this] { TickCoordinator(); });
}

void SurvivalRun::CarryOut(const server::Coordinator::Effects& effects) {
  for (const server::CoordinatorEffect& effect : effects) {
    if (const auto* join = std::get_if<server::AnswerJoin>(&effect)) {
      CarryOut(*join);
    } else if (const auto* command = std::get_if<server::CommandShard>(&effect)) {
      Command(*command);
    } else if (const auto* refusal = std::get_if<server::RefuseShard>(&effect)) {
      CarryOut(*refusal);
    } else if (const auto* persist = std::get_if<server::PersistRun>(&effect)) {
      Persist(persist->record, effects);
    } else if (const auto* write = std::get_if<server::WriteCheckpoint>(&effect)) {
      CarryOut(*write);
    } else if (const auto* ask = std::get_if<server::AskParent>(&effect)) {
      Asked(*ask);
    } else if (const auto* leave = std::get_if<server::LeaveParent>(&effect)) {
      Finished(*leave);
    } else if (const auto* drop = std::get_if<server::DropCheckpoint>(&effect)) {
      disk_.Drop(drop->step);
    }
  }
  if (coordinator_->phase() != protocol::JobPhase::kFailed) return;
  if (MayEndByAlarm(coordinator_->failure())) {
    report_.ended_by_alarm = true;
  } else {
    Violate(absl::StrCat("the job failed: ", coordinator_->failure()));
  }
}

void SurvivalRun::CarryOut(const server::AnswerJoin& join) {
  const auto token = tokens_.find(join.token);
  if (token == tokens_.end()) return;
  const auto [rank, session] = token->second;
  tokens_.erase(token);
  if (join.grant.ok()) CheckGrant(*join.grant);
  At(Delay({"grant", rank}), WorkerProcess(rank),
     [this, rank = rank, session = session, grant = join.grant] {
       if (ranks_[rank].session == session) Joined(rank, grant);
     });
}

// Closes the stream at both ends. A replaced shard ends.
void SurvivalRun::CarryOut(const server::RefuseShard& refusal) {
  const auto control = controls_.find(refusal.stream);
  if (control == controls_.end()) return;
  const auto [process, life] = control->second;
  controls_.erase(control);
  if (processes_[process].life != life || servers_[process].control != refusal.stream) return;
  servers_[process].control = 0;
  const bool may_come_again = absl::IsAborted(refusal.why) || absl::IsUnavailable(refusal.why);
  // The shard may also have restarted after the job ended.
  const bool replaced = serving_[servers_[process].shard] != process ||
                        coordinator_->phase() == protocol::JobPhase::kFinished;
  if (!may_come_again && !replaced) {
    return Violate(
        absl::StrCat("shard ", servers_[process].shard, " was refused: ", refusal.why.message()));
  }
  if (may_come_again) {
    At(kRedial, process, [this, process = process] { Dial(process); });
  } else {
    At(Delay({"refusal", process}), process, [this, process = process] {
      servers_[process].is_to_end = true;
      return HasBug(SurvivalBug::kTwoShardsServe) ? Dial(process) : Kill(process);
    });
  }
}

void SurvivalRun::Persist(const protocol::RunRecord& record,
                          const server::Coordinator::Effects& effects) {
  const bool rolled_back = disk_.record().has_value() && record.term > disk_.record()->term;
  if (rolled_back) CheckRollback(effects);
  if (HasBug(SurvivalBug::kTermNotPersisted) && rolled_back) return;
  if (HasBug(SurvivalBug::kMemberNotPersisted) && !rolled_back && record.generation > 1 &&
      !record.finished) {
    return;
  }
  disk_.WriteRecord(record);
}

void SurvivalRun::CarryOut(const server::WriteCheckpoint& write) {
  const uint64_t step = write.manifest.step;
  const absl::Status written =
      disk_.WriteManifest(write.manifest, !HasBug(SurvivalBug::kReportedBeforeDurable));
  if (written.ok()) CheckManifest(write.manifest);
  server::Coordinator::Effects more;
  coordinator_->CheckpointWritten(step, written, Now(), &more);
  CarryOut(more);
}

void SurvivalRun::Command(const server::CommandShard& command) {
  const auto control = controls_.find(command.stream);
  if (control == controls_.end()) return;
  const auto [process, life] = control->second;
  if (const auto* start = std::get_if<protocol::StartShard>(&command.command)) {
    CheckStart(*start);
    if (start->replay) ++report_.shards_replayed;
  } else if (const auto* members = std::get_if<protocol::SetMembers>(&command.command)) {
    CheckMembers(members->generation, members->incarnations);
    ledger_.Members(disk_.record()->term, members->incarnations);
  }
  ArriveAt({"command", process}, process, life, &servers_[process].last_command,
           [this, process = process, command] {
             if (servers_[process].control == command.stream) Obey(process, command);
           });
}

}  // namespace sluice
