// SurvivalRun: one simulated job with everything around it: processes, connections, timers, a disk.
// Where there are relays it is one of several jobs, which are joined by relay_run.h.
// Stands in for the programs' hosts (server/rpc, worker/rpc) as thinly as they do it.
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
#include "tests/sim/planned_reference.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/quorum_ledger.h"
#include "tests/sim/reference.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/survival.h"
#include "worker/core/pipeline.h"

namespace sluice {

// Times that processes have in common.
inline constexpr Micros kHeartbeat = 5'000;
inline constexpr Micros kRetry = 3'000;     // Of a worker that got no answer.
inline constexpr Micros kRedial = 5'000;    // Of a shard that lost the coordinator.
inline constexpr Micros kWriteMax = 8'000;  // Of a part of a checkpoint.

inline absl::Duration Of(Micros micros) { return absl::Microseconds(micros); }

// Servers come first, by shard, then workers, by rank, then second instances of shards.
using ProcessId = uint32_t;
inline constexpr ProcessId kNobody = 0xFFFFFFFF;

// The folder that all processes share. What is in it is durable.
struct SimDisk {
  std::map<uint64_t, std::map<std::string, std::string>> parts;  // By step, by name.
  std::map<uint64_t, protocol::CheckpointManifest> manifests;    // By step.
  std::optional<protocol::RunRecord> record;
};

// A worker's stream to a shard. Messages of each direction stay in order.
struct SimLink {
  uint32_t rank = 0;
  uint32_t shard = 0;
  uint64_t worker_life = 0;
  uint64_t session = 0;
  ProcessId server = 0;
  uint64_t server_life = 0;
  uint64_t known_incarnation = 0;  // What the worker had seen of the shard.
  bool closed = false;             // As the server knows it.
  Micros last_up = 0;
  Micros last_down = 0;
};

struct SimServer {
  uint32_t shard = 0;
  uint64_t number = 0;       // Number of the process, for made-up measurements.
  uint64_t incarnation = 0;  // As the coordinator gave it; 0: not yet.
  std::unique_ptr<server::Shard> core;
  uint64_t coordinator_incarnation = 0;  // Whose Start the core obeyed.
  uint32_t term = 0;                     // Of the last Start or Suspend.
  server::ControlStreamId control = 0;   // To the coordinator; 0: none.
  bool is_to_end = false;                // The coordinator has said so.
  // Said again on every new control stream.
  std::optional<uint64_t> named;
  std::optional<protocol::CheckpointPart> part;
  std::shared_ptr<const protocol::ShardSnapshot> last_owed;  // For planted bugs.
  std::optional<server::StartShard> start;                   // Likewise.
  std::vector<uint64_t> members;                             // Likewise: incarnations, by rank.
  std::map<uint32_t, server::StreamId> latest;               // That a rank was heard on.
  uint64_t start_told = 0;  // The coordinator's life then; 0: it was heard.
  Micros last_report = 0;
  Micros last_command = 0;
  Micros tick_at = 0;  // The next that the core asked for; 0: none.
};

struct SimRank {
  enum class State { kOut, kJoining, kTraining, kLeaving, kDone };
  State state = State::kOut;
  uint64_t session = 0;  // Rises when one begins.
  server::WorkerJoin join;
  protocol::Sender sender;
  std::unique_ptr<worker::Pipeline> pipeline;
  std::unique_ptr<SimEncoder> encoder;
  std::vector<server::StreamId> links;         // By shard; 0: down.
  std::vector<uint64_t> known;                 // By shard: the highest instance that answered.
  std::vector<uint64_t> told;                  // By shard: the highest of which it was told.
  std::vector<std::vector<float>> values;      // Of this step.
  std::vector<std::vector<float>> parameters;  // By tensor.
  std::vector<std::vector<float>> momentum;
  uint64_t step = 0;                                    // Finished ones.
  uint64_t skips_left = 0;                              // Of steps that closed without it.
  bool learns = false;                                  // It was waited for in no step so far.
  uint32_t giver = 0;                                   // Of the parameters of step 0.
  uint64_t restored = 0;                                // The step it went on from.
  std::optional<protocol::CheckpointPart> part;         // Newest durable one; said in heartbeats.
  std::deque<std::pair<uint64_t, std::string>> hashes;  // Of parameters, until they were heard.
  Micros muted_until = 0;
  bool computes_otherwise = false;  // kOtherBytes has had its effect.
  // For planted bugs.
  std::map<BundleKey, worker::EncodeTask> tasks;  // Of this step.
  std::set<BundleKey> sent;
  std::set<BundleKey> answered;  // Got its result.
};

// One job, to its end or its first violation.
SurvivalReport RunJob(const SurvivalOptions& options, SimWorld* world);

inline bool Talks(const SimRank& rank) {
  return rank.state == SimRank::State::kTraining || rank.state == SimRank::State::kLeaving;
}

class SurvivalRun {
 public:
  // Both outlive it.
  SurvivalRun(const SurvivalOptions& options, SimWorld* world, const JobReference* reference);
  virtual ~SurvivalRun() = default;
  SurvivalRun(const SurvivalRun&) = delete;
  SurvivalRun& operator=(const SurvivalRun&) = delete;

