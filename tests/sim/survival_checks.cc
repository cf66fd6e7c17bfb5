// SPDX-License-Identifier: Apache-2.0
// Checks the promises of a simulated job.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kLease = 30'000;

std::string SurvivalChecksName(uint64_t step, uint32_t shard, uint32_t bundle) {
  return absl::StrCat("step ", step, ", shard ", shard, ", bundle ", bundle);
}

// Returns whether the run's record names another process for the worker's rank.
bool IsReplaced(const SimRank& rank, const std::optional<protocol::RunRecord>& record) {
  return record.has_value() && record->term == rank.sender.term &&
         rank.rank < record->members.size() &&
         record->members[rank.rank].incarnation != rank.sender.incarnation;
}

}  // namespace

void SurvivalRun::CheckSent(uint32_t rank, uint32_t shard,
                            const protocol::ExchangeRequest& exchange) {
  if (IsChecked(ranks_[rank])) async_->CheckSent(shard, exchange, ranks_[rank].parameters);
  if (async_ != nullptr || options_.has_async_parent) return;
  if (GoesManyWays(options_)) return ledger_.Sent(shard, exchange);
  // The other worker's results can affect what the others encode.
  if (exchange.keys_only || computes_otherwise_ || ranks_[rank].computes_otherwise) return;
  // Later steps of an old term are repeated in the next term with other plans.
  if (planned_ != nullptr && exchange.sender.term < disk_.record()->term) return;
  const protocol::Included& wanted =
      reference_.bundle({exchange.step, shard, exchange.bundle}).included[exchange.sender.rank];
  if (exchange.skip == wanted.skipped && exchange.weight == wanted.weight &&
      protocol::BundleChecksum(exchange.frames) == wanted.checksum) {
    return;
  }
  Violate(absl::StrCat("rank ", rank, " sends other bytes for ",
                       SurvivalChecksName(exchange.step, shard, exchange.bundle), " in term ",
                       exchange.sender.term));
}

void SurvivalRun::CheckResult(uint32_t shard, const protocol::ExchangeReply& answer) {
  if (GoesManyWays(options_)) return ledger_.CheckAnswer(shard, answer);
  if (options_.has_async_parent) return;
  if (computes_otherwise_) return;  // Workers that have seen the other result report it.
  // Ignores a shard that has not learned of a rollback; no worker continues from its answers.
  if (disk_.record().has_value() && answer.record.term < disk_.record()->term) return;
  const ReferenceBundle& wanted = reference_.bundle({answer.step, shard, answer.bundle});
  if (answer.record.included == wanted.included && answer.record.n == wanted.n &&
      answer.record.rate == wanted.rate &&
      answer.record.result_checksum == wanted.result_checksum) {
    return;
  }
  Violate(absl::StrCat(SurvivalChecksName(answer.step, shard, answer.bundle),
                       ": another result in term ", answer.record.term));
}

// Checks the plans that a worker learns with a result of its open step.
void SurvivalRun::CheckTold(uint32_t rank, const protocol::ExchangeReply& answer) {
  const worker::Pipeline& pipeline = *ranks_[rank].pipeline;
  if (planned_ == nullptr || !options_.control.measures() ||
      IsReplaced(ranks_[rank], disk_.record()) || answer.outcome != protocol::Outcome::kResult ||
      answer.bundle != 0)
    return;
  if (answer.step != pipeline.step() || answer.step == 0 || computes_otherwise_) return;
  if (disk_.record().has_value() && ranks_[rank].sender.term < disk_.record()->term) return;
  bool knower_lost = false;
  const std::string wrong = planned_->CheckAnnounced(rank, answer.step, answer.plan, &knower_lost);
  if (!wrong.empty()) Violate(wrong);
  if (knower_lost) excuse_ = "who knew of a plan is lost";
}

void SurvivalRun::CheckStart(const protocol::StartShard& start) {
  if (planned_ != nullptr && (!planned_term_.has_value() || start.term > *planned_term_)) {
    planned_term_ = start.term;
    planned_->Begin(start.term, options_.ranks, disk_.TermOf(start.restore_step),
                    start.restore_step);
    report_.parameters_hash = 0;  // Finished ranks rejoin, so their hash is void.
  }
  if (GoesManyWays(options_)) {
    ledger_.Begin(start.term, disk_.TermOf(start.restore_step), start.restore_step);
  }
  if (!HasCheckpoints()) return;
  if (!disk_.record().has_value() || disk_.record()->term != start.term) {
    Violate(absl::StrCat("term ", start.term, " was announced before it was on disk"));
    return;
  }
  CheckMembers(start.generation, start.incarnations);
  ledger_.Members(start.term, start.incarnations);
  // The parent job chooses a rack's checkpoint.
  for (const auto& [step, manifest] : disk_.manifests()) {
    if (in_rack() || !disk_.CanBeRestored(step)) continue;
    if (step > start.restore_step && disk_.IsWhole(manifest)) {
      Violate(absl::StrCat("term ", start.term, " goes back to step ", start.restore_step,
                           " though the checkpoint of step ", step, " is good"));
    }
  }
}

