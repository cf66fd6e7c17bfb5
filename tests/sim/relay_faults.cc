// SPDX-License-Identifier: Apache-2.0
// Faults in jobs with relays. A relay is a server of its rack and a worker of the parent job, so
// that a fault of its process strikes both jobs.
#include "tests/sim/relay_run.h"

namespace sluice {

void RackRun::PauseServers(Micros until) {
  for (const ProcessId process : serving_) processes_[process].StandStill(until);
}

void RackRun::KillAndRestart(ProcessId process) {
  if (IsWorker(process)) return SurvivalRun::KillAndRestart(process);
  above_.KillAndRestart(above_.RelayProcess(relay_));
}

void RackRun::StandStill(ProcessId process, Micros until) {
  if (IsWorker(process)) return SurvivalRun::StandStill(process, until);
  above_.StandStill(above_.RelayProcess(relay_), until);
}

void RackRun::LoseDisk(ProcessId process) {
  if (IsWorker(process)) return SurvivalRun::LoseDisk(process);
  above_.LoseDisk(above_.RelayProcess(relay_));
}

void RackRun::CutOff(ProcessId process) {
  if (IsWorker(process)) return SurvivalRun::CutOff(process);
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) SurvivalRun::CutOff(WorkerProcess(rank));
}

void RackRun::UseUpDescriptors(ProcessId process, Micros until) {
  if (IsWorker(process)) return SurvivalRun::UseUpDescriptors(process, until);
  above_.UseUpDescriptors(above_.RelayProcess(relay_), until);
}

void RackRun::UseUpDescriptorsOfServers(Micros until) {
  for (const ProcessId process : serving_) SurvivalRun::UseUpDescriptors(process, until);
}

void RackRun::RefuseCalls(ProcessId process, Micros until) {
  if (IsWorker(process)) return SurvivalRun::RefuseCalls(process, until);
  above_.RefuseCalls(above_.RelayProcess(relay_), until);
}

void RackRun::RefuseWorkers(Micros until) {
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    SurvivalRun::RefuseCalls(WorkerProcess(rank), until);
  }
}

// The relay's servers reach each other without a network. Half of the cuts also strike the relay's
// messages of this direction at its other side.
void RackRun::CutOneWay(ProcessId from, ProcessId to, Micros until) {
  const bool to_workers = !IsWorker(from);
  if (Some("network", 2) == 0) {
    CutRack(to_workers, until);
    return above_.CutRelay(relay_, to_workers, until);
  }
  for (const ProcessId server : serving_) {
    if (IsWorker(from)) SurvivalRun::CutOneWay(from, server, until);
    if (IsWorker(to)) SurvivalRun::CutOneWay(server, to, until);
  }
}

void RackRun::CutRack(bool to_workers, Micros until) {
  for (const ProcessId server : serving_) {
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      const ProcessId worker = WorkerProcess(rank);
      SurvivalRun::CutOneWay(to_workers ? server : worker, to_workers ? worker : server, until);
    }
  }
}

void RackRun::LoseServersDisk() {
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    disk_.Lose([shard](const protocol::CheckpointPart& part) {
      return part.name == protocol::ShardPartName(shard, part.term);
    });
  }
}

void ParentRun::KillAndRestart(ProcessId process) {
  RackRun* const rack = RackIn(process);
  if (rack == nullptr) return SurvivalRun::KillAndRestart(process);
  Kill(process);
  Relay& relay = relays_[process - options_.shards];
  relay.step.reset();
  relay.begun = relay.joining = relay.busy = relay.lost = false;
  relay.from_below.clear();
  rack->KillServers();
  At(2'000 + Below({"restart", process}, 40'000), kNoProcess, [this, rack, process] {
    Start(process);
    rack->StartServers();
  });
}

void ParentRun::StandStill(ProcessId process, Micros until) {
  SurvivalRun::StandStill(process, until);
  if (RackRun* const rack = RackIn(process)) rack->PauseServers(until);
}

// A relay that is cut off may still reach its rack, which may have another network.
void ParentRun::CutOff(ProcessId process) {
  SurvivalRun::CutOff(process);
  RackRun* const rack = RackIn(process);
  if (rack != nullptr && Some("network", 2) == 0) rack->CutOff(0);
}

void ParentRun::UseUpDescriptors(ProcessId process, Micros until) {
  SurvivalRun::UseUpDescriptors(process, until);
  if (RackRun* const rack = RackIn(process)) rack->UseUpDescriptorsOfServers(until);
}

void ParentRun::RefuseCalls(ProcessId process, Micros until) {
  SurvivalRun::RefuseCalls(process, until);
  if (RackRun* const rack = RackIn(process)) rack->RefuseWorkers(until);
}

void ParentRun::CutOneWay(ProcessId from, ProcessId to, Micros until) {
  SurvivalRun::CutOneWay(from, to, until);
  const bool sends = IsWorker(from);
  RackRun* const rack = RackIn(sends ? from : to);
  if (rack != nullptr && Some("network", 2) == 0) rack->CutRack(sends, until);
}

void ParentRun::CutRelay(uint32_t relay, bool to_servers, Micros until) {
  const ProcessId process = WorkerProcess(relay);
  for (const ProcessId server : serving_) {
    SurvivalRun::CutOneWay(to_servers ? process : server, to_servers ? server : process, until);
  }
}

void ParentRun::CutPower() {
  SurvivalRun::CutPower();
  for (RackRun* const rack : racks_) rack->CutPower();
}

void ParentRun::LoseDisk(ProcessId process) {
  if (RackRun* const rack = RackIn(process)) rack->LoseServersDisk();
  SurvivalRun::LoseDisk(process);
}

}  // namespace sluice
