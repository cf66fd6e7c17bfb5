// SurvivalRun: one simulated job with everything around it: processes, connections, timers, a disk.
// Stands in for the programs' hosts (server/rpc, worker/rpc) as thinly as they do it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "job/layout.h"
#include "job/snapshot.h"
#include "server/core/coordinator.h"
#include "server/core/shard.h"
#include "tests/sim/cluster.h"
#include "tests/sim/survival.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/pipeline.h"

namespace sluice {

using Micros = int64_t;

// Servers come first, then workers.
using ProcessId = uint32_t;
inline constexpr ProcessId kNobody = 0xFFFFFFFF;

// The folder that all processes share. What is in it is durable.
struct SimDisk {
  std::map<uint64_t, std::map<std::string, std::string>> parts;  // By step, by name.
  std::map<uint64_t, CheckpointManifest> manifests;              // By step.
  std::optional<RunRecord> record;
};

struct SimProcess {
  bool up = false;
  uint64_t life = 0;  // Rises at each start and each end.
  Micros stands_still_until = 0;
  Micros cut_off_until = 0;
};

// A worker's connection to a shard. Messages of each direction stay in order.
struct SimLink {
  uint32_t rank = 0;
  uint32_t shard = 0;
  uint64_t worker_life = 0;
  uint64_t session = 0;
  uint64_t server_life = 0;
  Micros last_up = 0;
  Micros last_down = 0;
};

struct SimServer {
  uint64_t incarnation = 0;
  std::unique_ptr<Shard> core;
  uint32_t suspended_term = 0;  // Senders of terms below it are fenced; 0: not suspended.
  ControlStreamId control = 0;  // To the coordinator; 0: none.
  std::shared_ptr<const ShardSnapshot> last_owed;  // For planted bugs.
  Micros last_report = 0;
  Micros last_command = 0;
};

struct SimRank {
  enum class State { kOut, kJoining, kTraining, kLeaving, kDone };
  State state = State::kOut;
  uint64_t session = 0;  // Rises when one begins.
  WorkerJoin join;
  Sender sender;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<BundleEncoder> encoder;
  std::vector<StreamId> links;                 // By shard; 0: down.
  std::vector<std::vector<float>> values;      // Of this step.
  std::vector<std::vector<float>> parameters;  // By tensor.
  std::vector<std::vector<float>> momentum;
  uint64_t step = 0;      // Finished ones.
  uint64_t restored = 0;  // The step it went on from.
  Micros muted_until = 0;
};

class SurvivalRun {
 public:
  explicit SurvivalRun(const SurvivalOptions& options);
  SurvivalReport Run();

 private:
  struct Event {
    Micros at = 0;
    uint64_t sequence = 0;
    ProcessId process = kNobody;
    uint64_t life = 0;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(at, sequence) > std::pair(other.at, other.sequence);
    }
  };

  // The world.
  void At(Micros delay, ProcessId process, std::function<void()> what);
  void ArriveAt(ProcessId process, uint64_t life, Micros* last, std::function<void()> what);
  Micros Delay();
  absl::Time Now() const { return absl::UnixEpoch() + absl::Microseconds(now_); }
  void Trace(uint32_t kind, uint32_t a, uint64_t b, uint32_t c);
  void Violate(std::string what) {
    if (report_.violations.size() < 8) report_.violations.push_back(std::move(what));
  }
  void Start(ProcessId process);
  void Kill(ProcessId process);
  void KillAndRestart(ProcessId process);
  void ScheduleFaults();
  void Strike(Fault fault);
  void CutOff(ProcessId process);
  // Both are up and nothing lies between them.
  bool Reaches(ProcessId from, ProcessId to) const;
  bool JobIsOver() const;
  ProcessId WorkerProcess(uint32_t rank) const { return options_.shards + rank; }
  bool HasBug(SurvivalBug bug) const { return options_.bug == bug; }

