// SPDX-License-Identifier: Apache-2.0
// The workers of a simulated job: a thin replacement for the session and the training loop.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "server/control/plan_maker.h"
#include "tests/sim/core_options.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/survival_run.h"
#include "tests/sim/worker_state.h"
#include "tests/worker/core/read_results.h"

namespace sluice {
namespace {

constexpr Micros kLateBy = 4'000;   // Delay of the rank that is always late.
constexpr uint64_t kHashEvery = 4;  // Steps between two reports of the parameters' hash.

// Serializes a trainer's state: the parameters, then the momentum.
std::string TrainerState(const SimRank& rank) {
  std::string bytes;
  for (const auto* tensors : {&rank.parameters, &rank.momentum}) {
    for (const std::vector<float>& tensor : *tensors) {
      bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size() * sizeof(float));
    }
  }
  return bytes;
}

void SetTrainerState(const std::string& bytes, SimRank* rank) {
  size_t at = 0;
  for (auto* tensors : {&rank->parameters, &rank->momentum}) {
    for (std::vector<float>& tensor : *tensors) {
      const size_t size = tensor.size() * sizeof(float);
      Check(at + size <= bytes.size(), "a trainer's state is whole");
      std::memcpy(tensor.data(), bytes.data() + at, size);
      at += size;
    }
  }
}

}  // namespace

void SurvivalRun::BeginSession(uint32_t index) {
  SimRank& rank = ranks_[index];
  // While the worker was down, a coordinator found that the job is over, although other racks may
  // continue.
  if (rank.state == SimRank::State::kDone) return;
  const uint64_t session = rank.session + 1;
  const Micros muted = rank.struck.muted_until;
  rank = rank.Ended();
  rank.session = session;
  rank.struck.muted_until = muted;
  rank.state = SimRank::State::kJoining;
  // A relay does not train.
  if (!of_relays()) {
    rank.parameters =
        SimValues(options_, table_, options_.parameters_agree ? 0 : rank.rank, /*step=*/0);
  }
  for (const std::vector<float>& tensor : rank.parameters) {
    rank.momentum.emplace_back(tensor.size());
  }
  rank.join = {.job_name = "sim",
               .nonce = chance_.Next({"nonce", index}) | 1,
               .rank = rank.rank,
               .table = table_,
               .parameters_sha256 = absl::StrCat(options_.parameters_agree ? 0 : rank.rank),
               .software_version = processes_[rank.process].software_version(),
               .host = "sim",
               .pid = index};
  SendJoin(index);
}

// Schedules a call for this session. The call is dropped if the session ends first.
void SurvivalRun::InSession(uint32_t rank, Micros delay, std::function<void()> what) {
  At(delay, WorkerProcess(rank),
     [this, rank, session = ranks_[rank].session, what = std::move(what)] {
       if (ranks_[rank].session == session) what();
     });
}

void SurvivalRun::SendJoin(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kJoining) return;
  const uint64_t server_life = processes_[0].life;
  if (!CanConnect(WorkerProcess(index), 0)) {
    return InSession(index, kRetry, [this, index] { SendJoin(index); });
  }
  const server::JoinToken token = ++last_id_;
  At(Delay({"join", index}), 0, [this, index, token, session = rank.session] {
    const SimRank& caller = ranks_[index];
    if (caller.session != session || caller.state != SimRank::State::kJoining) return;
    tokens_[token] = {index, session};
    server::Coordinator::Effects effects;
    coordinator_->core().Join(token, caller.join, Now(), &effects);
    coordinator_->CarryOut(effects);
  });
  WatchJoin(index, token, server_life);
}

// A call ends with its server, or when the server becomes unreachable. The worker then calls again.
void SurvivalRun::WatchJoin(uint32_t index, server::JoinToken token, uint64_t server_life) {
  InSession(index, kRetry, [this, index, token, server_life] {
    if (ranks_[index].state != SimRank::State::kJoining) return;
    if (Reaches(WorkerProcess(index), 0) && processes_[0].life == server_life) {
      return WatchJoin(index, token, server_life);
    }
    if (processes_[0].life == server_life) {
      At(Delay({"cancel", index}), 0, [this, token] {
        if (tokens_.erase(token) > 0) coordinator_->core().JoinCancelled(token);
      });
    }
    SendJoin(index);
  });
}

