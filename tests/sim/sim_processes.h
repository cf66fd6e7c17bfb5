// SPDX-License-Identifier: Apache-2.0
// The state of the simulated processes and of their connections, which SurvivalRun changes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator.h"
#include "server/shard/shard.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/reference.h"
#include "tests/sim/sim_world.h"
#include "worker/core/pipeline.h"

namespace sluice {

// Servers come first, by shard. Workers follow, by rank, and then second processes of shards and
// ranks.
using ProcessId = uint32_t;
inline constexpr ProcessId kNoProcess = 0xFFFFFFFF;

// A worker's stream to a shard. Each direction keeps the order of its messages.
struct SimLink {
  uint32_t rank = 0;
  uint32_t shard = 0;
  uint64_t worker_life = 0;
  uint64_t session = 0;
  ProcessId server = 0;
  uint64_t server_life = 0;
  uint64_t known_incarnation = 0;  // The shard's incarnation that the worker knew.
  bool closed = false;             // Whether the server has noticed the end.
  Micros last_up = 0;
  Micros last_down = 0;
};

struct SimServer {
  uint32_t shard = 0;
  uint64_t number = 0;       // The process's number, for made-up measurements.
  uint64_t incarnation = 0;  // Assigned by the coordinator; 0 if none yet.
  std::unique_ptr<server::Shard> core;
  uint64_t coordinator_incarnation = 0;  // The coordinator whose Start the core obeyed.
  uint32_t term = 0;                     // The term of the last Start or Suspend.
  server::ControlStreamId control = 0;   // The control stream; 0 if none.
  bool is_to_end = false;                // The coordinator has ended the shard.
  // Reported again on every new control stream.
  std::optional<uint64_t> named;
  std::optional<protocol::CheckpointPart> part;
  std::shared_ptr<const protocol::ShardSnapshot> last_owed;  // For planted bugs.
  std::optional<protocol::StartShard> start;                 // For planted bugs.
  std::vector<uint64_t> members;                // Incarnations that the core knows, by rank.
  std::map<uint32_t, server::StreamId> latest;  // The last stream with a message of each rank.
  // Steps and bundles of this core whose results are in the ledger.
  std::set<std::pair<uint64_t, uint32_t>> recorded;
  uint64_t start_told = 0;  // The coordinator's life at an unacknowledged Start, else 0.
  Micros last_report = 0;
  Micros last_command = 0;
  Micros tick_at = 0;  // When the core asked for a tick; 0 if not at all.
};

// The faults that a worker's process suffers.
struct StruckState {
  uint32_t lost_in_a_row = 0;  // Heartbeats that were lost since the last one that arrived.
  Micros muted_until = 0;
  Micros hangs_until = 0;
  Micros hung_since = 0;  // 0 while the worker trains.
};

// The part of a worker's state that only planted bugs need.
struct PlantedState {
  bool told_of_successor = false;
  std::map<BundleKey, worker::EncodeTask> tasks;  // Tasks of this step.
  std::set<BundleKey> sent;
  std::set<BundleKey> answered;  // Bundles with a result.
};

// A worker's process.
struct SimRank {
  enum class State { kOut, kJoining, kTraining, kLeaving, kDone };
  // Returns the state after the process has ended.
  SimRank Ended() const;
  uint32_t rank = 0;
  ProcessId process = 0;
  State state = State::kOut;
  uint64_t session = 0;  // Increases when a session begins.
  protocol::WorkerJoin join;
  protocol::Sender sender;
  std::unique_ptr<worker::Pipeline> pipeline;
  std::unique_ptr<SimEncoder> encoder;
  std::vector<server::StreamId> links;  // By shard; 0 if down.
  std::vector<uint64_t> known;          // By shard: the highest instance that answered.
  std::vector<uint64_t> told;  // By shard: the highest instance that the coordinator named.
  std::vector<std::vector<float>> values;      // Values of this step.
  std::vector<std::vector<float>> parameters;  // By tensor.
  std::vector<std::vector<float>> momentum;
  uint64_t step = 0;        // Finished steps.
  uint64_t skips_left = 0;  // Steps still to skip, which closed without this rank.
  bool learns = false;      // No step has waited for this rank yet.
  uint32_t giver = 0;       // The rank that gives the parameters in step 0.
  uint64_t restored = 0;    // The step of the restored checkpoint.
  std::optional<protocol::CheckpointPart> part;         // Newest durable part, for heartbeats.
  std::deque<std::pair<uint64_t, std::string>> hashes;  // Parameter hashes not yet acknowledged.
  StruckState struck;
  // Requests of the open step, for kKeepsSending.
  std::map<BundleKey, std::shared_ptr<const protocol::ExchangeRequest>> requests;
  bool computes_otherwise = false;  // kOtherBytes has taken effect.
  PlantedState planted;
};

// Returns whether the coordinator refused a process because of its version.
inline bool IsOtherVersion(const absl::Status& status) {
  return absl::IsInvalidArgument(status) &&
         absl::StrContains(status.message(), "use one build everywhere");
}

// Returns whether the coordinator will never accept this process: it has another version, or it was
// evicted while its call to join was answered.
inline bool IsRefusedForGood(const absl::Status& status) {
  const bool evicted = absl::IsFailedPrecondition(status) &&
                       absl::StrContains(status.message(), "evicted this process");
  return evicted || IsOtherVersion(status);
}

inline bool Talks(const SimRank& rank) {
  return rank.state == SimRank::State::kTraining || rank.state == SimRank::State::kLeaving;
}

}  // namespace sluice