  // The disk.
  CheckpointPart WritePart(uint32_t term, uint64_t step, const std::string& name,
                           std::string bytes);
  absl::StatusOr<std::string> ReadPart(uint64_t step, const std::string& name);
  std::vector<CheckpointManifest> UsableCheckpoints() const;
  bool IsWhole(const CheckpointManifest& manifest) const;
  bool disk_full() const { return now_ < disk_full_until_; }

  // The coordinator in server 0.
  void StartCoordinator();
  void TickCoordinator();
  void CarryOut(const Coordinator::Effects& effects);
  void Command(const CommandShard& command);
  void CheckManifest(const CheckpointManifest& manifest);
  void CheckStart(const StartShard& start);

  // Servers.
  void StartServer(uint32_t shard);
  void Dial(uint32_t shard);
  void LoseControl(uint32_t shard);
  void Beat(uint32_t shard);
  void Tell(uint32_t shard, std::function<void(ControlStreamId)> what);
  void Obey(uint32_t shard, const CommandShard& command);
  bool Begin(uint32_t shard, const StartShard& start);
  void Suspend(uint32_t shard, const SuspendShard& suspend);
  void TellPart(uint32_t shard, CheckpointPart part);
  void CarryOut(uint32_t shard, const std::vector<ShardEffect>& effects);
  void Answer(StreamId id, std::shared_ptr<const ExchangeAnswer> answer);
  void Handle(StreamId id, const Exchange& exchange);

  // Workers.
  void BeginSession(uint32_t rank);
  void SendJoin(uint32_t rank);
  void WatchJoin(uint32_t rank, JoinToken token, uint64_t server_life);
  void Joined(uint32_t rank, const absl::StatusOr<JoinGrant>& grant);
  absl::Status Restore(uint32_t rank, const JoinGrant& grant);
  void EndSession(uint32_t rank);
  void InSession(uint32_t rank, Micros delay, std::function<void()> what);
  void OpenLink(uint32_t rank, uint32_t shard);
  void BreakLink(uint32_t rank, uint32_t shard);
  void Send(uint32_t rank, uint32_t shard, const std::shared_ptr<const Exchange>& exchange);
  void CarryOut(uint32_t rank, const Pipeline::Effects& effects);
  void BeginStep(uint32_t rank);
  void EncodeNext(uint32_t rank);
  void FinishStep(uint32_t rank);
  void CheckEnd(uint32_t rank);
  void SaveCheckpoint(uint32_t rank, std::string trainer);
  void TellWorkerPart(uint32_t rank, CheckpointPart part);
  void Heartbeat(uint32_t rank);
  void Leave(uint32_t rank);
  void HearState(uint32_t rank, const absl::StatusOr<JobState>& state);
  void CheckSent(uint32_t rank, uint32_t shard, const Exchange& exchange);
  void CheckResult(uint32_t shard, const ExchangeAnswer& answer);

  const SurvivalOptions options_;
  const ClusterOptions data_;  // What SimValues and SkipsStep go by.
  const TensorTable table_;
  CounterRandom random_;
  Micros now_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
  std::vector<SimProcess> processes_;
  std::vector<SimServer> servers_;
  std::vector<SimRank> ranks_;
  std::vector<SimLink> links_;  // By id - 1.
  SimDisk disk_;
  Micros disk_full_until_ = 0;
  std::set<std::pair<uint64_t, std::string>> damaged_;  // Parts, by step and name.

  std::unique_ptr<Coordinator> coordinator_;
  uint64_t last_incarnation_ = 0;
  uint64_t last_id_ = 0;                                       // Of tokens and control streams.
  std::map<JoinToken, std::pair<uint32_t, uint64_t>> tokens_;  // Rank, session.
  std::map<ControlStreamId, std::pair<uint32_t, uint64_t>> controls_;  // Shard, its life.

  std::map<std::tuple<uint64_t, uint32_t, uint32_t, uint32_t>, uint32_t> sent_;  // Checksums, by
                                                                                 // step, rank,
                                                                                 // shard, bundle.
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, uint32_t> results_;  // By step, shard, bundle.
  SurvivalReport report_;
};

}  // namespace sluice
