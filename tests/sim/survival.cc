// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/survival.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "tests/sim/replay_script.h"
#include "tests/sim/sim_data.h"
#include "tests/sim/survival_job.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kRestartMin = 2'000;  // The supervisor's shortest restart delay.
constexpr Micros kRestartSpread = 40'000;
constexpr Micros kAwayMin = 40'000;  // Longer than a lease.
constexpr Micros kAwaySpread = 150'000;
constexpr Micros kNewcomersUntil = 150'000;
constexpr Micros kSlow = 20;  // Times the usual delay.

}  // namespace

SurvivalRun::SurvivalRun(const SurvivalOptions& options, SimWorld* world,
                         const JobReference* reference, const SurvivalRun* earlier)
    : options_(options),
      table_(SimTable(options_)),
      layout_(SimLayout(options_, table_)),
      reference_(*reference),
      ledger_(options_, table_, layout_),
      forger_(options_, layout_),
      world_(*world),
      chance_(world->chance),
      now_(world->now),
      report_(world->report),
      processes_(options.shards + options.ranks),
      serving_(options.shards),
      ranks_(options.ranks),
      disk_(earlier == nullptr ? SimDisk(world) : earlier->disk_) {
  for (uint32_t shard = 0; shard < options.shards; ++shard) {
    serving_[shard] = shard;
    servers_[shard].shard = shard;
  }
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    ranks_[rank].rank = rank;
    ranks_[rank].process = options.shards + rank;
  }
  if (IsAsync(options_)) {
    async_ = std::make_unique<AsyncChecks>(options_, table_, layout_, &report_);
  }
  if (earlier == nullptr) return;
  ledger_.Continue(earlier->ledger_);
  if (async_ != nullptr) async_->Continue(*earlier->async_);
  last_number_ = earlier->last_number_;
  last_id_ = earlier->last_id_;
  // A checkpoint may contain the other values.
  computes_otherwise_ = earlier->computes_otherwise_;
  otherwise_from_ = earlier->otherwise_from_;
}

SimRank SimRank::Ended() const {
  SimRank ended;
  ended.rank = rank;
  ended.process = process;
  ended.session = session;
  return ended;
}

void SurvivalRun::StartAll() {
  for (ProcessId process = 0; process < options_.shards + options_.ranks; ++process) {
    // Workers that do not begin with the job join at any time.
    const bool later = options_.elastic && process >= options_.shards + options_.begin;
    if (!later) {
      Start(process);
    } else {
      At(Below({"arrival", process}, kNewcomersUntil), kNoProcess,
         [this, process] { Start(process); });
    }
  }
}

void SurvivalRun::CheckAtTheEnd() {
  if (HasCheckpoints() && !disk_.finished()) {
    Violate("the job has ended, but its record does not say so");
  }
  if (coordinator_ != nullptr && !coordinator_->persisting() && coordinator_->unanswered() > 0) {
    Violate(absl::StrCat(coordinator_->unanswered(), " requests for a checkpoint have no answer"));
  }
  CheckShards();
  CollectViolations();
  report_.left_out = ledger_.left_out();
  report_.late = ledger_.late();
  report_.saved_pending = ledger_.saved_pending();
}

void SurvivalRun::CollectViolations() {
  for (std::string& violation : ledger_.TakeViolations()) Violate(std::move(violation));
}

bool SurvivalRun::JobIsOver() const {
  return report_.ended_by_alarm || report_.ended_by_timeout ||
         std::all_of(ranks_.begin(), ranks_.begin() + options_.ranks, [this](const SimRank& rank) {
           return std::any_of(ranks_.begin(), ranks_.end(), [&rank](const SimRank& process) {
             return process.rank == rank.rank && process.state == SimRank::State::kDone;
           });
         });
}

uint32_t SurvivalRun::IndexOf(ProcessId process) const {
  const auto at = std::find_if(ranks_.begin(), ranks_.end(),
                               [process](const SimRank& rank) { return rank.process == process; });
  return static_cast<uint32_t>(at - ranks_.begin());
}

std::string SurvivalRun::WhereRanksAre() const {
  std::vector<std::string> where;
  for (const SimRank& rank : ranks_) {
    where.push_back(absl::StrCat(static_cast<int>(rank.state), "@", rank.step));
  }
  for (const ProcessId process : serving_) {
    const auto server = servers_.find(process);
    const bool runs = server != servers_.end() && server->second.core != nullptr;
    where.push_back(runs ? absl::StrCat("shard@", server->second.core->open_step()) : "shard down");
  }
  where.push_back(absl::StrCat("term ", disk_.term()));
  return absl::StrJoin(where, ", ");
}

