// SPDX-License-Identifier: Apache-2.0
// SurvivalRun simulates one job with its processes, connections, timers and disk. With relays, it
// is one of several jobs, which relay_run.h connects. It is a thin replacement for the programs'
// hosts (server/rpc, worker/rpc).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator.h"
#include "server/shard/shard.h"
#include "tests/sim/async_checks.h"
#include "tests/sim/planned_reference.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/quorum_ledger.h"
#include "tests/sim/reference.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_processes.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/survival.h"
#include "worker/core/pipeline.h"

namespace sluice {

// Delays that all processes share.
inline constexpr Micros kHeartbeat = 5'000;
// If more heartbeats of a worker were lost in a row, its lease would end. A job without checkpoints
// would end with it.
inline constexpr uint32_t kMostLostInARow = 3;
inline constexpr Micros kRetry = 3'000;   // Until a worker without an answer tries again.
inline constexpr Micros kRedial = 5'000;  // Until a shard that lost the coordinator redials.

class SurvivalRun {
 public:
  // `world` and `reference` outlive it. With `earlier`, this run continues that run after all its
  // processes have ended, possibly with another number of workers.
  SurvivalRun(const SurvivalOptions& options, SimWorld* world, const JobReference* reference,
              const SurvivalRun* earlier = nullptr);
  virtual ~SurvivalRun() = default;
  SurvivalRun(const SurvivalRun&) = delete;
  SurvivalRun& operator=(const SurvivalRun&) = delete;

  // For a job whose course cannot be derived in advance. `planned` is also the reference, and
  // outlives this object.
  void Follow(PlannedReference* planned) { planned_ = planned; }
  void StartAll();
  void Strike(Fault fault);
  bool JobIsOver() const;
  // Returns whether the record says that the job has finished.
  bool IsFinished() const { return disk_.finished(); }
  void CheckAtTheEnd();
  void CollectViolations();
  // Describes the ranks for logs.
  std::string WhereRanksAre() const;

 protected:
  // Events and their delays.
  void At(Micros delay, ProcessId process, std::function<void()> what);
  void ArriveAt(const Channel& channel, ProcessId process, uint64_t life, Micros* last,
                std::function<void()> what);
  Micros Delay(const Channel& channel);
  Micros Below(const Channel& channel, Micros bound) {
    return static_cast<Micros>(chance_.Below(channel, static_cast<uint64_t>(bound)));
  }
  absl::Time Now() const { return absl::UnixEpoch() + absl::Microseconds(now_); }
  void Trace(uint32_t kind, uint32_t a, uint64_t b, uint32_t c);
  void Violate(std::string what) {
    if (report_.violations.size() < 8) report_.violations.push_back(std::move(what));
  }
  void Start(ProcessId process);
  void Kill(ProcessId process);
  void KillWorker(uint32_t rank);
  virtual void KillAndRestart(ProcessId process);
  void KillAndRestartLater(ProcessId process);
  void GiveUp(uint32_t rank);
  ProcessId WorkerProcess(uint32_t index) const { return ranks_[index].process; }
  // Returns the index of the worker in `ranks_`, which is its rank unless it is a second process.
  uint32_t IndexOf(ProcessId process) const;
  bool IsWorker(ProcessId process) const { return IndexOf(process) < ranks_.size(); }
  bool HasBug(SurvivalBug bug) const { return options_.bug == bug; }
  bool HasCheckpoints() const { return options_.checkpoint_interval > 0; }

  // Faults; see survival_faults.cc. Some processes of jobs with relays belong to two jobs, so that
  // the virtual functions also strike the other job.
  void StrikeNetwork(Fault fault, uint32_t rank);
  bool StrikesMessage(Fault fault, const Channel& channel, double share);
  // Draws the target or duration of a fault. Replay scripts record the draw under `name`.
  uint32_t Some(const char* name, size_t count) {
    return static_cast<uint32_t>(chance_.Choose(name, count));
  }
  // Returns the current process of a shard or rank.
  ProcessId Present(uint32_t index) const;
  ProcessId SomeProcess() { return Present(Some("process", options_.shards + options_.ranks)); }
  ProcessId SomeOtherServer();
  virtual void CutOff(ProcessId process);
  virtual void CutPower();
  virtual void StandStill(ProcessId process, Micros until) {
    processes_[process].StandStill(until);
  }
  void StartSecondInstance(uint32_t shard);
  void StartSecondWorker(uint32_t rank);
  void RollOut();
  void KillAndComputeOtherwise(uint32_t rank);
  void ReplaceWhileItSends(uint32_t rank);
  virtual void LoseDisk(ProcessId process);
  void RequestCheckpoints();
  // Returns whether a call between both processes arrives.
  bool Reaches(ProcessId from, ProcessId to) const;
  // Returns the end of the last cut that stops messages in this direction.
  Micros CutUntil(ProcessId from, ProcessId to) const;
  bool CanConnect(ProcessId from, ProcessId to) const;
  void CutOneWay();
  virtual void CutOneWay(ProcessId from, ProcessId to, Micros until) {
    processes_[from].cut_to[to] = until;
  }
  virtual void UseUpDescriptors(ProcessId process, Micros until) {
    processes_[process].no_descriptors_until = until;
  }
  virtual void RefuseCalls(ProcessId process, Micros until) {
    processes_[process].refused_until = until;
  }

