// SPDX-License-Identifier: Apache-2.0
// A simulated job with relays consists of a parent job, whose workers are the relays, and one job
// per rack, whose servers run in the relay's process. ParentRun and RackRun are those jobs.
// ParentRun also has the part of a relay between its two sides (relay/relay.cc). See
// docs/simulation.md.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "relay/relay_step.h"
#include "tests/sim/survival_run.h"

namespace sluice {

class ParentRun;

class RackRun final : public SurvivalRun {
 public:
  RackRun(const SurvivalOptions& options, SimWorld* world, const JobReference* reference,
          uint32_t relay, ParentRun* above)
      : SurvivalRun(options, world, reference), relay_(relay), above_(*above) {}

  // Kills and starts the servers in the relay's process.
  void KillServers();
  void StartServers();
  // Messages of the relay's upper side to its servers, as in Server.
  void StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree);
  void ParentLost(uint32_t term);
  void FinishParent(uint32_t term);
  void Publish(uint32_t term, const std::vector<std::vector<server::Publication>>& publications);
  void Release(uint64_t durable_step);
  bool HasCheckpoint(uint64_t step) const;
  // Returns whether a fault or a rollback of the rack has taken the checkpoint away.
  bool MayLack(uint64_t step) const;
  // Returns null while the rack's checkpoint is under way.
  std::optional<absl::Status> CheckpointOutcome(uint64_t step) const;
  // Ends the rack's job: the parent job finished, but its relay was lost before it could report
  // that.
  void EndWithTheJob();
  bool ended_with_the_job() const { return ended_with_the_job_; }

  uint64_t rollbacks() const { return rollbacks_; }
  // The rack's part of a fault of the relay's process.
  void PauseServers(Micros until);
  void LoseServersDisk();
  void UseUpDescriptorsOfServers(Micros until);
  // The relay has another token than its workers.
  void RefuseWorkers(Micros until);
  // Cuts one direction between all workers and the relay.
  void CutRack(bool to_workers, Micros until);

  // A fault of a server strikes the relay.
  void KillAndRestart(ProcessId process) override;
  void StandStill(ProcessId process, Micros until) override;
  void LoseDisk(ProcessId process) override;
  void UseUpDescriptors(ProcessId process, Micros until) override;
  void RefuseCalls(ProcessId process, Micros until) override;
  void CutOneWay(ProcessId from, ProcessId to, Micros until) override;
  // A relay that is cut off from its rack still reaches the parent job.
  void CutOff(ProcessId process) override;
  using SurvivalRun::CutPower;

 private:
  void FinishStep(uint32_t rank) override;
  void CheckEnd(uint32_t rank) override;
  void Asked(const server::AskParent& ask) override;
  void Finished(const server::LeaveParent& leave) override;
  void Summed(uint32_t shard, std::shared_ptr<const server::BundleSum> sum) override;

  const uint32_t relay_;
  ParentRun& above_;
  std::set<uint64_t> discarded_;  // Checkpoints after a step to which the rack went back.
  bool ended_with_the_job_ = false;
};

class ParentRun final : public SurvivalRun {
 public:
  ParentRun(const SurvivalOptions& options, SimWorld* world, const JobReference* reference)
      : SurvivalRun(options, world, reference), relays_(options.ranks) {}
  // Call it before StartAll.
  void SetRacks(const std::vector<RackRun*>& racks) { racks_ = racks; }

  // Messages from a rack's servers to the parent job, in order.
  void Ask(uint32_t relay, const server::AskParent& ask);
  void HandleSum(uint32_t relay, uint32_t shard, std::shared_ptr<const server::BundleSum> sum);
  void Finish(uint32_t relay, const server::LeaveParent& leave);

  uint64_t rollbacks() const { return rollbacks_; }
  uint64_t reexecuted() const { return reexecuted_; }
  ProcessId RelayProcess(uint32_t relay) const { return WorkerProcess(relay); }
  // Describes the relays for logs.
  std::string WhereRelaysAre() const;
  // Returns the number of the newest plan that a relay knows at the end of the job; 0 if the relay
  // is not at the end or knows none.
  uint64_t NewestPlanOf(uint32_t relay) const;
  // Returns the parameters that the relay keeps after `step`; null if it keeps none or is at
  // another step.
  const std::vector<std::vector<float>>* ParametersAfter(uint32_t relay, uint64_t step) const;

  // A fault of a relay also strikes the servers of its rack, and a power cut all racks.
  void KillAndRestart(ProcessId process) override;
  void StandStill(ProcessId process, Micros until) override;
  void CutOff(ProcessId process) override;
  void CutPower() override;
  void LoseDisk(ProcessId process) override;
  void UseUpDescriptors(ProcessId process, Micros until) override;
  void RefuseCalls(ProcessId process, Micros until) override;
  void CutOneWay(ProcessId from, ProcessId to, Micros until) override;
  // Cuts one direction between the relay and all servers.
  void CutRelay(uint32_t relay, bool to_servers, Micros until);

 private:
  // The state in a relay's process.
  struct Relay {
    uint32_t term = 0;  // The rack's term.
    std::optional<relay::RelayStep> step;
    bool begun = false;    // The open step has begun in the parent job.
    bool joining = false;  // The relay joins the parent job.
    // The relay's thread waits for the parent job: to join, to finish a step, or to end.
    bool busy = false;
    bool lost = false;  // The session is over, but the thread has not noticed.
    std::deque<std::function<void()>> from_below;
    Micros last = 0;           // Arrival time of the last message from the rack.
    uint64_t named_below = 0;  // The newest checkpoint that the rack was told to take.
    std::vector<std::vector<server::Publication>> published;  // For planted bugs.
  };

  // A relay's session begins when its rack asks for it.
  void BeginWorker(uint32_t /*relay*/) override {}
  absl::Status MayRestore(uint32_t relay, uint64_t step) override;
  void BeginWork(uint32_t relay, const protocol::JoinGrant& grant) override;
  void FinishStep(uint32_t relay) override;
  // Holds the report until the rack's checkpoint of this step is complete.
  void ReportWorkerPart(uint32_t relay, const protocol::Sender& sender,
                        protocol::CheckpointPart part) override;
  void SessionEnded(uint32_t relay) override;
  void StateHeard(uint32_t relay) override;
  void Done(uint32_t relay) override;
  void CheckEnd(uint32_t /*relay*/) override {}  // A relay has no parameters.

  // Returns the rack whose servers run in a process; null if none do.
  RackRun* RackIn(ProcessId process) const {
    return IsWorker(process) ? racks_[process - options_.shards] : nullptr;
  }
  void Queue(uint32_t relay, std::function<void()> what);
  void DoQueued(uint32_t relay);
  void JoinAbove(uint32_t relay, uint32_t term);
  void HandUp(uint32_t relay, uint32_t shard, const server::BundleSum& sum);
  void BeginStepAbove(uint32_t relay);
  void AgreeOnParameters(uint32_t relay);
  void TakeResults(uint32_t relay);
  void LoseSession(uint32_t relay);
  uint32_t PlantedWeight(uint32_t n) const;
  void PlantInStep(Relay* relay, uint32_t n, const std::vector<uint32_t>& ready) const;

  std::vector<RackRun*> racks_;
  std::vector<Relay> relays_;
};

}  // namespace sluice