void SurvivalRun::Joined(uint32_t index, const absl::StatusOr<protocol::JoinGrant>& grant) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kJoining) return;
  if (!grant.ok()) {
    if (disk_.finished()) {
      // The worker died after all ranks had finished and before it learned of the end.
      rank.state = SimRank::State::kDone;
      return Done(index);
    }
    if (IsRefusedForGood(grant.status())) return KillAndRestart(rank.process);
    // The predecessor is still alive, another call of this worker is open, or a rollback came in
    // between.
    if (grant.status().code() != absl::StatusCode::kAlreadyExists &&
        !absl::IsUnavailable(grant.status()) && !absl::IsAborted(grant.status())) {
      return Violate(absl::StrCat("rank ", index, " could not join: ", grant.status().message()));
    }
    return EndSession(index);
  }
  Prepare(index, *grant);
  rank.state = SimRank::State::kTraining;
  rank.links.resize(options_.shards);
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    rank.known.push_back(grant->shards[shard].server_incarnation);
    rank.told.push_back(grant->shards[shard].server_incarnation);
  }
  Heartbeat(index);
  FinishJoin(index, *grant);
}

// Waits for a disk that cannot be read. Heartbeats keep the rank meanwhile.
void SurvivalRun::FinishJoin(uint32_t index, const protocol::JoinGrant& grant) {
  SimRank& rank = ranks_[index];
  const absl::Status restored = Restore(index, grant);
  if (absl::IsUnavailable(restored)) {
    return InSession(index, kRetry, [this, index, grant] { FinishJoin(index, grant); });
  }
  // The previous checkpoint would fail in the same way.
  if (!restored.ok() && !absl::IsDataLoss(restored)) {
    return Violate(absl::StrCat("rank ", index, " cannot restore: ", restored.ToString()));
  }
  if (!restored.ok()) {
    ReportWorkerPart(index, rank.sender,
                     {.term = grant.term,
                      .step = grant.restore_step,
                      .name = disk_.last_read(),
                      .error = std::string(restored.message()),
                      .unreadable = true});
    return EndSession(index);
  }
  if (grant.generation > 1) {
    ++report_.ranks_reexecuted;
    ++reexecuted_;
  }
  if (GoesManyWays(options_) && grant.restore_step > 0) {
    ledger_.Reached(rank.rank, grant.term, grant.restore_step, HashParameters(rank.parameters));
  }
  if (async_ != nullptr) async_->WorkerBegins(rank.sender, rank.learns, *rank.pipeline);
  for (uint32_t shard = 0; shard < options_.shards; ++shard) Redial(index, shard);
  BeginWork(index, grant);
}

void SurvivalRun::BeginWork(uint32_t index, const protocol::JoinGrant& /*grant*/) {
  InSession(index, Delay({"begin", index}), [this, index] { BeginStep(index); });
}

void SurvivalRun::Prepare(uint32_t index, const protocol::JoinGrant& grant) {
  SimRank& rank = ranks_[index];
  rank.sender = {.job_uid = grant.job_uid,
                 .term = grant.term,
                 .rank = rank.rank,
                 .incarnation = grant.incarnation,
                 .generation = grant.generation};
  worker::PipelineOptions options = PipelineOptionsOf(options_, grant);
  options.table = table_;
  options.layout = layout_;
  options.sender = rank.sender;
  rank.learns = options.late_joiner;
  rank.skips_left = options.late_joiner ? 1 : 0;
  rank.giver = grant.members.empty() ? 0 : grant.members.front();
  if (rank.learns) ++report_.late_joiners;
  for (uint32_t other = 0; planned_ != nullptr && other < ranks_.size(); ++other) {
    if (ranks_[other].rank == rank.rank) planned_->Lost(other);
  }
  rank.pipeline = std::make_unique<worker::Pipeline>(std::move(options));
  rank.encoder = MakeSimEncoder(options_.bug, table_, layout_, options_.compression, rank.rank);
  // Some ranks limit their lead. It must change no result.
  if ((options_.data_seed | rank.rank) % 2 == 0) rank.pipeline->LimitLead(0.001);
  rank.step = rank.restored = grant.restore_step;
}

