// SPDX-License-Identifier: Apache-2.0
// Runs the scenarios in tests/server/coordinator/scenarios: text files of commands to a
// coordinator, each followed by the coordinator's effects.
//
//   scenario A name
//   job checkpoint_interval=100      Commands begin in the first column.
//     record: term 0 ...             Effects are indented.
//
// Lines that begin with # are comments. SLUICE_REWRITE_SCENARIOS=1 makes the test write the effects
// that it saw into the files; read the difference before you commit it.
//
// Workers, shards and calls have labels. `join 1` makes a call w1, `join 1 as=new` a call "new";
// `attach 0` opens a stream s0. A call that was granted names the worker in later commands.
//
//   job KEY=VALUE...         workers, shards, checkpoint_interval, keep, replay_limit,
//                            store=shards, start and least (elastic), stall, lockstep=no, rack,
//                            steps_per_exchange, why_no_replay, update=shards
//   restart KEY=VALUE...     a new coordinator with the last record and the complete checkpoints;
//                            checkpoints=200,100 names others; finished=1 and coordinator=N change
//                            the record; keys of `job` change the options
//   start                    all workers join, all shards attach and acknowledge; prints only the
//                            state that this leads to, but `start show` prints everything
//   join RANK                as, nonce, sha, shape, job, hash, version, host, pid
//   cancel CALL              the caller of a join or of a request has disconnected
//   attach SHARD             as, process, nonce, address, version, term (of a process that runs)
//   ack STREAM [KIND]        acknowledges the newest command on the stream, or the newest of a kind
//                            (start, members); before=N, the number that is lower by N; sequence=N,
//                            any number; `ack all` all streams
//   detach STREAM            the stream has closed
//   beat WORKER              step, replay_from, stalled, restoring, residual, hash=STEP, sha,
//                            known, part=STEP, name, error; wrong=run|rank|holder
//   health STREAM            closed, results_from
//   leave WORKER [finished]  reason, replay_from
//   part worker WORKER STEP  error, unreadable, name, server, checksum, term: a checkpoint's part
//   part shard STREAM STEP   `parts STEP` sends those of the newest workers and streams, and
//                            `parts STEP SENDER...` those of these workers and streams
//   examined STREAM STEP     the shard has examined a part; name, error
//   named STREAM STEP        shard 0 has named a checkpoint
//   written STEP             the manifest is durable; error
//   request CALL             asks for a checkpoint
//   differs STREAM RANK      the shard received different bytes in a replay; reason
//   refuses STREAM WORKER    the shard of an elastic job serves the worker no more; reason
//   fail REASON              ends the job
//   tick TIME                advances the time in one tick
//   pass TIME REPORTER...    advances the time in ticks of a second, or of every=TIME. Workers and
//                            streams report after each tick: that they have reached step=STEP,
//                            otherwise as in their last report.
//   status                   prints the status
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/coordinator.h"
#include "tests/server/coordinator/effect_text.h"
#include "tests/server/coordinator/scenario_text.h"

namespace sluice::server {

// Runs one scenario, which is the text of a file from a `scenario` line up to the next. Returns the
// text with the effects that the coordinator had.
std::string RunScenario(absl::string_view text);

// The coordinator of a scenario, with the processes around it.
class ScenarioRun {
 public:
  // Carries out the command. Returns the lines that describe its effects.
  std::vector<std::string> Do(const ScenarioCommand& command);

 private:
  using Action = void (ScenarioRun::*)(const ScenarioCommand&);
  static const std::map<std::string, Action, std::less<>>& Actions();

  struct Stream {
    ControlStreamId id = 0;
    uint32_t shard = 0;
    std::vector<CommandShard> commands{};
    protocol::ShardHealthReport health{.results_from = 1};
  };
  struct Worker {
    uint64_t call = 0;
    protocol::JoinGrant grant;
    protocol::WorkerHeartbeat last;
  };

  void Job(const ScenarioCommand& command);
  void Restart(const ScenarioCommand& command);
  void Start(const ScenarioCommand& command);
  void Join(const ScenarioCommand& command);
  void Cancel(const ScenarioCommand& command);
  void Attach(const ScenarioCommand& command);
  void Acknowledge(const ScenarioCommand& command);
  void Detach(const ScenarioCommand& command);
  void Beat(const ScenarioCommand& command);
  void Health(const ScenarioCommand& command);
  void Leave(const ScenarioCommand& command);
  void Part(const ScenarioCommand& command);
  void Parts(const ScenarioCommand& command);
  void Examined(const ScenarioCommand& command);
  void Named(const ScenarioCommand& command);
  void Written(const ScenarioCommand& command);
  void Request(const ScenarioCommand& command);
  void Differs(const ScenarioCommand& command);
  void Refuses(const ScenarioCommand& command);
  void Fail(const ScenarioCommand& command);
  void Tick(const ScenarioCommand& command);
  void Pass(const ScenarioCommand& command);
  void Status(const ScenarioCommand& command);

  void Create();
  void JoinRank(uint32_t rank, protocol::WorkerJoin join, const std::string& label);
  void AttachShard(const protocol::ShardArrival& arrival, const std::string& label);
  void AcknowledgeNewest(const std::string& label);
  void Reach(const std::string& reporter, uint64_t step);
  void Report(const std::string& reporter);
  void SendPart(bool of_worker, const std::string& sender, protocol::CheckpointPart part);
  // Returns the labels of the newest stream of each shard and of the newest worker of each rank.
  std::vector<std::string> Present() const;
  Stream& StreamOf(const std::string& label);
  Worker& WorkerOf(const std::string& label);
  uint64_t NewCall(std::string label);
  // Adds a line. The reason why the job failed is printed once, with the state.
  void Print(std::string line);
  // Prints the effects and the changes of the state, and remembers what later commands need.
  void Collect();
  void Remember(CoordinatorEffect effect);
  void PrintState();

  absl::Time now_ = absl::UnixEpoch();
  CoordinatorOptions options_;
  std::unique_ptr<Coordinator> coordinator_;
  CoordinatorEffects effects_;
  EffectNames names_;
  uint64_t calls_ = 0;
  std::map<uint64_t, std::string> waiting_;  // Calls without an answer, and their labels.
  std::map<std::string, Stream> streams_;
  std::map<std::string, Worker> workers_;
  protocol::RunRecord record_;
  std::map<uint64_t, protocol::CheckpointManifest> written_;  // Not yet known to be durable.
  std::map<uint64_t, protocol::CheckpointManifest> complete_;
  std::string state_;  // The state that was printed last.
  std::vector<std::string> lines_;
};

}  // namespace sluice::server
