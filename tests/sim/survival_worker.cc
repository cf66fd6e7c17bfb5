// The workers of a simulated job: what a session and a training loop do, as thinly as they do it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "job/checkpoint/snapshot_format.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kHeartbeat = 5'000;
constexpr Micros kRetry = 3'000;
constexpr Micros kUnreachable = 60'000;  // A shard, until the session is over.
constexpr Micros kWriteMax = 8'000;
constexpr float kRate = 0.1f;
constexpr float kMomentum = 0.5f;

// What a trainer keeps: parameters, then momentum.
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
  const uint64_t session = rank.session + 1;
  const Micros muted = rank.muted_until;
  rank = SimRank();
  rank.session = session;
  rank.muted_until = muted;
  rank.state = SimRank::State::kJoining;
  rank.parameters = SimValues(data_, table_, options_.parameters_agree ? 0 : index, /*step=*/0);
  for (const std::vector<float>& tensor : rank.parameters) {
    rank.momentum.emplace_back(tensor.size());
  }
  rank.join = {.job_name = "sim",
               .nonce = random_.Next() | 1,
               .rank = index,
               .table = table_,
               .parameters_sha256 =
                   std::string(32, static_cast<char>(options_.parameters_agree ? 1 : 1 + index)),
               .software_version = "1",
               .host = "sim",
               .pid = index};
  SendJoin(index);
}

// Something of this session; nothing if it is over by then.
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
  if (!Reaches(WorkerProcess(index), 0)) {
    return InSession(index, kRetry, [this, index] { SendJoin(index); });
  }
  const JoinToken token = ++last_id_;
  At(Delay(), 0, [this, index, token, session = rank.session] {
    const SimRank& caller = ranks_[index];
    if (caller.session != session || caller.state != SimRank::State::kJoining) return;
    tokens_[token] = {index, session};
    Coordinator::Effects effects;
    coordinator_->Join(token, caller.join, Now(), &effects);
    CarryOut(effects);
  });
  WatchJoin(index, token, server_life);
}

// A call ends with its server, or when that cannot be reached; then it is made again.
void SurvivalRun::WatchJoin(uint32_t index, JoinToken token, uint64_t server_life) {
  InSession(index, kRetry, [this, index, token, server_life] {
    if (ranks_[index].state != SimRank::State::kJoining) return;
    if (Reaches(WorkerProcess(index), 0) && processes_[0].life == server_life) {
      return WatchJoin(index, token, server_life);
    }
    if (processes_[0].life == server_life) {
      At(Delay(), 0, [this, token] {
        if (tokens_.erase(token) > 0) coordinator_->JoinCancelled(token);
      });
    }
    SendJoin(index);
  });
}

void SurvivalRun::Joined(uint32_t index, const absl::StatusOr<JoinGrant>& grant) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kJoining) return;
  if (!grant.ok()) {
    if (disk_.record.has_value() && disk_.record->finished) {
      // It died when all had finished and it had not heard of it.
      rank.state = SimRank::State::kDone;
      return;
    }
    // Its predecessor is still alive, or another call of the same.
    if (grant.status().code() != absl::StatusCode::kAlreadyExists &&
        grant.status().code() != absl::StatusCode::kAborted) {
      return Violate(absl::StrCat("rank ", index, " was not let in: ", grant.status().message()));
    }
    return EndSession(index);
  }
  const absl::Status restored = Restore(index, *grant);
  if (!restored.ok()) {
    CheckpointPart part;
    part.term = grant->term;
    part.step = grant->restore_step;
    part.name = WorkerPartName(index, grant->term);
    part.error = std::string(restored.message());
    TellWorkerPart(index, std::move(part));
    return EndSession(index);
  }
  rank.state = SimRank::State::kTraining;
  rank.links.resize(options_.shards);
  for (uint32_t shard = 0; shard < options_.shards; ++shard) OpenLink(index, shard);
  Heartbeat(index);
  InSession(index, Delay(), [this, index] { BeginStep(index); });
}