// A member may be announced only after the run record contains it.
void SurvivalRun::CheckMembers(uint32_t generation, const std::vector<uint64_t>& incarnations) {
  if (!HasCheckpoints() || options_.replay_limit == 0) return;
  const protocol::RunRecord& record = *disk_.record();
  bool same = record.generation == generation && record.members.size() == incarnations.size();
  for (size_t rank = 0; same && rank < incarnations.size(); ++rank) {
    same = record.members[rank].incarnation == incarnations[rank];
  }
  if (same) return;
  Violate(absl::StrCat("generation ", generation, " was announced before it was on disk"));
}

void SurvivalRun::CheckGrant(const protocol::JoinGrant& grant) {
  if (!HasCheckpoints() || options_.replay_limit == 0) return;
  const protocol::RunRecord& record = *disk_.record();
  if (record.term == grant.term && record.generation >= grant.generation &&
      grant.rank < record.members.size() &&
      record.members[grant.rank].incarnation == grant.incarnation) {
    return;
  }
  Violate(absl::StrCat("rank ", grant.rank, " of generation ", grant.generation,
                       " was announced before it was on disk"));
}

// The term may rise only if the kept state cannot restore what was lost.
void SurvivalRun::CheckRollback(const protocol::RunRecord& before,
                                const server::Coordinator::Effects& effects) {
  ++report_.rollbacks;
  ++rollbacks_;
  const bool agreement_lost = HasStepZero(options_) && disk_.NewestToRestore() == 0;
  // A term whose workers were all silent for a lease counts as lost.
  if (now_ - worker_heard_ >= kLease) excuse_ = "all workers are silent";
  if (before.members.size() != options_.ranks) excuse_ = "the job resumes with other workers";
  // They may have died before the record that begins the term was durable.
  if (!HasWorkerOf(before.term)) excuse_ = "all workers are lost";
  // In an elastic job, a lost shard or coordinator may cause a rollback; lost workers may not.
  const bool workers_alone =
      std::all_of(options_.faults.begin(), options_.faults.end(), [](Fault fault) {
        return fault == Fault::kKillWorker || fault == Fault::kMute || fault == Fault::kAway ||
               fault == Fault::kGivesUp || fault == Fault::kBreak ||
               fault == Fault::kBreakControl || fault == Fault::kDiskFull ||
               fault == Fault::kDiskSlow || fault == Fault::kCheckpointRequests;
      });
  if (options_.elastic && !workers_alone) excuse_ = "a shard may be lost";
  if (options_.elastic && disk_.manifests().empty())
    excuse_ = "newcomers have nothing to begin with";
  const bool expected = before.generation == 0 || !excuse_.empty() || disk_.HasDamage() ||
                        agreement_lost || options_.replay_limit < kPlenty;
  // The next term starts without an excuse.
  excuse_.clear();
  if (expected) return;
  std::string why = "no reason was given";
  for (const server::CoordinatorEffect& effect : effects) {
    const auto* notice = std::get_if<server::Notice>(&effect);
    if (notice != nullptr && absl::StrContains(notice->text, "goes back")) why = notice->text;
  }
  Violate(absl::StrCat("a rollback without need: ", why));
}

// The parameters' hash that a worker reported before it was lost can be the only trace of its
// results. If its successor's parameters differ, the job rolls back. It ends only if the newest
// checkpoint already contains the differing values.
bool SurvivalRun::MayEndByAlarm(absl::string_view failure) const {
  uint64_t step = 0;
  if (!computes_otherwise_ || !absl::StrContains(failure, "differ from those of")) return false;
  if (!absl::ConsumePrefix(&failure, "after step ")) return false;
  if (!absl::SimpleAtoi(failure.substr(0, failure.find(' ')), &step)) return false;
  return otherwise_from_ <= step && step <= disk_.NewestToRestore();
}

void SurvivalRun::CheckCaps(const SimServer& server) {
  // A shard keeps two steps, the results that a worker still needs, and with a quorum one more.
  const server::ShardStats stats = server.core->Stats();
  const uint64_t more = options_.quorum == 0 ? 0 : 2 * stats.log_bytes / (stats.log_results + 1);
  const uint64_t limit = server.core->options().log.bytes + more;
  const uint64_t steps = stats.open_step - std::min(stats.open_step, server.core->results_from());
  if (stats.log_bytes <= limit || steps <= options_.checkpoint_interval + 2) return;
  Violate(absl::StrCat("shard ", server.shard, " keeps ", stats.log_bytes, " bytes of ",
                       stats.log_results, " results; the limit is ", limit));
}