  // Of a job whose plans go by what is measured; it is the reference, too, and outlives this.
  void Follow(PlannedReference* planned) { planned_ = planned; }
  void StartAll();
  void ScheduleFaults();
  bool JobIsOver() const;
  void CheckAtTheEnd();
  void TakeLedger();
  // For people.
  std::string WhereRanksAre() const;

 protected:
  // The world.
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
  void KillAndRestart(ProcessId process);
  void KillAndRestartLater(ProcessId process);
  void GiveUp(uint32_t rank);
  ProcessId WorkerProcess(uint32_t rank) const { return options_.shards + rank; }
  bool IsWorker(ProcessId process) const {
    return process >= options_.shards && process < options_.shards + options_.ranks;
  }
  bool HasBug(SurvivalBug bug) const { return options_.bug == bug; }
  bool HasCheckpoints() const { return options_.checkpoint_every > 0; }

  // Faults: survival_faults.cc.
  void Strike(Fault fault);
  bool StrikesMessage(Fault fault, const Channel& channel, double share);
  // What a fault strikes, or for how long: by a name that is written into replay scripts.
  uint32_t Some(const char* name, size_t count) {
    return static_cast<uint32_t>(chance_.Choose(name, count));
  }
  // A shard's or a rank's, as it is now.
  ProcessId Present(uint32_t index) const;
  ProcessId SomeProcess() { return Present(Some("process", options_.shards + options_.ranks)); }
  ProcessId SomeOtherServer();
  void CutOff(ProcessId process);
  void StartSecondInstance(uint32_t shard);
  void KillAndComputeOtherwise(uint32_t rank);
  bool DamageNewest();
  void LoseDisk(ProcessId process);
  // Both are up and nothing lies between them.
  bool Reaches(ProcessId from, ProcessId to) const;

  // The disk.
  protocol::CheckpointPart WritePart(uint32_t term, uint64_t step, const std::string& name,
                                     std::string bytes);
  absl::StatusOr<std::string> ReadPart(uint64_t step, const std::string& name);
  std::vector<protocol::CheckpointManifest> UsableCheckpoints() const;
  bool IsWhole(const protocol::CheckpointManifest& manifest) const;
  bool disk_full() const { return now_ < world_.disk_full_until; }

  // The coordinator in server 0.
  void StartCoordinator();
  void TickCoordinator();
  void CarryOut(const server::Coordinator::Effects& effects);
  void CarryOut(const server::AnswerJoin& join);
  void CarryOut(const server::RefuseShard& refusal);
  void CarryOut(const server::WriteCheckpoint& write);
  void Persist(const protocol::RunRecord& record, const server::Coordinator::Effects& effects);
  void Command(const server::CommandShard& command);