absl::Status SurvivalRun::Restore(uint32_t index, const JoinGrant& grant) {
  SimRank& rank = ranks_[index];
  absl::StatusOr<Layout> layout =
      BuildLayout(table_, options_.shards, grant.layout, WholeRows(options_.compression, table_));
  Check(layout.ok(), layout.status().message());
  rank.sender = {.job_uid = grant.job_uid,
                 .term = grant.term,
                 .rank = index,
                 .incarnation = grant.incarnation,
                 .generation = grant.generation,
                 .server_incarnation = 0};
  PipelineOptions options;
  options.table = table_;
  options.layout = *layout;
  options.sender = rank.sender;
  options.world_size = grant.world_size;
  options.first_step = grant.first_step;
  options.parameters_agree = grant.parameters_agree;
  rank.pipeline = std::make_unique<Pipeline>(std::move(options));
  rank.encoder = std::make_unique<BundleEncoder>(table_, *layout, options_.compression, index);
  rank.step = grant.restore_step;
  rank.restored = grant.restore_step;
  if (grant.restore_step == 0) return absl::OkStatus();
  const CheckpointManifest& manifest = disk_.manifests.at(grant.restore_step);
  const absl::StatusOr<std::string> bytes =
      ReadPart(grant.restore_step, WorkerPartName(index, manifest.term));
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<WorkerSnapshot> snapshot = ParseWorkerSnapshot(*bytes);
  if (!snapshot.ok()) return snapshot.status();
  if (!HasBug(SurvivalBug::kResidualNotRestored)) {
    const absl::Status encoder = rank.encoder->Restore(snapshot->uplink);
    if (!encoder.ok()) return encoder;
  }
  SetTrainerState(snapshot->trainer, &rank);
  if (HasBug(SurvivalBug::kOptimizerNotRestored)) {
    for (std::vector<float>& tensor : rank.momentum) tensor.assign(tensor.size(), 0);
  }
  return absl::OkStatus();
}

// A rollback, or something that is taken for one: the program joins again.
void SurvivalRun::EndSession(uint32_t index) {
  SimRank& rank = ranks_[index];
  for (uint32_t shard = 0; shard < rank.links.size(); ++shard) BreakLink(index, shard);
  rank.links.clear();
  rank.state = SimRank::State::kOut;
  ++rank.session;
  InSession(index, kRetry, [this, index] { BeginSession(index); });
}

void SurvivalRun::OpenLink(uint32_t index, uint32_t shard) {
  links_.push_back({.rank = index,
                    .shard = shard,
                    .worker_life = processes_[WorkerProcess(index)].life,
                    .session = ranks_[index].session,
                    .server_life = processes_[shard].life,
                    .last_up = now_,
                    .last_down = now_});
  ranks_[index].links[shard] = links_.size();
}

void SurvivalRun::BreakLink(uint32_t index, uint32_t shard) {
  SimRank& rank = ranks_[index];
  const StreamId id = rank.links[shard];
  if (id == 0) return;
  rank.links[shard] = 0;
  const SimLink& link = links_[id - 1];
  if (processes_[shard].life == link.server_life) {
    At(Delay(), shard, [this, id, shard] {
      if (servers_[shard].core != nullptr) servers_[shard].core->StreamClosed(id);
    });
  }
  if (rank.state != SimRank::State::kTraining) return;
  const auto reopen = [this, index, shard, since = now_](auto&& self) -> void {
    InSession(index, kRetry, [this, index, shard, since, self] {
      if (ranks_[index].links[shard] != 0) return;
      if (!Reaches(WorkerProcess(index), shard)) {
        if (now_ - since > kUnreachable) return EndSession(index);
        return self(self);
      }
      OpenLink(index, shard);
      Pipeline::Effects effects;
      ranks_[index].pipeline->StreamReset(shard, &effects);
      CarryOut(index, effects);
    });
  };
  reopen(reopen);
}

void SurvivalRun::CheckSent(uint32_t rank, uint32_t shard, const Exchange& exchange) {
  const uint32_t checksum = exchange.skip ? 1 : BundleChecksum(exchange.frames);
  const auto [at, first] =
      sent_.try_emplace({exchange.step, rank, shard, exchange.bundle}, checksum);
  if (first || at->second == checksum) return;
  Violate(absl::StrCat("rank ", rank, " sends other bytes for step ", exchange.step, ", shard ",
                       shard, ", bundle ", exchange.bundle, " in term ", exchange.sender.term));
}

void SurvivalRun::CheckResult(uint32_t shard, const ExchangeAnswer& answer) {
  const auto [at, first] =
      results_.try_emplace({answer.step, shard, answer.bundle}, answer.record.result_checksum);
  if (first || at->second == answer.record.result_checksum) return;
  Violate(absl::StrCat("step ", answer.step, ", shard ", shard, ", bundle ", answer.bundle,
                       ": another result in term ", answer.record.term));
}