absl::Status SurvivalRun::Restore(uint32_t index, const protocol::JoinGrant& grant) {
  SimRank& rank = ranks_[index];
  if (grant.restore_step == 0) return rank.pipeline->SetPlans(FirstPlans());
  const absl::Status may = MayRestore(index, grant.restore_step);
  if (!may.ok()) return may;
  const absl::StatusOr<protocol::WorkerSnapshot> snapshot =
      ReadWorkerState(options_, grant, rank.sender, &disk_,
                      [&](uint32_t server) { return CanRead(WorkerProcess(index), server); });
  if (!snapshot.ok()) return snapshot.status();
  const bool forgets = HasBug(SurvivalBug::kResidualNotRestored) ||
                       (of_relays() && HasBug(SurvivalBug::kRelayResidualForgotten));
  // The state has no uplink if it is another rank's.
  if (!forgets && !snapshot->uplink.chunks.empty()) {
    const absl::Status encoder =
        rank.encoder->Restore(snapshot->uplink, options_.control.makes_plans());
    if (!encoder.ok()) return encoder;
  }
  const absl::Status plans = rank.pipeline->SetPlans(
      HasBug(SurvivalBug::kWorkerForgetsPlans) ? FirstPlans() : snapshot->plans);
  if (!plans.ok()) return plans;
  SetTrainerState(snapshot->trainer, &rank);
  if (HasBug(SurvivalBug::kOptimizerNotRestored)) {
    for (std::vector<float>& tensor : rank.momentum) tensor.assign(tensor.size(), 0);
  }
  return absl::OkStatus();
}

// Returns the first plans as Join delivers them.
std::vector<protocol::CompressionPlan> SurvivalRun::FirstPlans() const {
  const protocol::PlanHistory::Plan first = FirstPlanOf(options_, table_);
  if (first == nullptr) return {};
  if (options_.parent_plans.has_value()) return {*server::PlanInRack(*first)};
  return {*first};
}

// Ends the session after a rollback, or after an error that looks like one. The program joins
// again.
void SurvivalRun::EndSession(uint32_t index) {
  SimRank& rank = ranks_[index];
  for (uint32_t shard = 0; shard < rank.links.size(); ++shard) BreakLink(index, shard);
  rank.links.clear();
  rank.state = SimRank::State::kOut;
  ++rank.session;
  NoteWhoIsAlive();
  SessionEnded(index);
}

void SurvivalRun::SessionEnded(uint32_t index) {
  InSession(index, kRetry, [this, index] { BeginSession(index); });
}

void SurvivalRun::CarryOut(uint32_t index, const worker::Pipeline::Effects& effects) {
  const uint64_t session = ranks_[index].session;
  for (const worker::PipelineEffect& effect : effects) {
    if (ranks_[index].session != session) return;
    if (const auto* send = std::get_if<worker::SendExchange>(&effect)) {
      Send(index, send->shard, send->exchange);
    } else if (const auto* retry = std::get_if<worker::RetryLater>(&effect)) {
      InSession(index, absl::ToInt64Microseconds(retry->delay),
                [this, index, shard = retry->shard] {
                  worker::Pipeline::Effects more;
                  ranks_[index].pipeline->RetryDue(shard, &more);
                  CarryOut(index, more);
                });
    } else if (const auto* failed = std::get_if<worker::PipelineFailed>(&effect)) {
      return PipelineEnded(index, failed->status);
    } else if (std::holds_alternative<worker::StepDone>(effect)) {
      InSession(index, Delay({"finish", index}), [this, index] { FinishStep(index); });
    }
  }
}

void SurvivalRun::PipelineEnded(uint32_t index, const absl::Status& status) {
  if (worker::IsRollback(status)) return EndSession(index);
  // The shards learned of the end before this worker did.
  if (ranks_[index].state == SimRank::State::kLeaving && absl::IsAborted(status)) return;
  // A live worker that was removed or replaced joins again as a new one.
  if (absl::IsAborted(status) && (options_.elastic || HasSuccessor(ranks_[index]))) {
    return EndSession(index);
  }
  // The program ends and restarts in the term that has begun in the meantime.
  const bool term_is_over =
      disk_.record().has_value() && ranks_[index].sender.term < disk_.record()->term;
  if (term_is_over && absl::IsDataLoss(status)) return EndSession(index);
  // A worker detected that a bundle was closed with another result, as designed.
  if (computes_otherwise_ && absl::IsDataLoss(status)) {
    report_.ended_by_alarm = true;
    return;
  }
  Violate(absl::StrCat("rank ", index, " failed: ", status.ToString()));
}