  // The coordinator, which runs in server 0.
  void StartCoordinator();
  void StopCoordinator();
  void Deliver(const server::CoordinatorEffect& effect);
  void CheckFailure();
  void CarryOut(const server::AnswerJoin& join);
  void CarryOut(const server::RefuseShard& refusal);
  void Command(const server::CommandShard& command);

  // Servers.
  void StartServer(ProcessId process);
  void Dial(ProcessId process);
  void LoseControl(ProcessId process);
  void Beat(ProcessId process);
  void TickShard(ProcessId process);
  void ReportHealth(ProcessId process);
  void Report(ProcessId process,
              std::function<void(server::ControlStreamId, server::Coordinator::Effects*)> what);
  void ReportPart(ProcessId process, protocol::CheckpointPart part);
  void Obey(ProcessId process, const server::CommandShard& command);
  bool Begin(ProcessId process, const protocol::StartShard& start);
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> ReadShardSnapshot(
      SimServer* server, const protocol::StartShard& start, bool survived);
  void Suspend(ProcessId process, const protocol::SuspendShard& suspend);
  void CarryOut(ProcessId process, const std::vector<server::ShardEffect>& effects);
  void TickWhenDue(ProcessId process);
  void Record(SimServer* server, const std::vector<server::ShardEffect>& effects);
  void FinishLastWork(ProcessId process);
  bool PlantInLateWork(ProcessId process, server::StreamId id,
                       const protocol::ExchangeRequest& exchange);
  void AnswerTheOthersToo(ProcessId process, const std::vector<server::ShardEffect>& effects);
  void WriteSnapshot(ProcessId process, const server::WriteSnapshot& take);
  // Writes a part in the background and calls `written` in the same process if it still runs.
  void WritePart(ProcessId process, protocol::CheckpointPart part, std::string bytes,
                 std::function<void(protocol::CheckpointPart)> written);
  // Returns the process whose disk has the part: the writer, or the shard that stores it.
  ProcessId HomeOf(ProcessId writer, const protocol::CheckpointPart& part) const {
    return options_.parts_at_shards && IsWorker(writer) ? serving_[part.server] : writer;
  }
  // Returns whether the process can read a checkpoint part now. `server` is the shard that stores
  // the part if parts are at shards.
  bool CanRead(ProcessId process, uint32_t server) const;
  void Answer(server::StreamId id, std::shared_ptr<const protocol::ExchangeReply> answer);
  void Handle(server::StreamId id, const protocol::ExchangeRequest& exchange);

  // Workers.
  std::vector<protocol::CompressionPlan> FirstPlans() const;
  void BeginSession(uint32_t rank);
  void SendJoin(uint32_t rank);
  void WatchJoin(uint32_t rank, server::JoinToken token, uint64_t server_life);
  void Joined(uint32_t rank, const absl::StatusOr<protocol::JoinGrant>& grant);
  void Prepare(uint32_t rank, const protocol::JoinGrant& grant);
  void FinishJoin(uint32_t rank, const protocol::JoinGrant& grant);
  absl::Status Restore(uint32_t rank, const protocol::JoinGrant& grant);
  void EndSession(uint32_t rank);
  void InSession(uint32_t rank, Micros delay, std::function<void()> what);
  void OpenLink(uint32_t rank, uint32_t shard);
  void BreakLink(uint32_t rank, uint32_t shard);
  void Redial(uint32_t rank, uint32_t shard);
  void GoWhereShardsAre(uint32_t rank, const protocol::JobState& state);
  void Send(uint32_t rank, uint32_t shard,
            std::shared_ptr<const protocol::ExchangeRequest> exchange);
  void Deliver(server::StreamId id,
               const std::shared_ptr<const protocol::ExchangeRequest>& exchange,
               bool reply_is_lost);
  void ReceiveAnswer(server::StreamId id, const protocol::ExchangeReply& answer,
                     uint64_t incarnation);
  std::shared_ptr<const protocol::ExchangeRequest> Planted(
      uint32_t rank, uint32_t shard, std::shared_ptr<const protocol::ExchangeRequest> exchange);
  void CarryOut(uint32_t rank, const worker::Pipeline::Effects& effects);
  void PipelineEnded(uint32_t rank, const absl::Status& status);
  void BeginStep(uint32_t rank);
  void EncodeNext(uint32_t rank);
  void ApplyTensor(SimRank* rank, uint32_t tensor);
  void SaveCheckpoint(uint32_t rank, std::string trainer);
  virtual void ReportWorkerPart(uint32_t rank, const protocol::Sender& sender,
                                protocol::CheckpointPart part);
  protocol::WorkerHeartbeat Compose(uint32_t rank) const;
  void Heartbeat(uint32_t rank);
  void Leave(uint32_t rank);
  // Carries out the effects of a worker's call and returns what the worker hears.
  absl::StatusOr<protocol::JobState> DeliverState(absl::StatusOr<protocol::JobState> decided,
                                                  const protocol::WorkerHeartbeat& heartbeat,
                                                  const server::Coordinator::Effects& effects);
  void HandleState(uint32_t rank, const absl::StatusOr<protocol::JobState>& state,
                   uint64_t hash_step);