  // Servers.
  void StartServer(ProcessId process);
  void Dial(ProcessId process);
  void LoseControl(ProcessId process);
  void Beat(ProcessId process);
  void TellHealth(ProcessId process);
  void Tell(ProcessId process,
            std::function<void(server::ControlStreamId, server::Coordinator::Effects*)> what);
  void TellPart(ProcessId process, protocol::CheckpointPart part);
  void Obey(ProcessId process, const server::CommandShard& command);
  bool Begin(ProcessId process, const server::StartShard& start);
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> ReadShardSnapshot(
      SimServer* server, const server::StartShard& start, bool survived);
  uint64_t MaxMemory(uint32_t shard, const protocol::Layout& layout) const;
  void Suspend(ProcessId process, const server::SuspendShard& suspend);
  void CarryOut(ProcessId process, const std::vector<server::ShardEffect>& effects);
  void TickWhenDue(ProcessId process);
  void Record(const SimServer& server, const std::vector<server::ShardEffect>& effects);
  void TakeLastWork(ProcessId process);
  bool PlantInLateWork(ProcessId process, server::StreamId id, const protocol::Exchange& exchange);
  void AnswerTheOthersToo(ProcessId process, const std::vector<server::ShardEffect>& effects);
  void WriteSnapshot(ProcessId process, const server::TakeSnapshot& take);
  void Answer(server::StreamId id, std::shared_ptr<const protocol::ExchangeAnswer> answer);
  void Handle(server::StreamId id, const protocol::Exchange& exchange);

  // Workers.
  std::vector<protocol::CompressionPlan> FirstPlans() const;
  void BeginSession(uint32_t rank);
  void SendJoin(uint32_t rank);
  void WatchJoin(uint32_t rank, server::JoinToken token, uint64_t server_life);
  void Joined(uint32_t rank, const absl::StatusOr<server::JoinGrant>& grant);
  absl::Status Restore(uint32_t rank, const server::JoinGrant& grant);
  std::string PartToBeginWith(uint32_t rank, const server::JoinGrant& grant, bool* own) const;
  void EndSession(uint32_t rank);
  void InSession(uint32_t rank, Micros delay, std::function<void()> what);
  void OpenLink(uint32_t rank, uint32_t shard);
  void BreakLink(uint32_t rank, uint32_t shard);
  void Redial(uint32_t rank, uint32_t shard);
  void GoWhereShardsAre(uint32_t rank, const server::JobState& state);
  void Send(uint32_t rank, uint32_t shard, std::shared_ptr<const protocol::Exchange> exchange);
  void Deliver(server::StreamId id, const std::shared_ptr<const protocol::Exchange>& exchange,
               bool reply_is_lost);
  void Hear(server::StreamId id, const protocol::ExchangeAnswer& answer, uint64_t incarnation);
  std::shared_ptr<const protocol::Exchange> Planted(
      uint32_t rank, uint32_t shard, std::shared_ptr<const protocol::Exchange> exchange);
  void ApplyAgain(uint32_t rank, uint32_t shard, const protocol::ExchangeAnswer& answer);
  void CarryOut(uint32_t rank, const worker::Pipeline::Effects& effects);
  void PipelineEnded(uint32_t rank, const absl::Status& status);
  void BeginStep(uint32_t rank);
  void EncodeNext(uint32_t rank);
  void ApplyTensor(SimRank* rank, uint32_t tensor);
  void SaveCheckpoint(uint32_t rank, std::string trainer);
  void TellWorkerPart(uint32_t rank, const protocol::Sender& sender, protocol::CheckpointPart part);
  server::WorkerHeartbeat Compose(uint32_t rank) const;
  void Heartbeat(uint32_t rank);
  void Leave(uint32_t rank);
  absl::StatusOr<server::JobState> Heard(const absl::StatusOr<server::JobState>& state,
                                         const protocol::Sender& sender);
  void HearState(uint32_t rank, const absl::StatusOr<server::JobState>& state, uint64_t hash_step);