void SurvivalRun::BeginStep(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kTraining) return;
  if (rank.struck.hangs_until > now_) {
    rank.struck.hung_since = now_;
    return InSession(index, rank.struck.hangs_until - now_, [this, index] { BeginStep(index); });
  }
  rank.struck.hung_since = 0;
  rank.requests.clear();
  if (rank.step == options_.steps) {
    rank.state = SimRank::State::kLeaving;
    return Leave(index);
  }
  const uint64_t step = rank.pipeline->next_step();
  const bool old_rate = HasBug(SurvivalBug::kRateOfTheStepBefore) && step > 0;
  if (options_.rule.has_value()) rank.pipeline->SetRate(SimRate(old_rate ? step - 1 : step));
  rank.pipeline->SetWork(SimWork(rank.rank, step));
  if (IsChecked(rank)) async_->StepBegins(rank.rank);
  rank.pipeline->StartStep();
  rank.planted.tasks.clear();
  const uint64_t cursor = HasBug(SurvivalBug::kCursorNotRestored) ? step - rank.restored : step;
  const uint32_t course = async_ == nullptr ? 0 : rank.sender.term;
  rank.values =
      step == 0 ? rank.parameters : SimValues(options_, table_, rank.rank, cursor, course);
  const auto other = other_bytes_.find(index);
  if (other != other_bytes_.end() && other->second == std::pair(rank.sender.term, step)) {
    other_bytes_.erase(other);
    rank.computes_otherwise = true;
    otherwise_from_ = computes_otherwise_ ? std::min(otherwise_from_, step) : step;
    computes_otherwise_ = true;
    excuse_ = "a worker computes something else";
    for (std::vector<float>& tensor : rank.values) {
      for (float& x : tensor) x = 1.0f - x;
    }
  }
  const bool was_late = rank.skips_left > 0;
  if (was_late) --rank.skips_left;
  if (was_late ||
      (step == 0 ? rank.rank != rank.giver : SkipsStep(options_, rank.rank, step, course))) {
    worker::Pipeline::Effects effects;
    Check(rank.pipeline->SkipStep(&effects).ok(), "a step can be skipped");
    return CarryOut(index, effects);
  }
  const Micros late = rank.rank == options_.late_rank ? kLateBy : 0;
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    if (!IsSubmitted(table_, layout_, step, tensor)) continue;
    InSession(index, late + Delay({"ready", index, tensor}), [this, index, tensor] {
      SimRank& at = ranks_[index];
      if (at.pipeline->TensorReady(tensor, at.values[tensor]).ok()) EncodeNext(index);
    });
  }
}

void SurvivalRun::EncodeNext(uint32_t index) {
  SimRank& rank = ranks_[index];
  std::optional<worker::EncodeTask> task = rank.pipeline->NextEncoding();
  if (!task.has_value()) return;
  if (HasBug(SurvivalBug::kPlanTakenUpLate) && task->plan != nullptr &&
      task->plan->effective_step == task->step && task->step > 1) {
    task->plan = nullptr;
  }
  if (HasBug(SurvivalBug::kRetryEncodesAgain)) {
    worker::EncodeTask& kept = rank.planted.tasks[{task->step, task->shard, task->bundle}] = *task;
    kept.published = {};  // Valid only until the bundle is encoded.
  }
  if (async_ != nullptr) async_->Encodes(*task);
  worker::EncodedBundle encoded = rank.encoder->Encode(*task);
  if (encoded.skipped) ++report_.not_finite;
  InSession(index, Delay({"encode", index}) / 4, [this, index, encoded = std::move(encoded)] {
    worker::Pipeline::Effects effects;
    ranks_[index].pipeline->Encoded(encoded, &effects);
    const uint64_t session = ranks_[index].session;
    CarryOut(index, effects);
    if (ranks_[index].session == session) EncodeNext(index);
  });
}

