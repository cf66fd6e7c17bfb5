// SPDX-License-Identifier: Apache-2.0
// The faults of a simulated job.
#include <algorithm>
#include <utility>

#include "tests/sim/sim_data.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

constexpr Micros kOldProcessSends = 200'000;
constexpr uint32_t kRequestsMax = 300;  // More than the coordinator accepts at a time.

// Returns the processes of a shard or, from `shards` on, of a rank.
std::vector<ProcessId> ProcessesOf(uint32_t index, uint32_t shards,
                                   const std::map<ProcessId, SimServer>& servers,
                                   const std::vector<SimRank>& ranks) {
  std::vector<ProcessId> found;
  for (const auto& [process, server] : servers) {
    if (server.shard == index) found.push_back(process);
  }
  for (const SimRank& rank : ranks) {
    if (shards + rank.rank == index) found.push_back(rank.process);
  }
  return found;
}

}  // namespace

bool SurvivalRun::StrikesMessage(Fault fault, const Channel& channel, double share) {
  if (!chance_.Strikes(fault, channel, share, now_ < world_.faults_until)) return false;
  ++report_.faults[fault];
  return true;
}

void SurvivalRun::Strike(Fault fault) {
  Trace(3, static_cast<uint32_t>(fault), 0, 0);
  ++report_.faults[fault];
  const uint32_t rank = Some("rank", options_.ranks);
  switch (fault) {
    case Fault::kKillWorker:
      return KillAndRestart(WorkerProcess(rank));
    case Fault::kKillShard:
      return KillAndRestart(SomeOtherServer());
    case Fault::kKillCoordinator:
      return KillAndRestart(0);
    case Fault::kKillTwo: {
      const uint32_t all = options_.shards + options_.ranks;
      const uint32_t first = Some("first", all);
      KillAndRestart(Present(first));
      return KillAndRestart(Present((first + 1 + Some("second", all - 1)) % all));
    }
    case Fault::kKillWorkerAndShard:
      KillAndRestart(WorkerProcess(rank));
      return KillAndRestart(SomeOtherServer());
    case Fault::kPowerCut:
      return CutPower();
    case Fault::kPause: {
      const Micros until = now_ + Some("for", 300'000);
      return StandStill(SomeProcess(), until);
    }
    case Fault::kClockGap:
      return StandStill(0, now_ + 20'000 + Some("for", 80'000));
    case Fault::kTwoInstances:
      if (options_.shards > 1) return StartSecondInstance(1 + Some("shard", options_.shards - 1));
      --report_.faults[fault];
      return;
    case Fault::kOtherBytes:
      return KillAndComputeOtherwise(rank);
    case Fault::kLoseDisk:
      return LoseDisk(SomeProcess());
    case Fault::kCheckpointRequests:
      return RequestCheckpoints();
    case Fault::kKeepsSending:
      return ReplaceWhileItSends(rank);
    case Fault::kNewVersion:
      return RollOut();
    case Fault::kTwoWorkers:
      return StartSecondWorker(rank);
    case Fault::kHangs:
      ranks_[rank].struck.hangs_until = now_ + Some("for", 200'000);
      return;
    case Fault::kAway:
      return KillAndRestartLater(WorkerProcess(rank));
    case Fault::kGivesUp:
      return GiveUp(rank);
    case Fault::kEvicted:
      if (!processes_[0].up || coordinator_ == nullptr) return;
      return At(0, 0, [this, rank] { coordinator_->Evict(rank, options_.replay_limit < kPlenty); });
    default:
      return StrikeNetwork(fault, rank);
  }
}

void SurvivalRun::StrikeNetwork(Fault fault, uint32_t rank) {
  switch (fault) {
    case Fault::kBreak: {
      const uint32_t shard = Some("shard", options_.shards);
      if (shard < ranks_[rank].links.size()) BreakLink(rank, shard);
      return;
    }
    case Fault::kBreakControl:
      return LoseControl(serving_[Some("shard", options_.shards)]);
    case Fault::kMute:
      ranks_[rank].struck.muted_until = now_ + Some("for", 200'000);
      return;
    case Fault::kPartition:
      return CutOff(SomeProcess());
    case Fault::kOneWayCut:
      return CutOneWay();
    case Fault::kNoDescriptors: {
      const Micros until = now_ + Some("for", 200'000);
      return UseUpDescriptors(SomeProcess(), until);
    }
    case Fault::kRefused: {
      const Micros until = now_ + Some("for", 200'000);
      return RefuseCalls(SomeProcess(), until);
    }
    default:
      if (!StrikeDisk(fault, &world_, &disk_)) --report_.faults[fault];
  }
}

// Operators request checkpoints, often more at a time than the coordinator accepts.
void SurvivalRun::RequestCheckpoints() {
  const uint32_t count = 1 + Some("count", kRequestsMax);
  if (!processes_[0].up || coordinator_ == nullptr) return;
  At(0, 0, [this, count, first = last_id_ + 1] { coordinator_->RequestCheckpoints(count, first); });
  last_id_ += count;
}

// Leaves as a program that was told to stop. The last message may be lost.
void SurvivalRun::GiveUp(uint32_t index) {
  const SimRank& rank = ranks_[index];
  const bool talks = rank.state == SimRank::State::kTraining && Reaches(WorkerProcess(index), 0);
  if (talks) {
    At(Delay({"leave", index}), 0, [this, last = Compose(index)] {
      server::Coordinator::Effects effects;
      protocol::WorkerLeave leave;
      leave.last = last;
      leave.reason = "told to stop";
      (void)coordinator_->core().Leave(leave, Now(), &effects);
      coordinator_->CarryOut(effects);
    });
  }
  KillAndRestartLater(WorkerProcess(index));
}

void SurvivalRun::CutPower() {
  for (const auto& [process, server] : servers_) Kill(process);
  for (uint32_t shard = 0; shard < options_.shards; ++shard) KillAndRestart(serving_[shard]);
  for (uint32_t i = 0; i < ranks_.size(); ++i) KillAndRestart(WorkerProcess(i));
}

ProcessId SurvivalRun::Present(uint32_t index) const {
  return index < options_.shards ? serving_[index] : index;
}

ProcessId SurvivalRun::SomeOtherServer() {
  return options_.shards > 1 ? serving_[1 + Some("shard", options_.shards - 1)] : 0;
}

Micros SurvivalRun::CutUntil(ProcessId from, ProcessId to) const {
  const auto cut = processes_[from].cut_to.find(to);
  return cut == processes_[from].cut_to.end() ? 0 : cut->second;
}

bool SurvivalRun::CanConnect(ProcessId from, ProcessId to) const {
  return Reaches(from, to) && CutUntil(to, from) <= now_ && processes_[from].can_open(now_) &&
         processes_[to].can_open(now_);
}

bool SurvivalRun::Reaches(ProcessId from, ProcessId to) const {
  const SimProcess& a = processes_[from];
  const SimProcess& b = processes_[to];
  // A coordinator that finds a finished run exits together with its program.
  if ((from == 0 || to == 0) && coordinator_ == nullptr) return false;
  if (!a.up || !b.up) return false;
  return from == to ||
         std::max({a.cut_off_until, b.cut_off_until, a.refused_until, CutUntil(from, to)}) <= now_;
}

bool SurvivalRun::CanRead(ProcessId process, uint32_t server) const {
  if (disk_.unreadable() || !processes_[process].can_open(now_)) return false;
  if (!options_.parts_at_shards || !IsWorker(process)) return true;
  return CanConnect(process, serving_[server]);
}

// TCP repeats what does not arrive, so that messages of open streams arrive after the cut. Calls
// end by their deadline.
void SurvivalRun::CutOneWay() {
  const ProcessId from = SomeProcess();
  ProcessId to = SomeProcess();
  if (from == to || (IsWorker(from) && IsWorker(to))) to = 0;
  CutOneWay(from, to, now_ + Some("for", 200'000));
}

void SurvivalRun::CutOff(ProcessId process) {
  processes_[process].cut_off_until = now_ + Some("for", 200'000);
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    for (uint32_t shard = 0; shard < ranks_[rank].links.size(); ++shard) {
      if (process == serving_[shard] || process == WorkerProcess(rank)) BreakLink(rank, shard);
    }
  }
  for (const auto& [other, server] : servers_) {
    if (other != 0 && (process == 0 || process == other)) LoseControl(other);
  }
}

// The shard's address leads to the new process from now on. Streams to the old process stay open.
void SurvivalRun::StartSecondInstance(uint32_t shard) {
  const auto process = static_cast<ProcessId>(processes_.size());
  processes_.emplace_back().version = processes_[serving_[shard]].version;
  servers_[process].shard = shard;
  serving_[shard] = process;
  Start(process);
}

// An operator or a scheduler takes the process for lost, but it wakes up later and continues.
void SurvivalRun::StartSecondWorker(uint32_t rank) {
  StandStill(WorkerProcess(rank), now_ + Some("for", 300'000));
  const auto second = std::find_if(ranks_.begin() + options_.ranks, ranks_.end(),
                                   [rank](const SimRank& process) { return process.rank == rank; });
  if (second != ranks_.end()) return Start(second->process);
  const auto process = static_cast<ProcessId>(processes_.size());
  processes_.emplace_back().version = processes_[WorkerProcess(rank)].version;
  SimRank& started = ranks_.emplace_back();
  started.rank = rank;
  started.process = process;
  Start(process);
}

// While versions differ, the coordinator refuses processes that join or attach. Their supervisors
// start them again. Both processes of a shard or rank get the new version at the same time.
void SurvivalRun::RollOut() {
  uint32_t version = 0;
  for (const SimProcess& process : processes_) version = std::max(version, process.version + 1);
  const uint32_t all = options_.shards + options_.ranks;
  const uint32_t first = Some("first", all);
  Micros at = 0;
  for (uint32_t i = 0; i < all; ++i, at += Some("gap", 20'000)) {
    At(at, kNoProcess, [this, index = (first + i) % all, version] {
      for (const ProcessId process : ProcessesOf(index, options_.shards, servers_, ranks_)) {
        processes_[process].version = std::max(processes_[process].version, version);
        if (processes_[process].up) KillAndRestart(process);
      }
    });
  }
}

// The successor recomputes a step whose results all ranks have seen.
void SurvivalRun::KillAndComputeOtherwise(uint32_t rank) {
  uint64_t step = ranks_[rank].step;
  for (const SimRank& other : ranks_) step = std::min(step, other.step);
  const bool trains = ranks_[rank].state == SimRank::State::kTraining && ranks_.size() > 1;
  const bool in_term = std::all_of(ranks_.begin(), ranks_.end(), [&](const SimRank& other) {
    return other.sender.term == ranks_[rank].sender.term;
  });
  if (!trains || !in_term || step == 0 || SkipsStep(options_, rank, step)) {
    --report_.faults[Fault::kOtherBytes];
  } else {
    other_bytes_[rank] = {ranks_[rank].sender.term, step};
  }
  KillAndRestart(WorkerProcess(rank));
}

// The old process sends each message of its step once more, at any time within a few leases, and
// hears no answer. Its supervisor has already started another one.
void SurvivalRun::ReplaceWhileItSends(uint32_t index) {
  SimRank& rank = ranks_[index];
  if (rank.state != SimRank::State::kTraining) {
    --report_.faults[Fault::kKeepsSending];
    return KillAndRestart(WorkerProcess(index));
  }
  const auto later = [&] { return Below({"old_process", index}, kOldProcessSends); };
  const auto tell = [&](auto what) {
    At(later(), kNoProcess, [this, what = std::move(what)] {
      const SimProcess& coordinator = processes_[0];
      if (!coordinator.up || coordinator_ == nullptr || coordinator.stands_still_until > now_)
        return;
      server::Coordinator::Effects effects;
      what(&effects);
    });
  };
  const protocol::WorkerHeartbeat last = Compose(index);
  for (uint32_t i = Some("heartbeats", 4); i > 0; --i) {
    tell([this, last](server::Coordinator::Effects* effects) {
      auto state = coordinator_->core().Heartbeat(last, Now(), effects);
      (void)DeliverState(std::move(state), last, *effects);
    });
  }
  for (const protocol::CheckpointPart& part : last.parts) {
    tell([this, part, sender = last.sender](server::Coordinator::Effects* effects) {
      (void)coordinator_->core().WorkerPart(sender, part, Now(), effects);
      coordinator_->CarryOut(*effects);
    });
  }
  if (Some("leaves", 4) == 0) {
    tell([this, last](server::Coordinator::Effects* effects) {
      // With fixed ranks, a worker that gives up ends its job, unless it was replaced.
      const std::vector<protocol::RunMember>& members = disk_.record()->members;
      const bool holds_its_rank = members.size() <= last.sender.rank ||
                                  members[last.sender.rank].incarnation == last.sender.incarnation;
      if (holds_its_rank && !options_.elastic) return;
      const protocol::WorkerLeave leave{.last = last, .finished = false, .reason = "told to stop"};
      auto state = coordinator_->core().Leave(leave, Now(), effects);
      (void)DeliverState(std::move(state), last, *effects);
    });
  }
  for (const auto& [key, request] : rank.requests) {
    const server::StreamId id = rank.links[key.shard];
    if (id == 0) continue;
    At(later(), links_[id - 1].server,
       [this, id, request = request] { Deliver(id, request, /*reply_is_lost=*/false); });
  }
  for (server::StreamId& id : rank.links) {
    if (id == 0) continue;
    const ProcessId server = links_[id - 1].server;
    At(kOldProcessSends, server, [this, id, server] {
      links_[id - 1].closed = true;
      if (servers_[server].core != nullptr) servers_[server].core->StreamClosed(id);
    });
    id = 0;  // The stream stays open until then.
  }
  KillAndRestart(WorkerProcess(index));
}

void SurvivalRun::LoseDisk(ProcessId process) {
  disk_.Lose([&](const protocol::CheckpointPart& part) {
    if (IsWorker(process)) {
      return !options_.parts_at_shards &&
             part.name == protocol::WorkerPartName(ranks_[IndexOf(process)].rank, part.term);
    }
    const uint32_t shard = servers_[process].shard;
    return options_.parts_at_shards ? part.server == shard
                                    : part.name == protocol::ShardPartName(shard, part.term);
  });
  KillAndRestart(process);
}

}  // namespace sluice