  // Promises: survival_checks.cc.
  void CheckSent(uint32_t rank, uint32_t shard, const protocol::Exchange& exchange);
  void CheckResult(uint32_t shard, const protocol::ExchangeAnswer& answer);
  void CheckManifest(const protocol::CheckpointManifest& manifest);
  void CheckStart(const server::StartShard& start);
  void CheckTold(uint32_t rank, const protocol::ExchangeAnswer& answer);
  void CheckMembers(uint32_t generation, const std::vector<uint64_t>& incarnations);
  void CheckGrant(const server::JoinGrant& grant);
  void CheckRollback(const server::Coordinator::Effects& effects);
  void CheckCaps(const SimServer& server);
  void CheckCaps(const SimRank& rank);
  virtual void CheckEnd(uint32_t rank);
  void CheckUplink(uint32_t rank);
  void CheckShards();
  void NoteWhoIsAlive();
  bool MayEndByAlarm(absl::string_view failure) const;
  uint64_t NewestCheckpoint() const;

  // What is otherwise where there are relays: relay_run.cc.
  bool in_rack() const { return options_.rack_of > 0; }
  bool of_relays() const { return !options_.weights.empty(); }
  virtual void BeginWorker(uint32_t rank) { BeginSession(rank); }
  virtual absl::Status MayRestore(uint32_t /*rank*/, uint64_t /*step*/) { return absl::OkStatus(); }
  virtual void BeginWork(uint32_t rank, const server::JoinGrant& grant);
  virtual void FinishStep(uint32_t rank);
  virtual void SessionEnded(uint32_t rank);
  virtual void StateHeard(uint32_t /*rank*/) {}
  // A worker has finished, and knows that all have.
  virtual void Done(uint32_t /*rank*/) {}
  virtual void Asked(const server::AskAbove& /*ask*/) {}
  virtual void Finished(const server::LeaveAbove& /*leave*/) {}
  virtual void Summed(uint32_t /*shard*/, std::shared_ptr<const server::BundleSum> /*sum*/) {}

  const SurvivalOptions options_;
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  const JobReference& reference_;
  PlannedReference* planned_ = nullptr;
  uint32_t planned_term_ = 0;  // That it is of.
  QuorumLedger ledger_;
  AnswerForger forger_;
  SimWorld& world_;
  SimChance& chance_;                 // The world's.
  const Micros& now_;                 // Likewise.
  SurvivalReport& report_;            // Likewise.
  std::deque<SimProcess> processes_;  // Events point at them.
  std::map<ProcessId, SimServer> servers_;
  std::vector<ProcessId> serving_;  // By shard: where its address leads.
  std::vector<SimRank> ranks_;
  std::deque<SimLink> links_;  // By id - 1.
  SimDisk disk_;
  std::set<std::pair<uint64_t, std::string>> damaged_;  // Parts, by step and name.
  // A damaged checkpoint was dropped, and none was completed since.
  bool dropped_damaged_ = false;
  std::set<uint64_t> refused_;     // Steps of checkpoints that some rack lacks.
  std::set<uint64_t> not_usable_;  // Likewise, which the present coordinator found damaged.
  // By rank: the step at which its next worker of this term computes something else.
  std::map<uint32_t, std::pair<uint32_t, uint64_t>> other_bytes_;

  std::unique_ptr<server::Coordinator> coordinator_;
  uint64_t last_number_ = 0;
  uint64_t last_id_ = 0;  // Of tokens and control streams.
  std::map<server::JoinToken, std::pair<uint32_t, uint64_t>> tokens_;           // Rank, session.
  std::map<server::ControlStreamId, std::pair<ProcessId, uint64_t>> controls_;  // With its life.

  uint64_t rollbacks_ = 0;
  uint64_t reexecuted_ = 0;  // Ranks.
  Micros worker_heard_ = 0;  // Some worker of the present term, by the coordinator.
  bool crashed_after_result_ = false;
  // What allows a rollback of the present term; empty: nothing does.
  std::string excuse_;
  bool computes_otherwise_ = false;  // Some worker of the present term does,
  uint64_t otherwise_from_ = 0;      // from this step on.
};

}  // namespace sluice
