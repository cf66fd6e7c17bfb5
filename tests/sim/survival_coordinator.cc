// SPDX-License-Identifier: Apache-2.0
// Starts and stops the coordinator of a simulated job and carries out its effects.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/core_options.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr int kLeaseBeats = 6;
constexpr uint64_t kJobUid = 77;

server::CoordinatorOptions OptionsOf(const SurvivalOptions& job) {
  server::CoordinatorOptions options;
  options.job_name = std::string("sim");
  options.world_size = job.ranks;
  if (job.elastic) options.elastic = {.start = job.begin, .least = job.least};
  options.shards = job.shards;
  options.exchange = ExchangeOf(job);
  options.exchange.control = {};  // The first plan comes from shard 0.
  options.shards_update = job.rule.has_value();
  options.server = {.lease_timeout = Of(kLeaseBeats * kHeartbeat),
                    .heartbeat_interval = Of(kHeartbeat),
                    .stall_timeout = Of(job.stall_us),
                    .join_timeout = absl::Seconds(60),
                    .rejoin_timeout = Of(job.rejoin_us),
                    .window_bytes = job.window_bytes};
  options.checkpoint = {.dir = job.checkpoint_interval > 0 ? "checkpoints" : "",
                        .interval = job.checkpoint_interval,
                        .keep = 2,
                        .store = job.parts_at_shards ? protocol::CheckpointStore::kShards
                                                     : protocol::CheckpointStore::kPath,
                        .replay_limit = job.replay_limit};
  options.job_uid = kJobUid;
  options.relays = !job.weights.empty();
  options.in_rack = job.rack_of > 0;
  return options;
}

}  // namespace

void SurvivalRun::StartCoordinator() {
  // The program ends with an error, and its supervisor starts it again.
  if (disk_.record().has_value() && disk_.unreadable()) return KillAndRestart(0);
  if (disk_.finished()) {
    // The program would report that the run has finished and exit. All workers are done.
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].state = SimRank::State::kDone;
      Done(rank);
    }
    return;
  }
  server::CoordinatorOptions options = OptionsOf(options_);
  options.software_version = processes_[0].software_version();
  options.run = disk_.record();
  // A coordinator cannot read the parts of other servers.
  options.checkpoints = disk_.UsableCheckpoints(
      [this](uint32_t server) { return !options_.parts_at_shards || server == 0; });
  if (HasBug(SurvivalBug::kRestoresOlderCheckpoint) && options.checkpoints.size() > 1) {
    options.checkpoints.pop_back();
  }
  coordinator_ = std::make_unique<SimCoordinator>(
      std::move(options), options_.bug, &world_, &processes_[0], &disk_,
      CoordinatorSurroundings{
          .deliver = [this](const server::CoordinatorEffect& effect) { Deliver(effect); },
          .rolls_back =
              [this](const protocol::RunRecord& before,
                     const server::Coordinator::Effects& effects) {
                CheckRollback(before, effects);
              },
          .rolled_back =
              [this] {
                // If the other values began after the restored checkpoint, no process of the new
                // term has seen them: the reference is valid again.
                if (disk_.NewestToRestore() < otherwise_from_) computes_otherwise_ = false;
              },
          .completed =
              [this](const protocol::CheckpointManifest& manifest) {
                const uint32_t workers = options_.elastic ? 1 : options_.ranks;
                for (std::string& problem : disk_.ProblemsOf(manifest, workers + options_.shards)) {
                  Violate(std::move(problem));
                }
              },
          .carried_out = [this] { CheckFailure(); },
          .violate = [this](std::string what) { Violate(std::move(what)); }});
  coordinator_->Begin();
}

void SurvivalRun::StopCoordinator() {
  if (coordinator_ != nullptr && coordinator_->HasUnwrittenRollback()) {
    excuse_ = "the coordinator died before it recorded a rollback";
  }
  coordinator_.reset();
  tokens_.clear();
  controls_.clear();
}

void SurvivalRun::Deliver(const server::CoordinatorEffect& effect) {
  if (const auto* join = std::get_if<server::AnswerJoin>(&effect)) {
    CarryOut(*join);
  } else if (const auto* command = std::get_if<server::CommandShard>(&effect)) {
    Command(*command);
  } else if (const auto* refusal = std::get_if<server::RefuseShard>(&effect)) {
    CarryOut(*refusal);
  } else if (const auto* ask = std::get_if<server::AskParent>(&effect)) {
    Asked(*ask);
  } else if (const auto* leave = std::get_if<server::LeaveParent>(&effect)) {
    Finished(*leave);
  }
}

void SurvivalRun::CheckFailure() {
  if (coordinator_ == nullptr || coordinator_->core().phase() != protocol::JobPhase::kFailed)
    return;
  const std::string& failure = coordinator_->core().failure();
  if (MayEndByAlarm(failure)) {
    report_.ended_by_alarm = true;
  } else if (options_.rejoin_us < SurvivalOptions().rejoin_us &&
             absl::StrContains(failure, "raise server.rejoin_timeout")) {
    report_.ended_by_timeout = true;
  } else {
    Violate(absl::StrCat("the job failed: ", coordinator_->core().failure()));
  }
}

void SurvivalRun::CarryOut(const server::AnswerJoin& join) {
  const auto token = tokens_.find(join.token);
  if (token == tokens_.end()) return;
  const auto [rank, session] = token->second;
  tokens_.erase(token);
  if (join.grant.ok()) CheckGrant(*join.grant);
  const bool joins = join.grant.ok() && ranks_[rank].session == session;
  if (joins && ranks_[rank].join.software_version != processes_[0].software_version()) {
    Violate(absl::StrCat("rank ", ranks_[rank].rank, " of another version has joined"));
  }
  const Micros cut = std::max<Micros>(CutUntil(0, WorkerProcess(rank)) - now_, 0);
  At(cut + Delay({"grant", rank}), WorkerProcess(rank),
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
  if (IsOtherVersion(refusal.why)) {
    return At(Delay({"refusal", process}), process,
              [this, process = process] { KillAndRestart(process); });
  }
  const bool may_come_again = absl::IsAborted(refusal.why) || absl::IsUnavailable(refusal.why);
  // The shard may also have restarted after the job ended.
  const bool replaced = serving_[servers_[process].shard] != process ||
                        coordinator_->core().phase() == protocol::JobPhase::kFinished;
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
  servers_[process].last_command = std::max(servers_[process].last_command, CutUntil(0, process));
  ArriveAt({"command", process}, process, life, &servers_[process].last_command,
           [this, process = process, command] {
             if (servers_[process].control == command.stream) Obey(process, command);
           });
}

}  // namespace sluice