void SurvivalRun::Send(uint32_t index, uint32_t shard,
                       const std::shared_ptr<const Exchange>& exchange) {
  CheckSent(index, shard, *exchange);
  const StreamId id = ranks_[index].links[shard];
  if (id == 0) return;  // It is repeated when the link is open again.
  SimLink& link = links_[id - 1];
  ArriveAt(shard, link.server_life, &link.last_up, [this, id, exchange] {
    Trace(4, links_[id - 1].rank, exchange->step, exchange->bundle);
    Handle(id, *exchange);
  });
}

void SurvivalRun::Answer(StreamId id, std::shared_ptr<const ExchangeAnswer> answer) {
  SimLink& link = links_[id - 1];
  const uint32_t index = link.rank;
  ArriveAt(WorkerProcess(index), link.worker_life, &link.last_down,
           [this, id, index, answer = std::move(answer)] {
             SimRank& rank = ranks_[index];
             const SimLink& at = links_[id - 1];
             if (rank.session != at.session || rank.state != SimRank::State::kTraining ||
                 rank.links[at.shard] != id) {
               return;
             }
             Trace(5, index, answer->step, answer->bundle);
             Pipeline::Effects effects;
             rank.pipeline->Answer(at.shard, *answer, &effects);
             CarryOut(index, effects);
           });
}

void SurvivalRun::CarryOut(uint32_t index, const Pipeline::Effects& effects) {
  for (const PipelineEffect& effect : effects) {
    if (const auto* send = std::get_if<SendExchange>(&effect)) {
      Send(index, send->shard, send->exchange);
    } else if (const auto* retry = std::get_if<RetryLater>(&effect)) {
      InSession(index, absl::ToInt64Microseconds(retry->delay),
                [this, index, shard = retry->shard] {
                  Pipeline::Effects more;
                  ranks_[index].pipeline->RetryDue(shard, &more);
                  CarryOut(index, more);
                });
    } else if (const auto* failed = std::get_if<PipelineFailed>(&effect)) {
      if (!IsRollback(failed->status)) {
        return Violate(absl::StrCat("rank ", index, " failed: ", failed->status.ToString()));
      }
      return EndSession(index);
    } else if (std::holds_alternative<StepDone>(effect)) {
      InSession(index, Delay(), [this, index] { FinishStep(index); });
    }
  }
}

void SurvivalRun::BeginStep(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kTraining) return;
  if (rank.step == options_.steps) {
    rank.state = SimRank::State::kLeaving;
    CheckEnd(index);
    return Leave(index);
  }
  rank.pipeline->StartStep();
  const uint64_t step = rank.pipeline->step();
  const uint64_t cursor = HasBug(SurvivalBug::kCursorNotRestored) ? step - rank.restored : step;
  rank.values = step == 0 ? rank.parameters : SimValues(data_, table_, index, cursor);
  if (step == 0 ? index != 0 : SkipsStep(data_, index, step)) {
    Pipeline::Effects effects;
    Check(rank.pipeline->SkipStep(&effects).ok(), "a step can be skipped");
    return CarryOut(index, effects);
  }
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    InSession(index, Delay(), [this, index, tensor] {
      SimRank& at = ranks_[index];
      if (at.pipeline->TensorReady(tensor, at.values[tensor]).ok()) EncodeNext(index);
    });
  }
}