void SurvivalRun::At(Micros delay, ProcessId process, std::function<void()> what) {
  world_.At(delay, process == kNoProcess ? nullptr : &processes_[process], std::move(what));
}

// Delivers a message after the previous ones of its channel. The message is lost if the process
// restarts before it arrives.
void SurvivalRun::ArriveAt(const Channel& channel, ProcessId process, uint64_t life, Micros* last,
                           std::function<void()> what) {
  *last = std::max(*last + 1, now_ + Delay(channel));
  world_.events.push(
      {*last, ++world_.sequence, &processes_[process], life, [this, what = std::move(what)] {
         ++report_.delivered;
         what();
       }});
}

Micros SurvivalRun::Delay(const Channel& channel) {
  const Micros delay = 20 + Below(channel, 200);
  return StrikesMessage(Fault::kDelayed, channel, options_.delay_share) ? kSlow * delay : delay;
}

void SurvivalRun::Trace(uint32_t kind, uint32_t a, uint64_t b, uint32_t c) {
  const uint64_t entry[] = {static_cast<uint64_t>(now_), kind, a, b, c};
  world_.Trace({reinterpret_cast<const char*>(entry), sizeof(entry)});
}

void SurvivalRun::Start(ProcessId process) {
  SimProcess& at = processes_[process];
  if (at.up) return;
  at.up = true;
  ++at.life;
  Trace(1, process, at.life, 0);
  if (IsWorker(process)) {
    BeginWorker(IndexOf(process));
  } else {
    StartServer(process);
  }
}

void SurvivalRun::Kill(ProcessId process) {
  SimProcess& at = processes_[process];
  // A worker that is done has ended normally.
  if (IsWorker(process) && ranks_[IndexOf(process)].state == SimRank::State::kDone) {
    return;
  }
  if (!at.up) return;
  at.up = false;
  ++at.life;
  at.stands_still_until = 0;
  at.no_descriptors_until = 0;
  Trace(2, process, at.life, 0);
  if (IsWorker(process)) return KillWorker(IndexOf(process));
  if (process == 0) {
    StopCoordinator();
    for (auto& [other, server] : servers_) LoseControl(other);
  } else {
    LoseControl(process);
  }
  const uint32_t shard = servers_[process].shard;
  servers_[process] = SimServer();
  servers_[process].shard = shard;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (shard >= ranks_[rank].links.size()) continue;
    const server::StreamId id = ranks_[rank].links[shard];
    if (id != 0 && links_[id - 1].server == process) BreakLink(rank, shard);
  }
}

void SurvivalRun::KillWorker(uint32_t index) {
  SimRank& rank = ranks_[index];
  for (uint32_t shard = 0; shard < rank.links.size(); ++shard) BreakLink(index, shard);
  if (planned_ != nullptr) planned_->Lost(index);
  rank = rank.Ended();
  ++rank.session;
  NoteWhoIsAlive();
}

void SurvivalRun::KillAndRestart(ProcessId process) {
  Kill(process);
  At(kRestartMin + Below({"restart", process}, kRestartSpread), kNoProcess, [this, process] {
    // Restarts the process unless another instance was started in the meantime.
    if (IsWorker(process) || serving_[servers_[process].shard] == process) Start(process);
  });
}

void SurvivalRun::KillAndRestartLater(ProcessId process) {
  Kill(process);
  At(kAwayMin + Below({"away", process}, kAwaySpread), kNoProcess,
     [this, process] { Start(process); });
}

void SurvivalRun::WritePart(ProcessId process, protocol::CheckpointPart part, std::string bytes,
                            std::function<void(protocol::CheckpointPart)> written) {
  const bool outlives = now_ < world_.writes_outlive_until;
  At(world_.WriteTime({"write", process}), outlives ? kNoProcess : process,
     [this, process, life = processes_[process].life, outlives, part = std::move(part),
      bytes = std::move(bytes), written = std::move(written)] {
       protocol::CheckpointPart done = part;
       const ProcessId home = HomeOf(process, part);
       if (home == process || CanConnect(process, home)) {
         done = disk_.WritePart(processes_[home], part, bytes);
       } else {
         done.error = "its server does not answer";
       }
       if (processes_[process].life != life) return;
       if (!outlives) return written(std::move(done));
       At(0, process, [written, done = std::move(done)] { written(done); });
     });
}

SurvivalReport RunSurvival(const SurvivalOptions& options) {
  static const char* const folder = std::getenv("SLUICE_SIM_EXPORT");
  if (folder != nullptr) return RunAndExport(options, folder);
  SimWorld world(options.fault_seed);
  return RunJob(options, &world);
}

}  // namespace sluice
