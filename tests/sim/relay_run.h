// A simulated job with relays: a job above, whose workers are the relays, and one for each rack,
// whose servers are in its relay's process. AboveRun and RackRun are those jobs; what a relay has
// between its two sides (relay/relay.cc) is AboveRun's. docs/simulation.md.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "relay/relay_step.h"
#include "tests/sim/survival_run.h"

namespace sluice {

class AboveRun;

class RackRun final : public SurvivalRun {
 public:
  RackRun(const SurvivalOptions& options, SimWorld* world, const JobReference* reference,
          uint32_t relay, AboveRun* above)
      : SurvivalRun(options, world, reference), relay_(relay), above_(*above) {}

  // The relay's process.
  void KillServers();
  void StartServers();
  // What its upper side says, as of Server.
  void BeginTerm(uint32_t term, uint64_t restore_step, bool parameters_agree);
  void AboveLost(uint32_t term);
  void FinishAbove(uint32_t term);
  void Publish(uint32_t term, const std::vector<std::vector<server::Publication>>& publications);
  void Release(uint64_t durable_step);
  bool HasCheckpoint(uint64_t step) const;
  // The job had finished, and its relay was lost before it could say so.
  void EndWithTheJob();
  bool ended_with_the_job() const { return ended_with_the_job_; }

  uint64_t rollbacks() const { return rollbacks_; }
  void KillAndRestartWorkers();
  void StrikeWorker(Fault fault);
  void PauseRelay(Micros until);
  void PauseWorker(Micros until);
  // The rack's network, for a while.
  void CutOffWorkers();
  void LoseServersDisk();

 private:
  void Asked(const server::AskAbove& ask) override;
  void Finished(const server::LeaveAbove& leave) override;
  void Summed(uint32_t shard, std::shared_ptr<const server::BundleSum> sum) override;

  const uint32_t relay_;
  AboveRun& above_;
  bool ended_with_the_job_ = false;
};

class AboveRun final : public SurvivalRun {
 public:
  AboveRun(const SurvivalOptions& options, SimWorld* world, const JobReference* reference)
      : SurvivalRun(options, world, reference), relays_(options.ranks) {}
  // Before StartAll.
  void SetRacks(const std::vector<RackRun*>& racks) { racks_ = racks; }

  // What a rack's servers have for the job above, in order.
  void Ask(uint32_t relay, const server::AskAbove& ask);
  void TakeSum(uint32_t relay, uint32_t shard, std::shared_ptr<const server::BundleSum> sum);
  void Finish(uint32_t relay, const server::LeaveAbove& leave);

  uint64_t rollbacks() const { return rollbacks_; }
  uint64_t reexecuted() const { return reexecuted_; }
  void KillAndRestartRelay(uint32_t relay);
  void KillAndRestartShards();
  // For people.
  std::string WhereRelaysAre() const;
  void StrikeAt(Fault fault) { Strike(fault); }
  void CutOffRelay(uint32_t relay) { CutOff(WorkerProcess(relay)); }
  void PauseRelay(uint32_t relay, Micros until);
  void PauseShard(Micros until);
  void LoseRelaysDisk(uint32_t relay);

 private:
  // What a relay's process holds.
  struct Relay {
    uint32_t term = 0;  // Of the rack.
    std::optional<relay::RelayStep> step;
    bool begun = false;    // The open step, above.
    bool joining = false;  // Above.
    bool busy = false;     // Its thread waits for the job above: to join, for a step, for the end.
    bool lost = false;     // The session is over, which the thread has not seen yet.
    std::deque<std::function<void()>> from_below;
    Micros last = 0;                                          // Of what comes from below.
    std::vector<std::vector<server::Publication>> published;  // For planted bugs.
  };

  // A relay's session begins when its rack asks.
  void BeginWorker(uint32_t /*relay*/) override {}
  absl::Status MayRestore(uint32_t relay, uint64_t step) override;
  void BeginWork(uint32_t relay, const server::JoinGrant& grant) override;
  void FinishStep(uint32_t relay) override;
  void SessionEnded(uint32_t relay) override;
  void StateHeard(uint32_t relay) override;
  void Done(uint32_t relay) override;
  void CheckEnd(uint32_t /*relay*/) override {}  // A relay has no parameters of its own.

  void Queue(uint32_t relay, std::function<void()> what);
  void DoQueued(uint32_t relay);
  void JoinAbove(uint32_t relay, uint32_t term);
  void HandUp(uint32_t relay, uint32_t shard, const server::BundleSum& sum);
  void AgreeOnParameters(uint32_t relay);
  void LoseSession(uint32_t relay);
  uint32_t PlantedWeight(uint32_t n) const;
  void PlantInStep(Relay* relay, const std::vector<uint32_t>& ready) const;

  std::vector<RackRun*> racks_;
  std::vector<Relay> relays_;
};

}  // namespace sluice