void SurvivalRun::FinishStep(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kTraining) return;
  const uint64_t step = rank.pipeline->step();
  const std::string before = TrainerState(rank);
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) ApplyTensor(&rank, tensor);
  rank.step = step;
  if (async_ != nullptr) {
    if (IsChecked(rank)) async_->StepDone(rank.rank, *rank.pipeline);
  } else if (step > 0 && step % kHashEvery == 0) {
    rank.hashes.emplace_back(step, absl::StrCat(HashParameters(rank.parameters)));
  }
  if (GoesManyWays(options_)) {
    ledger_.Reached(rank.rank, rank.sender.term, step, HashParameters(rank.parameters));
  }
  if (MayLag(options_)) {
    // The number of steps behind shrinks with each result while the rank skips.
    rank.skips_left = std::max(rank.skips_left, rank.pipeline->Result().steps_behind);
    if (HasBug(SurvivalBug::kStepsBehindIgnored)) rank.skips_left = 0;
    if (rank.learns && rank.pipeline->Result().steps_behind == 0) {
      rank.learns = false;
      ++report_.members;
    }
  }
  if (rank.pipeline->Result().checkpoint_due) {
    SaveCheckpoint(index, HasBug(SurvivalBug::kSavedBeforeApplied) ? before : TrainerState(rank));
  }
  InSession(index, Delay({"begin", index}), [this, index] { BeginStep(index); });
}

void SurvivalRun::ApplyTensor(SimRank* rank, uint32_t tensor) {
  const uint64_t step = rank->pipeline->step();
  const absl::Span<float> parameters = absl::MakeSpan(rank->parameters[tensor]);
  if (step > 0 && table_[tensor].role == protocol::TensorRole::kBuffer) return;
  if (options_.rule.has_value() && step > 0) {
    if (HasBug(SurvivalBug::kUpdateAppliedToMean)) {
      std::fill(parameters.begin(), parameters.end(), 0.0f);
    }
    Check(ReadResult(*rank->pipeline, tensor, worker::ResultUse::kUpdate, parameters).ok(),
          "a done step has an update");
    return;
  }
  std::vector<float> mean(table_[tensor].elements());
  Check(ReadMean(*rank->pipeline, tensor, absl::MakeSpan(mean)).ok(), "a done step decodes");
  ApplyMean(step, mean, parameters, absl::MakeSpan(rank->momentum[tensor]));
}

void SurvivalRun::SaveCheckpoint(uint32_t index, std::string trainer) {
  SimRank& rank = ranks_[index];
  if (IsChecked(rank)) async_->Saves(rank.rank, rank.step);
  if (!HasBug(SurvivalBug::kPublishedNotObserved)) {
    for (const worker::Published& published : rank.pipeline->TakePublished()) {
      rank.encoder->Observe(published);
    }
  }
  rank.encoder->Settle(rank.pipeline->TakeLate());
  if (HasBug(SurvivalBug::kReleaseBeforeDurable)) rank.pipeline->Release(rank.step);
  protocol::WorkerSnapshot snapshot{.job_uid = rank.sender.job_uid,
                                    .term = rank.sender.term,
                                    .step = rank.step,
                                    .rank = rank.rank,
                                    .uplink = rank.encoder->Save(),
                                    .trainer = std::move(trainer),
                                    .plans = rank.pipeline->KnownPlans()};
  ledger_.Saved(rank.sender, snapshot, [&](uint32_t i) { return rank.encoder->Residual(i); });
  if (HasBug(SurvivalBug::kReportedBeforeDurable)) {
    protocol::CheckpointPart part;
    part.term = snapshot.term;
    part.step = snapshot.step;
    part.name = protocol::WorkerPartName(rank.rank, snapshot.term);
    part.bytes = protocol::FormatWorkerSnapshot(snapshot).size();
    ReportWorkerPart(index, rank.sender, std::move(part));
  }
  protocol::CheckpointPart part{.term = snapshot.term,
                                .step = snapshot.step,
                                .name = protocol::WorkerPartName(rank.rank, snapshot.term),
                                .error = {}};
  if (options_.parts_at_shards) part.server = rank.rank % options_.shards;
  // The writer thread belongs to the process and outlives a session.
  WritePart(WorkerProcess(index), std::move(part), protocol::FormatWorkerSnapshot(snapshot),
            [this, index, sender = rank.sender](protocol::CheckpointPart written) {
              ReportWorkerPart(index, sender, std::move(written));
            });
}