void SurvivalRun::EncodeNext(uint32_t index) {
  SimRank& rank = ranks_[index];
  const std::optional<EncodeTask> task = rank.pipeline->NextEncoding();
  if (!task.has_value()) return;
  EncodedBundle encoded = rank.encoder->Encode(*task);
  InSession(index, Delay() / 4, [this, index, encoded = std::move(encoded)] {
    Pipeline::Effects effects;
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
  for (uint32_t tensor = 0; tensor < table_.size(); ++tensor) {
    std::vector<float> mean(table_[tensor].elements());
    Check(rank.pipeline->DecodeMean(tensor, absl::MakeSpan(mean)).ok(), "a done step decodes");
    for (size_t i = 0; i < mean.size(); ++i) {
      if (step == 0) {
        rank.parameters[tensor][i] = mean[i];
        continue;
      }
      float& momentum = rank.momentum[tensor][i];
      momentum = kMomentum * momentum + mean[i];
      rank.parameters[tensor][i] -= kRate * momentum;
    }
  }
  rank.step = step;
  if (rank.pipeline->Result().checkpoint_due) {
    SaveCheckpoint(index, HasBug(SurvivalBug::kSavedBeforeApplied) ? before : TrainerState(rank));
  }
  InSession(index, Delay(), [this, index] { BeginStep(index); });
}

void SurvivalRun::CheckEnd(uint32_t index) {
  uint32_t hash = 0;
  for (const std::vector<float>& tensor : ranks_[index].parameters) {
    hash = ExtendCrc32c(
        hash, {reinterpret_cast<const std::byte*>(tensor.data()), tensor.size() * sizeof(float)});
  }
  if (report_.parameters_hash == 0) report_.parameters_hash = hash;
  if (report_.parameters_hash == hash) return;
  Violate(absl::StrCat("rank ", index, " ends with other parameters than another did"));
}

void SurvivalRun::SaveCheckpoint(uint32_t index, std::string trainer) {
  SimRank& rank = ranks_[index];
  if (!HasBug(SurvivalBug::kPublishedNotObserved)) {
    for (const Published& published : rank.pipeline->TakePublished()) {
      rank.encoder->Observe(published.chunks, published.frames);
    }
  }
  WorkerSnapshot snapshot{.job_uid = rank.sender.job_uid,
                          .term = rank.sender.term,
                          .step = rank.step,
                          .rank = index,
                          .uplink = rank.encoder->Save(),
                          .trainer = std::move(trainer)};
  if (HasBug(SurvivalBug::kReportedBeforeDurable)) {
    CheckpointPart part;
    part.term = snapshot.term;
    part.step = snapshot.step;
    part.name = WorkerPartName(index, snapshot.term);
    part.bytes = FormatWorkerSnapshot(snapshot).size();
    TellWorkerPart(index, std::move(part));
  }
  // The writer outlives a session, as a thread of the process does.
  At(static_cast<Micros>(random_.Below(kWriteMax)), WorkerProcess(index),
     [this, index, snapshot = std::move(snapshot), sender = rank.sender] {
       CheckpointPart part =
           WritePart(snapshot.term, snapshot.step, WorkerPartName(index, snapshot.term),
                     FormatWorkerSnapshot(snapshot));
       if (!Reaches(WorkerProcess(index), 0)) return;
       At(Delay(), 0, [this, sender, part] {
         Coordinator::Effects effects;
         (void)coordinator_->WorkerPart(sender, part, Now(), &effects);
         CarryOut(effects);
       });
     });
}

void SurvivalRun::TellWorkerPart(uint32_t index, CheckpointPart part) {
  if (!Reaches(WorkerProcess(index), 0)) return;
  At(Delay(), 0, [this, sender = ranks_[index].sender, part = std::move(part)] {
    Coordinator::Effects effects;
    (void)coordinator_->WorkerPart(sender, part, Now(), &effects);
    CarryOut(effects);
  });
}

void SurvivalRun::Heartbeat(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state == SimRank::State::kDone || rank.state == SimRank::State::kOut) return;
  if (Reaches(WorkerProcess(index), 0) && now_ >= rank.muted_until) {
    At(Delay(), 0, [this, index, sender = rank.sender, session = rank.session] {
      Coordinator::Effects effects;
      WorkerHeartbeat heartbeat;
      heartbeat.sender = sender;
      const absl::StatusOr<JobState> state = coordinator_->Heartbeat(heartbeat, Now(), &effects);
      CarryOut(effects);
      At(Delay(), WorkerProcess(index), [this, index, session, state] {
        if (ranks_[index].session == session) HearState(index, state);
      });
    });
  }
  InSession(index, kHeartbeat, [this, index] { Heartbeat(index); });
}

void SurvivalRun::Leave(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kLeaving) return;
  if (Reaches(WorkerProcess(index), 0)) {
    At(Delay(), 0, [this, index, sender = rank.sender, session = rank.session] {
      Coordinator::Effects effects;
      WorkerLeave leave;
      leave.last.sender = sender;
      leave.finished = true;
      const absl::StatusOr<JobState> state = coordinator_->Leave(leave, Now(), &effects);
      CarryOut(effects);
      At(Delay(), WorkerProcess(index), [this, index, session, state] {
        if (ranks_[index].session == session) HearState(index, state);
      });
    });
  }
  InSession(index, kHeartbeat, [this, index] { Leave(index); });
}

void SurvivalRun::HearState(uint32_t index, const absl::StatusOr<JobState>& state) {
  SimRank& rank = ranks_[index];
  // Unknown to a coordinator of this run: it was forgotten by a rollback.
  if (!state.ok() || state->term > rank.sender.term) return EndSession(index);
  const bool may_go =
      state->phase == JobPhase::kFinished || HasBug(SurvivalBug::kLeavesWithoutWaiting);
  if (may_go && rank.state == SimRank::State::kLeaving) {
    rank.state = SimRank::State::kDone;
  }
}

}  // namespace sluice
