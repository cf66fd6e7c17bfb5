// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/effect_text.h"

namespace sluice {
namespace {

constexpr Micros kTick = 2'000;
constexpr Micros kRewrite = 2'000;  // Until a failed write of a record is repeated.

}  // namespace

SimCoordinator::SimCoordinator(server::CoordinatorOptions options, SurvivalBug bug, SimWorld* world,
                               const SimProcess* process, SimDisk* disk,
                               CoordinatorSurroundings around)
    : bug_(bug),
      world_(*world),
      process_(process),
      disk_(*disk),
      around_(std::move(around)),
      newest_record_(disk->record()) {
  announced_.phase = protocol::JobPhase::kRecovering;
  announced_.term = disk->term();
  if (!options.checkpoints.empty()) announced_.durable_step = options.checkpoints.back().step;
  core_ = std::make_unique<server::Coordinator>(std::move(options), Now());
}

void SimCoordinator::Begin() {
  server::Coordinator::Effects effects;
  core_->Begin(&effects);
  CarryOut(effects);
  world_.At(kTick, process_, [this] { Tick(); });
}

void SimCoordinator::Tick() {
  // While a decision is being written, the host asks for no other.
  if (persisting_ == 0) {
    server::Coordinator::Effects effects;
    core_->Tick(Now(), &effects);
    CarryOut(effects);
  }
  world_.At(kTick, process_, [this] { Tick(); });
}

void SimCoordinator::CarryOut(const server::Coordinator::Effects& effects) {
  for (const server::CoordinatorEffect& effect : effects) {
    world_.Trace(absl::StrCat(world_.now, " ", EffectText(effect)));
    if (const auto* persist = std::get_if<server::PersistRun>(&effect)) {
      ++persisting_;
      if (newest_record_.has_value() && persist->record.term > newest_record_->term) {
        around_.rolls_back(*newest_record_, effects);
      }
      newest_record_ = persist->record;
    }
    waiting_.push_back(effect);
  }
  CarryOutWaiting();
  around_.carried_out();
}

void SimCoordinator::CarryOutWaiting() {
  while (!writing_ && !waiting_.empty()) {
    const server::CoordinatorEffect effect = std::move(waiting_.front());
    waiting_.pop_front();
    if (const auto* persist = std::get_if<server::PersistRun>(&effect)) {
      Write([this, record = persist->record] { Persist(record); });
    } else if (const auto* write = std::get_if<server::WriteCheckpoint>(&effect)) {
      Write([this, manifest = write->manifest] { WriteManifest(manifest); });
    } else if (const auto* drop = std::get_if<server::DropCheckpoint>(&effect)) {
      disk_.Drop(drop->step);
    } else if (const auto* answer = std::get_if<server::AnswerCheckpoint>(&effect)) {
      CheckAnswer(*answer);
    } else {
      around_.deliver(effect);
    }
  }
  if (persisting_ == 0) announced_ = core_->State();
}

// Records and manifests are small, so that only a slow disk needs time for them.
void SimCoordinator::Write(std::function<void()> what) {
  writing_ = true;
  if (!world_.disk_is_slow()) return what();
  world_.At(world_.WriteTime({"coordinator_write"}), process_, std::move(what));
}

// The host repeats a failed write of a record until it succeeds or the job has ended.
void SimCoordinator::Persist(const protocol::RunRecord& record) {
  const protocol::JobPhase phase = core_->phase();
  const bool is_needed = !record.finished && phase != protocol::JobPhase::kFinished &&
                         phase != protocol::JobPhase::kFailed;
  const bool refused = disk_.Refuses(*process_);
  if ((refused || disk_.fails_late()) && is_needed) {
    if (!refused) Store(record);
    ++world_.report.records_written_late;
    return world_.At(kRewrite, process_, [this, record] { Persist(record); });
  }
  writing_ = false;
  --persisting_;
  Store(record);
  CarryOutWaiting();
}

void SimCoordinator::Store(const protocol::RunRecord& record) {
  const bool rolls_back = disk_.record().has_value() && record.term > disk_.record()->term;
  if (rolls_back) around_.rolled_back();
  const bool is_lost = rolls_back ? bug_ == SurvivalBug::kTermNotPersisted
                                  : bug_ == SurvivalBug::kMemberNotPersisted &&
                                        record.generation > 1 && !record.finished;
  if (!is_lost) disk_.WriteRecord(record);
}

void SimCoordinator::WriteManifest(const protocol::CheckpointManifest& manifest) {
  writing_ = false;
  const absl::Status written =
      disk_.WriteManifest(*process_, manifest, bug_ != SurvivalBug::kReportedBeforeDurable);
  if (written.ok()) around_.completed(manifest);
  server::Coordinator::Effects effects;
  core_->CheckpointWritten(manifest.step, written, Now(), &effects);
  CarryOut(effects);
}

void SimCoordinator::RequestCheckpoints(uint32_t count, server::CheckpointToken first) {
  for (uint32_t i = 0; i < count; ++i) {
    requests_.emplace(first + i, disk_.completed());
    server::Coordinator::Effects effects;
    core_->RequestCheckpoint(first + i, &effects);
    CarryOut(effects);
  }
}

void SimCoordinator::Evict(uint32_t rank, bool allow_rollback) {
  if (persisting()) return;  // The host refuses the command.
  server::Coordinator::Effects effects;
  (void)core_->Evict({.rank = rank, .allow_rollback = allow_rollback}, Now(), &effects);
  CarryOut(effects);
}

void SimCoordinator::CheckAnswer(const server::AnswerCheckpoint& answer) {
  const auto request = requests_.find(answer.token);
  if (request == requests_.end()) {
    return around_.violate("a request for a checkpoint is answered twice");
  }
  const uint64_t completed = disk_.completed() - request->second;
  requests_.erase(request);
  if (!answer.step.ok() || (completed > 0 && disk_.manifests().contains(*answer.step))) return;
  around_.violate(absl::StrCat("a request is answered with the checkpoint of step ", *answer.step,
                               ", which did not become complete after the request"));
}

absl::StatusOr<protocol::JobState> SimCoordinator::Announced(
    absl::StatusOr<protocol::JobState> state, const protocol::Sender& sender) {
  if (!state.ok() || persisting_ == 0) return state;
  core_->EndNotTold(sender);
  return announced_;
}

bool SimCoordinator::HasUnwrittenRollback() const {
  return newest_record_.has_value() && newest_record_->term > disk_.term();
}

}  // namespace sluice