void SurvivalRun::ReportWorkerPart(uint32_t index, const protocol::Sender& sender,
                                   protocol::CheckpointPart part) {
  SimRank& rank = ranks_[index];
  if (rank.sender == sender && part.error.empty()) rank.part = part;
  if (!Reaches(WorkerProcess(index), 0)) return;
  At(Delay({"part", index}), 0, [this, sender, part = std::move(part)] {
    server::Coordinator::Effects effects;
    (void)coordinator_->core().WorkerPart(sender, part, Now(), &effects);
    coordinator_->CarryOut(effects);
  });
}

protocol::WorkerHeartbeat SurvivalRun::Compose(uint32_t index) const {
  const SimRank& rank = ranks_[index];
  protocol::WorkerHeartbeat heartbeat;
  heartbeat.sender = rank.sender;
  heartbeat.progress.step = rank.step;
  if (rank.struck.hung_since > 0) heartbeat.since_progress = Of(now_ - rank.struck.hung_since);
  heartbeat.replay_from = rank.pipeline->replay_from();
  heartbeat.known_shards = rank.told;
  if (rank.part.has_value()) heartbeat.parts.push_back(*rank.part);
  if (!rank.hashes.empty()) {
    heartbeat.parameters_hash_step = rank.hashes.front().first;
    heartbeat.parameters_sha256 = rank.hashes.front().second;
  }
  return heartbeat;
}

void SurvivalRun::Heartbeat(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (!Talks(rank)) return;
  if (rank.planted.told_of_successor) {
    return Violate(absl::StrCat("rank ", rank.rank, " goes on although it was replaced"));
  }
  uint32_t& lost_in_a_row = rank.struck.lost_in_a_row;
  const double share = lost_in_a_row < kMostLostInARow ? options_.lost_heartbeat_share : 0;
  const bool lost = StrikesMessage(Fault::kLostHeartbeat, {"heartbeat", index}, share);
  lost_in_a_row = lost ? lost_in_a_row + 1 : 0;
  CheckCaps(rank);
  if (Reaches(WorkerProcess(index), 0) && now_ >= rank.struck.muted_until && !lost) {
    At(Delay({"heartbeat", index}), 0,
       [this, index, heartbeat = Compose(index), session = rank.session] {
         server::Coordinator::Effects effects;
         const absl::StatusOr<protocol::JobState> state = DeliverState(
             coordinator_->core().Heartbeat(heartbeat, Now(), &effects), heartbeat, effects);
         if (CutUntil(0, WorkerProcess(index)) > now_) return;
         At(Delay({"state", index}), WorkerProcess(index),
            [this, index, session, state, step = heartbeat.parameters_hash_step] {
              if (ranks_[index].session == session) HandleState(index, state, step);
            });
       });
  }
  InSession(index, kHeartbeat, [this, index] { Heartbeat(index); });
}

void SurvivalRun::Leave(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kLeaving) return;
  if (Reaches(WorkerProcess(index), 0)) {
    // Each try repeats the last parameters, because the coordinator that received them may be gone.
    protocol::WorkerHeartbeat last = Compose(index);
    // Without lockstep, ranks have seen different versions.
    if (async_ == nullptr) {
      last.parameters_hash_step = rank.step;
      last.parameters_sha256 = absl::StrCat(HashParameters(rank.parameters));
    }
    At(Delay({"leave", index}), 0, [this, index, last = std::move(last), session = rank.session] {
      server::Coordinator::Effects effects;
      const protocol::WorkerLeave leave{.last = last, .finished = true, .reason = ""};
      const absl::StatusOr<protocol::JobState> state =
          DeliverState(coordinator_->core().Leave(leave, Now(), &effects), last, effects);
      if (CutUntil(0, WorkerProcess(index)) > now_) return;
      At(Delay({"left", index}), WorkerProcess(index), [this, index, session, state] {
        if (ranks_[index].session == session) HandleState(index, state, /*hash_step=*/0);
      });
    });
  }
  InSession(index, kHeartbeat, [this, index] { Leave(index); });
}