void SurvivalRun::CheckCaps(const SimRank& rank) {
  const worker::Pipeline& pipeline = *rank.pipeline;
  if (pipeline.kept_bytes() <= options_.replay_limit) return;
  // The limit does not cover unresolved work: the newest step with a contribution sent.
  if (pipeline.replay_from() + 1 >= pipeline.step()) return;
  Violate(absl::StrCat("a worker keeps ", pipeline.kept_bytes(), " bytes from step ",
                       pipeline.replay_from(), " on; the limit is ", options_.replay_limit));
}

bool SurvivalRun::HasWorkerOf(uint32_t term) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [this, term](const SimRank& rank) {
    const bool in = rank.state == SimRank::State::kTraining ||
                    rank.state == SimRank::State::kLeaving || rank.state == SimRank::State::kDone;
    return in && rank.sender.term == term && !HasSuccessor(rank);
  });
}

bool SurvivalRun::HasSuccessor(const SimRank& rank) const {
  // A process that joins now may already have replaced it.
  const bool is_joined = std::any_of(ranks_.begin(), ranks_.end(), [&rank](const SimRank& other) {
    return other.rank == rank.rank && other.process != rank.process &&
           other.state == SimRank::State::kJoining;
  });
  return is_joined || IsReplaced(rank, disk_.record());
}

// If no worker of the term is alive, a rollback is the only way to continue.
void SurvivalRun::NoteWhoIsAlive() {
  if (!HasCheckpoints() || !disk_.record().has_value()) return;
  if (!HasWorkerOf(disk_.record()->term)) excuse_ = "all workers are lost";
}

void SurvivalRun::CheckEnd(uint32_t index) {
  const SimRank& rank = ranks_[index];
  const uint32_t hash = HashParameters(rank.parameters);
  // A rollback happened in between, after which later steps may use other plans.
  if (planned_ != nullptr && disk_.record().has_value() && rank.sender.term < disk_.record()->term)
    return;
  if (async_ != nullptr) async_->WorkerEnds(rank.rank, *rank.encoder);
  // The ledger of the rank's term compares the ranks' parameters.
  if (GoesManyWays(options_) || async_ != nullptr || options_.has_async_parent) {
    report_.parameters_hash = hash;
    return;
  }
  if (report_.parameters_hash != 0 && report_.parameters_hash != hash) {
    return Violate(absl::StrCat("rank ", index, " ends with other parameters than another"));
  }
  report_.parameters_hash = hash;
  // If every process that saw the other results is lost, no one can detect them.
  if (computes_otherwise_) return;
  if (hash != HashParameters(reference_.parameters())) {
    return Violate(absl::StrCat("rank ", index, " ends with other parameters than the reference"));
  }
  CheckUplink(index);
}

void SurvivalRun::CheckUplink(uint32_t index) {
  for (uint32_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    const absl::Span<const float> has = ranks_[index].encoder->Residual(chunk);
    if (has == reference_.UplinkResidual(ranks_[index].rank, chunk)) continue;
    return Violate(absl::StrCat("rank ", index, " ends with another residual of chunk ", chunk));
  }
}

// Checks the shards that have closed the last step.
void SurvivalRun::CheckShards() {
  if (async_ != nullptr) async_->CheckAtTheEnd();
  for (const ProcessId process : serving_) {
    const auto at = servers_.find(process);
    if (at == servers_.end() || at->second.core == nullptr) continue;
    FinishLastWork(process);
    const server::Shard& core = *at->second.core;
    const server::ShardStats stats = core.Stats();
    report_.repeats += stats.repeats;
    if (async_ != nullptr) {
      async_->ShardEnds(process, core);
      continue;
    }
    if (core.open_step() <= options_.steps) continue;
    const uint32_t shard = at->second.shard;
    const uint32_t term = core.options().term;
    if (GoesManyWays(options_)) ledger_.CheckAllIncluded(shard, term);
    const bool all_counted =
        options_.elastic || stats.contributions == options_.ranks * stats.bundles_closed;
    if (!all_counted || stats.held_bytes != 0) {
      Violate(absl::StrCat("shard ", shard, " counted ", stats.contributions, " contributions in ",
                           stats.bundles_closed, " bundles and holds ", stats.held_bytes,
                           " bytes"));
    }
    for (uint32_t bundle = 0; bundle < core.bundles() && !computes_otherwise_; ++bundle) {
      const std::vector<uint32_t>& chunks = layout_.bundles[shard][bundle].chunks;
      for (size_t i = 0; i < chunks.size(); ++i) {
        const absl::Span<const float> wanted =
            GoesManyWays(options_) ? ledger_.DownlinkResidual(shard, term, chunks[i])
                                   : reference_.DownlinkResidual(chunks[i]);
        if (core.DownlinkResidual(bundle, i) == wanted) continue;
        Violate(absl::StrCat("shard ", shard, " ends with another residual of chunk ", chunks[i]));
      }
    }
  }
}

}  // namespace sluice