  // Promises; see survival_checks.cc.
  void CheckSent(uint32_t rank, uint32_t shard, const protocol::ExchangeRequest& exchange);
  void CheckResult(uint32_t shard, const protocol::ExchangeReply& answer);
  void CheckStart(const protocol::StartShard& start);
  void CheckTold(uint32_t rank, const protocol::ExchangeReply& answer);
  void CheckMembers(uint32_t generation, const std::vector<uint64_t>& incarnations);
  void CheckGrant(const protocol::JoinGrant& grant);
  // `before` is the newest record that the coordinator has decided to write before the rollback.
  void CheckRollback(const protocol::RunRecord& before,
                     const server::Coordinator::Effects& effects);
  void CheckCaps(const SimServer& server);
  void CheckCaps(const SimRank& rank);
  virtual void CheckEnd(uint32_t rank);
  void CheckUplink(uint32_t rank);
  void CheckShards();
  // Returns whether a worker of the term trains, leaves or is done.
  bool HasWorkerOf(uint32_t term) const;
  // Returns whether another process has taken over the worker's rank in the same term, or joins
  // and may have done so.
  bool HasSuccessor(const SimRank& rank) const;
  // Returns whether AsyncChecks follows this process of the rank.
  bool IsChecked(const SimRank& rank) const {
    return async_ != nullptr && async_->IsCurrent(rank.sender);
  }
  void NoteWhoIsAlive();
  bool MayEndByAlarm(absl::string_view failure) const;

  // Differences in jobs with relays; see relay_run.cc.
  bool in_rack() const { return options_.rack_of > 0; }
  bool of_relays() const { return !options_.weights.empty(); }
  virtual void BeginWorker(uint32_t rank) { BeginSession(rank); }
  virtual absl::Status MayRestore(uint32_t /*rank*/, uint64_t /*step*/) { return absl::OkStatus(); }
  virtual void BeginWork(uint32_t rank, const protocol::JoinGrant& grant);
  virtual void FinishStep(uint32_t rank);
  virtual void SessionEnded(uint32_t rank);
  virtual void StateHeard(uint32_t /*rank*/) {}
  // Called when a worker has finished and knows that all ranks have finished.
  virtual void Done(uint32_t /*rank*/) {}
  virtual void Asked(const server::AskParent& /*ask*/) {}
  virtual void Finished(const server::LeaveParent& /*leave*/) {}
  virtual void Summed(uint32_t /*shard*/, std::shared_ptr<const server::BundleSum> /*sum*/) {}

  const SurvivalOptions options_;
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  const JobReference& reference_;
  PlannedReference* planned_ = nullptr;
  std::optional<uint32_t> planned_term_;  // The term that `planned_` follows.
  QuorumLedger ledger_;
  std::unique_ptr<AsyncChecks> async_;  // Null in lockstep modes.
  AnswerForger forger_;
  SimWorld& world_;
  SimChance& chance_;                 // Owned by the world.
  const Micros& now_;                 // Owned by the world.
  SurvivalReport& report_;            // Owned by the world.
  std::deque<SimProcess> processes_;  // Events point to its elements.
  std::map<ProcessId, SimServer> servers_;
  std::vector<ProcessId> serving_;  // By shard: the process at the shard's address.
  std::vector<SimRank> ranks_;      // By rank, and then second processes.
  std::deque<SimLink> links_;       // The link with a given id is at index id - 1.
  SimDisk disk_;
  // By rank: the term, and the step at which the rank's next worker of that term computes other
  // values.
  std::map<uint32_t, std::pair<uint32_t, uint64_t>> other_bytes_;

  std::unique_ptr<SimCoordinator> coordinator_;
  uint64_t last_number_ = 0;
  uint64_t last_id_ = 0;  // For tokens and control streams.
  std::map<server::JoinToken, std::pair<uint32_t, uint64_t>> tokens_;           // Rank and session.
  std::map<server::ControlStreamId, std::pair<ProcessId, uint64_t>> controls_;  // Process and life.

  uint64_t rollbacks_ = 0;
  uint64_t reexecuted_ = 0;  // Ranks that re-executed steps.
  Micros worker_heard_ = 0;  // When the coordinator last heard a worker of this term.
  bool crashed_after_result_ = false;
  // The reason that allows a rollback of the current term; empty if none does.
  std::string excuse_;
  bool computes_otherwise_ = false;  // Some worker of this term computes other values.
  uint64_t otherwise_from_ = 0;      // The first step with other values.
};

}  // namespace sluice