absl::StatusOr<protocol::JobState> SurvivalRun::DeliverState(
    absl::StatusOr<protocol::JobState> decided, const protocol::WorkerHeartbeat& heartbeat,
    const server::Coordinator::Effects& effects) {
  coordinator_->CarryOut(effects);
  auto state = coordinator_->Announced(std::move(decided), heartbeat.sender);
  // A worker without progress counts as lost.
  const bool stalls = options_.stall_us > 0 && heartbeat.since_progress >= Of(options_.stall_us);
  if (state.ok() && state->term == heartbeat.sender.term && !stalls) worker_heard_ = now_;
  return state;
}

void SurvivalRun::HandleState(uint32_t index, const absl::StatusOr<protocol::JobState>& state,
                              uint64_t hash_step) {
  SimRank& rank = ranks_[index];
  if (!Talks(rank)) return;
  if (!state.ok() && HasBug(SurvivalBug::kReplacedWorkerGoesOn) && HasSuccessor(rank)) {
    rank.planted.told_of_successor = true;
    return;
  }
  // The coordinator of this run does not know the worker, because another one replaced it or a
  // rollback removed it.
  if (!state.ok() || state->term > rank.sender.term) return EndSession(index);
  if (hash_step > 0 && !rank.hashes.empty() && rank.hashes.front().first == hash_step)
    rank.hashes.pop_front();
  GoWhereShardsAre(index, *state);
  rank.pipeline->Release(state->durable_step);
  StateHeard(index);
  const bool may_go = state->phase == protocol::JobPhase::kFinished || !HasCheckpoints() ||
                      HasBug(SurvivalBug::kLeavesWithoutWaiting);
  if (may_go && rank.state == SimRank::State::kLeaving) {
    CheckEnd(index);
    rank.state = SimRank::State::kDone;
    Done(index);
  }
}

// Returns the request that a worker with the bug would send, or null if it sends nothing.
std::shared_ptr<const protocol::ExchangeRequest> SurvivalRun::Planted(
    uint32_t index, uint32_t shard, std::shared_ptr<const protocol::ExchangeRequest> exchange) {
  if (async_ != nullptr) return exchange;  // AsyncChecks plants its bugs in the shards.
  SimRank& rank = ranks_[index];
  const BundleKey key{exchange->step, shard, exchange->bundle};
  if (HasBug(SurvivalBug::kPlanNotPassedOn) && shard > 0 && exchange->plan != nullptr) {
    auto changed = std::make_shared<protocol::ExchangeRequest>(*exchange);
    changed->plan = nullptr;
    return changed;
  }
  const bool forgets = HasBug(SurvivalBug::kAnnouncedNotRepeated) ||
                       (HasBug(SurvivalBug::kNoPlanNotRepeated) && exchange->announced == nullptr);
  if (forgets && exchange->answered) {
    auto changed = std::make_shared<protocol::ExchangeRequest>(*exchange);
    changed->answered = false;
    changed->announced = nullptr;
    return changed;
  }
  if (exchange->keys_only || exchange->skip || key.step == 0) return exchange;
  const bool again = !rank.planted.sent.insert(key).second;
  if (!again) return exchange;
  if (HasBug(SurvivalBug::kRepeatCountsAgain) && key.step < options_.steps) {
    auto changed = std::make_shared<protocol::ExchangeRequest>(*exchange);
    ++changed->step;
    return changed;
  }
  const auto task = rank.planted.tasks.find(key);
  if (HasBug(SurvivalBug::kRetryEncodesAgain) && task != rank.planted.tasks.end()) {
    auto changed = std::make_shared<protocol::ExchangeRequest>(*exchange);
    changed->frames = rank.encoder->Encode(task->second).frames;
    return changed;
  }
  const bool open = key.step == rank.pipeline->step() && rank.pipeline->step_open();
  if (HasBug(SurvivalBug::kOpenStepNotReplayed) && open && rank.planted.answered.contains(key))
    return nullptr;
  return exchange;
}

}  // namespace sluice
